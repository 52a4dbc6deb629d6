"""Reads raw text as documents, each a list of sentences.

Formats, which are detected (`corpus_format.py`), each also compressed by gzip, xz or bzip2:

  lines     one sentence per line, blank lines between documents (google-research/bert's form). A
            document also ends at the first line past a multiple of 256 KiB in the file, if the
            128 KiB before that multiple hold no blank line: one of less than 128 KiB is never cut.
  prose     paragraphs, hard-wrapped or a line each, blank lines between. A document ends at two
            blank lines or a form feed (unless only a title precedes them), before a heading
            (`CHAPTER II`, `# Markdown`, ` = Wikitext = `), and at the first paragraph past each
            multiple of 256 KiB. So a novel is not a single document, which would be useless for
            next-sentence prediction. If each line is a document, only the last rule ends one: put
            such text in JSONL.
  jsonl     one JSON object per line, each a document with its text in one field; sentences are
            split by rules.
  tfrecord  finished examples: listed here, read by `tfrecords.py`.
  tfds      a TensorFlow Datasets name, `tfds:NAME` or `tfds:NAME:SPLIT`; read as jsonl is.

The input is split into parts for parallel work. A part owns the documents that start in its bytes;
the documents do not depend on the size of the parts. Lines and prose are read in bounded memory: a
line of more than 128 KiB may also be cut (`text_lines.py`). For jsonl and tfds the memory must hold
the longest record, whose document is not cut (jsonl: 64 MiB at most).
"""

import dataclasses
import io
import json
import pathlib
import re
import sys
from collections import Counter
from collections.abc import Iterator
from typing import IO

from absl import logging

from bert_tf.config import DataConfig
from bert_tf.corpus import text_lines
from bert_tf.corpus.abbreviations import AUTO, abbreviations_of
from bert_tf.corpus.corpus_format import SENTENCE_END, detect_format, is_wrapped, open_decompressed
from bert_tf.corpus.sentences import split_sentences
from bert_tf.corpus.tfds_corpus import is_dataset_name, list_dataset_parts, read_dataset
from bert_tf.corpus.unspaced_text import join_lines, line_separator
from bert_tf.system.files import matching_files

WRAPPED_LINE_BYTES = 160  # no hard-wrapped line is longer; such a line is a paragraph
# Three bytes that are one column at most: Devanagari to Georgian, Ethiopic to Khmer.
_NARROW_CHARACTER = re.compile("[\u0900-\u10ff\u1200-\u1dff]")
SAMPLE_BYTES = 1 << 16
PART_BYTES = 8 << 20
_NUMBER = r"(?:[IVXLCDM]+|\d+|One|Two|Three|Four|Five|Six|Seven|Eight|Nine|Ten|ONE|TWO|THREE)\b"
_DIVISION = "Chapter|Book|Part|Act|Canto|Letter|Volume|CHAPTER|BOOK|PART|ACT|CANTO|LETTER|VOLUME"
_HEADING = re.compile(rf"#{{1,6}} |= [^=].* =$|(?:{_DIVISION}) {_NUMBER}")


@dataclasses.dataclass(frozen=True)
class CorpusPart:
    """A part of the input that one process reads."""

    path: str  # the file, or NAME:SPLIT of a TensorFlow dataset
    format: str  # "lines", "prose", "jsonl", "tfrecord" or "tfds"
    # The part owns the documents that start in these bytes (tfds: these examples).
    start: int = 0
    stop: int = sys.maxsize
    text_field: str = "text"  # the field with the text (jsonl, tfds)
    language: str = AUTO  # the language whose abbreviations do not end sentences; "auto": English


def list_parts(
    input_file: str,
    input_format: str = "auto",
    text_field: str = "text",
    part_bytes: int = PART_BYTES,
    language: str = AUTO,
) -> list[CorpusPart]:
    """Finds the input files and splits them into parts, in the order of the input.

    Args:
      input_file: comma-separated files, globs (their matches are sorted) or dataset names.
      input_format: one of the formats above, or "auto" to look at each file.
      text_field: see `CorpusPart`.
      part_bytes: size of a part of an uncompressed file; a compressed file is one part.
      language: see `CorpusPart`.

    Raises:
      ValueError: if the language is unknown, nothing matches a name, a file is neither text nor
        records, or no document is found in all of them.
    """
    abbreviations_of(language)
    parts: list[CorpusPart] = []
    formats: Counter[str] = Counter()
    for name in dict.fromkeys(_expand(input_file, input_format)):
        if name.startswith("tfds:"):
            spans = list_dataset_parts(name.removeprefix("tfds:"), part_bytes)
            new_parts = [CorpusPart(name, "tfds", at, to, text_field) for name, at, to in spans]
        else:
            new_parts = _list_file(name, input_format, text_field, part_bytes)
        parts += [dataclasses.replace(part, language=language) for part in new_parts]
        formats[new_parts[0].format if new_parts else "empty"] += 1
    logging.info("%s: %s", input_file, ", ".join(f"{n} x {form}" for form, n in formats.items()))
    _check_not_empty(input_file, parts)
    return parts


