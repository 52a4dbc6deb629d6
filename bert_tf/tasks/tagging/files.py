"""Files of words and their tags: CoNLL columns and CoNLL-U; `tables` reads JSON and tables.

    CoNLL                         CoNLL-U: ten columns, separated by tabs
    -DOCSTART- -X- -X- O
                                  # text = I can't
    Baker  NNP I-NP B-PER         1    I    I   PRON  ...  _
    spoke  VBD I-VP O             2-3  can't _  _     ...  SpaceAfter=No
                                  2    ca   can AUX   ...  _
    He     PRP I-NP O             3    n't  not PART  ...  _

A blank line ends a sentence, and so does a -DOCSTART- line, which is not a word. In CoNLL-U,
comments, multiword tokens (2-3) and empty nodes (8.1) are not words. In plain columns every other
line is a word, even one that begins with "#". Only spaces and tabs separate columns, so that other
Unicode white space stays inside words. Tags are read as names; see `schemes` for their spelling.

Reference: the shared tasks CoNLL-2000 and CoNLL-2003; universaldependencies.org/format.html.
"""

import itertools
import lzma
import os
import re
import sys
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from absl import logging

from bert_tf.config.fine_tuning_config import TableConfig
from bert_tf.corpus.corpus_format import open_decompressed, plain_ending
from bert_tf.corpus.text_lines import read_whole_lines
from bert_tf.corpus.tfrecords import list_record_files
from bert_tf.system.files import atomic_write
from bert_tf.tasks.base.examples.columns import is_integer_text
from bert_tf.tasks.base.examples.labels import LabelNames, unify_spellings
from bert_tf.tasks.base.examples.row_errors import RowError, RowErrors
from bert_tf.tasks.tagging.schemes import respelled_tags
from bert_tf.tasks.tagging.tables import (
    check_is_no_table,
    is_json_text,
    is_tagged_table,
    read_tagged_table,
    with_predictions,
)

CONLLU_COLUMNS = "id form lemma upos xpos feats head deprel deps misc".split()
PREDICTED = "Predicted"  # key of the predicted tag in the column MISC
_FORM = CONLLU_COLUMNS.index("form")
_UPOS = CONLLU_COLUMNS.index("upos")
_DOCSTART = "-DOCSTART-"
_BLANKS = re.compile("[ \t]+")
_OTHER_ID = re.compile("[0-9]+[-.][0-9]+")  # 2-3 or 8.1
_ID = re.compile("[0-9]+([-.][0-9]+)?")
_HEAD = re.compile("[0-9]+|_")
WHOLE_SENTENCES = (
    'A file of whole sentences is JSON, {"text": "Paris is big"} on each line, or a .csv with the '
    "column text."
)
# Kinds of lines.
_WORD = "word"
_BREAK = "break"  # blank: the end of a sentence
_DOCUMENT = "document"  # -DOCSTART-
_REMARK = "remark"  # a line of CoNLL-U that is neither a word nor the end of a sentence


class TaggedSentence(NamedTuple):
    """A sentence.

    Attributes:
      words: the words.
      tags: one tag per word; None if the file has no tags.
      source: "FILE line N" of the first word, for messages.
    """

    words: tuple[str, ...]
    tags: tuple[str, ...] | None
    source: str


class _Form(NamedTuple):
    """The format of a file, as found in the line of its first word."""

    path: str
    is_conllu: bool
    separator: str  # tab or space
    first: int  # number of that line
    num_columns: int
    word: int  # index of the column of words
    tag: int | None  # index of the column of tags; None: not read


class _Line(NamedTuple):
    kind: str
    number: int
    text: str  # without its end
    end: str  # "\n" or "\r\n"; "" if the last line has no end
    word: str = ""
    tag: str = ""


