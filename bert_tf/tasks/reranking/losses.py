"""Losses for rerankers, over the scores of a query's documents.

All losses take L documents of each of B queries:

  logits    float [B, L], unnormalised
  labels    float32 [B, L]: relevance, from 0 to 1 or a grade, or a teacher's scores
  mask      float32 [B, L]: 1 for a document, 0 for padding of a shorter list

They return the total loss of each list, float32 [B], and weights, float32 [B]. The loss of a batch
is the sum of the totals, divided by the sum of the weights. Values and gradients equal those of
sentence-transformers' losses of cross-encoders.
"""

import functools
import math
from collections.abc import Callable
from typing import Any

from keras import ops

from bert_tf.network.losses import WeightedSum
from bert_tf.system.type_names import Tensor

Losses = tuple[Any, Any]
# The score of padding: a softmax gives it no probability, and a sort puts it last. Finite, because
# the difference of two infinities is not a number.
EMPTY = -1e16
NDCG_LOSS2_WEIGHT = 10.0  # of NDCG-Loss2, which is added to LambdaRank


class RankingLoss:
    """The loss of a batch of lists, for the trainer and for Keras' `fit`.

    Args:
      name: bce, mse, margin_mse, listnet or lambda.
      k: for lambda, see `lambda_losses`. The total is divided by the number of all pairs with
        unequal labels, whatever k is, so that the weight of a batch does not depend on its scores.
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
        # The weights of the other losses depend on the mask only, so that any logits will do.
        _, weights = self._losses(ops.zeros_like(labels), labels, mask)
        return ops.sum(weights)

    def __call__(self, logits: Tensor, labels: Tensor, mask: Tensor) -> WeightedSum:
        """Returns the loss of a batch; see the module's docstring for the arguments."""
        totals, _ = self._losses(logits, labels, mask)
        return WeightedSum(ops.sum(totals), self.weight(labels, mask))


def binary_losses(logits: Tensor, labels: Tensor, mask: Tensor, pos_weight: float = 1.0) -> Losses:
    """Binary cross-entropy of each document, with labels in [0, 1], and numbers of documents.

    `pos_weight`, of relevance, balances data in which most documents are irrelevant.
    """
    logits = ops.cast(logits, "float32")
    # softplus(-x) is -log(sigmoid(x)), and softplus(x) is -log(1 - sigmoid(x)), without overflow.
    losses = pos_weight * labels * ops.softplus(-logits) + (1 - labels) * ops.softplus(logits)
    return ops.sum(losses * mask, axis=1), ops.sum(mask, axis=1)


def squared_losses(logits: Tensor, labels: Tensor, mask: Tensor) -> Losses:
    """Squared difference between each score and the teacher's score.

    Returns:
      Totals, and numbers of documents.
    """
    losses = ops.square(ops.cast(logits, "float32") - labels)
    return ops.sum(losses * mask, axis=1), ops.sum(mask, axis=1)


def margin_losses(logits: Tensor, labels: Tensor, mask: Tensor) -> Losses:
    """Squared difference between each margin and the teacher's margin.

    A margin is the score of the first document, which is relevant, minus the score of another. The
    number is that of documents after the first.

    Reference: Hofstätter et al. 2020, "Improving efficient neural ranking models with cross-
    architecture knowledge distillation".
    """
    logits = ops.cast(logits, "float32")
    mask = mask[:, 1:]  # [B, L - 1]
    margins = logits[:, :1] - logits[:, 1:]
    teacher_margins = labels[:, :1] - labels[:, 1:]
    losses = ops.square(margins - teacher_margins)
    return ops.sum(losses * mask, axis=1), ops.sum(mask, axis=1)


def list_losses(logits: Tensor, labels: Tensor, mask: Tensor) -> Losses:
    """Cross-entropy between the softmax of the labels and the softmax of the scores (ListNet).

    Returns:
      Totals, and 1 for each list that has a document.

    Reference: Cao et al. 2007, "Learning to rank: from pairwise approach to listwise approach".
    """
    is_document = ops.cast(mask, "bool")
    logits = ops.where(is_document, ops.cast(logits, "float32"), EMPTY)
    targets = ops.softmax(ops.where(is_document, labels, EMPTY), axis=1)  # [B, L]
    # A list of padding only has uniform targets, but its loss must be 0.
    logs = ops.where(is_document, ops.log_softmax(logits, axis=1), 0.0)
    return -ops.sum(targets * logs, axis=1), ops.max(mask, axis=1)


