"""Tables and JSON of words and their tags, with one sentence or one word per row.

    JSON, one sentence per row (an object per line, or a list of objects):
      {"tokens": ["Paris", "is"], "ner_tags": ["B-LOC", "O"]}       Hugging Face's data sets
      {"text": "Paris is big", "label": [[0, 5, "LOC"]]}            doccano: offsets of characters
      {"text": "Paris is", "entities": [{"start_offset": 0, "end_offset": 5, "label": "LOC"}]}
      {"tokenized_text": ["Paris", "is"], "ner": [[0, 0, "LOC"]]}   GLiNER: words, last included
    .ann of brat, with the text in the .txt of the same name: a sentence for each line of the text
    CSV, TSV or Excel with a header:
      tokens,ner_tags                   the same, with lists written in the cells
      Sentence #,Word,POS,Tag           Kaggle: one word per row; a sentence has a number, in some
                                        files only at its first word

Texts are split at white space and punctuation, and spans of characters become B- and I- tags of
words. A row whose tags or spans are missing or null is untagged.
"""

import csv
import io
import json
import pathlib
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from bert_tf.config.fine_tuning_config import TableConfig
from bert_tf.corpus.corpus_format import open_decompressed, plain_ending
from bert_tf.tasks.base.examples import tables
from bert_tf.tasks.base.examples.cells import as_list
from bert_tf.tasks.base.examples.columns import is_missing
from bert_tf.tasks.base.examples.offsets import find_unit
from bert_tf.tasks.base.examples.row_errors import RowError, RowErrors
from bert_tf.tasks.tagging.brat import BRAT, read_brat
from bert_tf.tasks.tagging.sentences import TaggedSentence
from bert_tf.tasks.tagging.spans import (
    are_spans,
    read_spans,
    read_text_spans,
    spans_of_tags,
    tags_of_spans,
    word_offsets,
)

# Names of columns and keys, in lower case. If a row has several of a group, the first one is used.
# One sentence per row:
WORDS = ("tokens", "words", "tokenized_text")
TAGS = ("ner_tags", "tags", "ner", "labels", "label", "tag")
SPANS = ("label", "labels", "entities", "spans", "annotations")
TEXTS = ("text", "sentence")
# One word per row:
SENTENCE_COLUMNS = (
    "sentence #",
    "sentence",
    "sentence_id",
    "sentence id",
    "sentence_idx",
    "sent_id",
    "sentence_number",
    "sentence number",
    "sentence_no",
)
WORD_COLUMNS = ("word", "token", "words", "tokens")
TAG_COLUMNS = ("tag", "ner_tag", "ner", "label", "tags", "ner_tags", "labels")
# Columns and keys that are written:
PREDICTED_TAGS = "predicted_tags"
PREDICTED_SPANS = "predicted_entities"


def is_tagged_table(path: str) -> bool:
    """Returns whether a file of words and tags is JSON or a table with a header."""
    ending = plain_ending(path)
    if ending in tables.EXCEL or is_json_text(path):
        return True
    return ending in tables.DELIMITERS and _has_known_columns(path)


def is_json_text(path: str) -> bool:
    """Returns whether a file holds JSON, by its name or its first line."""
    ending = plain_ending(path)
    if ending in (*tables.JSON, *tables.EXCEL, BRAT):
        return ending in (*tables.JSON, BRAT)
    try:
        with open_decompressed(path) as file:
            head = file.read(1 << 10)
    except ValueError:
        return False  # The reader of columns will report the error.
    text = head.decode("utf-8-sig", errors="replace").lstrip()
    # An object, alone or in a list: { " or [ { ". "[CLS]" or "{" alone may be words.
    return re.match(r"(\[\s*)?\{\s*\"", text) is not None


def _has_known_columns(path: str) -> bool:
    """Returns whether the header of a table has the columns of one of the known formats."""
    names = _header_of(path)
    if names & {*WORD_COLUMNS} and names & {*SENTENCE_COLUMNS}:
        return True
    # A .tsv or .txt may be plain columns without a header, and "text" or "words" its first word, so
    # that a second known name is needed.
    is_csv = ".csv" in pathlib.PurePath(path).name.lower()
    return bool(names & {*WORDS, *TEXTS} and (is_csv or names & {*TAGS, *SPANS}))


