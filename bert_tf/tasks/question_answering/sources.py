"""Reads SQuAD's paragraphs from the official JSON, Hugging Face's rows, or TensorFlow Datasets.

    {"data": [{"paragraphs": [{"context": ..., "qas": [...]}]}]}              the official format
    {"id": ..., "context": ..., "question": ..., "answers": {"text": [...], "answer_start": [...]}}
                                                                              one question per row

    {"header": ...}, then {"context": ..., "qas": [{"qid", "question", "detected_answers"}]}   MRQA

Rows are in "data", in a list, or on a line each (JSONL). If there is no answer, both lists are
empty, and `is_impossible` is true by default.
"""

import json
import os
import pathlib
from collections.abc import Iterator
from typing import Any

from bert_tf.corpus.corpus_format import COMPRESSED, open_decompressed
from bert_tf.corpus.text_lines import MAX_LINE_BYTES
from bert_tf.system.files import read_json_data
from bert_tf.tasks.base.examples.row_errors import RowError
from bert_tf.tasks.base.examples.tables import read_json_rows

TFDS = "tfds:"
# Other data sets of questions, by a key that SQuAD's lack.
OTHER_DATA = {
    "qa_pairs": "DROP",
    "answers_spans": "DROP",
    "Data": "TriviaQA",
    "supporting_facts": "HotpotQA",
    "story": "CoQA",
    "document_text": "Natural Questions",
    "passage": "BoolQ or DROP",
}


def read_paragraphs(path: str | os.PathLike) -> Iterator[tuple[Any, str]]:
    """Yields each paragraph in the official format, and its location for messages.

    Args:
      path: a JSON file, or tfds:NAME[:SPLIT], such as tfds:squad/v2.0:validation.
    """
    if str(path).startswith(TFDS):
        yield from _tfds_paragraphs(str(path).removeprefix(TFDS))
        return
    if _holds_rows(path):
        for where, row in read_json_rows(str(pathlib.Path(path).expanduser())):
            if set(row) == {"header"}:
                continue  # The first line of MRQA's files.
            yield from _paragraphs_of(row, where)
        return
    values = read_json_data(path)
    _check_data(values, str(path))
    if "data" not in values and "context" in values:  # JSONL of one line
        yield from _paragraphs_of(values, str(path))
        return
    for number, article in enumerate(field(values, "data", list, str(path))):
        yield from _paragraphs_of(article, f"{path}, data[{number}]")


def _holds_rows(path: str | os.PathLike) -> bool:
    """Returns whether a file has a list, or a JSON object on each of several lines."""
    if pathlib.PurePath(path).suffix.lower() in (".jsonl", *COMPRESSED):
        return True
    with open_decompressed(str(pathlib.Path(path).expanduser())) as file:
        # No row is longer: such a line is a document, or too large for both.
        lines = filter(bytes.strip, iter(lambda: file.readline(MAX_LINE_BYTES + 1), b""))
        first = next(lines, b"").decode("utf-8-sig", errors="replace").strip()
        has_more = next(lines, None) is not None
    if first.startswith("["):
        return True
    # The official JSON is one object, on one line or indented: its first line alone is not JSON.
    if not has_more or not first.endswith("}"):
        return False
    try:
        return isinstance(json.loads(first), dict)
    except (ValueError, RecursionError):
        return False


def _paragraphs_of(row: Any, where: str) -> Iterator[tuple[Any, str]]:
    """Yields the paragraphs of an article, a paragraph, or a question with its context."""
    _check_data(row, where)
    if isinstance(row, dict) and "context" in row and "question" in row:
        yield {"context": row["context"], "qas": [_question(row, where)]}, where
    elif isinstance(row, dict) and "context" in row and "qas" in row:
        yield _with_listed_answers(row, where), where
    elif isinstance(row, dict) and "data" in row:
        # The official format on a single line of a compressed file.
        for number, article in enumerate(field(row, "data", list, where)):
            yield from _paragraphs_of(article, f"{where}, data[{number}]")
    else:
        for index, paragraph in enumerate(field(row, "paragraphs", list, where)):
            location = f"{where}.paragraphs[{index}]"
            yield _with_listed_answers(paragraph, location), location


