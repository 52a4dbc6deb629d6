"""The bounds of floats: what they let through, and what they do not."""

import numpy as np
import pytest

from tests.float_bounds import (
    BFLOAT16,
    FORMULA,
    HALF,
    assert_chosen,
    assert_close,
    assert_same_text,
    bound,
    close_to,
)

UNIT = 2.0**-23


def fails(function, *arguments, **options):
    with pytest.raises(AssertionError):
        function(*arguments, **options)


def test_a_bound_is_relative_to_the_largest_value():
    assert bound([1e-9, -8.0, np.inf, np.nan]) == 64 * UNIT * 8
    assert bound([0.5], FORMULA, scale=2.0) == 16 * UNIT * 2
    assert bound(0.5, HALF, epsilon=BFLOAT16) == 8 * 2**-7 / 2
    assert_close([1e-9 + 60 * UNIT, 1.0], [1e-9, 1.0])
    fails(assert_close, [1e-9 + 68 * UNIT, 1.0], [1e-9, 1.0])
    fails(assert_close, 1.0 + 20 * UNIT, 1.0, FORMULA)
    fails(assert_close, [1e-9 + 60 * UNIT], [1e-9])
    assert {"loss": 1.0 + 60 * UNIT, "step": 3} == {"loss": close_to(1.0), "step": 3}
    assert 1.0 + 68 * UNIT != close_to(1.0)
    expected = {"loss": 1e-3, "step": 3, "name": "a", "rates": [1.0, 1e-9]}
    assert {**expected, "rates": [1.0, 2e-9]} == close_to(expected)
    assert {**expected, "loss": 2e-3} != close_to(expected)
    assert {**expected, "step": 4} != close_to(expected)
    assert {**expected, "more": 4} != close_to(expected)


def test_structures():
    expected = [{"label": "a", "score": 1.0, "rank": 1}, {"label": "b", "score": 0.0, "rank": 2}]
    near = [{**row, "score": row["score"] + 60 * UNIT} for row in expected]
    assert_close(near, expected)
    assert_close({"a": np.float32([1, np.nan]), "b": 3}, {"a": np.float32([1, np.nan]), "b": 3})
    assert_close(np.float32([1, 2]), [1, 2])
    fails(assert_close, np.float32([1, 2]), [1, 3])
    fails(assert_close, near[:1], expected)
    fails(assert_close, near[1:], expected[1:])  # No large score is next to it.
    fails(assert_close, [{**near[0], "rank": 2}, near[1]], expected)
    fails(assert_close, [{**near[0], "label": "b"}, near[1]], expected)
    fails(assert_close, [{**near[0], "more": 2}, near[1]], expected)
    fails(assert_close, {"loss": 1e-3, "step": 1e6}, {"loss": 2e-3, "step": 1e6})
    fails(assert_close, np.ones([2, 1]), np.ones([1, 2]))
    fails(assert_close, np.nan, 1.0)
    fails(assert_close, np.inf, 1.0)


def test_ties_may_be_chosen():
    scores = np.float32([[1, 1 + 60 * UNIT, 0.5], [3, 2, 1]])
    assert_chosen([0, 0], scores)
    assert_chosen([[0, 1], [0, 1]], scores)
    fails(assert_chosen, [2, 0], scores)
    fails(assert_chosen, [0, 1], scores)
    fails(assert_chosen, [[0, 2], [0, 1]], scores)
    fails(assert_chosen, [[0, 0], [0, 1]], scores)


def test_numbers_in_text():
    table = "id\tscore\n7\t0.2500\nno. 8.txt\t1.5e-3 2.0\n"
    assert_same_text(table, table)
    assert_same_text(table.replace("0.2500", "0.2501").replace("1.5e", "1.6e"), table)
    for old, new in [("0.2500", "0.2502"), ("7", "8"), ("8.txt", "9.txt"), ("2.0", "2.2"),
                     ("\n7", "\n7.0"), ("score", "scores"), ("1.5e-3", "1.7e-3")]:  # fmt: skip
        fails(assert_same_text, table.replace(old, new), table)
