"""Files of CoNLL: words and tags in columns, and CoNLL-U.

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
import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from bert_tf.corpus.corpus_format import open_decompressed, plain_ending
from bert_tf.corpus.text_lines import read_whole_lines
from bert_tf.system.files import atomic_write
from bert_tf.tasks.base.examples.row_errors import RowError, RowErrors
from bert_tf.tasks.tagging.sentences import TaggedSentence
from bert_tf.tasks.tagging.tables import check_is_no_table

CONLLU_COLUMNS = "id form lemma upos xpos feats head deprel deps misc".split()
PREDICTED = "Predicted"  # key of the predicted tag in the column MISC
_FORM = CONLLU_COLUMNS.index("form")
_UPOS = CONLLU_COLUMNS.index("upos")
_DOCSTART = "-DOCSTART-"
_BLANKS = re.compile("[ \t]+")
_OTHER_ID = re.compile("[0-9]+[-.][0-9]+")  # 2-3 or 8.1
_ID = re.compile("[0-9]+([-.][0-9]+)?")
_HEAD = re.compile("[0-9]+|_")
_WHOLE_SENTENCES = (
    'A file of whole sentences is JSON, {"text": "Paris is big"} on each line, or a .csv with the '
    "column text."
)
# Kinds of lines.
_WORD = "word"
_BREAK = "break"  # blank: the end of a sentence
_DOCUMENT = "document"  # -DOCSTART-
_REMARK = "remark"  # a line of CoNLL-U that is neither a word nor the end of a sentence


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


def read_conll(
    path: str, word_column: int, tag_column: int | str | None
) -> Iterator[TaggedSentence]:
    """Yields the sentences of a file; the arguments and errors are those of `files.read_tagged`."""
    form, lines = _parse(path, word_column, tag_column)
    has_tags = form.tag is not None
    # In CoNLL-U "_" means "unspecified": a column of nothing else has no tags.
    if has_tags and form.is_conllu:
        has_tags = any(line.tag != "_" for line in lines if line.kind == _WORD)
    for rows in _sentences(lines):
        words = tuple(line.word for line in rows)
        tags = tuple(line.tag for line in rows) if has_tags else None
        yield TaggedSentence(words, tags, f"{path} line {rows[0].number}")


def write_conll(
    names: Sequence[str],
    path_out: str | os.PathLike,
    tags: Sequence[Sequence[str]],
    word_column: int,
) -> None:
    """Copies files line by line, and adds a tag to each word; see `files.write_tagged`."""
    # All files are read before the output is opened, which may be one of them.
    files = [_parse(name, word_column, None) for name in names]
    _check_tags(files, tags, ", ".join(names))
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
            # The reader continues after an error, so that one message lists several.
            with errors:
                if problem := _problem(columns, form, count):
                    remedy = "" if form.is_conllu else _WHOLE_SENTENCES
                    raise RowError(f"{path}, line {number}: {text!r:.80} has {problem}", remedy)
                tag = "" if form.tag is None else columns[form.tag]
                line = line._replace(word=columns[form.word], tag=tag)
        lines.append(line)
    errors.raise_any()
    return form, lines


def _read_lines(path: str) -> list[str]:
    """Returns the lines with their ends; only "\\n" ends a line."""
    with open_decompressed(path) as file:
        return [line for _, line in read_whole_lines(file, path, 0, sys.maxsize)]


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


def _check_tags(
    files: Iterable[tuple[_Form, list[_Line]]], tags: Sequence[Sequence[str]], path: str
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
