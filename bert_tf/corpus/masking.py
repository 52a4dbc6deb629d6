"""Masking for the masked language model (BERT section 3.1, task 1), in the graph, on whole batches.

It works on batches of unmasked examples, so each epoch has new masks. They are a pure function of
(seed, epoch, example): they depend neither on the batch of an example, nor on workers or restarts.

    candidates  bool [B, T]    all tokens except special tokens and padding
    counts      int32 [B]      number of tokens to predict: min(P, max(1, round(length * prob)))
    positions   int32 [B, P]   selected, ascending, T where fewer are selected
    batch       PretrainingBatch without next_sentence_weights

Counts, candidates, whole words and replacement are those of google-research/bert's
create_pretraining_data.py (create_masked_lm_predictions); only the random numbers differ.

Spans of words are SpanBERT's (Joshi et al. 2020, section 3.1) or ALBERT's n-grams (Lan et al. 2020,
section 4.1); `span_masking` lays them out, so that no position is selected more often than others.
"""

import functools
from collections.abc import Mapping
from typing import NamedTuple

import tensorflow as tf

from bert_tf.config import MaskingConfig
from bert_tf.corpus.mask_draws import CUT, DECIDE, RATE, REPLACE, SELECT, TURN, MaskDraws
from bert_tf.corpus.span_masking import (
    NUM_ROUNDED,
    SpanBits,
    has_largest_keys,
    select_spans,
    sum_by_index,
)
from bert_tf.corpus.token_order import causal_ranks, draw_causal
from bert_tf.text.tokenization import AnyVocab

MOST_WORDS = 10  # The longest span.
IS_CAUSAL = "is_causal"  # int32 [B], 1 for an example that is read from left to right.


def mask_batch(batch: Mapping[str, tf.Tensor], draws: MaskDraws) -> dict[str, tf.Tensor]:
    """Selects tokens to predict, masks them in the input and adds them as labels.

    Args:
      batch: `input_word_ids` and `input_mask`, int32 [B, T]; other features pass through.

    Returns:
      The batch with `input_word_ids` masked, and `masked_lm_positions` and `masked_lm_ids` int32
      [B, P] and `masked_lm_weights` float32 [B, P], all padded with 0. Writing `masked_lm_ids`
      back to `masked_lm_positions` where the weight is 1 restores the unmasked input.

      With `causal_share` some examples are read from left to right: `is_causal` int32 [B] is 1,
      nothing is masked, and `masked_lm_positions` are those before the predicted tokens.
      `key_ranks` and `query_ranks`, int32 [B, T], then tell which tokens see which.
    """
    word_ids = batch["input_word_ids"]
    selection = select_positions(batch, draws)
    masked = {**batch, **replace_tokens(word_ids, selection, draws)}
    if not draws.masking.causal_share:
        return masked
    is_causal = draw_causal(draws)
    from_left = predict_next(batch, draws)
    for name, values in from_left.items():
        # Both forms are computed for all examples: their shapes are equal, and a batch has both.
        masked[name] = tf.where(is_causal[:, None], values, masked[name])
    key_ranks, query_ranks = causal_ranks(is_causal, tf.shape(word_ids)[1])
    # A dynamic range has no static length; the network needs T.
    masked["key_ranks"] = tf.ensure_shape(key_ranks, word_ids.shape)
    masked["query_ranks"] = tf.ensure_shape(query_ranks, word_ids.shape)
    masked[IS_CAUSAL] = tf.cast(is_causal, tf.int32)
    return masked


class Selection(NamedTuple):
    """The tokens to predict."""

    positions: tf.Tensor  # int32 [B, P], ascending, T as padding
    # The number of each token's decision, int32 [B, T]; tokens with the same number are replaced in
    # the same way. None: each token has another decision.
    decided: tf.Tensor | None = None


