"""Reads SQuAD's paragraphs from the official JSON, or from TensorFlow Datasets."""

import os
from collections.abc import Iterator
from typing import Any

from bert_tf.files import read_json_data

TFDS = "tfds:"


def read_paragraphs(path: str | os.PathLike) -> Iterator[tuple[Any, str]]:
    """Yields each paragraph in the form of the official JSON, and where it stands for messages.

    Args:
      path: a JSON file, or tfds:NAME[:SPLIT], such as tfds:squad/v2.0:validation.

    Raises:
      ValueError: if it is no such JSON, or the data set cannot be prepared.
    """
    if str(path).startswith(TFDS):
        yield from _tfds_paragraphs(str(path).removeprefix(TFDS))
        return
    for number, article in enumerate(field(read_json_data(path), "data", list, str(path))):
        where = f"{path}, data[{number}]"
        for index, paragraph in enumerate(field(article, "paragraphs", list, where)):
            yield paragraph, f"{where}.paragraphs[{index}]"


def _tfds_paragraphs(name: str) -> Iterator[tuple[Any, str]]:
    """Yields a paragraph a question: TFDS repeats the context with each."""
    from bert_tf.data.tables import read_tfds_table  # loads tensorflow_datasets

    for where, row in read_tfds_table(name):
        answers = field(row, "answers", dict, where)
        pairs = zip(answers["text"], answers["answer_start"], strict=True)
        question = {
            "id": row.get("id"),
            "question": row.get("question"),
            "answers": [{"text": _text(text), "answer_start": int(start)} for text, start in pairs],
        }
        if "is_impossible" in row:
            question["is_impossible"] = bool(row["is_impossible"])
        yield {"context": row.get("context"), "qas": [question]}, where


def _text(value: Any) -> str:
    return value.decode("utf8") if isinstance(value, bytes) else str(value)


def field(values: Any, key: str, kind: type, where: str) -> Any:
    """Returns a field that must be there.

    Raises:
      ValueError: if it is missing or of another kind.
    """
    if not isinstance(values, dict):
        raise ValueError(f"{where}: received {values!r:.80}, expected an object with {key!r}.")
    if key not in values:
        raise ValueError(f"{where}: no {key!r}, expected a {kind.__name__}; is this SQuAD's JSON?")
    if not isinstance(values[key], kind):
        raise ValueError(f"{where}: {key!r} is {values[key]!r:.80}, expected a {kind.__name__}.")
    return values[key]
