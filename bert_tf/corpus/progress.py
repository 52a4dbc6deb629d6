"""Logs progress every few seconds: finished work, speed and remaining time."""

import time

from absl import logging

SECONDS_BETWEEN_LINES = 5.0


class Progress:
    """Counts finished tasks and logs the progress; `unit` is the plural noun for the tasks."""

    def __init__(self, name: str, total: int, unit: str) -> None:
        self._name = name
        self._total = total
        self._unit = unit
        self._done = self._documents = self._tokens = 0
        self._start = self._last_line = time.monotonic()

    def add(self, *, documents: int, tokens: int) -> None:
        """Counts one finished task."""
        self._done += 1
        self._documents += documents
        self._tokens += tokens
        now = time.monotonic()
        if self._done == self._total or now - self._last_line >= SECONDS_BETWEEN_LINES:
            self._last_line = now
            logging.info("%s", self.line(now - self._start))

    def line(self, seconds: float) -> str:
        """Returns the line of progress `seconds` after the start."""
        left = seconds * (self._total - self._done) / max(self._done, 1)
        return (
            f"{self._name}: {self._done}/{self._total} {self._unit} "
            f"({self._done / max(self._total, 1):.0%}), {self._documents:,} documents, "
            f"{self._tokens:,} tokens, {self._tokens / max(seconds, 1e-9):,.0f} tokens/s, "
            f"{left:.0f} s left"
        )
