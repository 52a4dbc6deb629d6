"""Losses for rerankers, over the scores of a query's documents.

All take L documents of each of B queries:

  logits    float [B, L], unnormalised
  labels    float32 [B, L]: relevance, 0 to 1 or a grade, or a teacher's scores
  mask      float32 [B, L], 1 for a document, 0 where a list is shorter

and return float32 [B], a row's total, beside the weights float32 [B] that the totals of a batch are
divided by. Values and gradients are those of sentence-transformers' losses of cross-encoders.
"""

import functools
import math
from collections.abc import Callable
from typing import Any

from keras import ops

from bert_tf.network.losses import WeightedSum
from bert_tf.type_names import Tensor

Losses = tuple[Any, Any]
EMPTY = -1e16  # a score of no document


class RankingLoss:
    """The loss of a batch of lists, for the trainer and for Keras' `fit`.

    Args:
      name: bce, mse, margin_mse, listnet or lambda.
      pos_weight: of bce, see `binary_losses`.
      k: of lambda, see `lambda_losses`. The total is divided by the number of all pairs of unequal
        labels, whichever k: the weight of a batch is known before its scores are.
    """

    def __init__(self, name: str, pos_weight: float = 1.0, k: int = 0) -> None:
        known: dict[str, Callable[..., Losses]] = {
            "bce": functools.partial(binary_losses, pos_weight=pos_weight),
            "mse": squared_losses,
            "margin_mse": margin_losses,
            "listnet": list_losses,
            "lambda": functools.partial(lambda_losses, k=k),
        }
        self.name = name
        self._losses = known[name]

    def weight(self, labels: Tensor, mask: Tensor) -> Any:
        """Returns the number of documents, margins, lists or pairs of a batch, float32 []."""
        if self.name == "lambda":
            return ops.sum(pair_counts(labels, mask))
        _, weights = self._losses(ops.zeros_like(labels), labels, mask)
        return ops.sum(weights)

    def __call__(self, logits: Tensor, labels: Tensor, mask: Tensor) -> WeightedSum:
        """Returns the loss; see above for the arguments."""
        totals, _ = self._losses(logits, labels, mask)
        return WeightedSum(ops.sum(totals), self.weight(labels, mask))


def binary_losses(logits: Tensor, labels: Tensor, mask: Tensor, pos_weight: float = 1.0) -> Losses:
    """Binary cross-entropy of each document; labels in [0, 1].

    Args:
      logits, labels, mask: see above.
      pos_weight: weight of being relevant: that of the rarer kind, where most are not.

    Returns:
      totals and numbers of documents.
    """
    logits = ops.cast(logits, "float32")
    losses = pos_weight * labels * ops.softplus(-logits) + (1 - labels) * ops.softplus(logits)
    return ops.sum(losses * mask, axis=1), ops.sum(mask, axis=1)


def squared_losses(logits: Tensor, labels: Tensor, mask: Tensor) -> Losses:
    """Squared difference of each score from the teacher's.

    Returns:
      totals and numbers of documents.
    """
    losses = ops.square(ops.cast(logits, "float32") - labels)
    return ops.sum(losses * mask, axis=1), ops.sum(mask, axis=1)


def margin_losses(logits: Tensor, labels: Tensor, mask: Tensor) -> Losses:
    """Squared difference of each margin, first document less another, from the teacher's margin.

    Returns:
      totals and numbers of documents after the first.

    Reference: Hofstätter et al. 2020, "Improving efficient neural ranking models with cross-
    architecture knowledge distillation".
    """
    logits, others = ops.cast(logits, "float32"), mask[:, 1:]
    margins, theirs = logits[:, :1] - logits[:, 1:], labels[:, :1] - labels[:, 1:]
    return ops.sum(ops.square(margins - theirs) * others, axis=1), ops.sum(others, axis=1)


def list_losses(logits: Tensor, labels: Tensor, mask: Tensor) -> Losses:
    """Cross-entropy of the softmax of the scores from the softmax of the labels (ListNet).

    Returns:
      totals and 1 for each list with a document.

    Reference: Cao et al. 2007, "Learning to rank: from pairwise approach to listwise approach".
    """
    is_one = ops.cast(mask, "bool")
    logits = ops.where(is_one, ops.cast(logits, "float32"), EMPTY)
    wanted = ops.softmax(ops.where(is_one, labels, EMPTY), axis=1)
    logs = ops.where(is_one, ops.log_softmax(logits, axis=1), 0.0)
    return -ops.sum(wanted * logs, axis=1), ops.max(mask, axis=1)


