"""Makes the encoder's rows for tagged sentences, and collects the tags of their words.

A word is predicted at its first token, as in section 5.3 of Devlin et al. 2019. A sentence that is
too long for a row becomes windows of whole words, one row each, that overlap by about half:

  words of the sentence   0 . . . . . . . . . . . . 13
  window 0                |- - - - - - - -|
  window 1                        |- - - - - - - - -|
  row                     [CLS] tokens of the window's words [SEP]        ids [T], unpadded
  words                   [W] those that this row predicts, of the sentence
  positions               [W] positions of their first tokens in the row

Every word is predicted in exactly one row, so no word is dropped, whatever its length.

Reference: the section "Tokenization" of google-research/bert's README, which makes the tokens word
by word. Its rows are cut where a sentence is too long; here no word is lost.
"""

import itertools
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bert_tf.examples.rows import TokenizedDataset
from bert_tf.tasks.tagging.files import TaggedSentence, tag_ids
from bert_tf.text.packing import PackedText, pack
from bert_tf.text.tokenization import Tokenizer

NOT_PREDICTED = -1  # the label of all tokens but the first ones of predicted words


class TagRow(NamedTuple):
    """A sentence, or a window of one, as a row without padding.

    Attributes:
      sentence: its number.
      text: [CLS] tokens [SEP], type ids all 0.
      words: int32 [W], which words of the sentence this row predicts, in ascending order.
      positions: int32 [W], positions of the first tokens of these words in the row.
    """

    sentence: int
    text: PackedText
    words: np.ndarray
    positions: np.ndarray


class TaggedExamples(NamedTuple):
    """Sentences with the rows that the model sees of them."""

    sentences: list[TaggedSentence]
    tag_rows: list[TagRow]
    rows: TokenizedDataset
    is_labelled: bool


class Truncations(NamedTuple):
    """Counts of sentences and words that do not fit, for the log.

    Attributes:
      sentences_windowed: sentences that are longer than a row.
      words_cut: words that alone are longer than a row, and so lose their last tokens.
      words_without_tokens: words of control characters alone, for example, which become [UNK].
    """

    sentences_windowed: int
    words_cut: int
    words_without_tokens: int


class _WordIds(dict[str, list[int]]):
    """Caches the tokens of words: at least one for each, and no more than fit in a row."""

    def __init__(self, tokenizer: Tokenizer, room: int):
        super().__init__()
        self._tokenizer = tokenizer
        self._room = room

    def __missing__(self, word: str) -> list[int]:
        tokens = self._tokenizer.encode_word(word) or [self._tokenizer.vocab.unk_id]
        self[word] = tokens[: self._room]
        return self[word]


def make_tag_rows(
    sentences: Sequence[TaggedSentence], tokenizer: Tokenizer, max_seq_length: int
) -> list[TagRow]:
    """Makes the rows of all sentences, in their order; one of each that fits.

    Each word is tokenized on its own, by byte-level BPE with a space before it. One without any
    token is one [UNK], so that it keeps its position; one with more tokens than a row takes loses
    the last of them. A window takes as many whole words as fit. The next begins where half of the
    row's tokens have passed, or a word later. A word is predicted where the smaller number of
    tokens before or after it in the window is largest, in the first of equal ones; windows that
    predict no word are left out.

    Args:
      sentences: of `read_tagged`; their tags are ignored.
      tokenizer: makes the tokens.
      max_seq_length: maximum length of a row, [CLS] and [SEP] included.

    Raises:
      ValueError: if that leaves no room for a word.
    """
    room = _room(max_seq_length)
    word_ids = _WordIds(tokenizer, room)
    rows: list[TagRow] = []
    for number, sentence in enumerate(sentences):
        tokens = [word_ids[word] for word in sentence.words]
        starts = np.array([0, *itertools.accumulate(map(len, tokens))], np.int32)
        windows = _make_windows(starts, room)
        for (first, end), words in zip(windows, _share_words(starts, windows), strict=True):
            if not words.size:
                continue
            ids = list(itertools.chain.from_iterable(tokens[first:end]))
            text = pack(tokenizer.vocab, ids, (), max_seq_length)
            positions = starts[words] - starts[first] + tokenizer.vocab.text_start
            rows.append(TagRow(number, text, words, positions))
    return rows


