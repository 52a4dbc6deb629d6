"""Packing against rows written by hand; truncation against the original's loop."""

import itertools

import numpy as np
import pytest

from bert_tf.text.packing import PackedText, pack, pad_batch, truncate_longest_first
from bert_tf.text.vocab import Vocab

VOCAB = Vocab(("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefgh"))
CLS, SEP = VOCAB.cls_id, VOCAB.sep_id


def truncate_one_by_one(ids_a, ids_b, max_length):
    """The rule of the original: of two texts the longer one loses a piece, of equals the second."""
    ids_a, ids_b = list(ids_a), list(ids_b)
    while len(ids_a) + len(ids_b) > max_length:
        (ids_a if len(ids_a) > len(ids_b) else ids_b).pop()
    return ids_a, ids_b


def test_truncation_is_that_of_the_loop():
    for length_a, length_b, most in itertools.product(range(9), range(9), range(1, 18)):
        ids = range(length_a), range(100, 100 + length_b)
        assert truncate_longest_first(*ids, most) == truncate_one_by_one(*ids, most)


def test_rows_by_hand():
    assert pack(VOCAB, [5, 6], [], 8) == PackedText([CLS, 5, 6, SEP], [0, 0, 0, 0])
    pair = pack(VOCAB, [5, 6], [7], 8)
    assert pair == PackedText([CLS, 5, 6, SEP, 7, SEP], [0, 0, 0, 0, 1, 1])
    assert pack(VOCAB, [], [], 8) == PackedText([CLS, SEP], [0, 0])
    assert pack(VOCAB, [], [7], 8) == PackedText([CLS, SEP, 7, SEP], [0, 0, 1, 1])


def test_rows_are_cut_to_the_length():
    assert pack(VOCAB, [5, 6, 7, 8], [], 5).ids == [CLS, 5, 6, 7, SEP]
    assert pack(VOCAB, [5, 6, 7], [], 5).ids == [CLS, 5, 6, 7, SEP]
    assert pack(VOCAB, [5, 6, 7, 8], [9, 10], 7).ids == [CLS, 5, 6, SEP, 9, 10, SEP]
    # Where the second text loses all its pieces, the row is that of a single text.
    assert pack(VOCAB, [5], [6], 4) == PackedText([CLS, 5, SEP], [0, 0, 0])


def test_no_room_is_an_error():
    with pytest.raises(ValueError, match="max_seq_length is 3; 3 pieces are .* at least 4"):
        pack(VOCAB, [5], [6], 3)
    with pytest.raises(ValueError, match="max_seq_length is 2; 2 pieces are .* at least 3"):
        pack(VOCAB, [5], [], 2)


def test_a_batch_is_padded_to_its_longest_row():
    batch = pad_batch([pack(VOCAB, [5], [], 8), pack(VOCAB, [5, 6], [7], 8)])
    expected = {
        "input_word_ids": [[CLS, 5, SEP, 0, 0, 0], [CLS, 5, 6, SEP, 7, SEP]],
        "input_mask": [[1, 1, 1, 0, 0, 0], [1] * 6],
        "input_type_ids": [[0] * 6, [0, 0, 0, 0, 1, 1]],
    }
    assert batch.keys() == expected.keys()
    for name, values in batch.items():
        assert values.dtype == np.int32
        np.testing.assert_array_equal(values, expected[name])
