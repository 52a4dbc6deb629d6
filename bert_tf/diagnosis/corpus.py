"""Examines raw text: copies, damage, too few or too short documents, unsuitable vocabularies.

Of more than `MAX_CHARACTERS` a sample is read: parts of 1 MiB from all files, and the beginning of
compressed files, which cannot be read from the middle. Copies are counted within the sample, so
their share is a lower bound.
"""

import collections
import glob
import math
import random
import re
import time
from typing import TYPE_CHECKING

import numpy as np

from bert_tf.checkpoints.casing import check_casing
from bert_tf.config import DataConfig
from bert_tf.corpus.corpus import CorpusPart, list_data_parts, read_documents
from bert_tf.corpus.corpus_format import SENTENCE_END
from bert_tf.corpus.unspaced_text import word_spans
from bert_tf.diagnosis import thresholds
from bert_tf.diagnosis.findings import Diagnosis, percent
from bert_tf.text.tokenization import Tokenizer
from bert_tf.text.wordpiece import WordPiece, split_words

if TYPE_CHECKING:
    from matplotlib.axes import Axes

import unicodedata
from typing import NamedTuple

MAX_CHARACTERS = 32 << 20
PART_BYTES = 1 << 20
MAX_SECONDS = 120.0
COPY_CHARACTERS = 20  # A shorter line ("References") may repeat without being a copy.
LONG_LINE = 60  # characters
SHORT_WORDS = 50
MAX_UNKNOWN_LINES = 5000  # lines with [UNK] whose words are examined, which is slow
SHOWN = 10

# UTF-8 read as Latin-1 or Windows-1252: the first byte of a character of two or three bytes,
# followed by a byte above 0x7f. Or Windows-1252 read as Latin-1, where its quotes are control
# characters.
_UPPER_HALF = "\x80-\xbf‚ƒ„…†‡ˆ‰‹‘’“”•–—˜™›œžŸ"
DAMAGE = (
    (
        re.compile(f"\ufffd|[ÃÂ][{_UPPER_HALF}]|â€[{_UPPER_HALF}]|ï»¿|[\x80-\x9f]"),
        thresholds.LOST_CHARACTERS,
        "Wrongly decoded characters",
        "Decode the source again with the right encoding (UTF-8, or CP1252 if it is from "
        "Windows), or repair it: text.encode('cp1252').decode('utf8').",
    ),
    (
        re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]"),
        thresholds.CONTROL_CHARACTERS,
        "Control characters",
        "Replace them with blanks (tr '\\000-\\010' ' '): the tokenizer deletes them and joins "
        "words.",
    ),
    (
        re.compile(r"</?[a-zA-Z][a-zA-Z0-9]*(?: [^<>]*)?/?>|&(?:[a-z]{2,6}|#\d{2,5});"),
        thresholds.MARKUP,
        "HTML in the text",
        "Extract the text (html.unescape, an extractor) before training.",
    ),
)