def select_positions(batch: Mapping[str, tf.Tensor], draws: MaskDraws) -> Selection:
    """Selects the tokens to predict: single tokens, whole words, or spans; see `mask_batch`."""
    vocab = draws.vocab
    masking = draws.masking
    word_ids = batch["input_word_ids"]
    candidates = find_candidates(word_ids, batch["input_mask"], vocab)
    counts = count_predictions(batch["input_mask"], masking, draw_rates(draws))
    indices = tf.range(tf.shape(word_ids)[1])[None]  # [1, T]
    # The selected tokens are those with the largest keys: a shuffle without its order.
    keys = draws.bits(SELECT, indices)  # [B, T]
    spans = None
    shares = span_shares(masking)
    limit = masking.max_predictions_per_seq
    if shares or masking.do_whole_word_mask:
        continues = tf.gather(tf.constant(vocab.is_continuation), word_ids)  # [B, T]
        if vocab.marks_spaces:
            # The first token of a document may lack the space, and begins a word all the same.
            continues &= tf.pad(candidates[:, :-1], [[0, 0], [1, 0]])
        if shares:
            # Spans are counted in tokens here, so each token is treated as a word.
            if masking.span_pieces:
                continues = tf.zeros_like(continues)
            lengths = draws.bits(CUT, indices[:, :limit])
            rounding = draws.bits(TURN, tf.range(NUM_ROUNDED)[None])
            bits = SpanBits(lengths, keys, rounding)
            selected, spans = select_spans(bits, candidates, continues, counts, shares, limit)
        else:
            selected = select_whole_words(keys, candidates, continues, counts)
    else:
        selected = select_tokens(keys, candidates, counts, limit)
    # SpanBERT makes one decision for all tokens of a span, ALBERT one for each token.
    decided = spans if masking.span_length else None
    return Selection(list_positions(selected, limit), decided)


def predict_next(batch: Mapping[str, tf.Tensor], draws: MaskDraws) -> dict[str, tf.Tensor]:
    """Selects tokens to predict from the position before each; nothing is replaced."""
    word_ids = batch["input_word_ids"]
    limit = draws.masking.max_predictions_per_seq
    indices = tf.range(tf.shape(word_ids)[1])[None]  # [1, T]
    candidates = find_candidates(word_ids, batch["input_mask"], draws.vocab)
    candidates &= indices > 0  # No token is before the first.
    # As many as there are slots: nothing is masked, so more predictions hide no context.
    counts = tf.fill(tf.shape(word_ids)[:1], limit)
    selected = select_tokens(draws.bits(SELECT, indices), candidates, counts, limit)
    labels = labels_of(word_ids, list_positions(selected, limit))
    # Padding has position 0; its weight is 0, so the bound only keeps the index valid.
    before = tf.maximum(labels["masked_lm_positions"] - 1, 0)
    return {"input_word_ids": word_ids, **labels, "masked_lm_positions": before}


def find_candidates(word_ids: tf.Tensor, input_mask: tf.Tensor, vocab: AnyVocab) -> tf.Tensor:
    """Returns the tokens that may be selected, bool [B, T]."""
    specials = (word_ids == index for index in vocab.never_masked)
    return (input_mask > 0) & ~functools.reduce(tf.logical_or, specials)


def draw_rates(draws: MaskDraws) -> tf.Tensor | float:
    """Returns the share of tokens to predict: one for all examples, or float64 [B]."""
    low = draws.masking.masked_lm_prob
    high = draws.masking.masked_lm_prob_to
    last = draws.masking.masked_lm_prob_end
    if last and draws.progress is not None:
        # Linear over the run, and the same for all examples of a batch.
        return low + (last - low) * draws.progress
    if not high:
        return low
    drawn = draws.integers(1 << 20, RATE)[:, 0]
    # The middle of one of 2**20 equal intervals: never exactly 0 or 1.
    return low + (high - low) * (tf.cast(drawn, tf.float64) + 0.5) / (1 << 20)


