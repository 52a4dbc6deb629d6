"""Activations of the feed-forward part, in the exact forms that checkpoints use."""

import functools
import math
from collections.abc import Callable
from typing import Any

from keras import ops

from bert_tf.network.xla_region import part

# Both forms of GELU find their slope on the way: the backward pass keeps that one tensor and
# multiplies by it, where it would keep each step of the formula.


@ops.custom_gradient
def gelu_tanh(x: Any) -> Any:
    """Computes the tanh form of GELU, the one of google-research/bert.

    Written out, because TensorFlow's own computes the cube with a slow general power.
    """
    value, slope = _gelu_tanh(x)
    return value, lambda upstream: upstream * slope


@part
def _gelu_tanh(x: Any) -> tuple[Any, Any]:
    # Of larger numbers the tanh is 1 or -1 anyway, but squares overflow.
    near = ops.clip(x, -100.0, 100.0) if x.dtype == "float16" else x
    scale, square = math.sqrt(2.0 / math.pi), 0.044715 * near * near
    tanh = ops.tanh(scale * near * (1.0 + square))
    share = 0.5 * (1.0 + tanh)
    slope = share + 0.5 * near * (1.0 - tanh * tanh) * scale * (1.0 + 3.0 * square)
    return x * share, slope


@ops.custom_gradient
def gelu_exact(x: Any) -> Any:
    """Computes GELU with the error function, the form of Hugging Face's `gelu`."""
    value, slope = _gelu_exact(x)
    return value, lambda upstream: upstream * slope


@part
def _gelu_exact(x: Any) -> tuple[Any, Any]:
    share = 0.5 * (1.0 + ops.erf(x * math.sqrt(0.5)))
    slope = share + x * ops.exp(-0.5 * x * x) * (1.0 / math.sqrt(2.0 * math.pi))
    return x * share, slope


# The forms that TensorFlow's optimizer and LiteRT's converter know, and join with the dense layer.
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
}


def activation(name: str) -> Callable[[Any], Any] | None:
    """Returns the function that a configuration names.

    Raises:
      ValueError: if the name is unknown.
    """
    if name not in _ACTIVATIONS:
        raise ValueError(f"hidden_act: received {name!r}, expected one of {sorted(_ACTIVATIONS)}.")
    return _ACTIVATIONS[name]


def without_slope(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Returns the form of an activation for inference alone: the same values up to rounding."""
    return _WITHOUT_SLOPE.get(function, function)