def list_data_parts(
    data: DataConfig, input_file: str, part_bytes: int = PART_BYTES
) -> list[CorpusPart]:
    """Lists the parts of an input with the format, text field and language of a configuration."""
    return list_parts(
        input_file, data.input_format, data.text_field, part_bytes, data.sentence_language
    )


def read_documents(part: CorpusPart) -> Iterator[list[str]]:
    """Yields the documents of a part: sentences stripped, no sentence and no document empty.

    Raises:
      ValueError: naming file and line, if a line is not UTF-8 or not the expected JSON, or the
        compressed file is damaged.
    """
    if part.format == "tfds":
        texts = read_dataset(part.path, part.start, part.stop, part.text_field)
        for text in texts:
            if document := _split_text(text, part.language):
                yield document
        return
    readers = {"lines": _read_lines, "prose": _read_prose, "jsonl": _read_jsonl}
    if part.format not in readers:
        raise ValueError(
            f"{part.path}: format {part.format!r} is not text; expected {list(readers)}."
        )
    with open_decompressed(part.path) as file:
        yield from readers[part.format](file, part)


# Listing --------------------------------------------------------------------------------------


def _expand(input_file: str, input_format: str) -> Iterator[str]:
    """Yields file paths, and dataset names as `tfds:NAME`."""
    names = [name.strip() for name in input_file.split(",") if name.strip()]
    if not names:
        raise ValueError("input_file is empty; give comma-separated files, globs or tfds:NAME.")
    for name in names:
        if name.startswith("tfds:") or input_format == "tfds":
            yield "tfds:" + name.removeprefix("tfds:")
            continue
        try:
            yield from matching_files(name, "input_file")
        except ValueError:
            if not is_dataset_name(name):
                raise
            yield "tfds:" + name


