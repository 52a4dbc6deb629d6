"""Trained checkpoints as Keras models that answer for a `Predictor`."""

from bert_tf.inference.kinds import find
from bert_tf.inference.serving_models import (
    TrainedModel,
    find_length,
    make_model,
)
from bert_tf.system.type_names import Model
from bert_tf.tasks.base.models.preprocessing import make_preprocessor
from bert_tf.tasks.base.serving.kind import PAIR, SINGLE
from bert_tf.tasks.base.serving.metadata import Metadata
from bert_tf.tasks.question_answering.features import check_room


def make_keras_model(
    trained: TrainedModel, max_seq_length: int = 0, pair: bool | None = None
) -> tuple[Model, Metadata]:
    """Makes the Keras model of a checkpoint, ready for inference.

    Args:
      trained: a checkpoint whose kind has methods of `Predictor`.
      max_seq_length: maximum length of a row; 0: as in training, or all positions.
      pair: whether rows hold two texts; None: as in training.

    Returns:
      The model, and the metadata that a `Predictor` needs.
    """
    checkpoint, kind, folder = trained
    length = find_length(checkpoint, folder, max_seq_length, kind)
    options = find(kind).recorded(checkpoint, folder)
    inputs = options.get("texts", find(kind).inputs)
    if pair is not None:
        inputs = PAIR if pair else SINGLE
    if kind == "embeddings":
        model = make_model(checkpoint, kind, max_seq_length=length)
    else:
        model = make_model(checkpoint, kind)
        # The length of predictions may differ from that of the training.
        model.preprocessor = make_preprocessor(checkpoint, length)
    if kind == "reranker":
        model.activation = options["activation"]
    model.bert.prepare_for_inference()  # A predictor never trains.
    if kind == "question_answering":
        check_room(trained.vocab, length, model.reading.doc_stride, model.reading.max_query_length)
    metadata = {
        "kind": kind,
        "labels": options.get("labels", ()),
        "inputs": inputs,
        "max_seq_length": length,
    }
    return model, metadata
