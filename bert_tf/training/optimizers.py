"""Adam with decoupled weight decay in four variants, one class each.

                     bias correction   trust ratio   the layers' matrices
  AdamWeightDecay    no                no            as all            google-research/bert's
  AdamW              yes               no            as all            Loshchilov and Hutter 2019
  LAMB               yes               yes           as all            You et al. 2020
  Muon               yes               no            orthogonalized    Jordan et al. 2024

  m = beta_1 m + (1 - beta_1) g          v = beta_2 v + (1 - beta_2) g^2
  update = m^ / (sqrt(v^) + epsilon) + weight_decay * x        (m^, v^: bias-corrected or not)
  x = x - learning_rate * ratio * update    ratio = |x| / |update| in LAMB, else 1

LayerNorm and bias variables are neither decayed nor given a trust ratio.

Muon's step of a matrix [R, C] of a layer, with the learning rate and decay of all others:

  m = 0.95 m + g      update = 0.2 sqrt(max(R, C)) * orthogonalized(g + 0.95 m) + weight_decay * x

Each can also keep an exponential moving average of the weights, in float32:

  average = d average + (1 - d) x      d = min(ema_decay, t / (t + 9)), t updates before this one

so the first update copies the weights, and the average of a short run forgets its beginning. This
is TF1's ExponentialMovingAverage with its `num_updates` counted from that copy.
"""

import contextlib
import functools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from bert_tf.config import OptimizerConfig
from bert_tf.system.type_names import Tensor
from bert_tf.training.clipping import clip_scale, global_norm
from bert_tf.training.layer_rates import layer_rates
from bert_tf.training.schedules import LearningRateSchedule, build_schedule

AVERAGE = "ExponentialMovingAverage"  # TF1's ending of an averaged variable's name.
_NOT_DECAYED = re.compile("LayerNorm|layer_norm|bias")
_MATRIX_OF_LAYER = re.compile(r"/layer_\d+/.*kernel$")
_MOMENTUM = 0.95  # Muon's.


# Arguments of Keras' optimizers that would be without effect, or worse, and what to do instead.
_NOT_TAKEN = {
    "weight_decay": "give weight_decay_rate",
    **dict.fromkeys(("clipnorm", "global_clipnorm", "clipvalue"), "give clip_norm"),
    "use_ema": "give ema_decay",
    "gradient_accumulation_steps": "give larger batches",
    "loss_scale_factor": "wrap the optimizer in keras.optimizers.LossScaleOptimizer",
}


class Rule(NamedTuple):
    """The settings of a variable's update, apart from its shape."""

    is_decayed: bool
    is_orthogonal: bool


def decays(path: str) -> bool:
    """Returns whether weight decay applies to the variable with this path.

    By path, not by name: Keras calls a LayerNorm's variables just `gamma` and `beta`.
    """
    return _NOT_DECAYED.search(path) is None


