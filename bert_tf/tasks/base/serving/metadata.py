"""Checks the metadata of exported models, bert_tf.json, which may come from untrusted sources."""

import math
import os
from collections.abc import Sequence
from typing import Any, TypeGuard

from bert_tf.system.bounded_files import parse_json

Metadata = dict[str, Any]
CARD_NAME = "bert_tf.json"

# Ranks of the outputs of text functions, by kind; other kinds are not checked.
TEXT_OUTPUTS = {
    "classifier": {"label": 1, "score": 1, "probabilities": 2},
    "multi_label": {"labels": 2, "probabilities": 2},
    "regression": {"value": 1},
    "tagger": {"tags": 2, "scores": 2, "starts": 2, "ends": 2},
    "question_answering": {
        **dict.fromkeys(("answer", "start", "end"), 1),
        **dict.fromkeys(("score", "null_odds", "probability"), 1),
    },
    "fill_mask": {"pieces": 3, "probabilities": 3},
    "next_sentence": {"is_next": 1},
    "embeddings": {"embedding": 2},
    "late_interaction": {"vectors": 3, "scored": 2},
}
# Ranks of the outputs of LiteRT files, which take token ids, of all kinds that have this form.
ROW_OUTPUTS = {
    "classifier": {"probabilities": 2},
    "multi_label": {"probabilities": 2},
    "regression": {"value": 1},
    "zero_shot": {"entailment": 1},
    "tagger": {"probabilities": 3},
    "question_answering": {"start_logits": 2, "end_logits": 2},
    "reranker": {"logits": 2, "scores": 1},
    "embeddings": {"embedding": 2},
    "encoder": {"sequence_output": 3},
}
# Ranks of the outputs of ONNX files, which take token ids and have names that others expect.
ONNX_OUTPUTS = {
    **dict.fromkeys(("classifier", "multi_label", "regression", "zero_shot"), {"logits": 2}),
    "tagger": {"logits": 3},
    "question_answering": {"start_logits": 2, "end_logits": 2},
    "reranker": {"logits": 2, "scores": 1},
    "fill_mask": {"logits": 3},
    "splade": {"sentence_embedding": 2},
    "next_sentence": {"logits": 2},
    "embeddings": {"last_hidden_state": 3, "sentence_embedding": 2},
    "late_interaction": {"token_embeddings": 3, "scoring_mask": 2},
    "encoder": {"last_hidden_state": 3},
}
# Outputs of LiteRT files that a model may lack.
OPTIONAL_ROW_OUTPUTS = {"zero_shot": ("contradiction",), "encoder": ("pooled_output",)}
CLASS_KINDS = ("classifier", "multi_label", "tagger")

REQUIRED = ("kind", "inputs", "labels", "max_seq_length", "do_lower_case")
TEXTS = (
    *("kind", "long_texts", "mask", "source", "quantize", "activation", "store"),
    *("prompt", "query_prompt", "document_prompt", "side", "similarity"),
)
FLAGS = ("do_lower_case", "text_input", "lower_case_texts", "version_2")
COUNTS = (
    "max_seq_length",
    "vocab_size",
    "top_k",
    "doc_stride",
    "max_query_length",
    "n_best_size",
    "max_answer_length",
)
LISTS_OF_TEXTS = ("inputs", "labels", "signatures", "outputs", "lists")
MAX_INPUTS = 3
LARGEST_COUNT = 1 << 31


def parse_metadata(content: bytes, source: str | os.PathLike) -> Metadata:
    """Parses and checks a bert_tf.json."""
    return check_metadata(parse_json(content, source), source)


