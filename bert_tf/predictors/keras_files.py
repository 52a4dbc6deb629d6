"""Models saved by Keras, with the tokenizer inside: `model.save("mine.keras")`."""

import pathlib
from typing import Any

import keras

from bert_tf.modeling.encoder import BertEncoder
from bert_tf.modeling.models import (
    BertClassifier,
    BertPretrainer,
    BertSpanLabeler,
    BertTokenClassifier,
)
from bert_tf.modeling.multiple_choice import BertMultipleChoice
from bert_tf.modeling.preprocessor import BertPreprocessor
from bert_tf.served.model import PAIR, Served
from bert_tf.served.models import CLASSES, OF_LABEL_KIND

KINDS: dict[type, tuple[str, ...]] = {
    BertClassifier: ("classifier", "multi_label", "regression"),
    BertTokenClassifier: ("tagger",),
    BertSpanLabeler: ("question_answering",),
    BertPretrainer: ("fill_mask", "next_sentence"),
    BertMultipleChoice: ("regression",),
    BertEncoder: ("embeddings",),
}
WITH_LABELS = ("classifier", "multi_label", "tagger")


def serve_keras_file(path: pathlib.Path, kind: str = "", **options: Any) -> Served:
    """Makes the served model of a .keras file.

    Args:
      path: the file: a model of `bert_tf.modeling` with a preprocessor, or a functional model of
        both.
      kind: if it may be served as several; "": the first.
      options: of the class that serves the kind.

    Raises:
      ValueError: if it cannot be read, or lacks the tokenizer.
    """
    try:
        model = keras.models.load_model(path, compile=False)
    except (OSError, ValueError, TypeError, KeyError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ValueError(f"{path} is no readable Keras model: {reason}") from None
    layers = [model, *model._flatten_layers(include_self=False)]
    ours = next((layer for layer in layers if isinstance(layer, tuple(KINDS))), None)
    preprocessor = getattr(ours, "preprocessor", None)
    if preprocessor is None:
        preprocessor = next((x for x in layers if isinstance(x, BertPreprocessor)), None)
    if ours is None or preprocessor is None:
        lacking = "a model of bert_tf" if ours is None else "a tokenizer"
        raise ValueError(
            f"{path} holds no {lacking.removeprefix('a ')}; save a model of bert_tf that has a "
            "preprocessor."
        )
    kinds = next(kinds for known, kinds in KINDS.items() if isinstance(ours, known))
    num_labels = getattr(ours, "num_labels", 0)
    if not kind and isinstance(ours, BertClassifier):
        guess = "number" if num_labels == 1 else "class"
        kind = OF_LABEL_KIND[getattr(ours, "label_kind", guess)]
    kind = kind or kinds[0]
    if kind not in kinds:
        raise ValueError(f"{path} cannot serve as {kind}; it can as {', '.join(kinds)}.")
    if kind in WITH_LABELS:
        labels = getattr(ours, "labels", None) or tuple(map(str, range(num_labels)))
        options = {"labels": tuple(labels), **options}
    if getattr(ours, "long_texts", "") == "tail":
        options = {"keep_tail": True, **options}
    if isinstance(ours, BertMultipleChoice):
        options = {"texts": PAIR, **options}
    if reading := getattr(ours, "reading", None):  # How it cuts contexts in windows.
        numbers = {"doc_stride": reading.doc_stride, "max_query_length": reading.max_query_length}
        options = {**numbers, **options}
    encoder: Any = getattr(ours, "bert", ours)
    encoder.prepare_for_inference()
    return CLASSES[kind](
        ours,
        preprocessor.vocab,
        preprocessor.do_lower_case,
        options.pop("max_seq_length", 0) or preprocessor.max_seq_length,
        **options,
    )
