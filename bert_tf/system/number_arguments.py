"""Checks of the numbers that public methods take."""

import math
import numbers
from typing import Any


def check_numbers(least: float, *, whole: bool = True, **values: Any) -> None:
    """Checks that arguments by name are whole numbers, or any, from `least`; None is a default.

    Raises:
      TypeError: if a value is no number, or not a whole one.
      ValueError: if it is below the least, or not finite.
    """
    kind = numbers.Integral if whole else numbers.Real
    expected = f"{'a whole number' if whole else 'a number'} from {least:g}"
    for name, value in values.items():
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, kind):
            raise TypeError(f"{name} is {value!r}, expected {expected}.")
        if not math.isfinite(value) or value < least:
            raise ValueError(f"{name} is {value!r}, expected {expected}.")
