"""Trained checkpoints as Keras models that answer for a `Predictor`."""

from typing import Any

from bert_tf.inference.serving_models import (
    TrainedModel,
    find_length,
    make_model,
    recorded_options,
)
from bert_tf.models.with_preprocessor import make_preprocessor
from bert_tf.serving.kind import PAIR, SINGLE
from bert_tf.tasks.question_answering.features import check_room

# Kinds whose Keras model has the methods of a `Predictor`.
KERAS_KINDS = (
    "classifier",
    "multi_label",
    "regression",
    "multiple_choice",
    "tagger",
    "question_answering",
    "fill_mask",
    "next_sentence",
)


def make_keras_model(
    trained: TrainedModel, max_seq_length: int = 0, pair: bool | None = None
) -> tuple[Any, dict[str, Any]]:
    """Makes the Keras model of a checkpoint, ready for inference.

    Args:
      trained: a checkpoint whose kind is one of `KERAS_KINDS`.
      max_seq_length: maximum length of a row; 0: as in training, or all positions.
      pair: whether rows hold two texts; None: as in training.

    Returns:
      The model, and the metadata that a `Predictor` needs.
    """
    checkpoint, kind, folder = trained
    length = find_length(checkpoint, folder, max_seq_length, kind)
    options = recorded_options(checkpoint, kind, folder)
    inputs = options.get("texts", SINGLE)
    if pair is not None:
        inputs = PAIR if pair else SINGLE
    model = make_model(checkpoint, kind)
    model.preprocessor = make_preprocessor(checkpoint, length)
    model.bert.prepare_for_inference()
    if kind == "question_answering":
        inputs = ("question", "context")
        check_room(trained.vocab, length, model.reading.doc_stride, model.reading.max_query_length)
    metadata = {
        "kind": kind,
        "labels": options.get("labels", ()),
        "inputs": inputs,
        "max_seq_length": length,
    }
    return model, metadata