def lambda_losses(logits: Tensor, labels: Tensor, mask: Tensor, k: int = 0) -> Losses:
    """LambdaLoss: the logistic loss of each pair of documents with unequal labels.

    A pair is weighted by the change of nDCG if the two documents were exchanged, with the weights
    of NDCG-Loss2++.

    Args:
      logits, labels, mask: see the module's docstring; labels are grades, with gains 2^grade - 1.
      k: a pair counts if the model ranks one of its documents among the first k; 0: all pairs.

    Returns:
      Totals, in bits, and numbers of pairs that count.

    Reference: Wang et al. 2018, "The LambdaLoss framework for ranking metric optimization",
    equations 17 and 18.
    """
    length = logits.shape[1]
    is_document = ops.cast(mask, "bool")
    logits = ops.where(is_document, ops.cast(logits, "float32"), EMPTY)
    labels = ops.where(is_document, labels, 0.0)
    # From here on, documents are in the model's order: the index is the rank. [B, L]
    order = ops.argsort(ops.stop_gradient(-logits), axis=1)  # the best first; stable
    scores = ops.take_along_axis(logits, order, axis=1)
    grades = ops.take_along_axis(labels, order, axis=1)
    mask = ops.take_along_axis(mask, order, axis=1)
    # 1 for each pair (i, j) of documents of which i should be ranked before j, [B, L, L].
    counts = _pairs(grades, lambda a, b: ops.cast(a > b, "float32"))
    counts *= _pairs(mask, ops.multiply) * _first(length, k)
    discounts = ops.log2(1.0 + ops.arange(1, length + 1, dtype="float32"))  # [L]
    # nDCG divides gains by the DCG of the ideal order; a list without relevant documents has 0.
    ideal_gains = -ops.sort(-_gains(labels), axis=1)
    ideal_dcg = ops.sum((ideal_gains / discounts)[:, : k or length], axis=1)  # [B]
    gains = _gains(grades) / ops.maximum(ideal_dcg, 1e-10)[:, None]
    # The change of nDCG: difference of gains times difference of discounts. [B, L, L]
    weights = _exchanges(discounts, length) * _pairs(gains, lambda a, b: ops.abs(a - b))
    differences = _pairs(scores, ops.subtract)
    pair_losses = ops.softplus(-differences) / math.log(2)
    # The differences to padding are huge, and must not count.
    losses = ops.where(counts > 0, weights * pair_losses, 0.0)
    return ops.sum(losses, axis=(1, 2)), ops.sum(counts, axis=(1, 2))


def pair_counts(labels: Tensor, mask: Tensor) -> Any:
    """Returns the number of pairs with unequal labels in each list, float32 [B]."""
    # Each pair is counted in one of its two orders.
    counts = _pairs(labels, lambda a, b: ops.cast(a > b, "float32"))
    return ops.sum(counts * _pairs(mask, ops.multiply), axis=(1, 2))


def _pairs(values: Tensor, combine: Callable[[Any, Any], Any]) -> Any:
    """Returns combine(values[b, i], values[b, j]), [B, L, L]."""
    return combine(values[:, :, None], values[:, None, :])


def _gains(grades: Tensor) -> Any:
    return ops.power(2.0, ops.maximum(grades, 0.0)) - 1.0


def _first(length: int, k: int) -> Any:
    """Returns 1 for pairs with a rank among the first k, and 0 for others, float32 [L, L]."""
    is_first = ops.cast(ops.arange(length) < (k or length), "float32")
    return ops.maximum(is_first[:, None], is_first[None, :])


def _exchanges(discounts: Tensor, length: int) -> Any:
    """Returns the weight of exchanging the documents at each pair of ranks, float32 [L, L]."""
    inverse = 1.0 / discounts
    lambda_rank = ops.abs(inverse[:, None] - inverse[None, :])
    # NDCG-Loss2 depends on the distance d of two ranks: |1 / discount(d) - 1 / discount(d + 1)|,
    # with ranks from 1.
    ranks = ops.arange(length)
    distances = ops.abs(ranks[:, None] - ranks[None, :])  # [L, L]
    ndcg_loss2 = ops.abs(
        ops.take(inverse, ops.maximum(distances - 1, 0))
        - ops.take(inverse, ops.minimum(distances, length - 1))
    )
    return lambda_rank + NDCG_LOSS2_WEIGHT * ops.where(distances > 0, ndcg_loss2, 0.0)