def read_tagged(
    path: str | os.PathLike,
    word_column: int = 0,
    tag_column: int | str | None = -1,
    *,
    reading: TableConfig | None = None,
    is_needed: bool = False,
    reads_tags: bool = True,
) -> list[TaggedSentence]:
    """Reads the sentences of one or more files.

    A file is CoNLL-U if it is named *.conllu, or if its first line that is not a comment has ten
    columns with an id and a head. Its words are in the column FORM. Other files are separated by
    tabs if the line of their first word has one, otherwise by spaces; a file with one column has
    words only. For JSON and tables with a header see `tables`.

    Args:
      path: comma-separated files and globs; files may be compressed by gzip, xz or bzip2.
      word_column: column of the words in plain columns, counted from 0, or backwards from -1.
      tag_column: column of the tags, counted the same way; in CoNLL-U also a name, such as upos,
        xpos, deprel or feats, and -1 means UPOS. A column with "_" for every word of a file has no
        tags. In JSON and tables: a name; with a number, the column is found by its usual names.
        None: tags are not read.
      reading: options for reading tables; None: the defaults.
      is_needed: whether a sentence without tags is an error, unless `reading` skips it.
      reads_tags: False: the words are those that are read with the tags of `tag_column`, but
        without the tags; the column may be missing.

    Raises:
      ValueError: if no file matches, a file is damaged, not UTF-8 or without a sentence, the number
        of columns changes, a word or a tag is empty, ids of CoNLL-U are not 1, 2, 3 ..., or the
        column does not exist. The message names file and line.
    """
    sentences: list[TaggedSentence] = []
    for file in _list_files(path):
        if is_tagged_table(file):
            for row in read_tagged_table(file, tag_column, reading, reads_tags=reads_tags):
                sentences.append(TaggedSentence(row.words, row.tags, row.where))
            continue
        form, lines = _parse(file, word_column, tag_column if reads_tags else None)
        has_tags = form.tag is not None
        # In CoNLL-U "_" means "unspecified": a column of nothing else has no tags.
        if has_tags and form.is_conllu:
            has_tags = any(line.tag != "_" for line in lines if line.kind == _WORD)
        for rows in _sentences(lines):
            words = tuple(line.word for line in rows)
            tags = tuple(line.tag for line in rows) if has_tags else None
            sentences.append(TaggedSentence(words, tags, f"{file} line {rows[0].number}"))
    return _with_tags_only(sentences, path, reading) if is_needed else sentences


def _with_tags_only(
    sentences: list[TaggedSentence], path: str | os.PathLike, reading: TableConfig | None
) -> list[TaggedSentence]:
    """Returns the sentences with tags.

    Raises:
      ValueError: if sentences without tags are not to be skipped, or no sentence has tags.
    """
    tagged = [sentence for sentence in sentences if sentence.tags is not None]
    untagged = [sentence for sentence in sentences if sentence.tags is None]
    if untagged and tagged and reading and reading.skip_unlabelled:
        logging.info("%s: %d sentences without tags are left out.", path, len(untagged))
        return tagged
    if untagged:
        raise ValueError(
            f"{untagged[0].source}: the sentence has no tags; {len(untagged):,} of "
            f"{len(sentences):,} sentences have none. Expected a column of tags (CoNLL-U: one that "
            "is not all _), or tags or spans in each JSON object (--tag_column names their key). "
            "--skip_unlabelled leaves sentences without tags out."
        )
    return tagged


def write_tagged(
    path_in: str | os.PathLike,
    path_out: str | os.PathLike,
    tags: Sequence[Sequence[str]],
    word_column: int = 0,
    tag_column: int | str = -1,
    *,
    reading: TableConfig | None = None,
) -> None:
    """Copies files line by line, and adds a tag to each word.

    In plain columns the tag becomes a new last column, so that conlleval reads the result;
    -DOCSTART- lines get "O" there. In CoNLL-U only MISC changes: it gets Predicted=TAG, which
    replaces an earlier one; a "|" within the tag is written "\\p", as in that format's SpacesAfter.
    All other lines are unchanged. For JSON and tables see `tables.with_predictions`. Several files
    are written one after the other, each in its format. The output is uncompressed; after an error
    there is no partial file.

    Args:
      path_in: as for `read_tagged`.
      path_out: the output file; it may be the input.
      tags: one tag per word, for each sentence that `read_tagged` returns.
      word_column, tag_column, reading: as for `read_tagged`.

    Raises:
      ValueError: as `read_tagged`; also if the numbers of sentences, words and tags differ, or a
        tag would not be read as one column.
    """
    names = _list_files(path_in)
    if tables := list(filter(is_tagged_table, names)):
        _write_tables(names, tables, path_out, tags, tag_column, reading)
        return
    # All files are read before the output is opened, which may be one of them.
    files = [_parse(file, word_column, None) for file in names]
    _check_tags(files, tags, path_in)
    remaining_tags = itertools.chain.from_iterable(tags)
    with atomic_write(path_out) as output:
        last = _Line(_BREAK, 0, "", "\n")
        for form, lines in files:
            # End the last line of the file before, and its last sentence.
            if not last.end.endswith("\n"):
                output.write("\n")
            if last.kind != _BREAK:
                output.write("\n")
            for line in lines:
                output.write(_with_tag(line, form, remaining_tags) + line.end)
            last = lines[-1]


