"""Masks drawn once, when examples are written, as google-research/bert does (static masking).

The draw of a sequence is a pure function of its key, so it does not depend on the sequence's batch.
The module uses only NumPy, because the processes that write examples do not load TensorFlow.

Reference: Devlin et al. 2019, section 3.1, task 1; google-research/bert's
create_pretraining_data.py, create_masked_lm_predictions.
"""

from typing import NamedTuple

import numpy as np

from bert_tf.config import MaskingConfig
from bert_tf.corpus.splitmix import uniform
from bert_tf.text.tokenization import AnyVocab

SELECT, ACTION, REPLACEMENT = range(3)  # The random numbers of a token.


class MaskedRows(NamedTuple):
    """Masked sequences."""

    ids: np.ndarray  # [n, T], after masking
    masked_lm_positions: np.ndarray  # int64 [n, P], ascending, zero padded
    masked_lm_ids: np.ndarray  # int64 [n, P], the original ids, zero padded
    masked_lm_weights: np.ndarray  # float32 [n, P], 1 real, 0 padding


def count_predictions(lengths: np.ndarray, config: MaskingConfig) -> np.ndarray:
    """Returns the number of predictions of sequences, int64 [n].

    As the original: min(P, max(1, round(length * masked_lm_prob))), the length including special
    tokens, halves rounded to even.
    """
    wanted = np.rint(lengths * config.masked_lm_prob).astype(np.int64)
    return np.minimum(config.max_predictions_per_seq, np.maximum(1, wanted))


def mask_rows(
    ids: np.ndarray, lengths: np.ndarray, keys: np.ndarray, config: MaskingConfig, vocab: AnyVocab
) -> MaskedRows:
    """Selects tokens to predict and replaces them.

    80 % of the selected tokens become [MASK], 10 % a random token, and 10 % are kept.

    Args:
      ids: [n, T], sequences with their special tokens, padded.
      lengths: [n], number of tokens of each sequence, including special tokens.
      keys: uint64 [n], one key per sequence.
      config: probabilities, P and whether whole words are selected.
    """
    positions = np.arange(ids.shape[1])
    # [n, T]. The length excludes padding: [PAD] is not among WordPiece's `never_masked`.
    is_candidate = ~np.isin(ids, vocab.never_masked) & (positions < lengths[:, None])
    counts = count_predictions(lengths, config)
    if config.do_whole_word_mask:
        continues = vocab.is_continuation[ids]
        if vocab.marks_spaces:
            continues[:, 1:] &= is_candidate[:, :-1]
        starts = _word_starts(is_candidate, continues)
        is_selected = _select_words(is_candidate, starts, keys, counts)
    else:
        # 2.0 is above every draw, so other tokens rank last; the second line drops those that
        # are still selected where a count exceeds the number of candidates.
        order = uniform(keys[:, None], SELECT, positions)
        is_selected = _rank(np.where(is_candidate, order, 2.0)) < counts[:, None]
        is_selected &= is_candidate
    rows, columns = np.nonzero(is_selected)  # ascending in each row
    labels = ids[rows, columns]
    # [number of selected tokens] each, from here to `masked`.
    action = uniform(keys[rows], ACTION, columns)
    drawn = (uniform(keys[rows], REPLACEMENT, columns) * len(vocab)).astype(np.int64)
    masked = ids.copy()
    changed = np.where(action < 0.9, drawn, labels)
    masked[rows, columns] = np.where(action < 0.8, vocab.mask_id, changed)

    # The k-th selected token of a row goes to slot k of its P slots.
    slots = (is_selected.cumsum(axis=1) - 1)[rows, columns]
    shape = (len(ids), config.max_predictions_per_seq)
    masked_lm_positions = np.zeros(shape, np.int64)
    masked_lm_ids = np.zeros(shape, np.int64)
    masked_lm_weights = np.zeros(shape, np.float32)
    masked_lm_positions[rows, slots] = columns
    masked_lm_ids[rows, slots] = labels
    masked_lm_weights[rows, slots] = 1.0
    return MaskedRows(masked, masked_lm_positions, masked_lm_ids, masked_lm_weights)


def _rank(values: np.ndarray) -> np.ndarray:
    """Returns the rank of each value in its row, int64 [n, T]."""
    ranks = np.empty(values.shape, np.int64)
    np.put_along_axis(ranks, values.argsort(axis=1), np.arange(values.shape[1])[None], axis=1)
    return ranks


def _word_starts(is_candidate: np.ndarray, is_continuation: np.ndarray) -> np.ndarray:
    """Returns bool [n, T], true at the first token of each word.

    As in the original, a token that continues a word belongs to the candidate before it, even if
    other tokens are between them. The first candidate of a sequence always starts a word.
    """
    is_first = is_candidate & (is_candidate.cumsum(axis=1) == 1)
    return is_first | (is_candidate & ~is_continuation)


def _select_words(
    is_candidate: np.ndarray, starts: np.ndarray, keys: np.ndarray, counts: np.ndarray
) -> np.ndarray:
    """Selects whole words in random order, skipping each that would exceed the count."""
    num_rows, length = is_candidate.shape
    # Other tokens get word T, an additional column that is never taken.
    word_numbers = np.where(is_candidate, starts.cumsum(axis=1) - 1, length)  # [n, T]
    # One bincount for all rows: each row has T + 1 bins.
    flat = (np.arange(num_rows)[:, None] * (length + 1) + word_numbers).ravel()
    sizes = np.bincount(flat, minlength=num_rows * (length + 1)).reshape(num_rows, length + 1)
    sizes = sizes[:, :length]  # [n, T], tokens of each word; 0 beyond the last word
    order = uniform(keys[:, None], SELECT, np.arange(length))
    ranked = np.where(sizes > 0, order, 2.0).argsort(axis=1)  # [n, T], words in drawn order
    total = np.zeros(num_rows, np.int64)
    is_taken = np.zeros((num_rows, length + 1), bool)
    rows = np.arange(num_rows)
    # The k-th drawn word of all rows at once, up to the largest number of words of a row.
    for words in ranked.T[: int(starts.sum(axis=1).max(initial=0))]:
        size = sizes[rows, words]
        fits = (size > 0) & (total + size <= counts)
        is_taken[rows[fits], words[fits]] = True
        total += size * fits
    return np.take_along_axis(is_taken, word_numbers, axis=1)
