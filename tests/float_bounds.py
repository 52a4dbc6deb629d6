"""How far apart floats may be that crossed a file, a graph, a process, a batch or a machine.

A float32 has 24 bits. The result of each operation is rounded to them: it is off by half of 2^-23
of its size at most, so two computations of it are one such unit apart. A sum that is taken in
another order (by another kernel, number of threads, batch size, padding or graph) is rounded at
other places. These roundings are of the size of the terms, not of the result: where terms cancel,
a result near 0 is off by as much as a large one. Hence the bound of each comparison:

    roundings * 2^-23 * the largest absolute value of the expected numbers

`roundings` is how many units add up, one of the levels below. Roundings of n terms are of either
sign and add up as a random walk does, to sqrt(n) units.

Bits are compared only within one process and of one computation, or of runs that were resumed:
those do the same operations on the same machine.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest

FLOAT32, FLOAT16, BFLOAT16 = 2.0**-23, 2.0**-10, 2.0**-7

# One formula, such as a softmax, a loss, a norm or an optimizer's step: ten operations one after
# the other, among them an exp, log or rsqrt, which are exact to some units only.
FORMULA = 16

# The same model in another graph, process, batch, padding or order of sums, or by other kernels:
# eight sums one after the other (matrix products, means of LayerNorm and softmax, a head) of 64
# terms, sqrt(64) units each. Deeper or wider models of a test, random walks, reach it as well.
REORDERED = 64

# By another framework, or recorded on another machine: other formulas for erf, tanh, exp and rsqrt
# as well, off by up to four units where ours are off by one, and up to twelve layers.
OTHER_FRAMEWORK = 256

# After steps of training. Adam divides a gradient by its own size: a weight whose gradient is a
# 128th of the largest one takes the roundings of the large ones 128 times as large.
TRAINED = 64 * 128

# Computed in float16 or bfloat16 (`epsilon`): each of a layer's sixteen operations rounds its
# result once, since sums are float32; sqrt(16) units, and twice that for the largest of many.
HALF = 8

NUMBER = re.compile(r"(?<![\w.])[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?(?![\w]|\.\d)")


def bound(
    expected: Any, roundings: int = REORDERED, *, epsilon: float = FLOAT32, scale: float = 0.0
) -> float:
    """Returns how far numbers may be from the expected ones, which are a number or an array.

    Args:
      expected: of any shape; infinite values and NaN do not count.
      roundings: one of the levels above.
      epsilon: the unit of the type that it was computed in.
      scale: the largest absolute value that the numbers were computed from, where that is larger:
        1 for the cosine of vectors of length 1 or for a log of a probability.
    """
    values = np.abs(np.asarray(expected, np.float64))
    finite = values[np.isfinite(values)]
    return roundings * epsilon * max(scale, finite.max(initial=0.0))


def close_to(
    expected: Any, roundings: int = REORDERED, *, epsilon: float = FLOAT32, scale: float = 0.0
) -> Any:
    """Returns what equals (`==`) numbers within the bound: for values inside of dicts and lists.

    Of a dict each value has a bound of its own: other values than floats must be equal.
    """
    if isinstance(expected, Mapping):
        options = {"epsilon": epsilon, "scale": scale}
        return {key: close_to(value, roundings, **options) for key, value in expected.items()}
    if isinstance(expected, str | int | None):
        return expected
    limit = bound(expected, roundings, epsilon=epsilon, scale=scale)
    return pytest.approx(expected, rel=0, abs=limit, nan_ok=True)


def assert_close(
    actual: Any,
    expected: Any,
    roundings: int = REORDERED,
    *,
    epsilon: float = FLOAT32,
    scale: float = 0.0,
    err_msg: str = "",
) -> None:
    """Checks that numbers equal the expected ones within the bound.

    Args:
      actual: a number, an array of any shape, or dicts and lists of them and of other values.
      expected: of the same structure. Floats with the same keys on their way, in whatever items of
        lists, are one array: the bound is relative to its largest value. All other values, whole
        numbers as well, are equal.
      roundings, epsilon, scale: of `bound`.
      err_msg: begins the message.

    Raises:
      AssertionError: if floats are further apart, or anything else differs.
    """
    arrays: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {}
    for keys, one, other in _float_arrays(actual, expected, err_msg):
        arrays.setdefault(keys, []).append((one.ravel(), other.ravel()))
    for keys, pairs in arrays.items():
        one, other = (np.concatenate(parts) for parts in zip(*pairs, strict=True))
        limit = bound(other, roundings, epsilon=epsilon, scale=scale)
        np.testing.assert_allclose(one, other, rtol=0, atol=limit, err_msg=keys)


def _float_arrays(
    actual: Any, expected: Any, keys: str
) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Yields the keys to each pair of floats or arrays of floats; the rest must be equal."""
    if isinstance(expected, dict):
        assert actual.keys() == expected.keys(), f"{keys}: {actual.keys()} and {expected.keys()}"
        for key in expected:
            yield from _float_arrays(actual[key], expected[key], f"{keys}.{key}")
    elif isinstance(expected, list | tuple) and isinstance(actual, list | tuple):
        assert len(actual) == len(expected), f"{keys}: {len(actual)} and {len(expected)} values"
        for pair in zip(actual, expected, strict=True):
            yield from _float_arrays(*pair, keys)
    else:
        one, other = np.asarray(actual), np.asarray(expected)
        assert one.shape == other.shape, f"{keys}: shapes {one.shape} and {other.shape}"
        if _is_float(one) or _is_float(other):
            yield keys, one.astype(np.float64), other.astype(np.float64)
        else:
            np.testing.assert_array_equal(one, other, err_msg=keys)


