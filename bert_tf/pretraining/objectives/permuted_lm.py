"""Permuted language model: predicts tokens one after the other in a random order (XLNet).

  tokens to predict    those that `masked_lm` would mask; nothing is replaced in the input
  order                drawn for each example and epoch; all other tokens come before
  prediction           of a target from the tokens before it in the order, and from its position

The two streams of attention are those of `bert_tf/network/query_stream.py`; the head is that of
the masked language model. An encoder of any shape can be trained so, and fills masks afterwards:
a target's query starts as [MASK] at its position.

Reference: Yang et al. 2019 (XLNet), sections 2.2 and 2.3: `masked_lm_prob` is 1 / K there. Differs
from zihangdai/xlnet in the spans of targets, which `ngram_length` or `span_length` draw here, and
in that special tokens are seen by all, unless `rank_special_tokens` is set.
"""

from collections.abc import Mapping

import tensorflow as tf

from bert_tf.corpus import masking as masks
from bert_tf.corpus.mask_draws import MaskDraws
from bert_tf.corpus.token_order import permuted_ranks
from bert_tf.pretraining.objectives.masked_lm import MaskedLM


class PermutedLM(MaskedLM):
    """The head and sums of `MaskedLM`, on the vectors of the query stream.

    Without targets the model fills in masks, as one that was trained with `MaskedLM`.
    """

    plot_titles = {
        "masked_lm_loss": "Permuted LM: loss (nats)",
        "masked_lm_accuracy": "Permuted LM: accuracy",
    }

    @staticmethod
    def mask_batch(batch: Mapping[str, tf.Tensor], draws: MaskDraws) -> dict[str, tf.Tensor]:
        """Selects the targets of each sequence and draws their order.

        Returns:
          The batch with the labels of `masks.mask_batch`, `key_ranks` and `query_ranks` int32
          [B, T], and `query_positions` and `query_word_ids` int32 [B, P]; -1 is no position.
        """
        word_ids = batch["input_word_ids"]
        positions = masks.select_positions(batch, draws).positions  # [B, P], T: unused
        is_real = positions < tf.shape(word_ids)[1]
        targets = masks.positions_to_rows(positions, word_ids)
        candidates = masks.find_candidates(word_ids, batch["input_mask"], draws.vocab)
        key_ranks, query_ranks = permuted_ranks(targets, ~candidates, draws)
        return {
            **batch,
            **masks.labels_of(word_ids, positions),
            "key_ranks": tf.ensure_shape(key_ranks, word_ids.shape),
            "query_ranks": tf.ensure_shape(query_ranks, word_ids.shape),
            "query_positions": tf.where(is_real, positions, -1),
            "query_word_ids": tf.fill(tf.shape(positions), draws.vocab.mask_id),
        }
