"""Losses and accuracies, each as a weighted sum and its total weight.

They are sums because a mean of means is wrong where batches hold unequal numbers of predictions:
the trainer adds both over micro-batches and replicas, then divides once. All are float32.
"""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

from keras import ops

from bert_tf.config.fine_tuning_config import LabelLossConfig
from bert_tf.system.type_names import Tensor


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


def class_losses(
    logits: Tensor, label_ids: Tensor, label_smoothing: float = 0.0, focal_gamma: float = 0.0
) -> Tensor:
    """Returns each row's cross-entropy in nats: float32 [...].

    With p = softmax(logits), smoothing e and focal exponent g, the loss is

        sum over classes k of  t_k (1 - p_k)^g (-log p_k),   t = (1 - e) onehot(label) + e / C

    Args:
      logits: float [..., C], unnormalised.
      label_ids: int32 [...] in [0, C).
      label_smoothing: e, from 0 to below 1.
      focal_gamma: g, 0 or more; 0 is the cross-entropy.

    Example: logits 0 and log 3, hence p = (1/4, 3/4), and label 1:
      e = 0, g = 2: (1/4)^2 log(4/3) = 0.0180; e = 0.2, g = 0: 0.9 log(4/3) + 0.1 log 4 = 0.3975.

    Reference: Szegedy et al. 2016, section 7 (smoothing); Lin et al. 2017 (focal loss).
    """
    logits = ops.cast(logits, "float32")
    # The usual case, without the log probabilities of all classes.
    if not label_smoothing and not focal_gamma:
        return ops.logsumexp(logits, axis=-1) - _label_scores(logits, label_ids)
    log_p = logits - ops.logsumexp(logits, axis=-1, keepdims=True)  # [..., C]
    losses = _focal(-log_p, focal_gamma)  # [..., C]
    of_label = _label_scores(losses, label_ids)
    return (1.0 - label_smoothing) * of_label + label_smoothing * ops.mean(losses, axis=-1)


def _focal(surprisal: Tensor, gamma: float) -> Tensor:
    """Returns (1 - p)^gamma (-log p) for surprisals -log p, float32."""
    if not gamma:
        return surprisal
    # Near p = 1, the gradient of a power below 1 is infinite.
    missing = ops.maximum(-ops.expm1(-surprisal), 1e-7)
    return ops.power(missing, gamma) * surprisal


def number_losses(logits: Tensor, label_values: Tensor) -> Tensor:
    """Returns each row's squared error, float32 [B]; logits float [B, 1], values float32 [B]."""
    return ops.square(ops.cast(logits, "float32")[:, 0] - label_values)


def several_losses(
    logits: Tensor,
    label_rows: Tensor,
    label_smoothing: float = 0.0,
    focal_gamma: float = 0.0,
    pos_weight: Sequence[float] = (),
) -> Tensor:
    """Returns each row's mean binary cross-entropy over the classes, float32 [B].

    With p = sigmoid(logits), smoothing e, focal exponent g and weights w, it is the mean over
    classes k of

        w_k t_k (1 - p_k)^g (-log p_k) + (1 - t_k) p_k^g (-log(1 - p_k)),   t = (1 - e) y + e / 2

    Args:
      logits: float [B, C], one decision each.
      label_rows: y, [B, C], 0 or 1.
      label_smoothing, focal_gamma: e and g, see `class_losses`.
      pos_weight: w, the weight of each class where its label is 1; (): 1.

    Example: one class, logit log 3, hence p = 3/4, and y = 1:
      w = 2: 2 log(4/3) = 0.5754; g = 2: (1/4)^2 log(4/3) = 0.0180; e = 0.2: 0.9 log(4/3) +
      0.1 log 4 = 0.3975.
    """
    logits = ops.cast(logits, "float32")
    targets = ops.cast(label_rows, "float32")
    if not label_smoothing and not focal_gamma and not len(pos_weight):
        # -log sigmoid(x) = softplus(-x) = softplus(x) - x, which does not overflow.
        return ops.mean(ops.softplus(logits) - logits * targets, axis=-1)
    targets = (1.0 - label_smoothing) * targets + label_smoothing / 2.0
    positive = targets * _focal(ops.softplus(-logits), focal_gamma)  # [B, C]
    negative = (1.0 - targets) * _focal(ops.softplus(logits), focal_gamma)
    if len(pos_weight):
        positive *= ops.convert_to_tensor(pos_weight, dtype="float32")  # [C]
    return ops.mean(positive + negative, axis=-1)