def _header_of(path: str) -> set[str]:
    """Returns the names of a table's columns in lower case; {} if it cannot be read."""
    delimiter, is_quoted = tables.find_delimiter(path)
    try:
        _, header = next(iter(tables.read_cells(path, delimiter=delimiter, is_quoted=is_quoted)))
    except ValueError:
        return set()
    return {name.strip().lower() for name in header}


def check_is_no_table(path: str, first_line: str) -> None:
    """Raises ValueError for a .csv that would be read as words that contain commas."""
    if ".csv" not in pathlib.PurePath(path).name.lower():
        return
    has_blanks = re.search("[ \t]", first_line.strip()) is not None
    # Columns separated by spaces or tabs are accepted in a .csv, even if one of them is a comma.
    if "," in first_line and not has_blanks or _header_of(path) & {*WORD_COLUMNS}:
        raise ValueError(
            f"{path} begins with {first_line.strip()!r:.80}, expected a header: "
            "Sentence #,Word,Tag with the number of the sentence; or, with one sentence per row, "
            "text or tokens,ner_tags. If sentences have no numbers, write a .txt with word, tab "
            "and tag on each line, and a blank line after each sentence."
        )


def read_tagged_table(
    path: str,
    tag_column: int | str | None,
    reading: TableConfig | None = None,
    *,
    reads_tags: bool = True,
) -> list[TaggedSentence]:
    """Reads the sentences of a table; rows without words are left out.

    Args:
      tag_column: name of the column or key of the tags; with a number, the column is found by its
        usual names; None: tags are not read.
      reads_tags: False: the words are those that are read with the tags of `tag_column`, but
        without the tags; the column may be missing.
    """
    name = tag_column if isinstance(tag_column, str) else ""
    has_tags = tag_column is not None and reads_tags

    def read(unit: str) -> tuple[list[TaggedSentence], RowErrors]:
        return _read_sentences(path, name, has_tags, reading, unit)

    sentences, errors = read("")
    if errors.errors and has_tags:
        unit = find_unit(lambda unit: len(read(unit)[1].errors), path)
        sentences, errors = read(unit) if unit else (sentences, errors)
    errors.finish(path)
    with_words = [sentence for sentence in sentences if sentence.words]
    if not with_words:
        raise ValueError(f"{path}: no sentences; expected rows with words.")
    return with_words


def _read_sentences(
    path: str, name: str, has_tags: bool, reading: TableConfig | None, unit: str
) -> tuple[list[TaggedSentence], RowErrors]:
    """Returns the sentences and the errors of rows; `unit` is that of offsets, see `offsets`."""
    errors = RowErrors()
    sentences: list[TaggedSentence] = []
    for where, row in _rows(path, reading, errors):
        if _is_word_row(row):
            # One word per row: the file is read again from its beginning.
            return list(_join_words(path, name, has_tags, reading, errors)), errors
        if has_tags and errors.leaves_out(row, (name,)):
            continue
        with errors:
            sentences.append(_read_row(row, where, name, has_tags, unit))
    return sentences, errors


def _rows(
    path: str, reading: TableConfig | None, errors: RowErrors | None = None
) -> Iterator[tuple[str, tables.Row]]:
    """Yields each row with "FILE line N"."""
    if plain_ending(path) == BRAT:
        return read_brat(path)
    if is_json_text(path):
        return tables.read_json_rows(path)
    return tables.read_rows(path, reading, errors=errors)


def _first(row: tables.Row, names: Sequence[str]) -> str:
    """Returns the first column of a row that has one of the names, in any case; or ""."""
    columns = {key.lower(): key for key in row}
    return next((columns[name] for name in names if name in columns), "")


def _is_list(value: object) -> bool:
    """Returns whether a value is a list, or the cell of a table with a list written in it."""
    return isinstance(as_list(value), list)


# One word per row -------------------------------------------------------------------------------


def _is_word_row(row: tables.Row) -> bool:
    """Returns whether a row has a single word and the number of its sentence."""
    word_column = _first(row, WORD_COLUMNS)
    is_word = bool(word_column) and not _is_list(row[word_column])
    return is_word and bool(_first(row, SENTENCE_COLUMNS))


