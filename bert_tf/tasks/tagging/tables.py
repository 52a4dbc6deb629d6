"""Tables and JSON of words and their tags: one sentence a row, or one word a row.

    JSON, a row a sentence (one object a line, or one list of objects):
      {"tokens": ["Paris", "is"], "ner_tags": ["B-LOC", "O"]}       Hugging Face's data sets
      {"text": "Paris is big", "label": [[0, 5, "LOC"]]}            doccano's characters, also
      {"text": "Paris is", "entities": [{"start_offset": 0, "end_offset": 5, "label": "LOC"}]}
      {"tokenized_text": ["Paris", "is"], "ner": [[0, 0, "LOC"]]}   GLiNER's words, both included
    CSV, TSV or Excel with a header:
      tokens,ner_tags                   the same, the lists written out in their cells
      Sentence #,Word,POS,Tag           Kaggle's: a row a word; a sentence has a number, perhaps
                                        only at its first word

Texts are parted at white space and punctuation, and spans of characters become B- and I- tags of
their words. A row without tags or spans, or null there, is untagged.
"""

import csv
import io
import json
import lzma
import pathlib
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from bert_tf.corpus.corpus_format import open_decompressed, plain_ending
from bert_tf.examples.cells import as_list
from bert_tf.examples.columns import is_missing
from bert_tf.examples.tables import (
    DELIMITERS,
    EXCEL,
    JSON,
    Row,
    RowError,
    RowErrors,
    find_delimiter,
    read_cells,
    read_json_rows,
    read_rows,
)
from bert_tf.fine_tuning_config import TableConfig
from bert_tf.metrics.entities import spans as entity_spans
from bert_tf.text.unicode_tables import is_deleted, is_isolated, is_whitespace

WORDS = ("tokens", "words", "tokenized_text")
TAGS = ("ner_tags", "tags", "ner", "labels", "label", "tag")
SPANS = ("label", "labels", "entities", "spans", "annotations")
TEXTS = ("text", "sentence")
SENTENCE_COLUMNS = (
    *("sentence #", "sentence", "sentence_id", "sentence id", "sentence_idx", "sent_id"),
    *("sentence_number", "sentence number", "sentence_no"),
)
WORD_COLUMNS = ("word", "token", "words", "tokens")
TAG_COLUMNS = ("tag", "ner_tag", "ner", "label", "tags", "ner_tags", "labels")
_START = ("start", "start_offset", "begin")
_END = ("end", "end_offset", "stop")
_LABEL = ("label", "labels", "type", "tag", "entity", "entity_group")
PREDICTED_TAGS = "predicted_tags"
PREDICTED_SPANS = "predicted_entities"


class TableSentence(NamedTuple):
    """A sentence of a table.

    Attributes:
      words: its words.
      tags: one a word; None for an untagged sentence.
      where: "FILE line N" of its row, or its first.
      row: the row of a sentence; {} where a row is a word.
      places: first character and end of each word in the row's text; () where words are given.
      uses_word_spans: whether the row has GLiNER's spans of words.
    """

    words: tuple[str, ...]
    tags: tuple[str, ...] | None
    where: str
    row: Row
    places: tuple[tuple[int, int], ...] = ()
    uses_word_spans: bool = False


def is_tagged_table(path: str) -> bool:
    """Returns whether a file of words and tags is JSON, or a table with a header."""
    ending = plain_ending(path)
    if ending in EXCEL or is_json_text(path):
        return True
    return ending in DELIMITERS and _has_known_columns(path)


def is_json_text(path: str) -> bool:
    """Returns whether a file holds JSON, by its name or its first line."""
    ending = plain_ending(path)
    if ending in (*JSON, *EXCEL):
        return ending in JSON
    try:
        with open_decompressed(path) as file:
            head = file.read(1 << 10)
    except (EOFError, OSError, lzma.LZMAError, zlib.error):
        return False  # The reader names the fault.
    text = head.decode("utf-8-sig", errors="replace").lstrip()
    return re.match(r"(\[\s*)?\{\s*\"", text) is not None


def _has_known_columns(path: str) -> bool:
    """Returns whether the header of a table names words with sentences, or texts or lists."""
    names = _header_of(path)
    if names & {*WORD_COLUMNS} and names & {*SENTENCE_COLUMNS}:
        return True
    # Elsewhere than in a .csv the first line may be one of words.
    is_csv = ".csv" in pathlib.PurePath(path).name.lower()
    return bool(names & {*WORDS, *TEXTS} and (is_csv or names & {*TAGS, *SPANS}))


def _header_of(path: str) -> set[str]:
    """Returns the names of a table's columns in small letters; none if it cannot be read."""
    delimiter, is_quoted = find_delimiter(path)
    try:
        _, header = next(iter(read_cells(path, delimiter=delimiter, is_quoted=is_quoted)))
    except ValueError:
        return set()
    return {name.strip().lower() for name in header}


