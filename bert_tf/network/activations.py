"""Activations of the feed-forward part, in the exact forms that checkpoints use."""

import functools
import math
from collections.abc import Callable

from keras import ops

from bert_tf.network.xla_region import xla_region
from bert_tf.system.type_names import Tensor

# Both forms of GELU compute their derivative in the forward pass. The backward pass then keeps
# this one tensor, where automatic differentiation would keep each step of the formula.


@ops.custom_gradient
def gelu_tanh(x: Tensor) -> Tensor:
    """Computes the tanh form of GELU, the one of google-research/bert.

    It is written out because TensorFlow computes the cube with a slow general power.
    """
    value, slope = _gelu_tanh(x)
    return value, lambda upstream: upstream * slope


@xla_region
def _gelu_tanh(x: Tensor) -> tuple[Tensor, Tensor]:
    # Beyond 100 the tanh is 1 or -1 anyway, but the square would overflow in float16.
    near = ops.clip(x, -100.0, 100.0) if x.dtype == "float16" else x
    scale = math.sqrt(2.0 / math.pi)
    square = 0.044715 * near * near
    tanh = ops.tanh(scale * near * (1.0 + square))
    share = 0.5 * (1.0 + tanh)
    slope = share + 0.5 * near * (1.0 - tanh * tanh) * scale * (1.0 + 3.0 * square)
    return x * share, slope


@ops.custom_gradient
def gelu_exact(x: Tensor) -> Tensor:
    """Computes GELU with the error function, the form of Hugging Face's `gelu`."""
    value, slope = _gelu_exact(x)
    return value, lambda upstream: upstream * slope


@xla_region
def _gelu_exact(x: Tensor) -> tuple[Tensor, Tensor]:
    share = 0.5 * (1.0 + ops.erf(x * math.sqrt(0.5)))
    slope = share + x * ops.exp(-0.5 * x * x) * (1.0 / math.sqrt(2.0 * math.pi))
    return x * share, slope


# TensorFlow's graph optimizer and LiteRT's converter know these and fuse them with the dense layer.
_WITHOUT_SLOPE = {
    gelu_tanh: functools.partial(ops.gelu, approximate=True),
    gelu_exact: functools.partial(ops.gelu, approximate=False),
}
_ACTIVATIONS = {
    "gelu_tanh": gelu_tanh,
    "gelu_exact": gelu_exact,
    "relu": ops.relu,
    "tanh": ops.tanh,
    "linear": None,
    "silu": ops.silu,
}


def activation(name: str) -> Callable[[Tensor], Tensor] | None:
    """Returns the activation of a configuration's `hidden_act`; None for `linear`.

    Raises:
      ValueError: if the name is unknown.
    """
    if name not in _ACTIVATIONS:
        raise ValueError(f"hidden_act: received {name!r}, expected one of {sorted(_ACTIVATIONS)}.")
    return _ACTIVATIONS[name]


def inference_form(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """Returns an activation without the derivative: the same values up to rounding."""
    return _WITHOUT_SLOPE.get(function, function)
