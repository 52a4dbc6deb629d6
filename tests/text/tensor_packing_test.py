"""Windows of texts in the graph are those of `pack_windows`, for every small length."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.text.packing import pack_windows, pad_batch
from bert_tf.text.tensor_packing import cut_windows, pack_rows
from bert_tf.text.vocab import Vocab

LENGTHS = tuple(itertools.product(range(14), range(14)))


@pytest.mark.parametrize("max_seq_length", [4, 5, 6, 7, 8, 11])
@pytest.mark.parametrize("is_pair", [True, False])
def test_windows_are_those_of_python(tiny_vocab: Vocab, max_seq_length: int, is_pair: bool) -> None:
    texts = [
        (list(range(5, 5 + first)), list(range(30, 30 + second)) if is_pair else [])
        for first, second in LENGTHS
    ]
    rows = []
    owners = []
    for index, (first, second) in enumerate(texts):
        windows = pack_windows(tiny_vocab, first, second, max_seq_length)
        rows += windows
        owners += [index] * len(windows)
    firsts, seconds = (
        tf.ragged.constant(column, tf.int32, inner_shape=()) for column in zip(*texts, strict=True)
    )
    found = cut_windows(tiny_vocab, firsts, seconds if is_pair else None, max_seq_length)
    assert found.owners.numpy().tolist() == owners
    batch = pack_rows(tiny_vocab, found.first, found.second)
    for name, expected in pad_batch(rows, tiny_vocab.pad_id).items():
        np.testing.assert_array_equal(batch[name], expected, name)
