"""Looks at raw text: duplicates, damage, documents too short, a vocabulary that does not fit.

A corpus of more than `MAX_BYTES` is sampled: parts of 1 MiB drawn evenly over all files, of
compressed files (which have no middle) the beginning. Memory and time are those of the sample: the
dictionary of its lines takes a few times its bytes. Duplicates are counted within the sample,
so on a sample their share is a lower bound.
"""

import collections
import dataclasses
import glob
import hashlib
import json
import random
import re
import time
from collections.abc import Sequence

from bert_tf.data.corpus import CorpusPart, list_parts, read_documents
from bert_tf.data.corpus_format import open_decompressed
from bert_tf.data.text_lines import read_whole_lines
from bert_tf.diagnosis.vocabulary_fit import VocabularyFit
from bert_tf.text.wordpiece import WordPiece

MAX_BYTES = 32 << 20
MAX_SECONDS = 120.0
PART_BYTES = 1 << 20
LINE_CHARACTERS = 20  # a shorter line ("References") repeats without being a copy
SHORT_WORDS, LONG_WORDS = 50, 100_000
MAX_DETAILS = 10

REPLACEMENT = "\ufffd"
# UTF-8 read as Latin-1 or Windows-1252: the lead byte of two or three, then a byte above 0x7f.
_UPPER_HALF = "\x80-\xbf‚ƒ„…†‡ˆ‰‹‘’“”•–—˜™›œžŸ"
MOJIBAKE = re.compile(f"[ÃÂ][{_UPPER_HALF}]|â€[{_UPPER_HALF}]|ï»¿")
CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
MARKUP = re.compile(r"</?[a-zA-Z][a-zA-Z0-9]*(?: [^<>]*)?/?>|&(?:[a-z]{2,6}|#\d{2,5});")
DAMAGE = {
    "replacement_characters": lambda line: REPLACEMENT in line,
    "mojibake": lambda line: MOJIBAKE.search(line) is not None,
    "control_characters": lambda line: CONTROL.search(line) is not None,
    "markup": lambda line: MARKUP.search(line) is not None,
}


@dataclasses.dataclass
class CorpusCounts:
    """What was counted in a corpus, or in a sample of it.

    Attributes:
      scope: how much of it was read, in words; `is_sample`: not all.
      seconds: how long that took.
      problems: files that cannot be read, with what is wrong.
      num_records, num_empty: records of JSONL seen, and those without text.
      words, sentences: of each document.
      num_lines, num_characters: of all documents; a line is a sentence as the reader gives it.
      copied_characters: of lines of `LINE_CHARACTERS` or more that stood earlier.
      copied_documents: documents that stood earlier.
      shared_lines: the lines of `LINE_CHARACTERS` or more that most documents hold, with how many
        do.
      damage: kind -> the lines that have it; `damage_counts`: how many.
      fit: what a vocabulary makes of it; None without one.
    """

    scope: str = "all"
    is_sample: bool = False
    seconds: float = 0.0
    problems: list[str] = dataclasses.field(default_factory=list)
    num_records: int = 0
    num_empty: int = 0
    words: list[int] = dataclasses.field(default_factory=list)
    sentences: list[int] = dataclasses.field(default_factory=list)
    num_lines: int = 0
    num_characters: int = 0
    copied_characters: int = 0
    copied_documents: int = 0
    shared_lines: list[tuple[str, int]] = dataclasses.field(default_factory=list)
    damage: dict[str, list[str]] = dataclasses.field(default_factory=dict)
    damage_counts: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    fit: VocabularyFit | None = None


def list_readable(
    input_file: str, input_format: str = "auto", text_field: str = "text"
) -> tuple[list[CorpusPart], list[str]]:
    """Lists the parts of a corpus as `list_parts` does, and names the files that it refuses.

    Raises:
      ValueError: if no file is there.
    """
    try:
        return list_parts(input_file, input_format, text_field, PART_BYTES), []
    except ValueError as error:
        names = sorted(glob.glob(input_file))  # noqa: PTH207 (pathlib refuses absolute globs)
        if len(names) < 2:
            if "no file matches" in str(error):
                raise
            return [], [str(error)]
    found = [list_readable(name, input_format, text_field) for name in names]
    return [part for parts, _ in found for part in parts], [p for _, bad in found for p in bad]