def truncation_report(
    sentences: Sequence[TaggedSentence], tokenizer: Tokenizer, max_seq_length: int
) -> Truncations:
    """Counts what `make_tag_rows` with the same arguments cannot show as it is.

    Raises:
      ValueError: as there.
    """
    room = _room(max_seq_length)
    counts = Counter(itertools.chain.from_iterable(sentence.words for sentence in sentences))
    lengths = {word: len(tokenizer.encode_word(word)) for word in counts}
    kept = {word: min(max(length, 1), room) for word, length in lengths.items()}
    return Truncations(
        sum(sum(map(kept.__getitem__, sentence.words)) > room for sentence in sentences),
        sum(counts[word] for word, length in lengths.items() if length > room),
        sum(counts[word] for word, length in lengths.items() if not length),
    )


def row_labels(row: TagRow, tag_ids: np.ndarray) -> np.ndarray:
    """Returns the label of each token of a row.

    Args:
      row: of `make_tag_rows`.
      tag_ids: int [words], the tags of the row's sentence.

    Returns:
      int32 [T]: the tag at the first token of each word that the row predicts, -1 elsewhere.
    """
    labels = np.full(len(row.text.ids), NOT_PREDICTED, np.int32)
    labels[row.positions] = tag_ids[row.words]
    return labels


def make_examples(
    sentences: list[TaggedSentence],
    labels: Sequence[str],
    tokenizer: Tokenizer,
    max_seq_length: int,
    is_labelled: bool,
) -> TaggedExamples:
    """Tokenizes sentences, with labels at the first tokens of words.

    Raises:
      ValueError: if a tag is none of `labels`.
    """
    tag_rows = make_tag_rows(sentences, tokenizer, max_seq_length)
    ids = tag_ids(sentences, labels) if is_labelled else None
    tokens = [
        row_labels(row, ids[row.sentence])
        if ids
        else np.full(len(row.text.ids), NOT_PREDICTED, np.int32)
        for row in tag_rows
    ]
    texts, pad_id = [row.text for row in tag_rows], tokenizer.vocab.pad_id
    rows = TokenizedDataset(texts, token_labels={"tag_ids": tokens}, pad_id=pad_id)
    return TaggedExamples(sentences, tag_rows, rows, is_labelled)


def _room(max_seq_length: int) -> int:
    """Returns how many tokens of words a row takes."""
    if max_seq_length < 3:
        raise ValueError(
            f"max_seq_length is {max_seq_length}; 2 tokens are special, so expected at least 3."
        )
    return max_seq_length - 2


def _make_windows(starts: np.ndarray, room: int) -> list[tuple[int, int]]:
    """Returns windows (first word, one after the last) that cover all words.

    Args:
      starts: int [words + 1], tokens before each word, and all.
      room: maximum number of tokens of a window; no word has more.
    """
    num_words = len(starts) - 1
    windows = []
    first = end = 0
    while end < num_words:
        end = int(np.searchsorted(starts, starts[first] + room, "right")) - 1
        windows.append((first, end))
        half = int(np.searchsorted(starts, starts[first] + room // 2, "right")) - 1
        first = max(first + 1, half)
    return windows


def _share_words(starts: np.ndarray, windows: Sequence[tuple[int, int]]) -> list[np.ndarray]:
    """Returns for each window which words it predicts, int32, each word in one of them."""
    best = np.zeros(len(starts) - 1, np.int32)  # window of each word
    scores = np.full(len(starts) - 1, -1)
    for number, (first, end) in enumerate(windows):
        before = starts[first:end] - starts[first]
        behind = starts[end] - starts[first + 1 : end + 1]
        score = np.minimum(before, behind)
        is_better = score > scores[first:end]
        scores[first:end][is_better] = score[is_better]
        best[first:end][is_better] = number
    return [
        (first + np.flatnonzero(best[first:end] == number)).astype(np.int32)
        for number, (first, end) in enumerate(windows)
    ]