def check_metadata(values: object, source: str | os.PathLike) -> Metadata:
    """Returns the metadata after checking the types and ranges of its fields.

    Raises:
      ValueError: naming the first wrong field.
    """
    if not isinstance(values, dict):
        raise ValueError(
            f"{source} must contain a JSON object, but contains a {type(values).__name__}; export "
            "the model again."
        )
    missing = [name for name in REQUIRED if name not in values]
    if missing:
        raise ValueError(f"{source} lacks {', '.join(missing)}; export the model again.")
    expectations = [
        (TEXTS, _is_text, "a string"),
        (FLAGS, lambda value: isinstance(value, bool), "true or false"),
        (COUNTS, _is_count, "a whole number from 1"),
        (LISTS_OF_TEXTS, _is_list_of_texts, "a list of strings"),
        (("numbers",), _is_numbers, "an object of whole numbers"),
        (("options",), lambda value: isinstance(value, dict), "an object"),
        (("null_score_diff_threshold",), _is_number, "a finite number"),
        (("temperature",), lambda value: _is_number(value) and value > 0, "a number above 0"),
        (("thresholds",), _are_probabilities, "an object of numbers from 0 to 1"),
    ]
    for names, is_valid, expected in expectations:
        for name in names:
            if name in values and not is_valid(values[name]):
                raise _unexpected(source, name, values[name], expected)
    for name in ("index", "rerank", "precision"):
        if not _is_text(values.get("options", {}).get(name, "")):
            raise _unexpected(source, f"options.{name}", values["options"][name], "a string")
    inputs = values["inputs"]
    if not 0 < len(inputs) <= MAX_INPUTS or len(set(inputs)) < len(inputs):
        raise _unexpected(source, "inputs", inputs, f"1 to {MAX_INPUTS} different names")
    unknown = sorted(set(values.get("thresholds", ())) - set(values["labels"]))
    if unknown:
        raise _unexpected(source, "thresholds", unknown, "some of the labels")
    unknown = sorted(set(values.get("lists", ())) - set(inputs))
    if unknown:
        raise _unexpected(source, "lists", unknown, f"some of the inputs {inputs}")
    return values


def check_outputs(
    metadata: Metadata,
    shapes: dict[str, Sequence[int | None]],
    ranks: dict[str, dict[str, int]],
    source: str | os.PathLike,
) -> None:
    """Checks that a model has the outputs that its metadata describes.

    Args:
      shapes: shapes of the model's outputs, by name; () for an unknown shape, None or -1 for any
        size.
      ranks: `TEXT_OUTPUTS`, `ROW_OUTPUTS` or `ONNX_OUTPUTS`.

    Raises:
      ValueError: if an output is missing or has another rank, or the number of labels differs.
    """
    kind = metadata["kind"]
    labels = metadata["labels"]
    for name, rank in ranks.get(kind, {}).items():
        if name not in shapes:
            raise ValueError(
                f"{source} has the kind {kind}, as bert_tf.json says, but the model has no "
                f"output {name}; export it again."
            )
        shape = shapes[name]
        if len(shape) not in (0, rank):
            raise ValueError(
                f"{source} has the kind {kind}, as bert_tf.json says, but the model's "
                f"output {name} has {len(shape)} axes, expected {rank}; export it again."
            )
        counts_classes = len(shape) > 0 and name in ("probabilities", "logits")
        num_classes = shape[-1] if counts_classes else None
        is_known = kind in CLASS_KINDS and num_classes is not None and num_classes >= 0
        if is_known and num_classes != len(labels):
            raise ValueError(
                f"{source}: bert_tf.json names {len(labels)} labels, but the model has "
                f"{num_classes} classes; export it again."
            )


def _unexpected(source: str | os.PathLike, name: str, value: object, expected: str) -> ValueError:
    shown = repr(value)
    if len(shown) > 100:
        shown = f"{shown[:100]}..."
    return ValueError(f"{source}: {name} is {shown}, expected {expected}; export the model again.")


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_whole(value: object) -> TypeGuard[int]:
    # bool is a subclass of int.
    return isinstance(value, int) and not isinstance(value, bool)


def _is_count(value: object) -> bool:
    return _is_whole(value) and 0 < value < LARGEST_COUNT


def _is_number(value: object) -> TypeGuard[int | float]:
    if isinstance(value, float):
        return math.isfinite(value)
    return _is_whole(value) and abs(value) < LARGEST_COUNT


def _are_probabilities(value: object) -> bool:
    if not isinstance(value, dict):
        return False
    return all(_is_number(number) and 0 <= number <= 1 for number in value.values())


def _is_list_of_texts(value: object) -> bool:
    return isinstance(value, list) and all(map(_is_text, value))


def _is_numbers(value: object) -> bool:
    if not isinstance(value, dict):
        return False
    return all(_is_whole(number) and abs(number) < LARGEST_COUNT for number in value.values())
