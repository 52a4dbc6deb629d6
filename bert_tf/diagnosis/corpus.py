"""Examines raw text: copies, damage, too few or too short documents, unsuitable vocabularies.

Above `MAX_CHARACTERS` an even sample is read: parts of 1 MiB of all files, of compressed files,
which have no middle, the beginning. Copies are counted within it: their share is a lower bound.
"""

import collections
import glob
import math
import random
import re
import time

import numpy as np

from bert_tf.checkpoints.tokenizer_files import check_casing
from bert_tf.config import DataConfig
from bert_tf.corpus.corpus import CorpusPart, list_parts, read_documents
from bert_tf.corpus.corpus_format import SENTENCE_END
from bert_tf.diagnosis import thresholds
from bert_tf.diagnosis.findings import Diagnosis, percent
from bert_tf.text.tokenization import Tokenizer
from bert_tf.text.wordpiece import WordPiece, split_words

MAX_CHARACTERS, PART_BYTES = 32 << 20, 1 << 20
MAX_SECONDS = 120.0
COPY_CHARACTERS = 20  # a shorter line ("References") repeats without being a copy
LONG_LINE, SHORT_WORDS = 60, 50
MAX_UNKNOWN_LINES = 5000  # lines with [UNK] whose words are looked at: the slow way
SHOWN = 10

# UTF-8 read as Latin-1 or Windows-1252: the lead byte of two or three, then a byte above 0x7f. Or
# Windows-1252 read as Latin-1: its quotes are control characters there.
_UPPER_HALF = "\x80-\xbf‚ƒ„…†‡ˆ‰‹‘’“”•–—˜™›œžŸ"
DAMAGE = (
    (
        re.compile(f"\ufffd|[ÃÂ][{_UPPER_HALF}]|â€[{_UPPER_HALF}]|ï»¿|[\x80-\x9f]"),
        thresholds.LOST_CHARACTERS,
        "Wrongly decoded characters",
        "Decode the source anew with its own encoding (UTF-8, or CP1252 if it is from Windows), or "
        "repair it: text.encode('cp1252').decode('utf8').",
    ),
    (
        re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]"),
        thresholds.CONTROL_CHARACTERS,
        "Control characters",
        "Replace them with blanks (tr '\\000-\\010' ' '): the tokenizer deletes them, words join.",
    ),
    (
        re.compile(r"</?[a-zA-Z][a-zA-Z0-9]*(?: [^<>]*)?/?>|&(?:[a-z]{2,6}|#\d{2,5});"),
        thresholds.MARKUP,
        "HTML in the text",
        "Extract the text (html.unescape, an extractor) before training.",
    ),
)


