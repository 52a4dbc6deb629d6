"""MaxSim by hand, with texts that have no tokens."""

import numpy as np
import pytest

from bert_tf.metrics import maxsim as maxsims
from bert_tf.metrics.maxsim import NO_TOKENS, TokenMatrix, maxsim


def test_texts_without_tokens_among_others() -> None:
    empty = np.zeros([0, 2], np.float32)
    one = np.array([[1, 0]], np.float32)
    two = np.array([[-1, 0], [0, 2]], np.float32)
    documents = TokenMatrix.of([one, empty, two, empty])
    scores = maxsim([one + one, empty], documents)
    assert scores.tolist() == [[2, NO_TOKENS, 0, NO_TOKENS], [0, NO_TOKENS, 0, NO_TOKENS]]


def test_queries_and_documents_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two queries and two documents at a time, decoded before or not."""
    monkeypatch.setattr(maxsims, "PART", 4)
    monkeypatch.setattr(maxsims, "MAX_PRODUCTS", 4 * 6)
    generator = np.random.default_rng(1)
    queries = [generator.integers(-9, 9, (3, 2)).astype(np.float32) for _ in range(5)]
    texts = [generator.integers(-9, 9, (2, 2)).astype(np.float32) for _ in range(5)]
    expected = [[(one @ other.T).max(axis=1).sum() for other in texts] for one in queries]
    documents = TokenMatrix.of(texts)
    assert maxsim(queries, documents).tolist() == expected
    assert maxsim(queries, documents.with_decoded()).tolist() == expected
