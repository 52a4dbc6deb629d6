"""Logs the progress of embedding texts."""

import time

from absl import logging

SECONDS_BETWEEN_LINES = 5.0


class TextProgress:
    """Logs how many of `total` texts are done, their rate and the remaining time."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.done = 0
        self._start = self._last = time.monotonic()

    def add(self, count: int) -> None:
        """Counts texts; logs a line every few seconds, and when all are done."""
        if not count:  # of a shard that was complete
            return
        self.done += count
        now = time.monotonic()
        if self.done == self.total or now - self._last >= SECONDS_BETWEEN_LINES:
            self._last = now
            rate = self.done / max(now - self._start, 1e-9)
            logging.info(
                "%d of %d texts (%.0f %%), %.1f texts/s, %.0f s left.",
                self.done,
                self.total,
                100 * self.done / max(self.total, 1),
                rate,
                max(0, self.total - self.done) / max(rate, 1e-9),
            )