@dataclasses.dataclass(frozen=True)
class LabelLoss:
    """How labels are learned; evaluations report the plain loss. Fields: see `several_losses`."""

    label_smoothing: float = 0.0
    focal_gamma: float = 0.0
    pos_weight: tuple[float, ...] = ()

    def losses(self, kind: str, logits: Tensor, labels: Tensor) -> Tensor:
        """Returns each row's loss for labels of a kind, float32 [B]."""
        if kind == "regression":
            return number_losses(logits, labels)
        if kind == "single_label":
            return class_losses(logits, labels, self.label_smoothing, self.focal_gamma)
        return several_losses(
            logits, labels, self.label_smoothing, self.focal_gamma, self.pos_weight
        )


def label_loss_of(config: LabelLossConfig, pos_weight: Sequence[float] = ()) -> LabelLoss:
    """Returns the loss with the settings of a configuration."""
    return LabelLoss(config.label_smoothing, config.focal_gamma, tuple(pos_weight))


def span_losses(logits: Tensor, input_mask: Tensor, positions: Tensor) -> Tensor:
    """Returns each row's cross-entropy of a position, float32 [B], from logits float [B, T].

    Differs from the original: there the softmax includes padding, so the loss depends on the
    length to which rows are padded.
    """
    return class_losses(mask_scores(logits, input_mask), positions)


def mask_scores(logits: Tensor, input_mask: Tensor) -> Tensor:
    """Returns scores that give padding a probability of 0, float32 [B, T]; see `span_losses`."""
    is_real = ops.cast(input_mask, "float32")  # [B, T]
    # Finite, as in `layout.attention_bias`: a row of padding alone gets no NaN.
    return ops.cast(logits, "float32") + (is_real - 1.0) * 1e4


def weigh(values: Tensor, weights: Tensor) -> WeightedSum:
    """Sums values with weights, float32 of the same shape."""
    return WeightedSum(ops.sum(values * weights), ops.sum(weights))


def right_labels(logits: Tensor, label_ids: Tensor) -> Tensor:
    """Returns 1 where the highest score is the label's, else 0: float32 [...]."""
    return ops.cast(ops.equal(ops.argmax(logits, axis=-1), label_ids), "float32")


def cross_entropy(logits: Tensor, labels: Tensor, weights: Tensor) -> WeightedSum:
    """Sums the cross-entropy of predictions of masked tokens or next sentences, in nats.

    Args:
      logits: float [..., C], unnormalised: [B, P, V] of masked tokens, [B, 2] of next sentences.
      labels: int32 [...] in [0, C): token ids; or 0 for the next sentence, 1 for a random one.
      weights: float32 [...], 1 for a prediction, 0 for padding.

    Example: two predictions, one of them padding, C = 2, logits all zero:
      total = log 2 = 0.6931, weight = 1.

    Reference: Devlin et al. 2019, section 3.1. Differs from the original: it divides per replica
    and, for masked tokens, adds 1e-5 to the weight (run_pretraining.py, get_masked_lm_output).
    """
    return weigh(class_losses(logits, labels), ops.cast(weights, "float32"))


def accuracy(logits: Tensor, labels: Tensor, weights: Tensor) -> WeightedSum:
    """Counts the predictions whose highest score is the label's; see `cross_entropy`."""
    return weigh(right_labels(logits, ops.cast(labels, "int32")), ops.cast(weights, "float32"))
