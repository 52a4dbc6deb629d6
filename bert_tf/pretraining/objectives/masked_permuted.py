"""Masked and permuted language model: a random order, with every position visible (MPNet).

  tokens to predict    those that `masked_lm` masks, replaced in the same way
  order                drawn for each example and epoch; all other tokens come before
  prediction           of a target from all tokens that are not targets, the targets before it in
                       the order, and what replaces the others ([MASK]), itself included

The vectors are those of `bert_tf/network/compensated_stream.py`; the head is that of the masked
language model. The tokens that are not targets see what `masked_lm` would show them, so an encoder
of any shape can be trained so, and fills masks afterwards.

Reference: Song et al. 2020 (MPNet), section 2. As in microsoft/MPNet (masked_permutation_lm.py),
80 % of the targets become [MASK], 10 % a random token and 10 % stay as they are, in the tokens as
in the queries; `masked_share` and `random_share` change it. Differs from it: special tokens and
padding are no targets, and the number of targets follows the length of each text, as in BERT,
while there it is 15 % of the batch's padded length.
"""

from collections.abc import Mapping

import tensorflow as tf

from bert_tf.corpus import masking as masks
from bert_tf.corpus.mask_draws import MaskDraws
from bert_tf.corpus.token_order import permuted_ranks
from bert_tf.pretraining.objectives.permuted_lm import PermutedLM

LABELS = ("masked_lm_positions", "masked_lm_ids", "masked_lm_weights")


class MaskedPermutedLM(PermutedLM):
    """The head and sums of `MaskedLM`, on the query vectors of the compensated stream."""

    plot_titles = {
        "masked_lm_loss": "Masked and permuted LM: loss (nats)",
        "masked_lm_accuracy": "Masked and permuted LM: accuracy",
    }

    @staticmethod
    def mask_batch(batch: Mapping[str, tf.Tensor], draws: MaskDraws) -> dict[str, tf.Tensor]:
        """Masks each sequence and draws the order of the masked tokens.

        Returns:
          The batch of `masks.mask_batch`, with its labels in the order of prediction, and
          `query_positions`, `query_word_ids` and `query_content_ids`, int32 [B, P]: where each
          target is, -1 for none, what replaces it, and its own id.
        """
        masked = masks.mask_batch(batch, draws)
        word_ids = masked["input_word_ids"]  # [B, T]
        length = tf.shape(word_ids)[1]
        positions = masked["masked_lm_positions"]  # [B, P]
        is_real = masked["masked_lm_weights"] > 0
        # T is outside of the row, so unused predictions mark no target.
        targets = masks.positions_to_rows(tf.where(is_real, positions, length), word_ids)
        ranks, _ = permuted_ranks(targets, tf.zeros_like(targets), draws)
        ranks = tf.gather(ranks, positions, batch_dims=1)  # [B, P]
        # Unused predictions come last; stable, because they all have the same key.
        order = tf.argsort(tf.where(is_real, ranks, length + 1), axis=1, stable=True)  # [B, P]
        for name in LABELS:
            ordered = tf.gather(masked[name], order, batch_dims=1)
            masked[name] = tf.ensure_shape(ordered, positions.shape)
        # In the new order.
        is_real = masked["masked_lm_weights"] > 0
        positions = masked["masked_lm_positions"]
        return {
            **masked,
            "query_positions": tf.where(is_real, positions, -1),
            "query_word_ids": tf.gather(word_ids, positions, batch_dims=1),
            "query_content_ids": masked["masked_lm_ids"],
        }
