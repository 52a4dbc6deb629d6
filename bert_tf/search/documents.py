"""Reads documents with ids from files, for an index.

.jsonl .json .csv .tsv   a row is a document: columns `title` and `text`, joined; the id is column
                         `_id` or `id`, by default FILE:ROW
others                   plain text, cut at blank lines into passages of about 100 words (characters
                         in Chinese, Japanese and Thai); the id is FILE:LINE, and FILE:LINE.2 and so
                         on for passages that begin within a long line
"""

import functools
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

from absl import logging

from bert_tf.corpus.corpus_format import JSON_OBJECT, plain_ending
from bert_tf.corpus.sentences import sentence_spans
from bert_tf.corpus.unspaced_text import cut_units, join_lines, word_spans
from bert_tf.tasks.base.examples.tables import decoded_lines, list_tables, read_rows
from bert_tf.tasks.embedding.beir import text_cell

TABLES = (".jsonl", ".json", ".csv", ".tsv")
PASSAGE_WORDS = 100


class Document(NamedTuple):
    """A document with its id."""

    id: str
    text: str  # title and text, with a space between


def read_documents(paths: str) -> Iterator[Document]:
    """Yields the documents of several files and globs, separated by commas.

    Raises:
      ValueError: naming file and line, if a row cannot be read, has no column `text`, or repeats an
        id.
    """
    seen: dict[str, str] = {}
    for path in list_tables(paths, "--input_file"):
        for where, document in read_file(path):
            if document.id in seen:
                raise ValueError(
                    f"{where} repeats the id {document.id!r} of {seen[document.id]}; ids must be "
                    "unique."
                )
            seen[document.id] = where
            yield document


def read_file(path: str, name: str = "") -> Iterator[tuple[str, Document]]:
    """Yields (location, document) for each document of a file; ids may repeat.

    Generated ids begin with `name`, by default the path.
    """
    if plain_ending(path) in TABLES or path.startswith("tfds:"):
        return _rows(path, name or path)
    return _passages(path, name or path)


def _rows(path: str, name: str) -> Iterator[tuple[str, Document]]:
    empty: list[str] = []
    for number, (where, row) in enumerate(read_rows(path), 1):
        if "text" not in row:
            raise ValueError(
                f"{where} has no column `text`, only {', '.join(map(str, row))}; rename the column "
                "that contains the texts."
            )
        text = f"{text_cell(row, 'title', where)} {text_cell(row, 'text', where)}".strip()
        if not text:
            empty.append(where)  # Some collections have such rows (FiQA).
            continue
        yield where, Document(_id(row, where) or f"{name}:{number}", text)
    if empty:
        _warn_of_empty_rows(path, len(empty), empty[0])


@functools.cache  # Documents are read more than once: to count, to embed, and to find words.
def _warn_of_empty_rows(path: str, count: int, first: str) -> None:
    logging.warning(
        "%s: %d rows with neither title nor text are left out, the first is %s.",
        path,
        count,
        first,
    )


def _id(row: dict[str, Any], where: str) -> str:
    """Returns the id in a row; "" if it has none."""
    for key in ("_id", "id"):
        value = row.get(key)
        if value in (None, ""):
            continue
        is_name = isinstance(value, str | int | float) and not isinstance(value, bool)
        if not is_name or (isinstance(value, float) and not math.isfinite(value)):
            raise ValueError(f"{where}: {key} is {value!r:.80}, expected a string or a number.")
        return str(value)
    return ""


def _passages(path: str, name: str) -> Iterator[tuple[str, Document]]:
    """Yields passages: consecutive paragraphs, joined up to PASSAGE_WORDS words."""
    paragraphs: list[str] = []
    first = words = part = 0

    # A closure: it reads the variables of the loop below when it is called.
    def passage() -> tuple[str, Document]:
        key = f"{name}:{first}"
        if part > 1:  # Several passages begin in this line.
            key = f"{key}.{part}"
        return f"{path} line {first}", Document(key, join_lines(paragraphs))

    for number, paragraph in _paragraphs(path):
        count = len(word_spans(paragraph))
        if paragraphs and words + count > PASSAGE_WORDS:
            yield passage()
            paragraphs = []
            words = 0
        if not paragraphs:
            part = part + 1 if number == first else 1
            first = number
        paragraphs.append(paragraph)
        words += count
    if paragraphs:
        yield passage()


def _paragraphs(path: str) -> Iterator[tuple[int, str]]:
    """Yields (line number, text) of each paragraph; a long one is cut at the end of a line.

    A single line that is too long is cut between sentences. A sentence that is too long is cut
    between words, in scripts without spaces at a space, a comma or between two graphemes.
    """
    lines: list[str] = []
    first = 1
    words = 0
    for number, line in enumerate(decoded_lines(path), 1):
        text = line.strip()
        if number == 1 and JSON_OBJECT.match(text):
            raise ValueError(
                f"{path} begins with a JSON object; rename it to end in .jsonl if its rows are "
                "documents, or leave it out."
            )
        count = len(word_spans(text))
        # A line that is too long by itself is cut; all its runs have its number.
        if count > PASSAGE_WORDS:
            if lines:
                yield first, join_lines(lines)
                lines = []
            for run in _runs(text):
                yield number, run
            continue
        if text:
            if not lines:
                first = number
                words = 0
            words += count
            lines.append(text)
        # A blank line ends a paragraph; a paragraph that has become long ends at this line.
        if lines and (not text or words >= PASSAGE_WORDS):
            yield first, join_lines(lines)
            lines = []
    if lines:
        yield first, join_lines(lines)


def _runs(line: str) -> Iterator[str]:
    """Yields the sentences of a line, cut into runs of at most PASSAGE_WORDS words."""
    for start, stop in sentence_spans(line):
        sentence = line[start:stop]
        words = word_spans(sentence)
        # The index of the first word of each run.
        firsts = cut_units(sentence, words, PASSAGE_WORDS)
        for first, following in zip(firsts, [*firsts[1:], len(words)], strict=True):
            run = sentence[words[first][0] : words[following - 1][1]]
            yield " ".join(run.split())
