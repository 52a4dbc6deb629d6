"""Compiles fine-tuned models: `compile` with checks of the loss, and the programs' own defaults."""

import dataclasses
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import keras
import tensorflow as tf

from bert_tf.config import OptimizerConfig
from bert_tf.config.fine_tuning_config import LabelLossConfig
from bert_tf.config.fine_tuning_defaults import default_learning_rate
from bert_tf.network.losses import LabelLoss, label_loss_of
from bert_tf.system.type_names import Callbacks, Optimizer, Tensor
from bert_tf.training.finite_weights import FiniteLosses
from bert_tf.training.optimizers import build_optimizer
from bert_tf.training.schedules import WarmupFactor

if typing.TYPE_CHECKING:
    from bert_tf.tasks.base.models.text_model import TextModel

# The argument `loss` of `compile`: one loss, or one for each output.
LossArgument: TypeAlias = (
    str
    | keras.losses.Loss
    | Callable[[Tensor, Tensor], Tensor]
    | Mapping[str, Any]
    | Sequence[Any]
    | None
)

_CROSS_ENTROPIES = (
    keras.losses.SparseCategoricalCrossentropy,
    keras.losses.CategoricalCrossentropy,
    keras.losses.CategoricalFocalCrossentropy,
    keras.losses.BinaryCrossentropy,
    keras.losses.BinaryFocalCrossentropy,
)
_NAMES = {
    "sparse_categorical_crossentropy": keras.losses.SparseCategoricalCrossentropy,
    "categorical_crossentropy": keras.losses.CategoricalCrossentropy,
    "categorical_focal_crossentropy": keras.losses.CategoricalFocalCrossentropy,
    "binary_crossentropy": keras.losses.BinaryCrossentropy,
    "binary_focal_crossentropy": keras.losses.BinaryFocalCrossentropy,
    **{one.__name__: one for one in _CROSS_ENTROPIES},
}


def loss_of_scores(loss: LossArgument) -> LossArgument:
    """Returns the loss for `compile`, with a cross entropy given by name computed from logits.

    Keras itself reads such a name, or the function of that name, as a loss of probabilities.
    """
    name = loss if isinstance(loss, str) else getattr(loss, "__name__", "")
    if name in _NAMES:
        return _NAMES[name](from_logits=True)
    return loss


def takes_probabilities(loss: LossArgument) -> bool:
    """Returns whether a loss is a cross entropy that expects probabilities instead of scores."""
    return isinstance(loss, _CROSS_ENTROPIES) and not loss.from_logits


def takes_one_hot(loss: LossArgument) -> bool:
    """Returns whether a loss expects one-hot labels, not indices of classes."""
    is_sparse = isinstance(loss, keras.losses.SparseCategoricalCrossentropy)
    others = (*_CROSS_ENTROPIES, keras.losses.CategoricalHinge, keras.losses.KLDivergence)
    return isinstance(loss, others) and not is_sparse


# The defaults of the fine-tuning programs.
OPTIMIZER = OptimizerConfig("adamw")
WARMUP_PROPORTION = OptimizerConfig().warmup_proportion
# Callbacks of Keras that set the learning rate.
RATE_CALLBACKS = (keras.callbacks.LearningRateScheduler, keras.callbacks.ReduceLROnPlateau)


class DefaultCompiler:
    """Compiles a model, and knows how it was compiled."""

    def __init__(self, model: "TextModel") -> None:
        self._model: Any = model  # with the attributes of a Keras model
        self.is_default = False  # compiled with the defaults of the fine-tuning programs
        self.has_own_loss = False  # The loss is that of the task.
        self.takes_one_hot = False  # The loss expects one-hot labels.
        self._loss_of_probabilities = ""  # name of the loss, if `compile` got one of probabilities
        self._traced_for: tuple[Any, ...] | None = None  # See `_what_is_traced`.

    def take_loss(self, loss: LossArgument) -> LossArgument:
        """Returns the loss for Keras' `compile`, whose argument is given, and keeps its form."""
        loss = loss_of_scores(loss)
        self.takes_one_hot = takes_one_hot(loss)
        self._loss_of_probabilities = type(loss).__name__ if takes_probabilities(loss) else ""
        self.is_default = False
        self.has_own_loss = loss is None
        return loss

    def compile_for(self, num_train_steps: int, learning_rate: float | None = None) -> None:
        """Compiles by default; see `TextModel.compile_for`."""
        model = self._model
        rate = learning_rate
        if rate is None:
            rate = default_learning_rate(model.bert.config.hidden_size)
        config = dataclasses.replace(
            OPTIMIZER,
            learning_rate=rate,
            num_train_steps=num_train_steps,
            num_warmup_steps=int(WARMUP_PROPORTION * num_train_steps),
        )
        steps = (config.num_train_steps, config.num_warmup_steps)
        if self.is_default and self._traced_for == self._what_is_traced():
            # The traced step still fits: restart its optimizer instead of tracing again.
            model.optimizer.restart(rate)
            model.optimizer.rate_factor.set_steps(*steps)
            return
        with model.distribute_strategy.scope():
            # The rate is a number that callbacks can set; warm-up and decay are a factor of it.
            optimizer = build_optimizer(config, rate)
            optimizer.rate_factor = WarmupFactor()
            optimizer.rate_factor.set_steps(*steps)
            model.compile(optimizer, weighted_metrics=model.default_metrics)
            optimizer.build(model.trainable_variables)
        # If TensorFlow runs the step, XLA updates all variables in one pass.
        optimizer.jit_compile = not model.jit_compile
        self.is_default = True
        self._traced_for = self._what_is_traced()

    def _what_is_traced(self) -> tuple[Any, ...]:
        """Returns the values, other than shapes, on which the graph of a training step depends."""
        # Freezing a layer changes the trainable variables.
        model = self._model
        paths = tuple(variable.path for variable in model.trainable_variables)
        options = (model.jit_compile, model.run_eagerly, model.bert.unpad, model.bert.recompute)
        return paths, *options, model.label_loss, *model.traced_settings

    def check_loss(self) -> None:
        """Raises ValueError if the model was compiled with a loss of probabilities."""
        if name := self._loss_of_probabilities:
            raise ValueError(
                f"The model is compiled with {name}() of probabilities, but its outputs are "
                f"unnormalised scores: compile it with keras.losses.{name}(from_logits=True), or "
                "without a loss."
            )

    def set_label_loss(self, config: LabelLossConfig, pos_weight: Sequence[float] = ()) -> None:
        """Sets the loss of the labels; raises ValueError if `compile` was given another loss."""
        model = self._model
        label_loss = label_loss_of(config, pos_weight)
        if label_loss != LabelLoss() and model.compiled and not self.has_own_loss:
            raise ValueError(f"fit: {label_loss} needs the model's own loss; give none to compile.")
        if label_loss != model.label_loss:
            model.train_function = None  # Keras traces a new step, with this loss.
        model.label_loss = label_loss


def with_finite_losses(optimizer: Optimizer, callbacks: Callbacks | None) -> Callbacks:
    """Returns the callbacks of `fit` and one that stops at losses that are not finite."""
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
    if isinstance(callbacks, keras.callbacks.CallbackList):
        callbacks.append(FiniteLosses())
        return callbacks
    return [*tf.nest.flatten(callbacks or []), FiniteLosses()]
