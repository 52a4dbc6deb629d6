"""MaxSim by hand, with texts that have no tokens."""

import numpy as np

from bert_tf.metrics.maxsim import NO_TOKENS, TokenMatrix, maxsim


def test_texts_without_tokens_among_others() -> None:
    empty = np.zeros([0, 2], np.float32)
    one = np.array([[1, 0]], np.float32)
    two = np.array([[-1, 0], [0, 2]], np.float32)
    documents = TokenMatrix.of([one, empty, two, empty])
    scores = maxsim([one + one, empty], documents)
    assert scores.tolist() == [[2, NO_TOKENS, 0, NO_TOKENS], [0, NO_TOKENS, 0, NO_TOKENS]]
