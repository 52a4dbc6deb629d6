"""Lists in cells, as Python, JSON and NumPy write them."""

import json
import random

import numpy as np
import pytest

from bert_tf.tasks.base.examples.cells import read_list


@pytest.mark.parametrize("seed", range(40))
def test_lists_of_random_texts(seed):
    rng = random.Random(seed)
    pieces = ["a", "é", "'", '"', "\\", "\n", "\t", " ", ",", "[", "]", "😀", "\x00", "\u2028"]
    texts = ["".join(rng.choices(pieces, k=rng.randint(1, 5))) for _ in range(rng.randint(1, 6))]
    assert read_list(repr(texts)) == texts
    assert read_list(json.dumps(texts)) == texts
    assert read_list(repr(tuple(texts))) == texts
    assert read_list(str(np.array(texts, object))) == texts


def test_lists_of_others():
    assert read_list("[0, 1, 1]") == [0, 1, 1]
    assert read_list(repr(set())) == []
    assert read_list(str(np.array([0, 1, 1]))) == [0, 1, 1]
    assert read_list("[1.5, -2e3, True, null, NaN]") == [1.5, -2000.0, True, None, None]
    assert read_list("{'a'}") == ["a"] and read_list(" [] ") == [] and read_list("('a',)") == ["a"]


@pytest.mark.parametrize(
    "cell", ["[laughter]", "(1)", "{}", "{'a': 1}", "['a'", "[a, b]", "['a''b']", "['a' ... 'b']"]
)
def test_cells_that_are_no_lists(cell):
    assert read_list(cell) is None
