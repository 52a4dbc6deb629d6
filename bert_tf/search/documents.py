"""The documents that an index is made of, with an id each, from files of one's own.

.jsonl .json .csv .tsv   a row is a document: its text, before it its title, and its id from the
                         columns `text`, `title`, `_id` or `id`; without ids FILE:ROW
others                   plain text, cut at blank lines into passages of about 100 words (or
                         characters, of Chinese, Japanese and Thai); the id is FILE:LINE, of what
                         begins later in a long line FILE:LINE.2 and so on
"""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

from absl import logging

from bert_tf.corpus.corpus_format import JSON_OBJECT, open_decompressed, plain_ending
from bert_tf.corpus.sentences import split_sentences
from bert_tf.corpus.text_lines import numbered_lines
from bert_tf.examples.tables import list_tables, read_rows
from bert_tf.files import not_utf8
from bert_tf.search.words import word_spans

TABLES = (".jsonl", ".json", ".csv", ".tsv")
PASSAGE_WORDS = 100


class Document(NamedTuple):
    """A document with its id."""

    id: str
    text: str  # title and text, with a space between


def read_documents(paths: str) -> Iterator[Document]:
    """Yields the documents of files.

    Args:
      paths: files and globs, separated by commas.

    Raises:
      ValueError: naming file and line, if one cannot be read, has no column `text`, or an id comes
        twice.
    """
    seen: dict[str, str] = {}
    for path in list_tables(paths, "--input_file"):
        for where, document in read_file(path):
            if document.id in seen:
                raise ValueError(
                    f"{where} has the id {document.id!r} of {seen[document.id]} again; every "
                    "document has its own."
                )
            seen[document.id] = where
            yield document


def read_file(path: str, name: str = "") -> Iterator[tuple[str, Document]]:
    """Yields where it stands, and the document, for those of one file; an id may come twice.

    Args:
      path: the file.
      name: what stands in the ids of documents without their own; "": the path.

    Raises:
      ValueError: naming file and line, if one cannot be read or has no column `text`.
    """
    is_table = plain_ending(path) in TABLES or path.startswith("tfds:")
    return (_rows if is_table else _passages)(path, name or path)


def _rows(path: str, name: str) -> Iterator[tuple[str, Document]]:
    empty: list[str] = []
    for number, (where, row) in enumerate(read_rows(path), 1):
        if "text" not in row:
            raise ValueError(
                f"{where} has no `text`, but {', '.join(map(str, row))}; name the column so."
            )
        text = f"{_cell(row, 'title', where)} {_cell(row, 'text', where)}".strip()
        if not text:
            empty.append(where)  # Some collections have such rows (FiQA).
            continue
        key = next((key for key in ("_id", "id") if row.get(key) not in (None, "")), None)
        yield where, Document(_id(row[key], key, where) if key else f"{name}:{number}", text)
    if empty:
        logging.warning(
            "%s: %d rows with neither title nor text are left out, the first is %s.",
            *(path, len(empty), empty[0]),
        )


def _id(value: object, key: str, where: str) -> str:
    is_name = isinstance(value, str | int | float) and not isinstance(value, bool)
    if not is_name or (isinstance(value, float) and not math.isfinite(value)):
        raise ValueError(f"{where}: {key} is {value!r:.80}, expected a string or a number.")
    return str(value)


def _cell(row: dict[str, Any], key: str, where: str) -> str:
    value = row.get(key)
    if value is not None and not isinstance(value, str):
        raise ValueError(f"{where}: {key} is {value!r:.80}, expected a string.")
    return value or ""


def _passages(path: str, name: str) -> Iterator[tuple[str, Document]]:
    """Yields whole paragraphs, joined while they have fewer words together."""
    held: list[str] = []
    first = words = part = 0

    def passage() -> tuple[str, Document]:
        key = f"{name}:{first}" if part == 1 else f"{name}:{first}.{part}"
        return f"{path} line {first}", Document(key, " ".join(held))

    for number, paragraph in _paragraphs(path):
        count = len(word_spans(paragraph))
        if held and words + count > PASSAGE_WORDS:
            yield passage()
            held, words = [], 0
        if not held:
            part = part + 1 if number == first else 1
            first = number
        held.append(paragraph)
        words += count
    if held:
        yield passage()


def _paragraphs(path: str) -> Iterator[tuple[int, str]]:
    """Yields (first line, text in one line); a long paragraph in parts that end with a line.

    A line that is too long by itself is cut behind its sentences, and within longer ones.

    Raises:
      ValueError: if a line cannot be read, or the first is one of JSON Lines.
    """
    lines: list[str] = []
    first, words = 1, 0
    with open_decompressed(path) as file:
        for number, line in numbered_lines(file, path):
            try:
                text = line.decode("utf8" if number > 1 else "utf-8-sig").strip()
            except UnicodeDecodeError as error:
                raise not_utf8(f"{path} line {number}", path, error) from None
            if number == 1 and JSON_OBJECT.match(text):
                raise ValueError(
                    f"{path} begins as JSON Lines do; rename it to end in .jsonl if its rows are "
                    "documents, or leave it out."
                )
            count = len(word_spans(text))
            if count > PASSAGE_WORDS:
                if lines:
                    yield first, " ".join(lines)
                    lines = []
                yield from ((number, run) for run in _runs(text))
                continue
            if text:
                first = first if lines else number
                words = count + (words if lines else 0)
                lines.append(text)
            if lines and (not text or words >= PASSAGE_WORDS):
                yield first, " ".join(lines)
                lines = []
    if lines:
        yield first, " ".join(lines)


def _runs(line: str) -> Iterator[str]:
    """Yields the sentences of a line, those of more than PASSAGE_WORDS words in several runs."""
    for sentence in split_sentences(line):
        words = word_spans(sentence)
        for start in range(0, len(words), PASSAGE_WORDS):
            run = words[start : start + PASSAGE_WORDS]
            yield " ".join(sentence[run[0][0] : run[-1][1]].split())
