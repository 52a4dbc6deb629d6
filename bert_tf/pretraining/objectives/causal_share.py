"""Masked and causal language model: a share of the examples is predicted from left to right.

  1 - causal_share of the examples   masked tokens, each from all others
  causal_share                       the next token, each from those before it

Both have the same weights and the same head. A causal example predicts `max_predictions_per_seq`
tokens, so a step costs the same as without them.

References: Charpentier and Samuel 2024 (GPT-BERT). Differs from it: there also masked tokens are
predicted from the position before, and all tokens of a causal example are predicted. Here masks
are filled in at their position, as in any other masked language model.
"""

import tensorflow as tf

from bert_tf.corpus.masking import IS_CAUSAL
from bert_tf.network.losses import WeightedSum, weigh
from bert_tf.pretraining.objectives.masked_lm import MaskedLM
from bert_tf.system.type_names import Batch


class MaskedAndCausalLM(MaskedLM):
    """`MaskedLM`, which also reports the mean loss of each kind of example."""

    plot_titles = {
        **MaskedLM.plot_titles,
        "masked_nats": "Masked tokens: loss (nats)",
        "causal_nats": "Next tokens: loss (nats)",
    }

    def sums_of(
        self, losses: tf.Tensor, is_right: tf.Tensor, weights: tf.Tensor, batch: Batch
    ) -> dict[str, WeightedSum]:
        is_causal = tf.zeros_like(weights)  # [B, P]
        if IS_CAUSAL in batch:  # Absent from a run without causal examples.
            is_causal += tf.cast(batch[IS_CAUSAL], tf.float32)[:, None]
        return {
            **super().sums_of(losses, is_right, weights, batch),
            "masked_nats": weigh(losses, weights * (1.0 - is_causal)),
            "causal_nats": weigh(losses, weights * is_causal),
        }