def _write_tables(
    names: Sequence[str],
    tables: Sequence[str],
    path_out: str | os.PathLike,
    tags: Sequence[Sequence[str]],
    tag_column: int | str,
    reading: TableConfig | None,
) -> None:
    formats = {is_json_text(name) for name in tables}
    if len(formats) > 1 or len(tables) < len(names):
        raise ValueError(
            f"{', '.join(names)}: files of different formats cannot be written into one; tag them "
            "one by one."
        )
    counts: list[int] = []  # words of each sentence
    for name in names:
        for sentence in read_tagged_table(name, tag_column, reading, reads_tags=False):
            counts.append(len(sentence.words))
    if counts != list(map(len, tags)):
        raise ValueError(
            f"{', '.join(names)} has {len(counts)} sentences with {sum(counts)} words, but there "
            f"are tags for {len(tags)} with {sum(map(len, tags))}; expected tags for all."
        )
    # One iterator, so that each file takes its tags where the previous one stopped.
    remaining_tags = iter(tags)
    with atomic_write(path_out) as output:
        for name in names:
            output.writelines(with_predictions(name, remaining_tags, reading, tag_column))


def predictions_name(path: str | os.PathLike) -> str:
    """Returns the file name for the predictions of some input, by the format of the input."""
    tables = list(filter(is_tagged_table, _list_files(path)))
    if not tables:
        return "predictions.txt"
    return "predictions.jsonl" if is_json_text(tables[0]) else "predictions.csv"


def with_entity_tags(
    sentences: list[TaggedSentence], labels: Sequence[str] = ()
) -> list[TaggedSentence]:
    """Returns the sentences with tags of entities in the spelling B-LOC, see `schemes`.

    Args:
      sentences: all sentences of a use.
      labels: the labels of a model; (): not known.
    """
    names = {tag for sentence in sentences for tag in sentence.tags or ()}
    spelled = respelled_tags(names, labels)
    if not spelled:
        return sentences
    respelled = []
    for sentence in sentences:
        if sentence.tags:
            tags = tuple(spelled.get(tag, tag) for tag in sentence.tags)
            sentence = sentence._replace(tags=tags)
        respelled.append(sentence)
    return respelled


def with_known_tags(
    sentences: Iterable[TaggedSentence], labels: Sequence[str]
) -> list[TaggedSentence]:
    """Returns the sentences with tags in the spelling of the labels."""
    known = LabelNames(labels)
    respelled = []
    for sentence in sentences:
        if sentence.tags:
            sentence = sentence._replace(tags=tuple(map(known.name_of, sentence.tags)))
        respelled.append(sentence)
    return respelled


def column_of(text: str) -> int | str:
    """Returns a column as a number if the text is one, otherwise as a name."""
    return int(text) if is_integer_text(text) else text


def tag_names(sentences: Iterable[TaggedSentence]) -> tuple[str, ...]:
    """Returns all tags, sorted, "O" before the others.

    Raises:
      ValueError: if a sentence has no tags, or there is no sentence.
    """
    names: set[str] = set()
    for sentence in sentences:
        names.update(_tags_of(sentence))
    if not names:
        raise ValueError("No sentences; expected at least one with tags.")
    unified = unify_spellings(sorted(names))
    if all(map(is_integer_text, unified)):
        # Ids, as Hugging Face's data sets have them: 10 after 9.
        return tuple(sorted(unified, key=int))
    # "O" first, because False is less than True.
    return tuple(sorted(unified, key=lambda name: (name != "O", name)))


def tag_ids(sentences: Iterable[TaggedSentence], labels: Sequence[str]) -> list[np.ndarray]:
    """Returns the label ids of the tags, int32 [words] for each sentence.

    Raises:
      ValueError: if a sentence has no tags, or a tag that is not a label.
    """
    known = LabelNames(labels)
    ids_of_sentences = []
    for sentence in sentences:
        ids = []
        for index, tag in enumerate(_tags_of(sentence)):
            label_id = known.find(tag)
            if label_id is None:
                raise ValueError(
                    f"{sentence.source}: word {index + 1} of this sentence, "
                    f"{sentence.words[index]!r}, has the tag {tag!r}; expected one of "
                    f"{', '.join(labels)}. Correct the tag, or add it to the training data."
                )
            ids.append(label_id)
        ids_of_sentences.append(np.array(ids, np.int32))
    return ids_of_sentences


