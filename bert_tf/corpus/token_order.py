"""Orders in which tokens are predicted: a random one of some tokens, or from left to right.

An order is two ranks of each token: a token attends to those whose key rank is below its query
rank; see `bert_tf.network.layout.Ranks`.
"""

import tensorflow as tf

from bert_tf.corpus.mask_draws import CAUSAL, ORDER, MaskDraws

SCALE = 1 << 20


def permuted_ranks(
    targets: tf.Tensor, specials: tf.Tensor, draws: MaskDraws
) -> tuple[tf.Tensor, tf.Tensor]:
    """Draws the order in which targets are predicted; all other tokens come before them.

    A target's query rank is its key rank, so it does not see itself; its content stream does. With
    `rank_special_tokens` special tokens take part in the order, as in zihangdai/xlnet
    (`_local_perm`): then only tokens of a higher rank see them, and texts without targets none.
    Otherwise every token sees them.

    Args:
      targets: bool [B, T], the tokens to predict.
      specials: bool [B, T], special tokens and padding.

    Returns:
      Key ranks and query ranks, int32 [B, T] each.
    """
    length = tf.shape(targets)[1]
    keys = draws.bits(ORDER, tf.range(length)[None])  # [B, T]
    order = tf.math.top_k(keys, length).indices  # [B, T], by decreasing key
    # The inverse of a permutation: the rank of each token in the order.
    ranks = tf.argsort(order, axis=1)  # From 0.
    is_ranked = targets | specials if draws.masking.rank_special_tokens else targets
    # Rank 0 is below every query rank: all tokens see a token that is not ranked.
    key_ranks = tf.where(is_ranked, ranks + 1, 0)
    query_ranks = tf.where(targets, key_ranks, key_ranks + 1)
    return key_ranks, query_ranks


def causal_ranks(is_causal: tf.Tensor, length: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the ranks of rows from left to right, and of rows in which every token sees all.

    Args:
      is_causal: bool [B], the rows in which a token sees itself and those before it.
      length: T.

    Returns:
      Key ranks and query ranks, int32 [B, T] each.
    """
    positions = tf.range(length)[None]
    key_ranks = tf.where(is_causal[:, None], positions, 0)
    # A token at position t has key rank t and query rank t + 1: it sees 0..t, itself included.
    query_ranks = tf.where(is_causal[:, None], positions + 1, 1)
    return key_ranks, query_ranks


def draw_causal(draws: MaskDraws) -> tf.Tensor:
    """Draws the rows that are read from left to right, bool [B], `causal_share` of all."""
    return draws.integers(SCALE, CAUSAL)[:, 0] < round(draws.masking.causal_share * SCALE)