def _check_data(values: Any, where: str) -> None:
    """Raises ValueError for an object of another known data set, also for a dict of such."""
    objects = [values] if isinstance(values, dict) else []
    if objects and len(values) and isinstance(first := next(iter(values.values())), dict):
        objects.append(first)
    for named in objects:
        for key, name in OTHER_DATA.items():
            if key in named:
                raise ValueError(
                    f"{where} has {key!r}, as {name}; expected SQuAD's JSON: convert its questions "
                    'to rows of {"id", "context", "question", "answers": {"text", "answer_start"}}.'
                )


def _with_listed_answers(paragraph: Any, where: str) -> Any:
    """Returns a paragraph whose answers are lists of objects, as in the official format."""
    questions = paragraph.get("qas") if isinstance(paragraph, dict) else None
    if not isinstance(questions, list):
        # An error, which the reader of the official format reports.
        return paragraph
    converted = []
    for question in questions:
        if isinstance(question, dict) and "detected_answers" in question:
            question = _mrqa_question(question, where)
        elif isinstance(question, dict) and isinstance(question.get("answers"), dict):
            question = _question(question, where)
        converted.append(question)
    return {**paragraph, "qas": converted}


def _mrqa_question(question: dict[str, Any], where: str) -> dict[str, Any]:
    """Converts a question of MRQA: {"qid", "question", "detected_answers": [{"char_spans"}]}."""
    answers = []
    for answer in field(question, "detected_answers", list, where):
        for start, _ in field(answer, "char_spans", list, where):
            answers.append({"text": field(answer, "text", str, where), "answer_start": start})
    named = {"id": question.get("qid"), "question": question.get("question")}
    return {**named, "answers": answers, "is_impossible": not answers}


def _question(row: dict[str, Any], where: str) -> dict[str, Any]:
    """Converts the question of a row to the official format."""
    # Other keys may say that the annotation was rejected.
    question = {name: value for name, value in row.items() if name != "context"}
    if question.get("is_impossible", False) is None:
        del question["is_impossible"]
    answers = row.get("answers")
    if isinstance(answers, dict):
        texts = field(answers, "text", list, f"{where}, answers")
        starts = field(answers, "answer_start", list, f"{where}, answers")
        if len(texts) != len(starts):
            raise ValueError(
                f"{where}, answers: {len(texts)} texts, but {len(starts)} in 'answer_start'; "
                "expected one for each."
            )
        answers = []
        for text, start in zip(texts, starts, strict=True):
            answers.append({"text": text, "answer_start": start})
    if answers is not None:
        question["answers"] = answers
        question.setdefault("is_impossible", answers == [])
    return question


def _tfds_paragraphs(name: str) -> Iterator[tuple[Any, str]]:
    """Yields a paragraph for each question: TFDS repeats the context with every question."""
    # Imported here because it loads tensorflow_datasets.
    from bert_tf.tasks.base.examples.tables import read_tfds_table

    for where, row in read_tfds_table(name):
        given = field(row, "answers", dict, where)
        answers = {
            "text": list(map(_text, given["text"])),
            "answer_start": list(map(int, given["answer_start"])),
        }
        question = _question({**row, "answers": answers}, where)
        if "is_impossible" not in row:
            question.pop("is_impossible")
        yield {"context": row.get("context"), "qas": [question]}, where


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode("utf8")
    return str(value)


def field(values: Any, key: str, kind: type, where: str) -> Any:
    """Returns a required field; RowError if it is missing or has another type."""
    if not isinstance(values, dict):
        raise RowError(f"{where}: received {values!r:.80}, expected an object with {key!r}.")
    if key not in values:
        raise RowError(
            f"{where}: no {key!r} (it has {', '.join(map(repr, [*values][:9]))}), expected "
            f"{kind.__name__}; is this SQuAD's JSON?"
        )
    if not isinstance(values[key], kind):
        raise RowError(f"{where}: {key!r} is {values[key]!r:.80}, expected {kind.__name__}.")
    return values[key]
