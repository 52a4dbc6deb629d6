"""The choice of the highest score, by hand."""

import math

import numpy as np
import pytest

from bert_tf.tasks.multiple_choice.answers import best_choice


def test_the_highest_score_is_chosen() -> None:
    index, probability = best_choice(np.array([0.0, 2.0, 1.0]))
    assert index == 1
    assert probability == pytest.approx(math.exp(2) / (1 + math.exp(2) + math.e))
    assert best_choice(np.array([3.0, 3.0]))[0] == 0  # The first of equal ones.
