"""Compiles fine-tuned models: `compile` with checks of the loss, and the programs' own defaults."""

import dataclasses
from typing import Any

import keras

from bert_tf.config import OptimizerConfig
from bert_tf.config.fine_tuning_defaults import default_learning_rate
from bert_tf.network.encoder import BertEncoder
from bert_tf.network.losses import LabelLoss, WeightedSum
from bert_tf.network.pretrained import FromPretrained
from bert_tf.system.type_names import Batch, Callbacks, Fields, Optimizer, Strategy, Tensor
from bert_tf.tasks.base.models.compiled_losses import (
    LossArgument,
    loss_of_scores,
    takes_one_hot,
    takes_probabilities,
)
from bert_tf.tasks.base.models.label_accuracy import LabelAccuracy
from bert_tf.training.optimizers import build_optimizer
from bert_tf.training.schedules import WarmupFactor

# The defaults of the fine-tuning programs.
OPTIMIZER = OptimizerConfig("adamw")
WARMUP_PROPORTION = OptimizerConfig().warmup_proportion
# Callbacks of Keras that set the learning rate.
RATE_CALLBACKS = (keras.callbacks.LearningRateScheduler, keras.callbacks.ReduceLROnPlateau)


class DefaultCompileMixin(FromPretrained):
    """Compiles a Keras model with `bert`, its encoder; mixed in before it.

    A subclass defines `task_loss` and `default_metrics`.
    """

    bert: BertEncoder
    optimizer: Optimizer
    distribute_strategy: Strategy
    trainable_variables: list[keras.Variable]
    jit_compile: bool
    run_eagerly: bool
    losses: list[Tensor]
    is_compiled_by_default = False
    _has_own_loss = False
    _takes_one_hot = False
    _loss_of_probabilities = ""  # name of the loss, if `compile` got one of probabilities
    _traced_for: tuple[Any, ...] | None = None  # See `_what_is_traced`.
    label_loss = LabelLoss()  # of the last `fit`

    def task_loss(
        self, x: Batch, y: Tensor | Batch, outputs: Tensor | Batch, weights: Tensor | Batch | None
    ) -> WeightedSum:
        """Returns the loss of a batch.

        Args:
          x: the encoder's inputs.
          y: labels; a dict for a model with several outputs, like `outputs` and `weights`.
          outputs: the unnormalized scores.
          weights: weights of the labels; None: 1.
        """
        raise NotImplementedError

    @property
    def default_metrics(self) -> list[Any] | dict[str, list[Any]]:
        """Metrics to report besides the loss, as for `compile`."""
        return [LabelAccuracy("accuracy")]

    def compile(
        self,
        optimizer: str | Fields | Optimizer = "rmsprop",
        loss: LossArgument = None,
        **options: Any,
    ) -> None:
        """Compiles as Keras' `compile`; without a loss, the loss of the task is used.

        The model's outputs are unnormalized scores, so a cross entropy given by name is computed
        from logits.
        """
        loss = loss_of_scores(loss)
        self._takes_one_hot = takes_one_hot(loss)
        is_wrong = takes_probabilities(loss)
        self._loss_of_probabilities = type(loss).__name__ if is_wrong else ""
        self.is_compiled_by_default = False
        self._has_own_loss = loss is None
        if options.get("jit_compile") is True:
            # Without the padding, the number of tokens differs in each batch, but XLA needs fixed
            # shapes.
            self.bert.leave_out_padding(False)
        super().compile(optimizer, loss, **options)  # type: ignore[misc]

    def compile_for(self, num_train_steps: int, learning_rate: float | None = None) -> None:
        """Compiles the model with the defaults of the fine-tuning programs.

        AdamW with bias correction, weight decay 0.01 except for LayerNorm and biases, and gradients
        clipped to norm 1. The rate rises during the first tenth of the steps and falls to 0 at the
        last.

        Args:
          num_train_steps: steps of the whole `fit`.
          learning_rate: peak rate; None: the default for the encoder's width, see
            `bert_tf.config.fine_tuning_defaults`.

        Callbacks such as `ReduceLROnPlateau` read and set the peak. Calling this again keeps the
        traced training step, unless an option that the graph depends on has changed.
        """
        rate = learning_rate
        if rate is None:
            rate = default_learning_rate(self.bert.config.hidden_size)
        config = dataclasses.replace(
            OPTIMIZER,
            learning_rate=rate,
            num_train_steps=num_train_steps,
            num_warmup_steps=int(WARMUP_PROPORTION * num_train_steps),
        )
        steps = (config.num_train_steps, config.num_warmup_steps)
        if self.is_compiled_by_default and self._traced_for == self._what_is_traced():
            # The traced step still fits: restart its optimizer instead of tracing again.
            self.optimizer.restart(rate)
            self.optimizer.rate_factor.set_steps(*steps)
            return
        with self.distribute_strategy.scope():
            # The rate is a number that callbacks can set; warm-up and decay are a factor of it.
            optimizer = build_optimizer(config, rate)
            optimizer.rate_factor = WarmupFactor()
            optimizer.rate_factor.set_steps(*steps)
            self.compile(optimizer, weighted_metrics=self.default_metrics)
            optimizer.build(self.trainable_variables)
        # If TensorFlow runs the step, XLA updates all variables in one pass.
        optimizer.jit_compile = not self.jit_compile
        self.is_compiled_by_default = True
        self._traced_for = self._what_is_traced()

    def _what_is_traced(self) -> tuple[Any, ...]:
        """Returns the values, other than shapes, on which the graph of a training step depends."""
        # Freezing a layer changes the trainable variables.
        paths = tuple(variable.path for variable in self.trainable_variables)
        encoder = self.bert
        options = (self.jit_compile, self.run_eagerly, encoder.unpad, encoder.recompute)
        return paths, *options, self.label_loss

    def own_loss(
        self,
        x: Batch,
        y: Tensor | Batch | None,
        outputs: Tensor | Batch,
        weights: Tensor | Batch | None,
        training: bool,
    ) -> Tensor | None:
        """Returns the loss of the task; None if `compile` was given another loss."""
        if not self._has_own_loss or y is None:
            return None
        # `losses` are those that layers added, such as regularizers.
        return sum(self.losses, self.task_loss(x, y, outputs, weights).mean())

    def _check_loss(self) -> None:
        """Raises ValueError if the model was compiled with a loss of probabilities."""
        if name := self._loss_of_probabilities:
            raise ValueError(
                f"The model is compiled with {name}() of probabilities, but its outputs are "
                f"unnormalised scores: compile it with keras.losses.{name}(from_logits=True), or "
                "without a loss."
            )

    def save(self, *arguments: Any, **options: Any) -> None:
        """Saves as Keras' `save`, without an optimizer that `fit` made: its schedule has ended."""
        if not self.is_compiled_by_default:
            super().save(*arguments, **options)  # type: ignore[misc]
            return
        # Keras writes the state of the optimizer, twice the size of the weights.
        optimizer = self.optimizer
        self.optimizer = None
        try:
            super().save(*arguments, **options)  # type: ignore[misc]
        finally:
            self.optimizer = optimizer

    def get_compile_config(self) -> Fields | None:
        """Returns None for a model compiled by default: its schedule has ended."""
        return None if self.is_compiled_by_default else super().get_compile_config()  # type: ignore

    def compile_from_config(self, config: Fields) -> None:
        """Compiles a loaded model as the saved one was."""
        self.compile(**keras.saving.deserialize_keras_object(config))
        if self.optimizer is not None:
            # Keras reads the optimizer's state into variables that exist.
            self.optimizer.build(self.trainable_variables)


def check_rate_is_settable(optimizer: Optimizer, callbacks: Callbacks | None) -> None:
    """Raises ValueError if a callback would set the rate of an optimizer that has a schedule."""
    listed = getattr(callbacks, "callbacks", callbacks) or ()  # Also a `CallbackList`.
    if isinstance(listed, keras.callbacks.Callback):
        listed = (listed,)
    setting = [type(one).__name__ for one in listed if isinstance(one, RATE_CALLBACKS)]
    # A schedule is serialized as a dict, a number as itself.
    if setting and isinstance(optimizer.get_config().get("learning_rate"), dict):
        raise ValueError(
            f"fit: {setting[0]} sets the learning rate, but the optimizer has a schedule; compile "
            "the model with a number, compile(bert_tf.AdamW(2e-5)), or do not compile it."
        )