def check_is_no_table(path: str, first_line: str) -> None:
    """Raises ValueError for a .csv whose cells would be read as words, commas and all.

    Args:
      path: a file that is none of `is_tagged_table`.
      first_line: its first line with a word.
    """
    if ".csv" not in pathlib.PurePath(path).name.lower():
        return
    has_blanks = re.search("[ \t]", first_line.strip()) is not None
    if "," in first_line and not has_blanks or _header_of(path) & {*WORD_COLUMNS}:
        raise ValueError(
            f"{path} begins with {first_line.strip()!r:.80}, expected a header with a column for "
            "the number of the sentence: Sentence #,Word,Tag; or for a sentence on each row: text "
            "or tokens,ner_tags. Without a number of the sentence write word, tab, tag, and a "
            "blank line after each sentence, into a .txt."
        )


def read_tagged_table(
    path: str, tag_column: int | str | None, reading: TableConfig | None = None
) -> list[TableSentence]:
    """Reads the sentences of a table; rows without a word are left out.

    Args:
      path: the file.
      tag_column: name of the column or key of the tags; a number: found by name; None: tags are
        not looked at.
      reading: how the user's tables are read; None: the defaults.

    Raises:
      ValueError: naming files and lines, if the file cannot be read or rows have another form.
    """
    name = tag_column if isinstance(tag_column, str) else ""
    errors = RowErrors()
    sentences: list[TableSentence] = []
    for where, row in _rows(path, reading, errors):
        columns = {key.lower(): key for key in row}
        word_column = _first(columns, WORD_COLUMNS)
        is_word = word_column and not _is_list(row[word_column])
        sentence_column = _first(columns, SENTENCE_COLUMNS)
        if is_word and sentence_column:
            rest = _word_rows(path, name, tag_column is not None, reading, errors)
            sentences = list(_join_words(rest))
            break
        with errors:
            sentences.append(_read_row(row, where, name, tag_column is not None))
    errors.raise_any(len(sentences))
    found = [sentence for sentence in sentences if sentence.words]
    if not found:
        raise ValueError(f"{path}: no sentences; expected rows with words.")
    return found


def _rows(
    path: str, reading: TableConfig | None, errors: RowErrors | None = None
) -> Iterator[tuple[str, Row]]:
    return read_json_rows(path) if is_json_text(path) else read_rows(path, reading, errors=errors)


def _first(known: dict[str, str], names: Sequence[str]) -> str:
    """Returns the first column of some names, "" for none."""
    return next((known[name] for name in names if name in known), "")


def _is_list(value: object) -> bool:
    return isinstance(as_list(value), list)


# A word a row -----------------------------------------------------------------------------------


class _WordRow(NamedTuple):
    where: str
    sentence: str
    word: str
    tag: str | None


def _word_rows(
    path: str, tag_name: str, has_tags: bool, reading: TableConfig | None, errors: RowErrors
) -> Iterator[_WordRow]:
    for where, row in _rows(path, reading):
        columns = {key.lower(): key for key in row}
        word = row[_first(columns, WORD_COLUMNS)]
        tag = None
        with errors:
            if has_tags:
                tag_column = _tag_column(row, columns, TAG_COLUMNS, tag_name, where)
                tag = str(row[tag_column]).strip() if tag_column else None
                if tag == "":
                    raise RowError(f"{where}: no tag in column {tag_column!r}, expected one")
            if not isinstance(word, str) or not word.strip():
                raise RowError(f"{where}: no word, expected one")
            sentence = str(row[_first(columns, SENTENCE_COLUMNS)]).strip()
            yield _WordRow(where, sentence, word.strip(), tag)


def _join_words(rows: Iterable[_WordRow]) -> Iterator[TableSentence]:
    """Yields sentences: one begins where the sentence's number is given and changes."""
    held: list[_WordRow] = []
    current = ""
    for row in rows:
        if held and row.sentence and row.sentence != current:
            yield _sentence_of(held)
            held = []
        current = row.sentence or current
        held.append(row)
    if held:
        yield _sentence_of(held)


def _sentence_of(rows: Sequence[_WordRow]) -> TableSentence:
    tags = tuple(row.tag for row in rows if row.tag is not None)
    words = tuple(row.word for row in rows)
    return TableSentence(words, tags if len(tags) == len(words) else None, rows[0].where, {})


# A sentence a row -------------------------------------------------------------------------------