def _tags_of(sentence: TaggedSentence) -> tuple[str, ...]:
    if sentence.tags is None:
        raise ValueError(
            f"{sentence.source}: the sentence has no tags; expected a column of tags (CoNLL-U: one "
            "that is not all _)."
        )
    return sentence.tags


# Reading --------------------------------------------------------------------------------------


def _list_files(path: str | os.PathLike) -> list[str]:
    files = list(map(str, list_record_files(os.fspath(path))))
    if not files:
        raise ValueError(f"{path!r} names no file; give comma-separated files or globs.")
    return files


def _parse(path: str, word_column: int, tag_column: int | str | None) -> tuple[_Form, list[_Line]]:
    """Returns the format and the lines of one file; if tag_column is None, without tags."""
    texts = _read_lines(path)
    form = _find_form(path, texts, word_column, tag_column)
    lines: list[_Line] = []
    errors = RowErrors()
    count = 0  # words of the sentence so far, for the ids of CoNLL-U
    for number, raw in enumerate(texts, start=1):
        text = raw.rstrip("\r\n")
        columns = _split(text, form.separator)
        line = _Line(_kind(columns, form.is_conllu), number, text, raw[len(text) :])
        if line.kind == _BREAK:
            count = 0
        elif line.kind == _WORD:
            count += 1
            if problem := _problem(columns, form, count):
                # The reader continues, so that one message lists several errors.
                remedy = "" if form.is_conllu else WHOLE_SENTENCES
                errors.add(RowError(f"{path}, line {number}: {text!r:.80} has {problem}", remedy))
                continue
            tag = "" if form.tag is None else columns[form.tag]
            line = line._replace(word=columns[form.word], tag=tag)
        lines.append(line)
    errors.raise_any(len(lines))
    return form, lines


def _read_lines(path: str) -> list[str]:
    """Returns the lines with their ends; only "\\n" ends a line."""
    try:
        with open_decompressed(path) as file:
            return [line for _, line in read_whole_lines(file, path, 0, sys.maxsize)]
    except (EOFError, OSError, lzma.LZMAError, zlib.error) as error:
        if getattr(error, "errno", None):
            # An error of the operating system, such as a missing permission, not of the contents.
            raise
        raise ValueError(
            f"{path}: the compressed file is truncated or damaged ({error}); download it again."
        ) from error


def _split(text: str, separator: str) -> list[str]:
    """Returns the columns of a line; if the line is blank, all of them are empty."""
    if separator == "\t":
        # An empty column between two tabs is kept, so that it can be reported.
        return [column.strip(" ") for column in text.split("\t")]
    return _BLANKS.split(text.strip(" \t"))


def _kind(columns: list[str], is_conllu: bool) -> str:
    if not any(columns):
        return _BREAK
    if is_conllu:
        is_remark = columns[0].startswith("#") or _OTHER_ID.fullmatch(columns[0])
        return _REMARK if is_remark else _WORD
    # In a file of tabs, the columns of this line may still be separated by spaces.
    is_document = _DOCSTART in columns or columns[0].startswith(_DOCSTART + " ")
    return _DOCUMENT if is_document else _WORD


def _problem(columns: list[str], form: _Form, count: int) -> str:
    """Describes the error in the line of a word; "" if there is no error."""
    if len(columns) != form.num_columns:
        like = "as CoNLL-U has" if form.is_conllu else f"as line {form.first} has"
        separators = "tabs" if form.separator == "\t" else "spaces"
        return (
            f"{len(columns)} columns, expected {form.num_columns} separated by {separators}, {like}"
        )
    if form.is_conllu and columns[0] != str(count):
        return f"the id {columns[0]!r}, expected {count}; a blank line ends a sentence"
    for name, index in (("word", form.word), ("tag", form.tag)):
        if index is not None and not columns[index]:
            return f"no {name}, expected one in column {index}"
    return ""


def _find_form(
    path: str, texts: Sequence[str], word_column: int, tag_column: int | str | None
) -> _Form:
    is_conllu = plain_ending(path) == ".conllu" or _looks_like_conllu(texts)
    number, separator, columns = _first_word(path, texts, is_conllu)
    where = f"{path}, line {number}"
    if is_conllu:
        tag = None if tag_column is None else _conllu_column(tag_column, where)
        return _Form(path, True, separator, number, len(CONLLU_COLUMNS), _FORM, tag)
    check_is_no_table(path, texts[number - 1])
    word = _plain_column(word_column, columns, "word_column", where)
    tag = None
    if tag_column is not None and len(columns) > 1:
        tag = _plain_column(tag_column, columns, "tag_column", where)
        if tag == word:
            raise ValueError(
                f"{where}: words and tags both in column {word} of {len(columns)}; expected two "
                "columns: change word_column or tag_column."
            )
    return _Form(path, False, separator, number, len(columns), word, tag)


