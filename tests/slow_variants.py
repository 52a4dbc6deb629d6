"""Marks the slow variants of a test, of which quicker ones stay in the fast run."""

from collections.abc import Callable, Iterable

import pytest


def slow_where(is_slow: Callable[[object], bool], values: Iterable[object]) -> list[object]:
    """Returns values for `pytest.mark.parametrize`; a tuple is the values of several arguments."""
    variants = []
    for value in values:
        arguments = value if isinstance(value, tuple) else (value,)
        marks = pytest.mark.slow if is_slow(value) else ()
        variants.append(pytest.param(*arguments, marks=marks))
    return variants


def slow_unless(value: object, values: Iterable[object]) -> list[object]:
    """Returns values for `pytest.mark.parametrize`, of which only one is not slow."""
    return slow_where(lambda other: other != value, values)
