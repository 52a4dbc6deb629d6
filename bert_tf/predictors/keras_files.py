"""Predictors for Keras files with a tokenizer: `model.save("mine.keras")`."""

import pathlib
from typing import Any

import keras
from absl import logging

from bert_tf.bounded_files import check_keras_file
from bert_tf.modeling.embedder import BertEmbedder
from bert_tf.modeling.encoder import BertEncoder
from bert_tf.modeling.models import (
    BertClassifier,
    BertPretrainer,
    BertSpanLabeler,
    BertTokenClassifier,
)
from bert_tf.modeling.multiple_choice import BertMultipleChoice
from bert_tf.modeling.pooling import pool_tokens
from bert_tf.modeling.preprocessor import BertPreprocessor
from bert_tf.served.model import IDS, PAIR, Served
from bert_tf.served.models import (
    OF_LABEL_KIND,
    SQUAD_NUMBERS,
    WINDOWS_LOST,
    class_of,
    prompt_options,
)

KINDS: dict[type, tuple[str, ...]] = {
    BertClassifier: ("classifier", "multi_label", "regression"),
    BertTokenClassifier: ("tagger",),
    BertSpanLabeler: ("question_answering",),
    BertPretrainer: ("fill_mask", "next_sentence"),
    BertMultipleChoice: ("regression",),
    BertEmbedder: ("embeddings",),
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
    check_keras_file(path)
    try:
        model = keras.models.load_model(path, compile=False)
    except (OSError, ValueError, TypeError, KeyError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ValueError(f"{path} is not a readable Keras model: {reason}") from None
    layers = [model, *model._flatten_layers(include_self=False)]
    ours = next((layer for layer in layers if isinstance(layer, tuple(KINDS))), None)
    preprocessor = getattr(ours, "preprocessor", None)
    if preprocessor is None:
        preprocessor = next((x for x in layers if isinstance(x, BertPreprocessor)), None)
    if isinstance(ours, BertEmbedder) and ours.vocab is not None:
        length = ours.embedding.max_seq_length
        preprocessor = BertPreprocessor(ours.vocab, ours.config.do_lower_case, length)
    if ours is None or preprocessor is None:
        lacking = "a model of bert_tf" if ours is None else "a tokenizer"
        raise ValueError(
            f"{path} holds no {lacking.removeprefix('a ')}; save a model of bert_tf that has a "
            "preprocessor."
        )
    num_labels = getattr(ours, "num_labels", 0)
    kinds = possible_kinds(ours)
    if not kind and isinstance(ours, BertClassifier):
        guess = "number" if num_labels == 1 else "class"
        kind = OF_LABEL_KIND[getattr(ours, "label_kind", guess)]
    kind = kind or kinds[0]
    if kind not in kinds:
        raise ValueError(f"{path} cannot serve as {kind}; it can as {', '.join(kinds)}.")
    if kind in WITH_LABELS:
        labels = getattr(ours, "labels", None) or tuple(map(str, range(num_labels)))
        options = {"labels": tuple(labels), **options}
    long_texts = getattr(ours, "long_texts", "head")
    if long_texts == "windows":
        logging.warning("%s: %s", path, WINDOWS_LOST)
    if long_texts == "tail":
        options = {"keep_tail": True, **options}
    if isinstance(ours, BertMultipleChoice) or kind == "next_sentence":
        options = {"texts": PAIR, **options}
    if isinstance(ours, BertEmbedder):
        options = {**prompt_options(ours, ""), **options}
    if isinstance(ours, BertSpanLabeler):
        options = {**_reading_options(ours), **options}
    encoder: Any = getattr(ours, "bert", ours)
    encoder.prepare_for_inference()
    length = options.pop("max_seq_length", 0) or preprocessor.max_seq_length
    if length > encoder.config.longest_row:
        raise ValueError(
            f"max_seq_length is {length}; the model in {path} has {encoder.config.longest_row} "
            "positions."
        )
    return class_of(kind, ours)(
        _on_rows(ours), preprocessor.vocab, preprocessor.do_lower_case, length, **options
    )


def possible_kinds(model: Any) -> tuple[str, ...]:
    """Returns the kinds as which a model of bert_tf may be served; the first by default."""
    kinds = next(kinds for known, kinds in KINDS.items() if isinstance(model, known))
    lacking = []
    if isinstance(model, BertClassifier) and model.num_labels != 1:
        lacking.append("regression")
    if isinstance(model, BertPretrainer) and not model.use_next_sentence:
        lacking.append("next_sentence")
    return tuple(kind for kind in kinds if kind not in lacking)


def _reading_options(model: BertSpanLabeler) -> dict[str, Any]:
    """Returns how a model cuts contexts in windows and chooses answers."""
    reading = model.reading
    return {
        **{name: getattr(reading, name) for name in SQUAD_NUMBERS},
        "version_2": reading.version_2_with_negative,
        "null_score_diff_threshold": reading.null_score_diff_threshold,
    }


def _on_rows(model: Any) -> Any:
    """Returns what is called on rows of ids: the model, or what makes one of it."""
    if isinstance(model, BertMultipleChoice):  # A row is the only choice of its question.

        def score(batch: dict[str, Any], training: bool = False) -> Any:
            return model({name: batch[name][:, None] for name in IDS}, training=training)

        return score
    if isinstance(model, BertEncoder):

        def embed(batch: dict[str, Any], training: bool = False) -> Any:
            encoded = model(batch, training=training)["sequence_output"]
            return pool_tokens(encoded, batch["input_mask"], "mean")

        return embed
    return model