def _is_float(values: np.ndarray) -> bool:
    return values.dtype.kind == "f" or values.dtype.name == "bfloat16"


def assert_chosen(
    chosen: Any, scores: Any, roundings: int = REORDERED, *, scale: float = 0.0
) -> None:
    """Checks that choices are the best by their scores, where those within the bound are ties.

    Args:
      chosen: [...] index of the choice, an argmax, or [..., k] indices, best first, a top-k.
      scores: [..., n] of all choices, computed by another road.
      roundings, scale: of `bound`. Two scores are compared, so the bound counts twice.
    """
    scores, indices = np.asarray(scores), np.asarray(chosen)
    if indices.ndim < scores.ndim:
        indices = indices[..., None]
    ordered = np.sort(indices, axis=-1)
    assert (ordered[..., 1:] != ordered[..., :-1]).all(), "the same choice twice"
    best = -np.sort(-scores, axis=-1)[..., : indices.shape[-1]]
    found = np.take_along_axis(scores, indices, axis=-1)
    limit = 2 * bound(scores, roundings, scale=scale)
    np.testing.assert_allclose(found, best, rtol=0, atol=limit)


def assert_same_text(
    actual: str, expected: str, roundings: int = REORDERED, *, scale: float = 0.0
) -> None:
    """Checks that texts, such as tables of predictions, are equal but for roundings of floats.

    Floats have a point or an exponent. The bound is relative to the largest float of a line, and a
    unit of the last printed digit is added: a rounding there may go either way.
    """
    one, other = actual.splitlines(), expected.splitlines()
    assert len(one) == len(other), f"{len(one)} and {len(other)} lines"
    for number, (line, wanted) in enumerate(zip(one, other, strict=True), start=1):
        where = f"line {number}: {line!r} and {wanted!r}"
        assert _without_floats(line) == _without_floats(wanted), where
        floats = [text for text in NUMBER.findall(wanted) if not _is_whole(text)]
        limit = bound([float(text) for text in floats], roundings, scale=scale)
        found = [text for text in NUMBER.findall(line) if not _is_whole(text)]
        for text, value in zip(found, floats, strict=True):
            assert abs(float(text) - float(value)) <= limit + _last_digit(value), where


def _without_floats(line: str) -> str:
    return NUMBER.sub(lambda found: found[0] if _is_whole(found[0]) else "<float>", line)


def _is_whole(text: str) -> bool:
    return not set(text) & set(".eE")


def _last_digit(text: str) -> float:
    """Returns the value of a unit in the last digit of a printed float."""
    mantissa, _, exponent = text.lower().partition("e")
    return 10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2]))
