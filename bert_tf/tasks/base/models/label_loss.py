"""The base class of models that learn one of several labels, with the settings of that loss."""

import abc
from typing import Any

from bert_tf.config.fine_tuning_config import LabelLossConfig
from bert_tf.network.losses import LabelLoss, WeightedSum
from bert_tf.system.type_names import Batch, Labels, Tensor
from bert_tf.tasks.base.models.fine_tuned import FineTunedModel


class LabelLossModel(FineTunedModel):
    """A model whose `fit` takes `label_smoothing` and `focal_gamma`."""

    @abc.abstractmethod
    def task_loss(
        self,
        x: Batch,
        y: Tensor,
        outputs: Tensor,
        weights: Tensor | None,
        label_loss: LabelLoss | None = None,
    ) -> WeightedSum:
        """See `TextFitMixin`.

        Args:
          label_loss: the loss of training; None: the plain loss.
        """

    def own_loss(
        self, x: Batch, y: Tensor, outputs: Tensor, weights: Tensor | None, training: bool
    ) -> Any:
        """See `TextFitMixin`; `evaluate` reports the plain loss."""
        if not training or not self._has_own_loss:
            return super().own_loss(x, y, outputs, weights, training)
        return sum(self.losses, self.task_loss(x, y, outputs, weights, self.label_loss).mean())

    def choose_label_loss(
        self, config: LabelLossConfig, y: Labels | None, class_weight: object
    ) -> Any:
        """See `TextFitMixin`."""
        self.set_label_loss(config)
        return class_weight