def _join_words(
    path: str, tag_name: str, has_tags: bool, reading: TableConfig | None, errors: RowErrors
) -> Iterator[TaggedSentence]:
    """Yields sentences: a row with another number than the row before begins a sentence."""
    words: list[tuple[str, str, str | None]] = []  # location, word and tag
    current = ""
    for where, row in _rows(path, reading):
        with errors:
            word, tag = _read_word(row, where, tag_name, has_tags)
            # Objects of JSON may lack a key that other rows have.
            number = row.get(_first(row, SENTENCE_COLUMNS))
            sentence = "" if is_missing(number) else str(number).strip()
            # An empty cell continues the sentence: some files number only the first word.
            if words and sentence and sentence != current:
                yield _sentence_of(words)
                words = []
            current = sentence or current
            words.append((where, word, tag))
    if words:
        yield _sentence_of(words)


def _read_word(
    row: tables.Row, where: str, tag_name: str, has_tags: bool
) -> tuple[str, str | None]:
    """Returns the word of a row and its tag."""
    tag = None
    if has_tags:
        tag_column = _tag_column(row, TAG_COLUMNS, tag_name, where)
        given = row[tag_column] if tag_column else None
        tag = None if is_missing(given) else str(given).strip()
        if tag == "":
            raise RowError(f"{where}: no tag in column {tag_column!r}, expected one")
    word = row.get(_first(row, WORD_COLUMNS))
    if not isinstance(word, str) or not word.strip():
        raise RowError(f"{where}: no word, expected one")
    return word.strip(), tag


def _sentence_of(rows: Sequence[tuple[str, str, str | None]]) -> TaggedSentence:
    tags = tuple(tag for _, _, tag in rows if tag is not None)
    # A sentence in which some words lack a tag cannot be trained on.
    is_tagged = len(tags) == len(rows)
    return TaggedSentence(
        tuple(word for _, word, _ in rows), tags if is_tagged else None, rows[0][0]
    )


# One sentence per row ---------------------------------------------------------------------------


def _tag_column(row: tables.Row, names: Sequence[str], wanted: str, where: str = "") -> str:
    """Returns the column of the tags; "" if the row has none.

    Args:
      names: the usual names of the column, in lower case.
      wanted: the column that --tag_column names; "": the first of `names`.
      where: location of a row that must have the wanted column; "": it may lack it.
    """
    if not wanted:
        return _first(row, names)
    if wanted not in row and where:
        raise ValueError(
            f"{where} has no column {wanted!r} (--tag_column); its columns are "
            f"{', '.join(map(repr, row))}."
        )
    return wanted if wanted in row else ""


def _read_row(
    row: tables.Row, where: str, tag_name: str, has_tags: bool, unit: str = ""
) -> TaggedSentence:
    """Reads a sentence in any of the formats with one sentence per row, by the row's keys."""
    word_key = _first(row, WORDS)
    text_key = _first(row, TEXTS)
    # Prodigy, for example, exports a text and its "tokens" as objects: the text is read.
    if word_key and _is_list(row[word_key]) and not _are_objects(as_list(row[word_key])):
        words = _read_words(as_list(row[word_key]), word_key, where)
        key = _tag_column(row, TAGS, tag_name, where) if has_tags else ""
        given = as_list(row[key]) if key else None
        if given is None or is_missing(given):
            return TaggedSentence(words, None, where)
        if _has_word_spans(row, word_key, key):
            tags = tags_of_spans(read_spans(given, key, where), words, (), where)
            return TaggedSentence(words, tags, where)
        return TaggedSentence(words, _read_tags(given, words, key, where), where)
    if text_key and isinstance(row[text_key], str):
        text = row[text_key]
        # A row may have both spans and a label of the whole text: columns with spans come first.
        with_spans = [key.lower() for key, value in row.items() if are_spans(value)]
        names = (*filter(with_spans.__contains__, SPANS), *SPANS, *TAGS)
        key = _tag_column(row, names, tag_name, where) if has_tags else ""
        given = as_list(row[key]) if key else None
        words = tuple(text.split())
        if isinstance(given, list) and given and isinstance(given[0], str):
            # Kaggle's: a list of tags, one for each word between white space.
            return TaggedSentence(words, _read_tags(given, words, key, where), where)
        if not has_tags and _has_tag_list(row, _tag_column(row, TAGS, tag_name), len(words)):
            # The words must be those that are read with tags, for which predictions are written.
            return TaggedSentence(words, None, where)
        offsets = tuple(word_offsets(text))
        words = tuple(text[start:end] for start, end in offsets)
        if given is None or is_missing(given):
            return TaggedSentence(words, None, where, offsets)
        spans = read_text_spans(given, key, text, unit, where)
        tags = tags_of_spans(spans, words, offsets, where)
        return TaggedSentence(words, tags, where, offsets)
    raise RowError(
        f"{where} has {', '.join(map(repr, row))}",
        'Expected {"tokens": [...], "ner_tags": [...]}, {"text": ..., "label": [[start, end, '
        'name]]} or {"tokenized_text": [...], "ner": [...]}, or a table with the columns '
        "Sentence #, Word, Tag.",
    )


