"""Compiles only parts of a step with XLA, where TensorFlow's matrix products are faster.

XLA fuses the small operations between the products, which saves passes over memory. But on a CPU
with bfloat16 units it computes products in float32, while TensorFlow's (oneDNN) are two to four
times as fast. There only these parts of a step are compiled, not the whole.
"""

import contextlib
import contextvars
import functools
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

_IS_ON = contextvars.ContextVar("parts_are_compiled", default=False)


@contextlib.contextmanager
def parts_compiled(is_on: bool = True) -> Iterator[None]:
    """Compiles the parts in all that is traced inside; shapes have to be fixed."""
    token = _IS_ON.set(is_on)
    try:
        yield
    finally:
        _IS_ON.reset(token)


def are_parts_compiled() -> bool:
    return _IS_ON.get()


def part(function: Callable[..., Any]) -> Callable[..., Any]:
    """Makes a function of tensors, without variables or a gradient of its own, a part."""
    compiled = tf.function(function, jit_compile=True, autograph=False)

    @functools.wraps(function)
    def call(*arguments: Any) -> Any:
        return (compiled if _IS_ON.get() else function)(*arguments)

    return call
