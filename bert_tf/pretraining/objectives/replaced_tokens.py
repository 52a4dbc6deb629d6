"""Replaced-token detection: finds the tokens that a generator put into the text (ELECTRA)."""

from collections.abc import Mapping

import tensorflow as tf
from keras import ops

from bert_tf.corpus import masking as masks
from bert_tf.corpus.mask_draws import DECIDE, SELECT, MaskDraws
from bert_tf.network.losses import WeightedSum, weigh
from bert_tf.pretraining.objectives.objective import Objective
from bert_tf.system.type_names import Batch, Model, Outputs


class ReplacedTokens(Objective):
    """Classifies each token, [CLS] and [SEP] included, as original or replaced.

    The model is `ElectraPretrainer`, which makes the head, because it also has the generator.

    Args:
      factor: weight of the loss, which is reported with this weight.
      reference_sampling: whether positions are drawn by `mask_with_duplicates`.
    """

    plot_titles = {
        "replaced_tokens_loss": "Replaced tokens: loss, weighted",
        "replaced_tokens_accuracy": "Replaced tokens: accuracy of all tokens",
        "replaced_tokens_recall": "Replaced tokens: share found",
        "replaced_tokens_share": "Replaced tokens: share of all tokens",
    }

    def __init__(self, factor: float = 50.0, reference_sampling: bool = False) -> None:
        self.factor = factor
        self.mask_batch = mask_with_duplicates if reference_sampling else None

    def outputs(self, model: Model, encoded: Outputs, inputs: Batch) -> Outputs:
        return {"replaced_logits": model.discriminator(encoded["sequence_output"])}

    def loss_weights(self, batch: Batch) -> dict[str, tf.Tensor]:
        return {"replaced_tokens_loss": tf.reduce_sum(tf.cast(batch["input_mask"], tf.float32))}

    def loss_and_metric_sums(self, batch: Batch, outputs: Outputs) -> dict[str, WeightedSum]:
        logits = outputs["replaced_logits"]
        labels = outputs["is_replaced"]
        is_real = ops.cast(batch["input_mask"], "float32")
        losses = ops.softplus(logits) - logits * labels  # Sigmoid cross-entropy, [B, T].
        is_right = ops.cast(ops.equal(logits > 0, labels > 0.5), "float32")
        loss = weigh(losses, is_real)
        return {
            "replaced_tokens_loss": WeightedSum(self.factor * loss.total, loss.weight),
            "replaced_tokens_accuracy": weigh(is_right, is_real),
            "replaced_tokens_recall": weigh(is_right, labels * is_real),
            "replaced_tokens_share": weigh(labels, is_real),
        }


def mask_with_duplicates(batch: Mapping[str, tf.Tensor], draws: MaskDraws) -> Batch:
    """Draws positions with replacement, and decides for each draw whether it becomes [MASK].

    Arguments and result are those of `masks.mask_batch`. Positions are in the order of the draws
    and may repeat.

    Reference: google-research/electra, pretrain/pretrain_helpers.py, mask.
    """
    word_ids = batch["input_word_ids"]
    masking = draws.masking
    limit = masking.max_predictions_per_seq
    length = tf.shape(word_ids)[1]
    candidates = masks.find_candidates(word_ids, batch["input_mask"], draws.vocab)
    sizes = tf.reduce_sum(tf.cast(candidates, tf.float64), axis=1, keepdims=True)  # [B, 1]
    rates = masks.draw_rates(draws)
    counts = masks.count_predictions(batch["input_mask"], masking, rates)[:, None]
    slots = tf.range(limit)[None]  # [1, P]
    is_real = (slots < counts) & (sizes > 0)  # [B, P]

    # The draw of the k-th prediction hits candidate floor(u * size), in float64 because u has 30
    # bits.
    drawn = draws.integers(1 << 30, SELECT, slots)
    # The middle of the draw's interval, so that the number stays below the size.
    numbers = tf.cast((tf.cast(drawn, tf.float64) + 0.5) / (1 << 30) * sizes, tf.int32)
    # Sorted, the positions of the candidates come first: candidate k is in column k.
    candidate_positions = tf.where(candidates, tf.range(length), length)  # [B, T]
    positions = tf.gather(tf.sort(candidate_positions, axis=1), numbers, batch_dims=1)  # [B, P]
    positions = tf.where(is_real, positions, 0)
    originals = tf.gather(word_ids, positions, batch_dims=1)

    is_hidden = draws.integers(1000, DECIDE, slots) < round(1000 * masking.masked_share)
    # A position drawn twice is [MASK] if either draw decides so.
    hidden = tf.where(is_real & is_hidden, positions, -1)[..., None] == tf.range(
        length
    )  # [B, P, T]
    masked = tf.where(tf.reduce_any(hidden, axis=1), draws.vocab.mask_id, word_ids)
    return {
        **batch,
        "input_word_ids": tf.ensure_shape(masked, word_ids.shape),
        "masked_lm_positions": tf.ensure_shape(positions, [None, limit]),
        "masked_lm_ids": tf.where(is_real, originals, 0),
        "masked_lm_weights": tf.cast(is_real, tf.float32),
    }