@keras.saving.register_keras_serializable(package="bert_tf")
class AdamWeightDecay(keras.optimizers.Optimizer):
    """google-research/bert's optimizer: Adam without bias correction, decay added to the update.

    Differs from Keras' optimizers: gradients of embedding tables are made dense before their
    squares are taken (Keras squares the parts of a repeated row separately), clipping by the global
    norm comes after the sum over replicas, and the variable's path decides whether it is decayed.

    Args:
      learning_rate: float or schedule of the step, counted from 0.
      beta_1: decay of the first moment.
      beta_2: decay of the second moment.
      epsilon: added to the square root of the second moment.
      weight_decay_rate: decay, in units of the learning rate.
      clip_norm: largest global norm of the gradients; 0 for no clipping.
      layerwise_lr_decay: factor of the learning rate from each layer to the one below; see
        `layer_rates`.
      electra_layer_rates: whether its exponents are those of google-research/electra.
      clip_where: "after" the sum over replicas, or "before" it: each replica's own gradient.
      ema_decay: decay of the average of the weights; 0: no average.

    Raises:
      ValueError: for an argument of Keras' optimizers that this one does not have.

    Attributes:
      rate_factor: a schedule whose value multiplies `learning_rate`, which is then a number that
        callbacks can read and set; None: 1. It is not saved.
      jit_compile: on one device, compile the update of each variable with XLA: one pass over the
        weights. For a step that is not compiled as a whole.

    Reference: google-research/bert optimization.py, AdamWeightDecayOptimizer.
    """

    bias_correction = False
    trust_ratio = False
    orthogonalizes = False

    def __init__(
        self,
        learning_rate: float | LearningRateSchedule = 5e-5,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-6,
        weight_decay_rate: float = 0.01,
        clip_norm: float = 1.0,
        layerwise_lr_decay: float = 1.0,
        clip_where: str = "after",
        ema_decay: float = 0.0,
        electra_layer_rates: bool = False,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        for argument, remedy in _NOT_TAKEN.items():
            if kwargs.get(argument):
                raise ValueError(
                    f"{argument}={kwargs[argument]} is an argument of Keras' optimizers, which "
                    f"{type(self).__name__} does not have: {remedy}."
                )
        super().__init__(learning_rate=learning_rate, name=name, **kwargs)
        self.layerwise_lr_decay = layerwise_lr_decay
        self.electra_layer_rates = electra_layer_rates
        self.beta_1 = beta_1
        self.beta_2 = beta_2
        self.epsilon = epsilon
        self.weight_decay_rate = weight_decay_rate
        self.clip_norm = clip_norm
        self.clip_where = clip_where
        self.ema_decay = ema_decay
        self.jit_compile = False
        self.rate_factor: Callable[[Tensor], Tensor] | None = None
        self._updates: dict[tuple[object, ...], Callable[..., None]] = {}

    def build(self, variables: Iterable[keras.Variable]) -> None:
        if self.built:
            return
        variables = list(variables)
        super().build(variables)
        paths = [variable.path for variable in variables]
        is_matrix = _MATRIX_OF_LAYER.search if self.orthogonalizes else lambda _: None
        self._rules = [Rule(decays(path), is_matrix(path) is not None) for path in paths]
        self._rates = layer_rates(paths, self.layerwise_lr_decay, self.electra_layer_rates)
        self._moments, self._squares = self.add_optimizer_variables(variables, ["adam_m", "adam_v"])
        self._averages = self.add_optimizer_variables(variables, AVERAGE) if self.ema_decay else []

    def apply(
        self,
        grads: Sequence[Tensor | None],
        trainable_variables: Iterable[keras.Variable] | None = None,
    ) -> None:
        """Sums gradients over replicas, then applies them; called by `fit`."""
        if trainable_variables is None:
            trainable_variables = self._trainable_variables
        pairs = zip(grads, trainable_variables, strict=True)
        # A loss may depend on a part of the variables; Keras then passes None for the others.
        present = [(gradient, variable) for gradient, variable in pairs if gradient is not None]
        grads = [gradient for gradient, _ in present]
        variables = [variable for _, variable in present]
        context = tf.distribute.get_replica_context()
        if context is not None and context.num_replicas_in_sync > 1:
            grads = self.clip_share(list(map(tf.convert_to_tensor, grads)))
            # The sum and not the mean: the loss of a replica is divided by the number of replicas.
            grads = context.all_reduce("SUM", grads)
        self.apply_summed(grads, variables)

    def clip_share(
        self, gradients: Sequence[tf.Tensor], loss_scale: tf.Tensor | float = 1.0
    ) -> list[tf.Tensor]:
        """Clips the gradients of one of several replicas, if `clip_where` is "before".

        A replica's share is its own mean gradient divided by the number of replicas, so the share
        is clipped to `clip_norm` divided by that number.

        Args:
          gradients: one replica's dense gradients.
          loss_scale: factor by which they are multiplied.
        """
        if self.clip_where == "after":
            return list(gradients)
        replicas = tf.distribute.get_strategy().num_replicas_in_sync
        unshared_norm = global_norm(gradients) * replicas / loss_scale
        scale = clip_scale(unshared_norm, self.clip_norm)
        return [gradient * tf.cast(scale, gradient.dtype) for gradient in gradients]

    def apply_summed(
        self,
        gradients: Sequence[Tensor | None],
        variables: Sequence[keras.Variable],
    ) -> tf.Tensor:
        """Clips and applies gradients that are already summed over replicas.

        Args:
          gradients: one per variable, the same on every replica; tensors or IndexedSlices.
          variables: Keras variables.

        Returns:
          Global norm before this clipping, float32 [].

        Raises:
          ValueError: if a gradient is missing.
        """
        missing = [v.path for g, v in zip(gradients, variables, strict=True) if g is None]
        if missing:
            raise ValueError(
                f"No gradient for {missing}: the loss does not depend on them. Leave them out of "
                "`variables`."
            )
        self.build(variables)
        # The gradients of embedding tables may be IndexedSlices.
        dense = list(map(tf.convert_to_tensor, gradients))
        norm = global_norm(dense)
        # Gradients that were clipped "before" are within the norm, so this does not change them.
        scale = clip_scale(norm, self.clip_norm)
        # Leaves the context of the replica: one call updates the copies of all replicas.
        tf.__internal__.distribute.interim.maybe_merge_call(
            self._update_all,
            tf.distribute.get_strategy(),
            dense,
            [variable.value for variable in variables],
            scale,
            self._current_rate(),
        )
        self.iterations.assign_add(1)
        return norm

    def _current_rate(self) -> tf.Tensor:
        rate = tf.convert_to_tensor(self.learning_rate)
        if self.rate_factor is None:
            return rate
        return rate * self.rate_factor(self.iterations)

    def restart(self, learning_rate: float) -> None:
        """Resets the state to that of a new optimizer with this rate."""
        self.learning_rate = learning_rate
        for variable in (self.iterations, *self._moments, *self._squares, *self._averages):
            variable.assign(keras.ops.zeros_like(variable))

    def _update_all(
        self,
        strategy: tf.distribute.Strategy,
        gradients: Sequence[Tensor],
        variables: Sequence[tf.Variable],
        scale: Tensor,
        learning_rate: Tensor,
    ) -> None:
        """Updates every variable, on every replica the replica's copy."""
        done = tf.convert_to_tensor(self.iterations.value)
        for gradient, variable in zip(gradients, variables, strict=True):
            index = self._get_variable_index(variable)
            strategy.extended.update(
                variable,
                functools.partial(self._update_with_slots, index),
                args=(gradient, scale, learning_rate, done),
                group=False,
            )

    def _update_with_slots(
        self,
        index: int,
        variable: tf.Variable,
        gradient: Tensor,
        scale: Tensor,
        learning_rate: Tensor,
        done: Tensor,
    ) -> None:
        slots = (self._moments, self._squares, self._averages)
        values = [of_all[index].value for of_all in slots if of_all]
        rate = learning_rate if self._rates[index] == 1.0 else learning_rate * self._rates[index]
        self._update_function(index)(variable, gradient, scale, rate, done, *values)

    def _update_function(self, index: int) -> Callable[..., None]:
        """Returns `_update_variable`; on one device traced once for all variables of a shape."""
        rule = self._rules[index]
        update = functools.partial(self._update_variable, rule)
        if tf.distribute.has_strategy():  # A trace would keep the slots of the first replica.
            return update
        variable = self._trainable_variables[index]
        key = (rule, self.jit_compile, variable.dtype, *variable.shape)
        if key not in self._updates:
            self._updates[key] = self._traced(update)
        return self._updates[key]

    def _traced(self, update: Callable[..., None]) -> Callable[..., None]:
        return tf.function(update, autograph=False, jit_compile=self.jit_compile or None)

    def _update_variable(
        self,
        rule: Rule,
        variable: tf.Variable,
        gradient: tf.Tensor,
        scale: tf.Tensor,
        learning_rate: tf.Tensor,
        done: tf.Tensor,
        moment: tf.Variable,
        square: tf.Variable,
        average: tf.Variable | None = None,
    ) -> None:
        """Updates one variable and its slots; `done` counts the updates before this one."""
        dtype = variable.dtype
        gradient = tf.cast(gradient, dtype) * tf.cast(scale, dtype)
        rate = tf.cast(learning_rate, dtype)
        value = tf.convert_to_tensor(variable)
        if rule.is_orthogonal:
            moment.assign(_MOMENTUM * moment + gradient)
            update = orthogonalized(gradient + _MOMENTUM * moment)  # Nesterov momentum.
            # A root mean square of 0.2, like AdamW's updates.
            update *= 0.2 * max(variable.shape) ** 0.5
        else:
            update = self._adam_update(gradient, done, moment, square)
        if rule.is_decayed:
            # Decoupled decay: it does not enter the moments.
            update += self.weight_decay_rate * value
            if self.trust_ratio:
                rate *= _trust_ratio(value, update)
        variable.assign_sub(rate * update)
        if average is not None:
            self._update_average(average, tf.convert_to_tensor(variable), done)

    def _adam_update(
        self, gradient: tf.Tensor, done: tf.Tensor, moment: tf.Variable, square: tf.Variable
    ) -> tf.Tensor:
        """Updates the moments; returns their quotient."""
        # Moving averages of the gradient and of its square.
        new_moment = self.beta_1 * moment + (1.0 - self.beta_1) * gradient
        new_square = self.beta_2 * square + (1.0 - self.beta_2) * tf.square(gradient)
        moment.assign(new_moment)
        square.assign(new_square)
        if self.bias_correction:
            # The averages start at 0; this corrects their bias in the first steps.
            step = tf.cast(done + 1, gradient.dtype)
            new_moment /= 1.0 - tf.pow(tf.cast(self.beta_1, gradient.dtype), step)
            new_square /= 1.0 - tf.pow(tf.cast(self.beta_2, gradient.dtype), step)
        return new_moment / (tf.sqrt(new_square) + self.epsilon)

    def _update_average(self, average: tf.Variable, value: tf.Tensor, done: tf.Tensor) -> None:
        updates = tf.cast(done, average.dtype)
        # The decay is smaller in the first steps, so that the average forgets the initial weights.
        decay = tf.minimum(tf.cast(self.ema_decay, average.dtype), updates / (updates + 9.0))
        average.assign_sub((1.0 - decay) * (average - value))

    @contextlib.contextmanager
    def averaged_weights(self) -> Iterator[None]:
        """Replaces the weights by their averages, if any, and restores them at the end."""
        has_averages = bool(self.ema_decay) and int(tf.convert_to_tensor(self.iterations.value)) > 0
        if has_averages:
            self._exchange_averages()
        try:
            yield
        finally:
            if has_averages:
                self._exchange_averages()

    def _exchange_averages(self) -> None:
        for variable, average in zip(self._trainable_variables, self._averages, strict=True):
            # A swap, so that a second call restores the weights.
            value = tf.identity(tf.convert_to_tensor(variable.value))
            variable.value.assign(tf.convert_to_tensor(average.value))
            average.value.assign(value)

    def named_variables(self) -> dict[str, tf.Variable]:
        """Returns the state by name; the moments as in google-research/bert's checkpoints.

        The averages are named as TF1's ExponentialMovingAverage names them.
        """
        named = {"optimizer/iterations": self.iterations.value}
        for variable, moment, square in zip(
            self._trainable_variables, self._moments, self._squares, strict=True
        ):
            named[f"{variable.path}/adam_m"] = moment.value
            named[f"{variable.path}/adam_v"] = square.value
        for variable, average in zip(self._trainable_variables, self._averages, strict=False):
            named[f"{variable.path}/{AVERAGE}"] = average.value
        return named

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "beta_1": self.beta_1,
            "beta_2": self.beta_2,
            "epsilon": self.epsilon,
            "weight_decay_rate": self.weight_decay_rate,
            "clip_norm": self.clip_norm,
            "layerwise_lr_decay": self.layerwise_lr_decay,
            "electra_layer_rates": self.electra_layer_rates,
            "clip_where": self.clip_where,
            "ema_decay": self.ema_decay,
        }