def _list_file(path: str, form: str, text_field: str, part_bytes: int) -> list[CorpusPart]:
    with open_decompressed(path) as file:
        sample = file.read(SAMPLE_BYTES)
        is_compressed = not isinstance(file.raw, io.FileIO)
    if not sample.strip():
        # A longer file may begin with white space and still have text.
        if len(sample) < SAMPLE_BYTES:
            logging.warning("%s is empty.", path)
            return []
    if form == "auto":
        form = detect_format(path, sample, len(sample) == SAMPLE_BYTES)
    size = pathlib.Path(path).stat().st_size
    # A compressed stream cannot be entered in the middle; records are only listed.
    if is_compressed or form == "tfrecord":
        return [CorpusPart(path, form, text_field=text_field)]
    if form == "prose":  # parts begin where documents are cut anyway
        part_bytes = -(-part_bytes // text_lines.BLOCK_BYTES) * text_lines.BLOCK_BYTES
    starts = range(0, size, part_bytes)
    return [CorpusPart(path, form, at, min(at + part_bytes, size), text_field) for at in starts]


def _check_not_empty(input_file: str, parts: list[CorpusPart]) -> None:
    for part in parts:
        if part.format == "tfrecord" or next(read_documents(part), None):
            return
    raise ValueError(
        f"input_file {input_file!r} holds no documents: every file is empty or blank; give files "
        "with text."
    )


# Reading --------------------------------------------------------------------------------------


def _read_lines(file: IO[bytes], part: CorpusPart) -> Iterator[list[str]]:
    """Yields the documents, which end at blank lines and, if long, at a multiple of BLOCK_BYTES."""
    document: list[str] = []
    block = text_lines.BLOCK_BYTES
    begin = 0  # Offset of the document.
    before = -1  # Offset of the last line.
    blank = -1  # Offset of the last blank line.
    for offset, line in text_lines.read_lines(file, part.path, part.start):
        sentence = line.strip()
        multiple = offset // block * block
        # Earlier cuts are ignored: a reader that starts near this line does not know them.
        is_cut = before < multiple and blank < multiple - block // 2
        if is_cut or not sentence:
            # Documents that begin before `start` belong to the part before, which reads them whole.
            if document and begin >= part.start:
                yield document
            document = []
        if not document:
            if offset >= part.stop:
                return
            begin = offset
        if sentence:
            document.append(sentence)
        else:
            blank = offset
        before = offset
    if document and begin >= part.start:
        yield document


def _read_jsonl(file: IO[bytes], part: CorpusPart) -> Iterator[list[str]]:
    for offset, line in text_lines.read_whole_lines(file, part.path, part.start, part.stop):
        if line.isspace():
            continue
        try:
            record = json.loads(line)
            text = record[part.text_field]
        except (ValueError, RecursionError, KeyError, TypeError) as error:
            problem = f"is not JSON ({error})"
            if isinstance(error, (KeyError, TypeError)):
                fields = sorted(record) if isinstance(record, dict) else type(record).__name__
                problem = f"has no field {part.text_field!r} but {fields}; set text_field"
            at = f"{part.path}, line {text_lines.line_number(part.path, offset)}"
            raise ValueError(f"{at} {problem}.") from None
        if not isinstance(text, str):
            at = f"{part.path}, line {text_lines.line_number(part.path, offset)}"
            kind = type(text).__name__
            raise ValueError(f"{at}: field {part.text_field!r} holds {kind}, expected a string.")
        if "\\ud" in line or "\\uD" in line:  # A lone surrogate is not a character.
            text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        if document := _split_text(text, part.language):
            yield document


def _split_text(text: str, language: str) -> list[str]:
    """Returns the sentences of a text, whose paragraphs may be hard-wrapped."""
    breaks = text.count("\n")
    # Lines of 100 characters or more on average are paragraphs, not wrapped lines.
    if breaks > 3 and len(text) < 100 * breaks and is_wrapped(text.split("\n")):
        text = re.sub(r"(?<=\S)[ \t\r]*\n(?=[ \t]*(\S))", _line_separator, text)
    return split_sentences(text, language)


def _line_separator(match: re.Match[str]) -> str:
    """Returns the replacement of a line break within a paragraph."""
    return line_separator(match.string[match.start() - 1], match[1])


def _read_prose(file: IO[bytes], part: CorpusPart) -> Iterator[list[str]]:
    """Yields the documents of running text; see the module's docstring for where they end.

    Every rule considers only the paragraph before the line, and all state is reset at each multiple
    of BLOCK_BYTES. A part that begins there therefore yields the same documents as the whole file.
    """
    document: list[str] = []
    paragraph: list[str] = []
    block = text_lines.BLOCK_BYTES
    blanks = 1
    is_long = False
    cut = part.start
    is_in_part = is_title = False
    for offset, line in text_lines.read_lines(file, part.path, part.start):
        stripped = line.strip()
        if offset < part.start:
            blanks = int(not stripped)
            is_long = _is_paragraph(line)
            continue
        # A form feed has the effect of two blank lines.
        blanks += 2 * ("\f" in line) + (not stripped)
        if not stripped:
            if offset >= part.stop and not (document or paragraph):
                return
            continue
        was_long = is_long
        is_long = _is_paragraph(line)
        is_first = bool(blanks or was_long or is_long)
        if is_first and paragraph:
            is_title = len(paragraph) == 1 and _is_title(paragraph[0])
            document += split_sentences(join_lines(paragraph), part.language)
            paragraph = []
        # Past a multiple the document ends at the next paragraph, or after 64 KiB without one.
        is_cut = offset >= cut and (is_first or offset >= cut + block // 4)
        if is_cut or is_first and _is_boundary(stripped, blanks, is_title):
            document += split_sentences(join_lines(paragraph), part.language)
            if document:
                yield document
            document = []
            paragraph = []
        if is_cut:
            if offset >= part.stop:
                return
            cut = (offset // block + 1) * block
            is_in_part = True
        if is_in_part:
            paragraph.append(stripped)
        blanks = 0
    document += split_sentences(join_lines(paragraph), part.language)
    if document:
        yield document


def _is_paragraph(line: str) -> bool:
    """Returns whether a line is too long to be hard-wrapped."""
    size = len(line.encode())
    if size > WRAPPED_LINE_BYTES:
        size -= 2 * len(_NARROW_CHARACTER.findall(line))
    return size > WRAPPED_LINE_BYTES


def _is_title(line: str) -> bool:
    return len(line) < 80 and not SENTENCE_END.search(line)


def _is_boundary(line: str, blanks: int, is_after_title: bool) -> bool:
    return not is_after_title and (blanks > 1 or bool(_HEADING.match(line) and _is_title(line)))