def _tag_column(
    row: Row, columns: dict[str, str], names: Sequence[str], wanted: str, where: str
) -> str:
    """Returns the column of the tags; "" without one.

    Raises:
      ValueError: if it is named and not there.
    """
    if not wanted:
        return _first(columns, names)
    if wanted not in row:
        raise ValueError(f"{where}: no {wanted!r} (--tag_column) but {', '.join(map(repr, row))}.")
    return wanted


def _read_row(row: Row, where: str, tag_name: str, has_tags: bool) -> TableSentence:
    columns = {key.lower(): key for key in row}
    word_key = _first(columns, WORDS)
    text_key = _first(columns, TEXTS)
    if word_key and _is_list(row[word_key]) and not _are_objects(as_list(row[word_key])):
        words = _read_words(as_list(row[word_key]), word_key, where)
        key = _tag_column(row, columns, TAGS, tag_name, where) if has_tags else ""
        given = as_list(row[key]) if key else None
        if given is None or is_missing(given):
            return TableSentence(words, None, where, row)
        if word_key == columns.get("tokenized_text") or _are_spans(given):
            tags = _tags_of_spans(_read_spans(given, key, where), words, (), where)
            return TableSentence(words, tags, where, row, (), True)
        return TableSentence(words, _read_tags(given, words, key, where), where, row)
    if text_key and isinstance(row[text_key], str):
        text = row[text_key]
        # The label of a text may be in another column than its spans.
        holding = [name for name in SPANS if name in columns and _are_spans(row[columns[name]])]
        names = (*holding, *SPANS, *TAGS)
        key = _tag_column(row, columns, names, tag_name, where) if has_tags else ""
        given = as_list(row[key]) if key else None
        if isinstance(given, list) and given and isinstance(given[0], str):
            words = tuple(text.split())  # Kaggle's: a tag for each word of the text.
            return TableSentence(words, _read_tags(given, words, key, where), where, row)
        places = tuple(_word_offsets(text))
        words = tuple(text[start:end] for start, end in places)
        if given is None or is_missing(given):
            return TableSentence(words, None, where, row, places)
        found = _read_spans(given, key, where)
        if found and (last := max(found, key=lambda span: span.end)).end > len(text):
            raise RowError(
                f"{where}: span [{last.start}, {last.end}, {last.label!r}] ends behind the text, "
                f"which has {len(text)} characters",
                "Count characters of this text, from 0.",
            )
        tags = _tags_of_spans(found, words, places, where)
        return TableSentence(words, tags, where, row, places)
    raise RowError(
        f"{where} has {', '.join(map(repr, row))}",
        'Expected {"tokens": [...], "ner_tags": [...]}, {"text": ..., "label": [[start, end, '
        'name]]} or {"tokenized_text": [...], "ner": [...]}, or a table with the columns '
        "Sentence #, Word, Tag.",
    )


def _are_objects(values: object) -> bool:
    return isinstance(values, list) and bool(values) and isinstance(values[0], dict)


def _are_spans(values: object) -> bool:
    return isinstance(values, list) and bool(values) and isinstance(values[0], list | dict)


def _read_words(values: list[Any], key: str, where: str) -> tuple[str, ...]:
    for word in values:
        if not isinstance(word, str) or not word.strip():
            raise RowError(f"{where}: {key!r} holds {word!r:.40}, expected words")
    return tuple(values)


def _read_tags(values: object, words: Sequence[str], key: str, where: str) -> tuple[str, ...]:
    if not isinstance(values, list) or len(values) != len(words):
        count = f"{len(values)} tags" if isinstance(values, list) else f"{values!r:.40}"
        raise RowError(f"{where}: {key!r} has {count}, expected {len(words)}, one a word")
    for tag in values:
        is_name = isinstance(tag, str) and tag.strip()
        if not is_name and (not isinstance(tag, int) or isinstance(tag, bool)):
            raise RowError(f"{where}: {key!r} holds {tag!r:.40}, expected names of tags")
    return tuple(str(tag).strip() for tag in values)


def _span_parts(value: object) -> tuple[Any, Any, Any]:
    """Returns start, end and label of a span, a list or an object; missing parts are None."""
    if isinstance(value, dict):
        start, end, label = (
            next((value[name] for name in names if name in value), None)
            for names in (_START, _END, _LABEL)
        )
        if isinstance(label, list) and len(label) == 1:  # Label Studio's
            label = label[0]
        return start, end, label
    if isinstance(value, list) and len(value) == 3:
        return value[0], value[1], value[2]
    return None, None, None


