"""Makes the encoder's rows for tagged sentences, with the tags of their words.

A word is predicted at its first token, as in section 5.3 of Devlin et al. 2019. A sentence that is
too long for a row becomes windows of whole words, one row each, that overlap by about half:

  words of the sentence   0 . . . . . . . . . . . . 13
  window 0                |- - - - - - - -|
  window 1                        |- - - - - - - - -|
  row                     [CLS] tokens of the window's words [SEP]        ids [T], unpadded
  words                   [W] indices, in the sentence, of the words that this row predicts
  positions               [W] positions of the first tokens of these words in the row

Every word is predicted in exactly one row, so no word is dropped, whatever its length.

Reference: the section "Tokenization" of google-research/bert's README, which also tokenizes word by
word. It truncates sentences that are too long; here no word is lost.
"""

import itertools
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bert_tf.tasks.base.examples.rows import TokenizedDataset
from bert_tf.tasks.tagging.files import tag_ids
from bert_tf.tasks.tagging.sentences import TaggedSentence
from bert_tf.text.packing import PackedText, add_special_tokens
from bert_tf.text.text_counts import count_text
from bert_tf.text.tokenization import Tokenizer

# The label of all tokens except the first tokens of predicted words. The loss ignores it.
NOT_PREDICTED = -1


class TagRow(NamedTuple):
    """A sentence, or a window of one, as a row without padding."""

    sentence: int  # index of the sentence
    text: PackedText  # [CLS] tokens [SEP], type ids all 0
    words: np.ndarray  # int32 [W], indices of the words that this row predicts, in ascending order
    positions: np.ndarray  # int32 [W], positions of the first tokens of these words in the row


class TaggedExamples(NamedTuple):
    """Sentences, and the rows made from them for the model."""

    sentences: list[TaggedSentence]
    tag_rows: list[TagRow]
    rows: TokenizedDataset
    is_labelled: bool

    @property
    def owners(self) -> np.ndarray:
        """Index of the sentence of each row, int64 [N]."""
        return np.array([row.sentence for row in self.tag_rows], np.int64)


class _WordIds(dict[str, list[int]]):
    """Caches the token ids of words: at least one for each, and no more than fit in a row."""

    def __init__(self, tokenizer: Tokenizer, room: int):
        super().__init__()
        self._tokenizer = tokenizer
        self._room = room
        self.sizes: dict[str, int] = {}  # of the words that were cut

    def __missing__(self, word: str) -> list[int]:
        # A word needs a first token to be predicted at, so that one without tokens becomes [UNK].
        tokens = self._tokenizer.encode_word(word) or [self._tokenizer.vocab.unk_id]
        self[word] = tokens[: self._room]
        if len(tokens) > self._room:
            self.sizes[word] = len(tokens)
        return self[word]


def make_tag_rows(
    sentences: Sequence[TaggedSentence], tokenizer: Tokenizer, max_seq_length: int
) -> list[TagRow]:
    """Makes the rows of all sentences, in order: one row for each sentence that fits.

    Each word is tokenized separately; byte-level BPE puts a space before it. A word without tokens
    becomes one [UNK]; a word with more tokens than a row holds is truncated. A window holds as many
    whole words as fit. The next window begins half a window later, but at least one word later. A
    word is predicted in the window that shows the most context on its shorter side, and in the
    first of several such windows. Windows that predict no word are left out.

    Args:
      sentences: sentences of `read_tagged`; their tags are ignored.
      max_seq_length: maximum length of a row, [CLS] and [SEP] included.

    Raises:
      ValueError: if max_seq_length leaves no room for a word.
    """
    room = _room(max_seq_length)
    word_ids = _WordIds(tokenizer, room)
    rows: list[TagRow] = []
    for number, sentence in enumerate(sentences):
        tokens = [word_ids[word] for word in sentence.words]
        size = max((word_ids.sizes.get(word, 0) for word in sentence.words), default=0)
        whole = list(itertools.chain.from_iterable(tokens))
        # Windows show all of the sentence; only a word that fills a row alone is cut.
        size += max_seq_length - room
        count_text(tokenizer.vocab, whole, (), size, max_seq_length)
        lengths = list(map(len, tokens))
        # starts[i] is the number of tokens before word i; the last entry is the length. [W + 1]
        starts = np.array([0, *itertools.accumulate(lengths)], np.int32)
        windows = _make_windows(starts, room)
        words_of_windows = _share_words(starts, windows)
        for (first, end), words in zip(windows, words_of_windows, strict=True):
            if not words.size:
                continue
            ids = list(itertools.chain.from_iterable(tokens[first:end]))
            text = add_special_tokens(tokenizer.vocab, ids)
            # text_start is the number of special tokens before the text, such as [CLS].
            positions = starts[words] - starts[first] + tokenizer.vocab.text_start
            rows.append(TagRow(number, text, words, positions))
    return rows