class Corpus:
    """Counts what documents hold.

    Attributes:
      documents: how often each document was met, by its hash.
      words, sentences: of each document.
      lines: how often each line of `COPY_CHARACTERS` or more was met.
      damaged: for each of `DAMAGE` the lines that have it.
      pieces: how often each id was met.
      unknown_words: words that are [UNK], with how often each was met.
    """

    def __init__(self, tokenizer: Tokenizer | None) -> None:
        self.tokenizer = tokenizer
        self.documents: collections.Counter[int] = collections.Counter()
        self.words: list[int] = []
        self.sentences: list[int] = []
        self.lines: collections.Counter[str] = collections.Counter()
        self.num_characters = self.num_long = self.num_cut = 0
        self.damaged: list[list[str]] = [[] for _ in DAMAGE]
        self.pieces: collections.Counter[int] = collections.Counter()
        self.unknown_words: collections.Counter[str] = collections.Counter()
        self._num_examined = 0

    def read(self, parts: list[CorpusPart], problems: list[str]) -> str:
        """Reads the parts, or some of each; returns how much that was, and adds to `problems`."""
        most = max(PART_BYTES, MAX_CHARACTERS // max(1, len(parts)))
        end = time.monotonic() + MAX_SECONDS
        num_read = num_cut = 0
        for part in random.Random(0).sample(parts, len(parts)):
            before = self.num_characters
            if before >= MAX_CHARACTERS or time.monotonic() > end:
                break
            num_read += 1
            try:
                for document in read_documents(part):
                    if self.num_characters - before > most:
                        num_cut += 1
                        break
                    self.add(document)
            except ValueError as error:
                problems.append(str(error))
        is_all = num_read == len(parts) and not num_cut
        return "all" if is_all else f"a sample of {num_read} of {len(parts)} parts"

    def add(self, document: list[str]) -> None:
        """Counts a document, a list of sentences."""
        self.documents[hash("\n".join(document))] += 1
        self.words.append(sum(len(line.split()) for line in document))
        self.sentences.append(len(document))
        self.lines.update(line for line in document if len(line) >= COPY_CHARACTERS)
        for line in document:
            self.num_characters += len(line)
            if len(line) >= LONG_LINE:
                self.num_long += 1
                self.num_cut += SENTENCE_END.search(line) is None
            if not line.isascii() or not line.isprintable() or "<" in line or "&" in line:
                for lines, (pattern, *_) in zip(self.damaged, DAMAGE, strict=True):
                    if pattern.search(line):
                        lines.append(shorten(line))
            if self.tokenizer:
                self._tokenize(line, self.tokenizer)

    def _tokenize(self, line: str, tokenizer: Tokenizer) -> None:
        ids = tokenizer.encode(line)
        self.pieces.update(ids)
        unknown = tokenizer.vocab.unk_id
        if not isinstance(tokenizer, WordPiece):  # Bytes write every word.
            return
        if unknown in ids and self._num_examined < MAX_UNKNOWN_LINES:
            self._num_examined += 1
            words = split_words(line, tokenizer.do_lower_case)
            self.unknown_words.update(w for w in words if tokenizer.encode(w) == [unknown])


def diagnose_corpus(place: str, data: DataConfig, tokenizer: Tokenizer | None) -> Diagnosis:
    """Looks at text.

    Args:
      place: files as of --input_file, or a folder of them.
      data: format of the text.
      tokenizer: of the vocabulary to judge; None: none is judged.

    Raises:
      ValueError: if nothing of it can be read.
    """
    # Not as one list: of a file that is refused the others are read all the same.
    names = sorted(glob.glob(place)) or [place]  # noqa: PTH207 (pathlib refuses absolute globs)
    parts: list[CorpusPart] = []
    problems: list[str] = []
    for name in names:
        try:
            parts += list_parts(name, data.input_format, data.text_field, PART_BYTES)
        except ValueError as error:
            problems.append(str(error))
    corpus = Corpus(tokenizer)
    scope = corpus.read(parts, problems)
    if not corpus.words:
        raise ValueError(problems[0])
    found = Diagnosis(place, "corpus")
    found.judge(
        thresholds.ANY,
        len(problems),
        "Input that cannot be read",
        "Repair or leave out these files: preparation would stop there.",
        measured=f"{len(problems)} files or parts: {problems[0] if problems else ''}",
        expected="none",
        details=tuple(problems[1:SHOWN]),
    )
    found.facts = {
        "read": scope,
        "documents": f"{len(corpus.words):,}",
        "lines": f"{sum(corpus.sentences):,}",
        "characters": f"{corpus.num_characters:,}",
        "words a document": f"{np.median(corpus.words):,.0f} (median)",
    }
    _judge_copies(corpus, found)
    _judge_sizes(corpus, found, scope == "all")
    for lines, (_, bounds, title, remedy) in zip(corpus.damaged, DAMAGE, strict=True):
        share = len(lines) / sum(corpus.sentences)
        measured = f"{percent(share)} of the lines ({len(lines):,})"
        found.judge(bounds, share, title, remedy, measured, details=tuple(lines[:SHOWN]))
    if tokenizer:
        _judge_vocabulary(corpus, found, tokenizer)
    sizes = np.maximum(corpus.words, 1)
    edges = np.geomspace(1, max(2, sizes.max()), 40)
    found.plots["Words a document"] = lambda axes: (axes.hist(sizes, edges), axes.set_xscale("log"))
    return found


def _judge_copies(corpus: Corpus, found: Diagnosis) -> None:
    number = len(corpus.words)
    copies = number - len(corpus.documents)
    found.judge(
        thresholds.DUPLICATE_DOCUMENTS,
        copies / number,
        "Documents that occur more than once in the corpus",
        "Pass --deduplicate=exact (or near): repeated text is memorised, and held-out documents "
        "would be known.",
        measured=f"{percent(copies / number)} ({copies:,} of {number:,})",
    )
    repeated = [(line, count) for line, count in corpus.lines.most_common() if count > 1]
    share = sum(len(line) * (count - 1) for line, count in repeated) / corpus.num_characters
    found.facts["repeated lines"] = percent(share)
    found.judge(
        thresholds.DUPLICATE_LINES,
        share,
        "Lines that repeat earlier ones",
        "Remove copied documents first, then the lines listed here: headers, footers, notices.",
        measured=f"{percent(share)} of the characters",
        details=tuple(f"{count:,} x {shorten(line)}" for line, count in repeated[:SHOWN]),
    )


def _judge_sizes(corpus: Corpus, found: Diagnosis, is_whole: bool) -> None:
    words = np.array(corpus.words)
    found.judge(
        thresholds.DOCUMENTS,
        len(words) if is_whole else math.nan,
        "Too few documents for next sentence prediction",
        "Separate documents by blank lines, give more text, or pass --use_next_sentence=false.",
        measured=f"{len(words):,} documents",
    )
    found.judge(
        thresholds.LONGEST_DOCUMENT,
        words.max() / max(1, words.sum()) if is_whole and len(words) > 1 else math.nan,
        "A document that is most of the corpus",
        "Split it at its chapters, with blank lines or as records.",
    )
    found.judge(
        thresholds.SINGLE_SENTENCES,
        float((np.array(corpus.sentences) == 1).mean()),
        "Documents of one sentence",
        "Put text that belongs together in one document, or pass --use_next_sentence=false.",
    )
    found.judge(
        thresholds.SHORT_DOCUMENTS,
        float((words < SHORT_WORDS).mean()),
        f"Documents of less than {SHORT_WORDS} words",
        "Check where documents end: if each line is one, pass JSONL. If they really are short, use "
        "a shorter --max_seq_length.",
    )
    found.judge(
        thresholds.CUT_LINES,
        corpus.num_cut / corpus.num_long if corpus.num_long else math.nan,
        "Long lines that end in mid-sentence",
        "If an export cut them, make it again. If they are wrapped, pass --input_format=prose. "
        "Tables and lists are better left out.",
    )


def _judge_vocabulary(corpus: Corpus, found: Diagnosis, tokenizer: Tokenizer) -> None:
    vocab = tokenizer.vocab
    total = max(1, corpus.pieces.total())
    unknown = corpus.pieces[vocab.unk_id] / total
    continued = sum(n for index, n in corpus.pieces.items() if vocab.is_continuation[index])
    per_word = total / max(1, total - continued)
    found.facts |= {
        "pieces a word": f"{per_word:.2f}",
        vocab.tokens[vocab.unk_id]: percent(unknown),
    }
    guilty: collections.Counter[str] = collections.Counter()
    for word, count in corpus.unknown_words.items():
        lacking = [c for c in set(word) if c not in vocab.ids and f"##{c}" not in vocab.ids]
        guilty.update(dict.fromkeys(lacking, count))
    found.judge(
        thresholds.UNKNOWN_PIECES,
        unknown,
        "Pieces that the vocabulary does not know",
        "Use a vocabulary of this language (python -m bert_tf.build_vocab trains one), or add the "
        "words with --added_words_file.",
        measured=f"{percent(unknown)} of the pieces are [UNK]",
        details=(
            *(f"{c!r} (U+{ord(c):04X}) in {n:,} words" for c, n in guilty.most_common(SHOWN)),
            "words: " + ", ".join(word for word, _ in corpus.unknown_words.most_common(SHOWN)),
        ),
    )
    found.judge(
        thresholds.PIECES_PER_WORD,
        per_word,
        "A vocabulary that splits words into small pieces",
        "Train a vocabulary on this text (python -m bert_tf.build_vocab), or enlarge it.",
    )
    if not isinstance(tokenizer, WordPiece):  # Byte-level BPE has no casing of its own.
        return
    contradiction = ""
    try:
        check_casing(vocab, tokenizer.do_lower_case, "--vocab_file")
    except ValueError as error:
        contradiction = str(error).removesuffix(" Correct the file.")
    found.judge(
        thresholds.ANY,
        bool(contradiction),
        "Casing does not agree",
        "Set --do_lower_case to match the vocabulary: true for an uncased one.",
        measured=contradiction,
        expected="one casing",
    )


def shorten(text: str) -> str:
    """Returns the text, its middle left out if it is long, control characters spelt out."""
    text = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
    return text if len(text) <= 80 else f"{text[:50]} ... {text[-25:]}"
