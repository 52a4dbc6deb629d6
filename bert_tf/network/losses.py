"""Losses and accuracies, each as a weighted sum and its total weight.

They are sums because a mean of means is wrong where batches hold unequal numbers of predictions:
the trainer adds both over micro-batches and replicas, then divides once. All are float32.
"""

from typing import NamedTuple

from keras import ops

from bert_tf.network.tensors import Tensor


class WeightedSum(NamedTuple):
    """`total` and `weight`, float32 []; their quotient is the mean."""

    total: Tensor
    weight: Tensor

    def mean(self) -> Tensor:
        """Returns the mean, or 0 if the weight is 0."""
        return self.total / ops.where(ops.equal(self.weight, 0.0), 1.0, self.weight)


def _label_scores(logits: Tensor, labels: Tensor) -> Tensor:
    """Returns the score of each row's label, float32 [...]."""
    # A masked sum fuses, and its gradient is a select; that of a gather would be a scatter.
    classes = ops.arange(ops.shape(logits)[-1], dtype="int32")
    hit = ops.equal(classes, ops.cast(labels, "int32")[..., None])
    return ops.sum(ops.where(hit, logits, 0.0), axis=-1)


def class_losses(logits: Tensor, label_ids: Tensor) -> Tensor:
    """Returns each row's cross-entropy in nats: float32 [...].

    Args:
      logits: float [..., C], unnormalised.
      label_ids: int32 [...] in [0, C).
    """
    logits = ops.cast(logits, "float32")
    return ops.logsumexp(logits, axis=-1) - _label_scores(logits, label_ids)


def number_losses(logits: Tensor, label_values: Tensor) -> Tensor:
    """Returns each row's squared error, float32 [B]; logits float [B, 1], values float32 [B]."""
    return ops.square(ops.cast(logits, "float32")[:, 0] - label_values)


def several_losses(logits: Tensor, label_rows: Tensor) -> Tensor:
    """Returns each row's mean binary cross-entropy over the classes, float32 [B].

    Args:
      logits: float [B, C], one decision each.
      label_rows: [B, C], 0 or 1.
    """
    logits = ops.cast(logits, "float32")
    label_rows = ops.cast(label_rows, "float32")
    return ops.mean(ops.softplus(logits) - logits * label_rows, axis=-1)


# By the kind of label: a class, a number, several classes.
LABEL_LOSSES = {"class": class_losses, "number": number_losses, "several": several_losses}


def span_losses(logits: Tensor, input_mask: Tensor, positions: Tensor) -> Tensor:
    """Returns each row's cross-entropy of a position, float32 [B].

    Args:
      logits: float [B, T].
      input_mask: int32 [B, T].
      positions: int32 [B].

    Differs from the original: there the softmax includes padding, so the loss depends on the
    length to which rows are padded.
    """
    return class_losses(mask_scores(logits, input_mask), positions)


def mask_scores(logits: Tensor, input_mask: Tensor) -> Tensor:
    """Returns scores that give padding a probability of 0, float32 [B, T]; see `span_losses`."""
    is_real = ops.cast(input_mask, "float32")  # [B, T]
    return ops.cast(logits, "float32") + (is_real - 1.0) * 1e4


def weigh(values: Tensor, weights: Tensor) -> WeightedSum:
    """Sums values with weights, float32 of the same shape."""
    return WeightedSum(ops.sum(values * weights), ops.sum(weights))


def right_labels(logits: Tensor, label_ids: Tensor) -> Tensor:
    """Returns 1 where the highest score is the label's, else 0: float32 [...]."""
    return ops.cast(ops.equal(ops.argmax(logits, axis=-1), label_ids), "float32")


def cross_entropy(logits: Tensor, labels: Tensor, weights: Tensor) -> WeightedSum:
    """Sums the cross-entropy of predictions of masked tokens or next sentences.

    The caller adds the sums over micro-batches and replicas, then divides once.

    Args:
      logits: float [..., C], unnormalised: [B, P, V] of masked tokens, [B, 2] of next sentences.
      labels: int32 [...] in [0, C): token ids; or 0 for the next sentence, 1 for a random one.
      weights: float32 [...], 1 for a prediction, 0 for padding.

    Returns:
      `WeightedSum`: total in nats and the number of predictions, both float32 [].

    Example: two predictions, one of them padding, C = 2, logits all zero:
      total = log 2 = 0.6931, weight = 1.

    Reference: Devlin et al. 2019, section 3.1. Differs from the original: it divides per replica
    and, for masked tokens, adds 1e-5 to the weight (run_pretraining.py, get_masked_lm_output).
    """
    return weigh(class_losses(logits, labels), ops.cast(weights, "float32"))


def accuracy(logits: Tensor, labels: Tensor, weights: Tensor) -> WeightedSum:
    """Counts the predictions whose highest score is the label's; see `cross_entropy`.

    Returns:
      `WeightedSum`: right predictions and predictions, both float32 [].
    """
    return weigh(right_labels(logits, ops.cast(labels, "int32")), ops.cast(weights, "float32"))