def _trust_ratio(value: tf.Tensor, update: tf.Tensor) -> tf.Tensor:
    """Returns the quotient of the norms, or 1 if one is 0, so that a zero variable can change."""
    value_norm = tf.norm(value)
    update_norm = tf.norm(update)
    both = tf.logical_and(value_norm > 0, update_norm > 0)
    return tf.where(both, value_norm / tf.where(both, update_norm, 1.0), 1.0)


@keras.saving.register_keras_serializable(package="bert_tf")
class AdamW(AdamWeightDecay):
    """Adam with bias correction and decoupled weight decay; arguments as `AdamWeightDecay`."""

    bias_correction = True


@keras.saving.register_keras_serializable(package="bert_tf")
class LAMB(AdamW):
    """The paper's LAMB: a variable's step is proportional to its norm; arguments as above.

    Differs from Keras' Lamb: decay is part of the update whose norm is taken, and LayerNorm and
    bias variables have no trust ratio.

    Reference: You et al. 2020, algorithm 2.
    """

    trust_ratio = True


@keras.saving.register_keras_serializable(package="bert_tf")
class Muon(AdamW):
    """`AdamW`, with orthogonalized momentum for the matrices of the encoder's layers.

    A matrix's update then moves all directions equally, even those that few gradients point to. Its
    entries have a root mean square of 0.2, as AdamW's usually have, so all variables share a rate.

    Differs from Keras' Muon, which uses AdamW for everything that is not two-dimensional, including
    Keras' attention; this one covers all matrices of the layers, but not embeddings and heads.
    Slots are those of AdamW; a matrix does not use the second.

    Reference: Jordan et al. 2024 (the iteration); Liu et al. 2025, equation 4 (the factor 0.2).
    """

    orthogonalizes = True