def count_corpus(
    parts: Sequence[CorpusPart], tokenizer: WordPiece | None = None, max_bytes: int = MAX_BYTES
) -> CorpusCounts:
    """Reads the parts of a corpus, or a sample of them.

    Args:
      parts: of `list_readable`.
      tokenizer: of the vocabulary to judge; None: none is judged.
      max_bytes: about how much text to read.
    """
    start = time.monotonic()
    counts = CorpusCounts(fit=VocabularyFit(tokenizer) if tokenizer else None)
    reader = _Reader(counts)
    chosen = draw_parts(parts, max_bytes)
    most = max(PART_BYTES, max_bytes // max(1, len(chosen)))
    num_cut = num_read = 0
    for part in chosen:
        if time.monotonic() - start > MAX_SECONDS:
            break
        num_read += 1
        try:
            num_cut += reader.read(part, most)
        except ValueError as error:
            counts.problems.append(str(error))
    counts.shared_lines = [
        (line, count)
        for line, count in reader.documents_of_line.most_common(MAX_DETAILS)
        if count > 1
    ]
    if num_read < len(parts):
        counts.scope = f"a sample: {num_read} of {len(parts)} parts"
    if num_cut:
        counts.scope += f"; the first {most / 1e6:.0f} MB of {num_cut} of them"
    counts.is_sample = counts.scope != "all"
    counts.seconds = time.monotonic() - start
    return counts


def draw_parts(parts: Sequence[CorpusPart], max_bytes: int) -> list[CorpusPart]:
    """Draws parts evenly, as many as hold `max_bytes`, in random order: any first few are even.

    A part of a file that was cut in parts holds `PART_BYTES`; any other may hold more, of which
    the caller reads its share alone.
    """
    if not parts:
        return []
    count = min(len(parts), max(1, max_bytes // PART_BYTES))
    step = len(parts) / count
    chosen = [parts[int((number + 0.5) * step)] for number in range(count)]
    random.Random(0).shuffle(chosen)
    return chosen


class _Reader:
    """Reads documents into the counts; keeps what was met before."""

    def __init__(self, counts: CorpusCounts) -> None:
        self.counts = counts
        self.documents_of_line: collections.Counter[str] = collections.Counter()
        self._documents: set[bytes] = set()

    def read(self, part: CorpusPart, most: int) -> bool:
        """Reads about `most` characters of a part; true if there were more."""
        begin = self.counts.num_characters
        is_cut = False
        for document in read_documents(part):
            if self.counts.num_characters - begin > most:
                is_cut = True
                break
            self._add(document)
        if part.format == "jsonl":
            self._count_records(part, most)
        return is_cut

    def _add(self, document: list[str]) -> None:
        counts = self.counts
        counts.words.append(sum(len(line.split()) for line in document))
        counts.sentences.append(len(document))
        counts.num_lines += len(document)
        digest = hashlib.blake2b("\n".join(document).encode(), digest_size=16).digest()
        counts.copied_documents += digest in self._documents
        self._documents.add(digest)
        own: dict[str, None] = {}  # a set in order, so that equal counts come in that of the text
        for line in document:
            counts.num_characters += len(line)
            if len(line) >= LINE_CHARACTERS:
                if line in own or line in self.documents_of_line:
                    counts.copied_characters += len(line)
                own[line] = None
            self._note_damage(line)
            if counts.fit:
                counts.fit.add(line)
        self.documents_of_line.update(own.keys())

    def _note_damage(self, line: str) -> None:
        if line.isascii() and "<" not in line and "&" not in line and line.isprintable():
            return
        for kind, has in DAMAGE.items():
            if has(line):
                self.counts.damage_counts[kind] += 1
                examples = self.counts.damage.setdefault(kind, [])
                if len(examples) < MAX_DETAILS:
                    examples.append(shorten(line))

    def _count_records(self, part: CorpusPart, most: int) -> None:
        """Counts the records without text, which the reader of documents passes over."""
        read = 0
        with open_decompressed(part.path) as file:
            for _, line in read_whole_lines(file, part.path, part.start, part.stop):
                if line.isspace():
                    continue
                read += len(line)
                if read > most:
                    return
                self.counts.num_records += 1
                text = json.loads(line)[part.text_field]
                self.counts.num_empty += not text.strip()


def shorten(text: str, most: int = 80) -> str:
    """Returns the text, its middle left out if it is long, control characters spelt out."""
    text = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
    return text if len(text) <= most else f"{text[: most - 30]} ... {text[-25:]}"
