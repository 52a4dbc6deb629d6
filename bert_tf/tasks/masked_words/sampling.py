"""Draws tokens from their probabilities."""

from typing import NamedTuple

import numpy as np


class Sampling(NamedTuple):
    """How tokens are drawn: from the `top_k` likeliest (0: all) that together have `top_p`."""

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0

    def draw(self, log_probabilities: np.ndarray, random: np.random.Generator) -> int:
        """Draws a token from log-probabilities, float64 [V]."""
        scaled = log_probabilities / self.temperature
        order = np.argsort(-scaled, kind="stable")
        if self.top_k:
            order = order[: self.top_k]
        shares = np.exp(scaled[order] - scaled[order[0]])
        shares /= shares.sum()
        kept = np.cumsum(shares) - shares < self.top_p  # The token that passes the bound is kept.
        kept[0] = True
        shares = np.where(kept, shares, 0.0)
        return int(order[random.choice(len(order), p=shares / shares.sum())])