def _first_word(path: str, texts: Sequence[str], is_conllu: bool) -> tuple[int, str, list[str]]:
    """Returns the number, the separator and the columns of the first line that has a word."""
    for number, raw in enumerate(texts, start=1):
        separator = "\t" if is_conllu or "\t" in raw else " "
        columns = _split(raw.rstrip("\r\n"), separator)
        if _kind(columns, is_conllu) == _WORD:
            return number, separator, columns
    raise ValueError(f"{path}: no sentences; expected one word per line, with its tag.")


def _looks_like_conllu(texts: Sequence[str]) -> bool:
    """Returns whether the first line that is not a comment has ten columns, an id and a head."""
    for text in texts:
        columns = _split(text.rstrip("\r\n"), "\t")
        if any(columns) and not columns[0].startswith("#"):
            is_long = len(columns) == len(CONLLU_COLUMNS)
            # The columns ID and HEAD.
            return bool(is_long and _ID.fullmatch(columns[0]) and _HEAD.fullmatch(columns[6]))
    return False


def _conllu_column(column: int | str, where: str) -> int:
    """Returns the index of a column given by name or number; -1 means UPOS."""
    names = CONLLU_COLUMNS
    try:
        if column in names:
            index = names.index(str(column))
        else:
            # Indexing a range checks the bounds and resolves negative numbers.
            index = range(len(names))[int(column)]
    except (ValueError, IndexError):
        index = 0  # ID, which is rejected as well
    if index <= _FORM:
        raise ValueError(
            f"{where}: tag_column is {column!r}, expected a number from {_FORM + 1} to "
            f"{len(names) - 1} or its name: {', '.join(names[_FORM + 1 :])}."
        )
    return _UPOS if str(column) == "-1" else index


def _plain_column(column: int | str, columns: list[str], option: str, where: str) -> int:
    """Returns the index of a column that may be counted from the end."""
    try:
        return range(len(columns))[int(column)]
    except (ValueError, IndexError):
        raise ValueError(
            f"{where}: {option} is {column!r}, and the line has {len(columns)} columns; expected "
            f"a number from {-len(columns)} to {len(columns) - 1}."
        ) from None


def _sentences(lines: Iterable[_Line]) -> Iterator[list[_Line]]:
    """Yields, for each sentence, the lines of its words."""
    rows: list[_Line] = []
    for line in lines:
        if line.kind == _WORD:
            rows.append(line)
        elif rows and line.kind != _REMARK:
            yield rows
            rows = []
    if rows:
        yield rows


# Writing --------------------------------------------------------------------------------------


def _check_tags(
    files: Iterable[tuple[_Form, list[_Line]]],
    tags: Sequence[Sequence[str]],
    path: str | os.PathLike,
) -> None:
    sentences = []
    for form, lines in files:
        for rows in _sentences(lines):
            sentences.append((form, rows))
    if len(sentences) != len(tags):
        raise ValueError(
            f"{path} has {len(sentences)} sentences, but there are tags for {len(tags)}; "
            f"expected tags for all, in the order of the file."
        )
    for (form, rows), row in zip(sentences, tags, strict=True):
        where = f"{form.path}, the sentence at line {rows[0].number}"
        if len(rows) != len(row):
            raise ValueError(f"{where}: {len(row)} tags, expected {len(rows)}, one per word.")
        for tag in row:
            if not tag or re.search("[\r\n]", tag) or _split(tag, form.separator) != [tag]:
                raise ValueError(f"{where}: tag {tag!r}; expected a tag without separators.")


def _with_tag(line: _Line, form: _Form, tags: Iterator[str]) -> str:
    """Returns a line without its end, and with the next tag if it is the line of a word."""
    if line.kind == _DOCUMENT:
        return line.text + form.separator + "O"
    if line.kind != _WORD:
        return line.text
    tag = next(tags)
    if not form.is_conllu:
        return line.text + form.separator + tag
    *columns, misc = line.text.split("\t")
    kept = []
    for attribute in misc.split("|"):
        # "_" means that there is no attribute.
        if attribute != "_" and not attribute.startswith(PREDICTED + "="):
            kept.append(attribute)
    escaped = tag.replace("|", "\\p")  # "|" separates the attributes of MISC.
    kept.append(f"{PREDICTED}={escaped}")
    return "\t".join([*columns, "|".join(kept)])