def span_shares(masking: MaskingConfig) -> list[float]:
    """Returns the probabilities of spans of 1, 2, ... words; [] where single words are masked.

    Differs from SpanBERT: a span that would be longer than ten words has ten, where SpanBERT draws
    again. With `span_length=5` the mean is therefore 4.46 words; SpanBERT's is 3.80.
    """
    if masking.ngram_length:
        # ALBERT, section 4.1: p(n) is proportional to 1 / n.
        shares = [1 / words for words in range(1, masking.ngram_length + 1)]
        return [share / sum(shares) for share in shares]
    if not masking.span_length:
        return []
    # A geometric distribution, whose mean would be `span_length` without the cut at ten words.
    continuation = 1 - 1 / masking.span_length
    shares = [continuation**words * (1 - continuation) for words in range(MOST_WORDS - 1)]
    return [*shares, continuation ** (MOST_WORDS - 1)]


def mean_span(masking: MaskingConfig) -> float:
    """Returns the mean number of words of the spans that are drawn; 1 for single words."""
    shares = span_shares(masking) or [1.0]
    return sum(words * share for words, share in enumerate(shares, 1))


def count_predictions(
    input_mask: tf.Tensor, masking: MaskingConfig, rates: tf.Tensor | float
) -> tf.Tensor:
    """Returns the number of tokens to predict, int32 [B]; `rates` is their share, one or [B].

    The length includes [CLS] and [SEP]. Halves are rounded to even, in float64, like Python's
    round: a length of 70 at 0.15 gives 10 (10.5), and 90 gives 14 (13.5).
    """
    lengths = tf.cast(tf.reduce_sum(input_mask, axis=1), tf.float64)
    counts = tf.cast(tf.round(lengths * rates), tf.int32)
    return tf.minimum(masking.max_predictions_per_seq, tf.maximum(1, counts))


def select_tokens(
    keys: tf.Tensor, candidates: tf.Tensor, counts: tf.Tensor, max_predictions: int
) -> tf.Tensor:
    """Selects the candidates with the largest keys, bool [B, T].

    Args:
      keys: uint64 [B, T], random.
      candidates, counts: see above.
      max_predictions: P, at least the largest count.
    """
    # Others get the least key, so the largest are candidates where there are enough.
    keys = tf.where(candidates, keys, tf.zeros_like(keys))
    return candidates & has_largest_keys(keys, counts, max_predictions)


def select_whole_words(
    keys: tf.Tensor, candidates: tf.Tensor, continues: tf.Tensor, counts: tf.Tensor
) -> tf.Tensor:
    """Selects words in random order, bool [B, T]; a word that would exceed the count is skipped.

    A token that continues a word belongs to the last candidate before it, as in the original, even
    if [SEP] is between them (a segment truncated at its front may start within a word). For
    byte-level BPE it does not, whose first token in a document may lack the space.

    Args:
      keys: uint64 [B, T], random; the w-th is the key of the w-th word.
      candidates, counts: see above.
      continues: bool [B, T], true for tokens that continue a word.
    """
    is_candidate = tf.cast(candidates, tf.int32)
    # The first candidate begins a word even if it continues one that was truncated.
    is_first = tf.cumsum(is_candidate, axis=1) == 1
    starts = candidates & (~continues | is_first)
    words = tf.maximum(tf.cumsum(tf.cast(starts, tf.int32), axis=1) - 1, 0)  # [B, T]
    sizes = sum_by_index(is_candidate, words)  # [B, T], tokens of each word; 0: no such word

    keys = tf.where(sizes > 0, keys, tf.zeros_like(keys))
    order = tf.math.top_k(keys, tf.shape(keys)[1]).indices  # [B, T], words by decreasing key
    taken = _take_in_order(tf.gather(sizes, order, batch_dims=1), counts)
    is_word_taken = sum_by_index(tf.cast(taken, tf.int32), order)  # [B, T], by word
    return candidates & (tf.gather(is_word_taken, words, batch_dims=1) > 0)


