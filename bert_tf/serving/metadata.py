"""Checks the metadata of exported models, bert_tf.json: files that anyone may have written."""

import math
import os
from collections.abc import Sequence
from typing import Any

from bert_tf.bounded_files import parse_json

Metadata = dict[str, Any]
CARD_NAME = "bert_tf.json"

# Outputs of the functions of texts and their ranks, by kind; other kinds are not checked.
TEXT_OUTPUTS = {
    "classifier": {"label": 1, "score": 1, "probabilities": 2},
    "multi_label": {"labels": 2, "probabilities": 2},
    "regression": {"value": 1},
    "tagger": {"tags": 2, "scores": 2, "starts": 2, "ends": 2},
    "question_answering": {"answer": 1, "start": 1, "end": 1, "score": 1, "null_odds": 1},
    "fill_mask": {"pieces": 3, "probabilities": 3},
    "next_sentence": {"is_next": 1},
    "embeddings": {"embedding": 2},
}
# The same of LiteRT files, which take rows of ids.
ROW_OUTPUTS = {
    "classifier": {"probabilities": 2},
    "multi_label": {"probabilities": 2},
    "regression": {"value": 1},
    "tagger": {"probabilities": 3},
    "question_answering": {"start_logits": 2, "end_logits": 2},
    "embeddings": {"embedding": 2},
    "encoder": {"sequence_output": 3},
}
OF_CLASSES = ("classifier", "multi_label", "tagger")

REQUIRED = ("kind", "inputs", "labels", "max_seq_length", "do_lower_case")
TEXTS = (
    *("kind", "long_texts", "mask", "source", "quantize", "activation", "store"),
    *("prompt", "query_prompt", "document_prompt"),
)
FLAGS = ("do_lower_case", "keep_tail", "text_input", "lower_case_texts", "version_2")
COUNTS = (
    *("max_seq_length", "vocab_size", "top_k"),
    *("doc_stride", "max_query_length", "n_best_size", "max_answer_length"),
)
LISTS_OF_TEXTS = ("inputs", "labels", "signatures", "outputs", "lists")
MOST_INPUTS = 3
LARGEST_COUNT = 1 << 31


def parse_metadata(content: bytes, source: str | os.PathLike) -> Metadata:
    """Returns the metadata in the content of a bert_tf.json.

    Args:
      content: of the file.
      source: the file, for messages.

    Raises:
      ValueError: if it is not JSON, or a field has another type or range than exports write.
    """
    return check_metadata(parse_json(content, source), source)


def check_metadata(values: Any, source: str | os.PathLike) -> Metadata:
    """Returns metadata whose fields have the types and ranges that exports write.

    Raises:
      ValueError: naming the field that does not.
    """
    if not isinstance(values, dict):
        raise ValueError(
            f"{source} must hold a JSON object, but holds a {type(values).__name__}; export the "
            "model again."
        )
    missing = [name for name in REQUIRED if name not in values]
    if missing:
        raise ValueError(f"{source} lacks {', '.join(missing)}; export the model again.")
    expectations = [
        (TEXTS, _is_text, "a string"),
        (FLAGS, _is_flag, "true or false"),
        (COUNTS, _is_count, "a whole number from 1"),
        (LISTS_OF_TEXTS, _is_list_of_texts, "a list of strings"),
        (("numbers",), _is_numbers, "an object of whole numbers"),
        (("options",), _is_object, "an object"),
        (("null_score_diff_threshold",), _is_number, "a finite number"),
    ]
    for names, is_right, expected in expectations:
        for name in names:
            if name in values and not is_right(values[name]):
                raise _unexpected(source, name, values[name], expected)
    for name in ("index", "rerank", "precision"):
        if not _is_text(values.get("options", {}).get(name, "")):
            raise _unexpected(source, f"options.{name}", values["options"][name], "a string")
    inputs = values["inputs"]
    if not 0 < len(inputs) <= MOST_INPUTS or len(set(inputs)) < len(inputs):
        raise _unexpected(source, "inputs", inputs, f"1 to {MOST_INPUTS} different names")
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
    """Checks that a model has the outputs that its metadata announce.

    Args:
      metadata: of `check_metadata`.
      shapes: of the model's outputs, by name; () for an unknown one, None or -1 for any size.
      ranks: `TEXT_OUTPUTS` or `ROW_OUTPUTS`.
      source: the model, for messages.

    Raises:
      ValueError: if an output is missing or has another rank, or there is another number of labels.
    """
    kind = metadata["kind"]
    labels = metadata["labels"]
    for name, rank in ranks.get(kind, {}).items():
        if name not in shapes:
            raise ValueError(
                f"{source} is a {kind} as bert_tf.json says, but the model has no output {name}; "
                "export it again."
            )
        shape = shapes[name]
        if len(shape) not in (0, rank):
            raise ValueError(
                f"{source} is a {kind} as bert_tf.json says, but the model's output {name} has "
                f"{len(shape)} axes, expected {rank}; export it again."
            )
        num_classes = shape[-1] if len(shape) and name == "probabilities" else None
        is_known = kind in OF_CLASSES and num_classes is not None and num_classes >= 0
        if is_known and num_classes != len(labels):
            raise ValueError(
                f"{source}: bert_tf.json names {len(labels)} labels, but the model has "
                f"{num_classes} classes; export it again."
            )


def _unexpected(source: str | os.PathLike, name: str, value: Any, expected: str) -> ValueError:
    shown = repr(value)
    shown = shown if len(shown) <= 100 else f"{shown[:100]}..."
    return ValueError(f"{source}: {name} is {shown}, expected {expected}; export the model again.")


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _is_object(value: Any) -> bool:
    return isinstance(value, dict)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_count(value: Any) -> bool:
    return _is_whole(value) and 0 < value < LARGEST_COUNT


def _is_number(value: Any) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    return _is_whole(value) and abs(value) < LARGEST_COUNT


def _is_list_of_texts(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_text, value))


def _is_numbers(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    return all(_is_whole(number) and abs(number) < LARGEST_COUNT for number in value.values())