def orthogonalized(matrix: tf.Tensor) -> tf.Tensor:
    """Returns approximately U V^T of the matrix U S V^T: singular values between 0.7 and 1.2.

    Args:
      matrix: float32 [R, C].

    Reference: Jordan et al. 2024, five steps of a Newton-Schulz iteration of degree 5.
    """
    is_tall = matrix.shape[0] > matrix.shape[1]
    x = tf.transpose(matrix) if is_tall else matrix  # The smaller square is the cheaper one.
    # The iteration needs singular values of at most 1, which the Frobenius norm bounds.
    x /= tf.norm(x) + 1e-7
    for _ in range(5):
        square = tf.matmul(x, x, transpose_b=True)  # [r, r], r = min(R, C)
        polynomial = -4.7750 * square + 2.0315 * tf.matmul(square, square)
        x = 3.4445 * x + tf.matmul(polynomial, x)
    return tf.transpose(x) if is_tall else x


_CLASSES = {"adam_weight_decay": AdamWeightDecay, "adamw": AdamW, "lamb": LAMB, "muon": Muon}


def build_optimizer(
    config: OptimizerConfig, schedule: float | LearningRateSchedule | None = None
) -> AdamWeightDecay:
    """Makes the optimizer from a configuration.

    Args:
      schedule: a schedule or a constant rate; None: the one of the configuration.
    """
    return _CLASSES[config.optimizer](
        build_schedule(config) if schedule is None else schedule,
        config.adam_beta_1,
        config.adam_beta_2,
        config.adam_epsilon,
        config.weight_decay_rate,
        config.clip_norm,
        config.layerwise_lr_decay,
        config.clip_where,
        config.ema_decay,
        config.electra_layer_rates,
    )
