"""Masking with tensorflow-text's own ops, with the interface of masking.py.

Differs from masking.py, which is the default. The ops draw from a stateful generator, so the masks
are not a function of (seed, epoch, example), and a resumed run gets other masks than an
uninterrupted one. They select ceil(candidates * share) tokens (or words) instead of
round(length * share), so the counts differ by one or two.
"""

from collections.abc import Mapping

import tensorflow as tf
import tensorflow_text as tf_text

from bert_tf.corpus.mask_draws import MaskDraws
from bert_tf.corpus.masking import find_candidates
from bert_tf.text.tokenization import AnyVocab


def mask_batch(batch: Mapping[str, tf.Tensor], draws: MaskDraws) -> dict[str, tf.Tensor]:
    """Masks a batch like `masking.mask_batch`; the random numbers of `draws` are not used.

    `masked_lm_prob` is the share of tokens, or of whole words. If the selected words have more than
    `max_predictions_per_seq` tokens, the last tokens of the sequence are not predicted.
    """
    vocab = draws.vocab
    masking = draws.masking
    word_ids = batch["input_word_ids"]  # [B, T]
    input_mask = batch["input_mask"]
    limit = masking.max_predictions_per_seq
    # The limit counts items: where these are words, their tokens may still exceed it.
    selector = tf_text.RandomItemSelector(
        max_selections_per_batch=limit,
        selection_rate=masking.masked_lm_prob,
        unselectable_ids=list(vocab.never_masked),
    )
    chooser = tf_text.MaskValuesChooser(len(vocab), vocab.mask_id, mask_token_rate=0.8)
    if masking.do_whole_word_mask:
        tokens = group_words(word_ids, input_mask, vocab)
    else:
        tokens = tf.RaggedTensor.from_tensor(word_ids, tf.reduce_sum(input_mask, axis=1))
    # masked is [B, (tokens)], without padding; the others are [B, (selected)].
    masked, positions, originals = tf_text.mask_language_model(tokens, selector, chooser)
    positions = tf.cast(positions[:, :limit], tf.int32)
    weights = positions.with_values(tf.ones_like(positions.values, tf.float32))
    # Tokens after the last label are beyond the limit and stay unmasked.
    is_labelled = tf.range(tf.shape(word_ids)[1]) <= tf.reduce_max(positions, axis=1)[:, None]
    masked = tf.where(is_labelled, masked.to_tensor(shape=word_ids.shape), word_ids)
    return {
        **batch,
        "input_word_ids": masked,
        "masked_lm_positions": positions.to_tensor(shape=[None, limit]),
        "masked_lm_ids": originals[:, :limit].to_tensor(shape=[None, limit]),
        "masked_lm_weights": weights.to_tensor(shape=[None, limit]),
    }


def group_words(word_ids: tf.Tensor, input_mask: tf.Tensor, vocab: AnyVocab) -> tf.RaggedTensor:
    """Returns the tokens of each word, int32 [B, (words), (tokens)], without the padding."""
    candidates = find_candidates(word_ids, input_mask, vocab)
    follows_candidate = tf.pad(candidates[:, :-1], [[0, 0], [1, 0]])
    continues = tf.gather(tf.constant(vocab.is_continuation), word_ids) & follows_candidate
    is_real = input_mask > 0
    starts = tf.cast(is_real & ~continues, tf.int64)  # the ops want 64-bit row splits
    words = tf.RaggedTensor.from_value_rowids(
        tf.boolean_mask(word_ids, is_real), tf.cumsum(tf.boolean_mask(starts, is_real)) - 1
    )
    return tf.RaggedTensor.from_row_lengths(words, tf.reduce_sum(starts, axis=1))
