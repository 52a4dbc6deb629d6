"""Logs progress every few seconds: finished work, speed and remaining time."""

import time
from collections import Counter

from absl import logging

SECONDS_BETWEEN_LINES = 5.0


class Progress:
    """Counts finished items and logs the progress; `unit` is their plural noun."""

    def __init__(self, name: str, total: int, unit: str) -> None:
        self._name = name
        self._total = total
        self._unit = unit
        self._done = 0
        self._sizes: Counter[str] = Counter()
        self._start = self._last_line = time.monotonic()

    def add(self, count: int = 1, **sizes: int) -> None:
        """Counts finished items and their contents, by plural nouns; the last has a rate."""
        if not count:  # of a shard that was complete
            return
        self._done += count
        self._sizes.update(sizes)
        now = time.monotonic()
        if self._done != self._total and now - self._last_line < SECONDS_BETWEEN_LINES:
            return
        self._last_line = now
        seconds = max(now - self._start, 1e-9)
        totals = {self._unit: self._done, **self._sizes}
        held = "".join(f", {number:,} {noun}" for noun, number in self._sizes.items())
        noun, number = list(totals.items())[-1]
        left = seconds * max(0, self._total - self._done) / self._done
        logging.info(
            "%s",
            f"{self._name}: {self._done}/{self._total} {self._unit} "
            f"({self._done / max(self._total, 1):.0%}){held}, "
            f"{number / seconds:,.4g} {noun}/s, {left:.0f} s left",
        )
