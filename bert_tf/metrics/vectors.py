"""Vectors of texts, in NumPy."""

import numpy as np


def unit(vectors: np.ndarray) -> np.ndarray:
    """Scales vectors to length 1; zero vectors are unchanged."""
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    return (vectors / np.maximum(norms, 1e-12)).astype(np.float32)
