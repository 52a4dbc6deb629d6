"""Compiles only regions of a step with XLA, where TensorFlow's matrix products are faster.

XLA fuses the small operations between the matrix products, which saves passes over memory. But on
a CPU with bfloat16 units XLA computes the products in float32, while TensorFlow's (oneDNN) are two
to four times as fast. On such a CPU only the marked functions are compiled, not the whole step.
"""

import contextlib
import contextvars
import functools
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from bert_tf.system.type_names import Tensor

_IS_ON = contextvars.ContextVar("parts_are_compiled", default=False)


@contextlib.contextmanager
def compile_xla_regions(is_on: bool = True) -> Iterator[None]:
    """Compiles every `xla_region` that is traced inside; this needs fixed shapes."""
    token = _IS_ON.set(is_on)
    try:
        yield
    finally:
        _IS_ON.reset(token)


def are_xla_regions_compiled() -> bool:
    """Returns whether the code is traced inside `compile_xla_regions`."""
    return _IS_ON.get()


def xla_region(function: Callable[..., Any]) -> Callable[..., Any]:
    """Marks a function of tensors as a region to compile.

    The function must not use variables or define a custom gradient.
    """
    compiled = tf.function(function, jit_compile=True, autograph=False)

    @functools.wraps(function)
    def call(*arguments: Tensor) -> Any:
        if _IS_ON.get():
            return compiled(*arguments)
        return function(*arguments)

    return call
