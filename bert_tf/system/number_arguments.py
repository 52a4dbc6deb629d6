"""Checks of the numbers that public methods take."""

import math
import numbers


def check_numbers(
    least: float,
    most: float = math.inf,
    *,
    whole: bool = True,
    or_none: bool = False,
    **values: object,
) -> None:
    """Checks that arguments by name are numbers from `least` to `most`.

    Args:
      least, most: the smallest and the largest value.
      whole: whether only whole numbers are allowed.
      or_none: whether None is allowed, as a default.

    Raises:
      TypeError: if a value is no number, or not a whole one.
      ValueError: if it is out of range, or not finite.
    """
    kind = numbers.Integral if whole else numbers.Real
    expected = "a whole number" if whole else "a number"
    expected += f" of {least:g} or more" if most == math.inf else f" from {least:g} to {most:g}"
    for name, value in values.items():
        if value is None and or_none:
            continue
        if isinstance(value, bool) or not isinstance(value, kind):
            raise TypeError(f"{name} is {value!r}, expected {expected}.")
        if not math.isfinite(value) or not least <= float(value) <= most:
            raise ValueError(f"{name} is {value!r}, expected {expected}.")