def count_odd_words(
    sentences: Sequence[TaggedSentence], tokenizer: Tokenizer, max_seq_length: int
) -> tuple[int, int]:
    """Returns how many words are cut to a row, and how many have no tokens, so become [UNK]."""
    counts = Counter(itertools.chain.from_iterable(sentence.words for sentence in sentences))
    # Each distinct word is tokenized once: words repeat far more often than they differ.
    lengths = {word: len(tokenizer.encode_word(word)) for word in counts}
    room = _room(max_seq_length)
    cut = sum(counts[word] for word, length in lengths.items() if length > room)
    return cut, sum(counts[word] for word, length in lengths.items() if not length)


def row_labels(row: TagRow, tag_ids: np.ndarray) -> np.ndarray:
    """Returns the tag at the first token of each word that a row predicts, -1 elsewhere, int32 [T].

    `tag_ids` are those of the row's sentence.
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
    """Tokenizes sentences, with labels at the first tokens of words."""
    tag_rows = make_tag_rows(sentences, tokenizer, max_seq_length)
    ids = tag_ids(sentences, labels) if is_labelled else None
    token_labels = []
    for row in tag_rows:
        if ids:
            token_labels.append(row_labels(row, ids[row.sentence]))
        else:
            token_labels.append(np.full(len(row.text.ids), NOT_PREDICTED, np.int32))
    rows = TokenizedDataset(
        [row.text for row in tag_rows],
        token_labels={"tag_ids": token_labels},
        pad_id=tokenizer.vocab.pad_id,
    )
    return TaggedExamples(sentences, tag_rows, rows, is_labelled)


def _room(max_seq_length: int) -> int:
    """Returns the maximum number of tokens of words in a row."""
    if max_seq_length < 3:
        raise ValueError(
            f"max_seq_length is {max_seq_length}; 2 tokens are special, so expected at least 3."
        )
    return max_seq_length - 2


def _make_windows(starts: np.ndarray, room: int) -> list[tuple[int, int]]:
    """Returns windows (first word, one after the last) that cover all words.

    Args:
      starts: int [words + 1], the number of tokens before each word, and of all words.
      room: maximum number of tokens of a window; no word has more.
    """
    num_words = len(starts) - 1
    windows = []
    first = end = 0
    while end < num_words:
        # The last word boundary that is at most `room` tokens after the beginning.
        end = int(np.searchsorted(starts, starts[first] + room, "right")) - 1
        windows.append((first, end))
        half = int(np.searchsorted(starts, starts[first] + room // 2, "right")) - 1
        # One word forward at least: a word longer than half a window would be repeated forever.
        first = max(first + 1, half)
    return windows


def _share_words(starts: np.ndarray, windows: Sequence[tuple[int, int]]) -> list[np.ndarray]:
    """Assigns each word to one window; returns the indices of each window's words, int32."""
    best_window = np.zeros(len(starts) - 1, np.int32)  # [words]
    best_context = np.full(len(starts) - 1, -1)  # [words]
    for number, (first, end) in enumerate(windows):
        # Tokens of the window before and after each of its words; the shorter side counts.
        before = starts[first:end] - starts[first]
        after = starts[end] - starts[first + 1 : end + 1]
        context = np.minimum(before, after)
        is_better = context > best_context[first:end]
        best_context[first:end][is_better] = context[is_better]
        best_window[first:end][is_better] = number
    shares = []
    for number, (first, end) in enumerate(windows):
        words = first + np.flatnonzero(best_window[first:end] == number)
        shares.append(words.astype(np.int32))
    return shares