def _are_objects(values: object) -> bool:
    return isinstance(values, list) and bool(values) and isinstance(values[0], dict)


def _has_word_spans(row: tables.Row, word_key: str, tag_key: str) -> bool:
    """Returns whether the tags of a row with a list of words are spans of words, as in GLiNER's."""
    if not tag_key:
        return False
    # GLiNER's list of spans may be empty.
    return word_key.lower() == "tokenized_text" or are_spans(as_list(row[tag_key]))


def _has_tag_list(row: tables.Row, key: str, num_words: int) -> bool:
    """Returns whether a column of tags has a list of names, one for each word of a text."""
    given = as_list(row[key]) if key else None
    if not isinstance(given, list) or len(given) != num_words:
        return False
    return all(isinstance(tag, str) for tag in given)


def _read_words(values: list[Any], key: str, where: str) -> tuple[str, ...]:
    for word in values:
        if not isinstance(word, str) or not word.strip():
            raise RowError(f"{where}: {key!r} holds {word!r:.40}, expected words")
    return tuple(values)


def _read_tags(values: object, words: Sequence[str], key: str, where: str) -> tuple[str, ...]:
    if not isinstance(values, list) or len(values) != len(words):
        count = f"{len(values)} tags" if isinstance(values, list) else f"{values!r:.40}"
        raise RowError(f"{where}: {key!r} has {count}, expected {len(words)}, one per word")
    for tag in values:
        is_name = isinstance(tag, str) and tag.strip()
        if not is_name and (not isinstance(tag, int) or isinstance(tag, bool)):
            raise RowError(f"{where}: {key!r} holds {tag!r:.40}, expected names of tags")
    return tuple(str(tag).strip() for tag in values)


# Writing ----------------------------------------------------------------------------------------


def with_predictions(
    path: str,
    tags: Iterator[Sequence[str]],
    reading: TableConfig | None = None,
    tag_column: int | str = -1,
) -> Iterator[str]:
    """Yields the text of a table, row by row, with predicted tags of each sentence that was read.

    A JSON row gets "predicted_tags", and if it has spans also "predicted_entities" in the same
    format. A table gets a column "predicted_tags" and is written as CSV. Which words a text has may
    depend on `tag_column`.
    """
    tag_name = tag_column if isinstance(tag_column, str) else ""
    sentences = iter(read_tagged_table(path, tag_column, reading, reads_tags=False))
    sentence = next(sentences, None)
    is_json = is_json_text(path)
    tags_left: list[str] = []  # with one word per row: tags of the sentence's other words
    header_done = False
    is_word_table = False
    for where, row in _rows(path, reading):
        row = dict(row)
        # Later rows may lack the number of the sentence.
        is_word_table = is_word_table or _is_word_row(row)
        if is_word_table:
            if not tags_left:
                tags_left = list(next(tags))
            row[PREDICTED_TAGS] = tags_left.pop(0)
        elif sentence is not None and sentence.source == where:
            predicted = list(next(tags))
            row[PREDICTED_TAGS] = predicted if is_json else str(predicted)
            tag_key = _tag_column(row, TAGS, tag_name)
            has_word_spans = _has_word_spans(row, _first(row, WORDS), tag_key)
            if is_json and (sentence.offsets or has_word_spans):
                row[PREDICTED_SPANS] = spans_of_tags(predicted, sentence.offsets)
            sentence = next(sentences, None)
        else:
            # A row without words, which `read_tagged_table` left out.
            row[PREDICTED_TAGS] = [] if is_json else "[]"
        if is_json:
            yield json.dumps(row, ensure_ascii=False) + "\n"
            continue
        if not header_done:
            yield _csv_line(row)
            header_done = True
        yield _csv_line(row.values())


def _csv_line(cells: Iterable[Any]) -> str:
    buffer = io.StringIO(newline="")
    csv.writer(buffer, lineterminator="\n").writerow(cells)
    return buffer.getvalue()
