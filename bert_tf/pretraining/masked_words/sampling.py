"""Draws tokens by their probabilities."""

from typing import NamedTuple

import numpy as np


class Sampling(NamedTuple):
    """Options for drawing tokens.

    Attributes:
      temperature: tokens are drawn from the probabilities to the power of 1 / temperature.
      top_k: draw only from the likeliest `top_k` tokens; 0: from all.
      top_p: draw only from the likeliest tokens that together have this probability.
      seed: seed of the draws.
    """

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
        # Relative to the likeliest token, so that the exponentials do not underflow.
        shares = np.exp(scaled[order] - scaled[order[0]])
        shares /= shares.sum()
        # A token is kept if the likelier tokens have not reached top_p, so that the token that
        # reaches it is kept as well.
        is_kept = np.cumsum(shares) - shares < self.top_p
        is_kept[0] = True
        shares = np.where(is_kept, shares, 0.0)
        return int(order[random.choice(len(order), p=shares / shares.sum())])