def _is_place(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


class _Span(NamedTuple):
    start: int
    end: int
    label: str


def _read_spans(values: object, key: str, where: str) -> list[_Span]:
    """Returns [start, end, label] lists, or objects with these; sorted."""
    if not isinstance(values, list):
        raise RowError(f"{where}: {key!r} is {values!r:.40}, expected a list of spans")
    found = []
    for value in values:
        start, end, label = _span_parts(value)
        if not (_is_place(start) and _is_place(end) and isinstance(label, str) and label.strip()):
            raise RowError(f"{where}: {key!r} holds {value!r:.60}, expected [start, end, label]")
        found.append(_Span(start, end, label.strip()))
    return sorted(found)


def _tags_of_spans(
    spans: Sequence[_Span],
    words: Sequence[str],
    places: Sequence[tuple[int, int]],
    where: str,
) -> tuple[str, ...]:
    """Returns the B- and I- tags of words.

    Args:
      spans: sorted; of characters, or without places of words, both ends included.
      words: the words.
      places: of the words in their text; () if the spans are of words.
      where: for messages.

    Raises:
      RowError: if a span is outside the text, holds no word, cuts one or overlaps another.
    """
    tags = ["O"] * len(words)
    for span in spans:
        shown = f"{where}: span [{span.start}, {span.end}, {span.label!r}]"
        if not places:
            if not 0 <= span.start <= span.end < len(words):
                raise RowError(f"{shown} is not within the {len(words)} words")
            inside = list(range(span.start, span.end + 1))
        else:
            inside = [
                index
                for index, (start, end) in enumerate(places)
                if start < span.end and end > span.start
            ]
            if not inside or span.start < 0:
                raise RowError(f"{shown} holds no word of the text")
            if places[inside[0]][0] < span.start:
                raise RowError(f"{shown} begins within the word {words[inside[0]]!r}")
            if places[inside[-1]][1] > span.end:
                raise RowError(f"{shown} ends within the word {words[inside[-1]]!r}")
        for index in inside:
            if tags[index] != "O":
                raise RowError(
                    f"{shown} overlaps another at {words[index]!r}",
                    "A word has one tag: keep one of the spans.",
                )
            tags[index] = f"{'I' if index > inside[0] else 'B'}-{span.label}"
    return tuple(tags)


def _word_offsets(text: str) -> Iterator[tuple[int, int]]:
    """Yields first character and end of each word: text is parted as BERT's tokenizers do, at white
    space, and around punctuation and CJK characters."""
    start = -1
    for index, char in enumerate(text):
        is_alone = is_isolated(char)
        is_between = char.isspace() or is_whitespace(char) or is_deleted(char)
        if start >= 0 and (is_between or is_alone):
            yield start, index
            start = -1
        if is_alone:
            yield index, index + 1
        elif start < 0 and not is_between:
            start = index
    if start >= 0:
        yield start, len(text)


# Writing ----------------------------------------------------------------------------------------


def with_predictions(
    path: str,
    tags: Iterator[Sequence[str]],
    reading: TableConfig | None = None,
) -> Iterator[str]:
    """Yields the text of a table again, in parts, with the predicted tags.

    A row of JSON gets "predicted_tags", and "predicted_entities" if it has spans, in the same form;
    a table gets a column PREDICTED_TAGS and is written as CSV.

    Args:
      path: the file.
      tags: of each sentence that `read_tagged_table` finds.
      reading: how the user's tables are read; None: the defaults.
    """
    sentences = iter(read_tagged_table(path, None, reading))
    sentence = next(sentences, None)
    is_lines = is_json_text(path)
    left: list[str] = []
    header_done = False
    for where, row in _rows(path, reading):
        row = dict(row)
        columns = {key.lower(): key for key in row}
        word_key = _first(columns, WORD_COLUMNS)
        if word_key and not _is_list(row[word_key]) and _first(columns, SENTENCE_COLUMNS):
            if not left:
                left = list(next(tags))
            row[PREDICTED_TAGS] = left.pop(0)
        elif sentence is not None and sentence.where == where:
            found = list(next(tags))
            row[PREDICTED_TAGS] = found if is_lines else str(found)
            if is_lines and (sentence.places or sentence.uses_word_spans or "ner" in row):
                row[PREDICTED_SPANS] = _spans_to_write(sentence, found)
            sentence = next(sentences, None)
        else:
            row[PREDICTED_TAGS] = [] if is_lines else "[]"
        if is_lines:
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


def _spans_to_write(sentence: TableSentence, tags: Sequence[str]) -> list[list[Any]]:
    """Returns [start, end, label] of each entity, in the form of the sentence's own spans."""
    try:
        entities = entity_spans(tags)
    except ValueError:  # Tags of another scheme, such as parts of speech, make no entities.
        return []
    if not sentence.places:
        return [[entity.start, entity.end - 1, entity.type] for entity in entities]
    found: list[list[Any]] = []
    for entity in entities:
        start, _ = sentence.places[entity.start]
        _, end = sentence.places[entity.end - 1]
        found.append([start, end, entity.type])
    return found