def lambda_losses(
    logits: Tensor,
    labels: Tensor,
    mask: Tensor,
    k: int = 0,
    mu: float = 10.0,
    sigma: float = 1.0,
    only_both: bool = False,
) -> Losses:
    """LambdaLoss: for each two documents of unequal labels, how surely they stand in order.

    A pair counts as much as exchanging it would change nDCG, by the weights of NDCG-Loss2++.

    Args:
      logits, labels, mask: see above; labels are grades, gains 2^grade - 1.
      k: pairs count of which the model has one among its first k; 0: all.
      mu: share of NDCG-Loss2 beside LambdaRank; 0 is LambdaRank.
      sigma: how steep the sigmoid of a difference is.
      only_both: pairs count of which both are among the first k, as up to sentence-transformers
        5.2; above.

    Returns:
      totals, in bits, and numbers of pairs that count.

    Reference: Wang et al. 2018, "The LambdaLoss framework for ranking metric optimization",
    equations 17 and 18.
    """
    length = logits.shape[1]
    is_one = ops.cast(mask, "bool")
    logits = ops.where(is_one, ops.cast(logits, "float32"), EMPTY)
    order = ops.argsort(ops.stop_gradient(-logits), axis=1)  # the best first; stable
    scores = ops.take_along_axis(logits, order, axis=1)
    grades = ops.take_along_axis(ops.where(is_one, labels, 0.0), order, axis=1)
    there = ops.take_along_axis(mask, order, axis=1)
    counts = _pairs(grades, lambda a, b: ops.cast(a > b, "float32"))
    counts *= _pairs(there, ops.multiply) * _first(length, k, only_both)
    discounts = ops.log2(1.0 + ops.arange(1, length + 1, dtype="float32"))  # [L]
    gains = _gains(grades)  # before the best possible order divides them
    ideal = -ops.sort(-_gains(ops.where(is_one, labels, 0.0)), axis=1)
    best = ops.sum((ideal / discounts)[:, : k or length], axis=1)
    gains /= ops.maximum(best, 1e-10)[:, None]
    weights = _exchanges(discounts, length, mu) * _pairs(gains, lambda a, b: ops.abs(a - b))
    differences = _pairs(scores, ops.subtract)
    surprise = ops.softplus(-sigma * differences) / math.log(2)
    losses = ops.where(counts > 0, weights * surprise, 0.0)
    return ops.sum(losses, axis=(1, 2)), ops.sum(counts, axis=(1, 2))


def pair_counts(labels: Tensor, mask: Tensor) -> Any:
    """Returns how many pairs of a list have unequal labels, float32 [B]."""
    counts = _pairs(labels, lambda a, b: ops.cast(a > b, "float32"))
    return ops.sum(counts * _pairs(mask, ops.multiply), axis=(1, 2))


def _pairs(values: Tensor, combine: Callable[[Any, Any], Any]) -> Any:
    """Returns combine(values[b, i], values[b, j]), [B, L, L]."""
    return combine(values[:, :, None], values[:, None, :])


def _gains(grades: Tensor) -> Any:
    return ops.power(2.0, ops.maximum(grades, 0.0)) - 1.0


def _first(length: int, k: int, only_both: bool) -> Any:
    """Returns 1 for the pairs of ranks that count, float32 [L, L]."""
    is_first = ops.cast(ops.arange(length) < (k or length), "float32")
    rows, columns = is_first[:, None], is_first[None, :]
    return rows * columns if only_both else ops.maximum(rows, columns)


def _exchanges(discounts: Tensor, length: int, mu: float) -> Any:
    """Returns the weight of each pair of ranks, float32 [L, L]."""
    inverse = 1.0 / discounts
    weights = ops.abs(inverse[:, None] - inverse[None, :])  # LambdaRank
    ranks = ops.arange(length)
    apart = ops.abs(ranks[:, None] - ranks[None, :])  # [L, L]
    steps = ops.abs(
        ops.take(inverse, ops.maximum(apart - 1, 0))
        - ops.take(inverse, ops.minimum(apart, length - 1))
    )
    return weights + mu * ops.where(apart > 0, steps, 0.0)