def _take_in_order(sizes: tf.Tensor, counts: tf.Tensor) -> tf.Tensor:
    """Takes the words, in order, that still fit; bool [B, T].

    All rows are processed at once. A round takes the words up to the first that does not fit. The
    remaining count is then smaller than that word, so there are at most as many rounds as there are
    sizes of words.
    """

    def take(open_words: tf.Tensor, taken: tf.Tensor, left: tf.Tensor) -> tuple[tf.Tensor, ...]:
        open_words &= sizes <= left
        # The count that is used up to and including each word.
        used = tf.cumsum(tf.where(open_words, sizes, 0), axis=1)
        now = open_words & (used <= left)
        left -= tf.reduce_sum(tf.where(now, sizes, 0), axis=1, keepdims=True)
        return open_words & ~now, taken | now, left

    # open_words and taken, bool [B, T]; left, int32 [B, 1].
    state = (sizes > 0, tf.zeros_like(sizes, tf.bool), counts[:, None])
    return tf.while_loop(lambda open_words, *_: tf.reduce_any(open_words), take, state)[1]


def list_positions(selected: tf.Tensor, max_predictions: int) -> tf.Tensor:
    """Returns the positions of the selected tokens, int32 [B, P], ascending, then T."""
    length = tf.shape(selected)[1]
    # Tokens that are not selected become T, which sorts behind all selected ones.
    positions = tf.sort(tf.where(selected, tf.range(length), length), axis=1)[:, :max_predictions]
    missing = tf.maximum(max_predictions - length, 0)
    positions = tf.pad(positions, [[0, 0], [0, missing]], constant_values=length)
    return tf.ensure_shape(positions, [None, max_predictions])


def replace_tokens(
    word_ids: tf.Tensor, selection: Selection, draws: MaskDraws
) -> dict[str, tf.Tensor]:
    """Replaces selected tokens; in BERT 80 % by [MASK], 10 % by a random token, 10 % are kept.

    The shares count to the thousandth. A random token may be a special token, as in the original.

    Args:
      word_ids: int32 [B, T], unmasked.

    Returns the input ids and the three masked_lm_ features of `mask_batch`.
    """
    positions, decided = selection
    shape = tf.shape(word_ids)
    is_real = positions < shape[1]
    originals = tf.gather(word_ids, tf.where(is_real, positions, 0), batch_dims=1)  # [B, P]
    # The counter of each decision: the position of the token, or the number of its span.
    deciding = positions
    if decided is not None:
        deciding = tf.gather(decided, tf.where(is_real, positions, 0), batch_dims=1)
    decisions = draws.integers(1000, DECIDE, deciding)
    masked_below = round(1000 * draws.masking.masked_share)
    kept_below = 1000 - round(1000 * draws.masking.random_share)
    randoms = draws.integers(len(draws.vocab), REPLACE, positions)
    replaced = tf.where(
        decisions < masked_below,
        draws.vocab.mask_id,
        tf.where(decisions < kept_below, originals, randoms),
    )  # [B, P]
    # The padding positions, T, are written to an additional column, which is removed.
    row_numbers = tf.broadcast_to(tf.range(shape[0])[:, None], tf.shape(positions))
    widened = tf.pad(word_ids, [[0, 0], [0, 1]])
    masked = tf.tensor_scatter_nd_update(
        widened, tf.stack([row_numbers, positions], axis=-1), replaced
    )
    return {
        "input_word_ids": tf.ensure_shape(masked[:, :-1], word_ids.shape),
        **labels_of(word_ids, positions),
    }


def labels_of(word_ids: tf.Tensor, positions: tf.Tensor) -> dict[str, tf.Tensor]:
    """Returns the masked_lm_ features of `mask_batch`; positions are int32 [B, P], T as padding."""
    is_real = positions < tf.shape(word_ids)[1]
    used = tf.where(is_real, positions, 0)
    return {
        "masked_lm_positions": used,
        "masked_lm_ids": tf.where(is_real, tf.gather(word_ids, used, batch_dims=1), 0),
        "masked_lm_weights": tf.cast(is_real, tf.float32),
    }


def positions_to_rows(positions: tf.Tensor, word_ids: tf.Tensor) -> tf.Tensor:
    """Returns whether each token is at one of the positions [B, P], T as padding; bool [B, T]."""
    # [B, P, T]; T is out of range, so padding has no True.
    one_hot = tf.one_hot(positions, tf.shape(word_ids)[1], on_value=True, off_value=False)
    return tf.reduce_any(one_hot, axis=1)
