"""Parts of a step that XLA compiles on their own, where the products are better left to TensorFlow.

XLA joins the small operations between the products, which saves passes over memory. On a CPU with
bfloat16 units its products are those of float32, though, where TensorFlow's (oneDNN) are two to
four times as fast. There the step is not compiled as a whole, but these parts of it are.
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
