"""Masked diffusion: a masked language model that learns to fill in any share of a text.

    tokens of a sequence that may be masked  C
    masked in the sequence, all by [MASK]    n, drawn uniformly from 1, 2, ..., C
    weight of each prediction                C / n, the inverse of the masked share
    loss                                     sum of weight * cross-entropy / tokens of the batch

In expectation the loss is a bound on the text's -log p in nats per token, for any order in which
its tokens are filled in; its exponential bounds the perplexity.

References: Sahoo et al. 2024 (MDLM); Nie et al. 2025 (LLaDA), section 2. Differs from both: they
draw a share t from (0, 1] and mask each token independently with probability t, which makes n
uniform on 0, 1, ..., C, and weigh with 1 / t. Here n itself is drawn, as LLaDA does to evaluate
likelihoods: the same mean, less variance, no sequence without a mask, and no weight above C.
Special tokens are never masked.
"""

from collections.abc import Mapping

import tensorflow as tf

from bert_tf.corpus import masking as masks
from bert_tf.corpus.mask_draws import SELECT, MaskDraws
from bert_tf.pretraining.objectives.masked_lm import MaskedLM


class MaskedDiffusion(MaskedLM):
    """The head and sums of `MaskedLM`; masks and weights are those of its `mask_batch`.

    Its accuracy has the same weights, so that all shares of masks count equally.
    """

    plot_titles = {
        "masked_lm_loss": "Masked diffusion: bound on the loss (nats a token)",
        "masked_lm_accuracy": "Masked diffusion: accuracy over all shares of masks",
    }

    @staticmethod
    def mask_batch(batch: Mapping[str, tf.Tensor], draws: MaskDraws) -> dict[str, tf.Tensor]:
        """Masks any number of tokens of each sequence; see `bert_tf.corpus.masking.mask_batch`.

        It differs in that the fields of `masking` have no effect, there is room for T predictions,
        and `masked_lm_weights` are C / n.
        """
        word_ids = batch["input_word_ids"]
        length = word_ids.shape[1]
        draws = draws._replace(masking=draws.masking.any_share(length))
        candidates = masks.find_candidates(word_ids, batch["input_mask"], draws.vocab)
        sizes = tf.reduce_sum(tf.cast(candidates, tf.float64), axis=1)  # C, [B]
        # ceil(u C) with u in (0, 1) is uniform on 1 .. C.
        counts = tf.math.ceil(masks.draw_rates(draws) * sizes)  # n, [B]
        keys = draws.bits(SELECT, tf.range(length)[None])  # [B, T]
        at_least_one = tf.maximum(tf.cast(counts, tf.int32), 1)
        selected = masks.select_tokens(keys, candidates, at_least_one, length)
        selection = masks.Selection(masks.list_positions(selected, length))
        replaced = masks.replace_tokens(word_ids, selection, draws)
        # A text without tokens to mask has C = n = 0 and the weight 0.
        weights = tf.math.divide_no_nan(sizes, counts)[:, None]
        replaced["masked_lm_weights"] *= tf.cast(weights, tf.float32)
        return {**batch, **replaced}