class Corpus:
    """Statistics of documents.

    Attributes:
      documents: occurrences of each document, by its hash.
      words: number of words in each document.
      sentences: number of sentences in each document.
      lines: occurrences of each line of `COPY_CHARACTERS` or more.
      damaged: for each entry of `DAMAGE`, the lines that match it.
      characters: occurrences of each character.
      runs: number of characters in each line with runs of one drawn character.
      tokens: occurrences of each token id.
      unknown_words: occurrences of each word that is [UNK].
    """

    def __init__(self, tokenizer: Tokenizer | None) -> None:
        self.tokenizer = tokenizer
        self.documents: collections.Counter[int] = collections.Counter()
        self.words: list[int] = []
        self.sentences: list[int] = []
        self.lines: collections.Counter[str] = collections.Counter()
        self.num_characters = 0
        self.characters: collections.Counter[str] = collections.Counter()
        self.runs: collections.Counter[str] = collections.Counter()
        self.num_long = 0  # lines of `LONG_LINE` or more
        self.num_cut = 0  # those without the end of a sentence
        self.damaged: list[list[str]] = [[] for _ in DAMAGE]
        self.tokens: collections.Counter[int] = collections.Counter()
        self.unknown_words: collections.Counter[str] = collections.Counter()
        self._num_examined = 0

    def read(self, parts: list[CorpusPart], problems: list[str]) -> str:
        """Reads the parts or a sample of them; returns "all", or a description of the sample.

        `problems` gets the messages about parts that cannot be read.
        """
        # Equal shares of the limit, so that one long file does not fill the sample.
        part_limit = max(PART_BYTES, MAX_CHARACTERS // max(1, len(parts)))
        end = time.monotonic() + MAX_SECONDS
        num_read = 0
        is_all = True
        # In random order, so that a sample has parts of many files; the seed is fixed.
        for part in random.Random(0).sample(parts, len(parts)):
            before = self.num_characters
            if before >= MAX_CHARACTERS or time.monotonic() > end:
                is_all = False
                break
            num_read += 1
            try:
                for document in read_documents(part):
                    if self.num_characters - before > part_limit:
                        is_all = False
                        break
                    self.add(document)
            except ValueError as error:
                problems.append(str(error))
        if is_all:
            return "all"
        return f"a sample of {num_read} of {len(parts)} parts"

    def add(self, document: list[str]) -> None:
        """Counts a document, a list of sentences."""
        # The hash instead of the text, because a corpus may not fit into memory.
        self.documents[hash("\n".join(document))] += 1
        self.words.append(sum(map(_count_words, document)))
        self.sentences.append(len(document))
        self.lines.update(line for line in document if len(line) >= COPY_CHARACTERS)
        for line in document:
            self.num_characters += len(line)
            self.characters.update(line)
            if drawn := run_characters(line):
                self.runs[shorten(line)] += drawn
            if len(line) >= LONG_LINE:
                self.num_long += 1
                self.num_cut += SENTENCE_END.search(line) is None
            # A printable ASCII line without these characters matches no pattern.
            if not line.isascii() or not line.isprintable() or "<" in line or "&" in line:
                for lines, (pattern, *_) in zip(self.damaged, DAMAGE, strict=True):
                    if pattern.search(line):
                        lines.append(shorten(line))
            if self.tokenizer:
                self._tokenize(line, self.tokenizer)

    def _tokenize(self, line: str, tokenizer: Tokenizer) -> None:
        ids = tokenizer.encode(line)
        self.tokens.update(ids)
        unknown = tokenizer.vocab.unk_id
        if not isinstance(tokenizer, WordPiece):  # Byte-level BPE has a token for every byte.
            return
        if unknown in ids and self._num_examined < MAX_UNKNOWN_LINES:
            self._num_examined += 1
            words = split_words(line, tokenizer.do_lower_case, tokenizer.vocab.options)
            self.unknown_words.update(word for word in words if tokenizer.encode(word) == [unknown])


def _count_words(line: str) -> int:
    """Returns the number of words; in scripts without spaces, each character is a word."""
    if line.isascii():
        return len(line.split())
    return len(word_spans(line))


def diagnose_corpus(source: str, data: DataConfig, tokenizer: Tokenizer | None) -> Diagnosis:
    """Examines text in files as in --input_file, and the vocabulary of a tokenizer, if any.

    Raises:
      ValueError: if no file can be read.
    """
    # One file at a time, so that an unreadable file does not keep the others from being read.
    names = sorted(glob.glob(source)) or [source]  # noqa: PTH207 (pathlib refuses absolute globs)
    parts: list[CorpusPart] = []
    problems: list[str] = []
    for name in names:
        try:
            parts += list_data_parts(data, name, PART_BYTES)
        except ValueError as error:
            problems.append(str(error))
    corpus = Corpus(tokenizer)
    scope = corpus.read(parts, problems)
    if not corpus.words:
        raise ValueError(problems[0])
    diagnosis = Diagnosis(source, "corpus")
    diagnosis.check(
        thresholds.ANY,
        len(problems),
        "Input that cannot be read",
        "Repair or leave out these files: preparation would stop there.",
        measured=f"{len(problems)} files or parts: {problems[0] if problems else ''}",
        expected="none",
        details=tuple(problems[1:SHOWN]),
    )
    diagnosis.facts = {
        "read": scope,
        "documents": f"{len(corpus.words):,}",
        "lines": f"{sum(corpus.sentences):,}",
        "characters": f"{corpus.num_characters:,}",
        "words per document": f"{np.median(corpus.words):,.0f} (median)",
    }
    _check_copies(corpus, diagnosis)
    _check_sizes(corpus, diagnosis, scope == "all")
    _check_characters(corpus, diagnosis)
    for lines, (_, bounds, title, remedy) in zip(corpus.damaged, DAMAGE, strict=True):
        share = len(lines) / sum(corpus.sentences)
        measured = f"{percent(share)} of the lines ({len(lines):,})"
        diagnosis.check(bounds, share, title, remedy, measured, details=tuple(lines[:SHOWN]))
    if tokenizer:
        _check_vocabulary(corpus, diagnosis, tokenizer)
    sizes = np.maximum(corpus.words, 1)
    edges = np.geomspace(1, max(2, sizes.max()), 40)

    def plot(axes: "Axes") -> None:
        axes.hist(sizes, edges.tolist())
        axes.set_xscale("log")

    diagnosis.plots["Words per document"] = plot
    return diagnosis


def _check_copies(corpus: Corpus, diagnosis: Diagnosis) -> None:
    number = len(corpus.words)
    copies = number - len(corpus.documents)
    diagnosis.check(
        thresholds.DUPLICATE_DOCUMENTS,
        copies / number,
        "Documents that occur more than once in the corpus",
        "Pass --deduplicate=exact (or near): the model memorises repeated text, and held-out "
        "documents may have been seen in training.",
        measured=f"{percent(copies / number)} ({copies:,} of {number:,})",
    )
    repeated = [(line, count) for line, count in corpus.lines.most_common() if count > 1]
    share = sum(len(line) * (count - 1) for line, count in repeated) / corpus.num_characters
    diagnosis.facts["repeated lines"] = percent(share)
    diagnosis.check(
        thresholds.DUPLICATE_LINES,
        share,
        "Lines that repeat earlier ones",
        "Remove copied documents first, then the lines listed here: headers, footers, notices.",
        measured=f"{percent(share)} of the characters",
        details=tuple(f"{count:,} x {shorten(line)}" for line, count in repeated[:SHOWN]),
    )


def _check_sizes(corpus: Corpus, diagnosis: Diagnosis, is_whole: bool) -> None:
    words = np.array(corpus.words)
    longest = math.nan  # share of the longest document
    if is_whole and len(words) > 1:
        longest = words.max() / max(1, words.sum())
    diagnosis.check(
        thresholds.DOCUMENTS,
        len(words) if is_whole else math.nan,
        "Too few documents for next sentence prediction",
        "Separate documents by blank lines, give more text, or pass --pairs=none.",
        measured=f"{len(words):,} documents",
    )
    diagnosis.check(
        thresholds.LONGEST_DOCUMENT,
        longest,
        "One document makes up most of the corpus",
        "Split it at its chapters, with blank lines or as records.",
    )
    diagnosis.check(
        thresholds.SINGLE_SENTENCES,
        float((np.array(corpus.sentences) == 1).mean()),
        "Documents of one sentence",
        "Put text that belongs together in one document, or pass --pairs=none.",
    )
    diagnosis.check(
        thresholds.SHORT_DOCUMENTS,
        float((words < SHORT_WORDS).mean()),
        f"Documents of fewer than {SHORT_WORDS} words",
        "Check where documents end: if each line is a document, pass JSONL. If they are really "
        "short, use a shorter --max_seq_length.",
    )
    diagnosis.check(
        thresholds.CUT_LINES,
        corpus.num_cut / corpus.num_long if corpus.num_long else math.nan,
        "Long lines that end in mid-sentence",
        "If an export cut them, make it again. If they are wrapped, pass --input_format=prose. "
        "Tables and lists are better left out.",
    )


def _check_characters(corpus: Corpus, diagnosis: Diagnosis) -> None:
    odd = odd_character(corpus.characters)
    diagnosis.check(
        thresholds.ODD_CHARACTER,
        odd.share if odd else 0.0,
        "A character that is not part of the language",
        "Remove it, for example the rules of tables: a model that predicts only this character "
        "looks good.",
        measured=f"{percent(odd.share)} of the characters are {odd.name()}" if odd else "",
    )
    share = corpus.runs.total() / corpus.num_characters
    diagnosis.check(
        thresholds.DRAWN_RUNS,
        share,
        "Runs of one character, such as ---- or ....",
        "Remove them: they are lines and leaders of tables, from which nothing is learned.",
        measured=f"{percent(share)} of the characters",
        details=tuple(line for line, _ in corpus.runs.most_common(SHOWN)),
    )


def _check_vocabulary(corpus: Corpus, diagnosis: Diagnosis, tokenizer: Tokenizer) -> None:
    vocab = tokenizer.vocab
    total = max(1, corpus.tokens.total())
    unknown = corpus.tokens[vocab.unk_id] / total
    continued = sum(n for index, n in corpus.tokens.items() if vocab.is_continuation[index])
    # Each word begins with the one token that is not a continuation.
    per_word = total / max(1, total - continued)
    diagnosis.facts |= {
        "tokens per word": f"{per_word:.2f}",
        vocab.tokens[vocab.unk_id]: percent(unknown),
    }
    diagnosis.check(
        thresholds.UNKNOWN_TOKENS,
        unknown,
        "Words that the vocabulary cannot express",
        "Use a vocabulary of this language (python -m bert_tf.build_vocab trains one), or add the "
        "words with --added_words_file.",
        measured=f"{percent(unknown)} of the tokens are [UNK]",
        details=tuple(_unknown_details(corpus, tokenizer)),
    )
    diagnosis.check(
        thresholds.TOKENS_PER_WORD,
        per_word,
        "A vocabulary that splits words into short tokens",
        "Train a vocabulary on this text (python -m bert_tf.build_vocab), or enlarge it.",
    )
    if not isinstance(tokenizer, WordPiece):  # Byte-level BPE does not depend on casing.
        return
    contradiction = ""
    try:
        check_casing(vocab, tokenizer.do_lower_case, "--vocab_file")
    except ValueError as error:
        contradiction = str(error).removesuffix(" Correct the file.")
    diagnosis.check(
        thresholds.ANY,
        bool(contradiction),
        "The casing does not match the vocabulary",
        "Set --do_lower_case to match the vocabulary: true for an uncased one.",
        measured=contradiction,
        expected="one casing",
    )


def _unknown_details(corpus: Corpus, tokenizer: Tokenizer) -> list[str]:
    """Lists the characters that the vocabulary lacks, then the most frequent unknown words."""
    known = tokenizer.vocab.ids
    characters: collections.Counter[str] = collections.Counter()
    for word, count in corpus.unknown_words.items():
        missing = [char for char in set(word) if char not in known and f"##{char}" not in known]
        characters.update(dict.fromkeys(missing, count))
    details = []
    for char, count in characters.most_common(SHOWN):
        details.append(f"{char!r} (U+{ord(char):04X}) in {count:,} words")
    words = ", ".join(word for word, _ in corpus.unknown_words.most_common(SHOWN))
    return [*details, f"words: {words}"]


def shorten(text: str) -> str:
    """Returns the text without the middle if it is long, with control characters escaped."""
    text = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
    if len(text) <= 80:
        return text
    return f"{text[:50]} ... {text[-25:]}"


# A character that is drawn rather than read, four times or more, with or without blanks between.
RUN = re.compile(r"([^\w\s]|_)(?:\1{3,}|(?: \1){3,})")
# Each of these may be several percent of good text: ASCII, CJK, Arabic, quotes, joiners, bounds.
COMMON = frozenset(
    ".,;:!?'\"()[]{}<>/\\-+*=#&%$@_|`~^、。，．・「」：；！？（）،؛؟’“”„«»–—…\u200b\u200c\u200d"
)
LEAST_SCRIPT = 0.1  # share of the letters; the other scripts of a text are quotations


class OddCharacter(NamedTuple):
    """The character that takes up the most of a text without being part of its language."""

    character: str
    share: float

    def name(self) -> str:
        """Returns the character, its code and its Unicode name."""
        shown = self.character if self.character.isprintable() else "control character"
        name = unicodedata.name(self.character, "without a name")
        return f"{shown} (U+{ord(self.character):04X}, {name.lower()})"


def odd_character(characters: collections.Counter[str]) -> OddCharacter | None:
    """Returns the most frequent character that is not part of the text's language.

    Letters, marks and punctuation of the text's scripts, digits, blanks and common punctuation are
    part of it. A letter that makes up most of its script is not: it is a padding or a drawing.
    """
    letters: collections.Counter[str] = collections.Counter()
    for character, count in characters.items():
        if character.isalpha():
            letters[_script(character)] += count
    scripts = {name for name, count in letters.items() if count >= LEAST_SCRIPT * letters.total()}
    for character, count in characters.most_common():
        script = _script(character)
        if character in COMMON or character.isspace() or character.isdigit():
            continue
        kind = unicodedata.category(character)
        if kind in ("Lm", "Mn", "Mc") or script in scripts and kind[0] != "L":
            continue
        if kind[0] == "L" and 2 * count <= letters[script]:
            continue
        return OddCharacter(character, count / characters.total())
    return None


def _script(character: str) -> str:
    """Returns the first word of the character's Unicode name, for letters the script."""
    return unicodedata.name(character, "").partition(" ")[0]


def run_characters(line: str) -> int:
    """Returns the number of characters in runs of one drawn character."""
    return sum(len(match[0]) for match in RUN.finditer(line))
