"""Packing against rows written by hand; truncation against the original's loop; windows."""

import contextvars
import itertools
import random
import threading
import time

import numpy as np
import pytest

from bert_tf.text import packing
from bert_tf.text.packing import (
    PackedText,
    by_length,
    pack,
    pack_pair,
    pack_windows,
    pad_batch,
    text_room,
    truncate_longest_first,
)
from bert_tf.text.vocab import Vocab
from tests.tiny_bpe import tiny_bpe_vocab

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


def test_pairs_as_hugging_face_packs_them():
    """By hand, and in the graph; tests/checkpoints/cross_encoder_test.py has its own rows."""
    for ids_a, ids_b, length, expected in (
        ([5, 6], [], 8, [CLS, 5, 6, SEP, SEP]),
        ([], [], 8, [CLS, SEP, SEP]),
        ([5] * 5, [6] * 5, 8, [CLS, 5, 5, SEP, 6, 6, 6, SEP]),  # room for 5
        ([5] * 6, [6] * 5, 8, [CLS, 5, 5, 5, SEP, 6, 6, SEP]),
        ([5] * 6, [6], 8, [CLS, 5, 5, 5, 5, SEP, 6, SEP]),
        ([5], [6] * 6, 8, [CLS, 5, SEP, 6, 6, 6, 6, SEP]),
    ):
        row = pack_pair(VOCAB, ids_a, ids_b, length)
        assert row.ids == expected
        first = expected.index(SEP) + 1
        assert row.type_ids == [0] * first + [1] * (len(expected) - first)


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


def test_tails_by_hand():
    assert pack(VOCAB, [5, 6, 7, 8], [], 5, keep_tail=True).ids == [CLS, 6, 7, 8, SEP]
    assert pack(VOCAB, [5, 6], [], 5, keep_tail=True) == pack(VOCAB, [5, 6], [], 5)
    pair = pack(VOCAB, [5, 6, 7, 8], [9, 10], 7, keep_tail=True)
    assert pair == PackedText([CLS, 7, 8, SEP, 9, 10, SEP], [0, 0, 0, 0, 1, 1, 1])
    assert pack(VOCAB, [5], [6], 4, keep_tail=True) == PackedText([CLS, 5, SEP], [0, 0, 0])


def test_tails_are_those_of_the_loop_backwards():
    for length_a, length_b, room in itertools.product(range(7), range(1, 7), range(1, 14)):
        ids_a, ids_b = range(10, 10 + length_a), range(20, 20 + length_b)
        first, second = truncate_one_by_one(ids_a[::-1], ids_b[::-1], room)
        expected = [CLS, *first[::-1], SEP, *second[::-1], *([SEP] if second else [])]
        assert pack(VOCAB, ids_a, ids_b, room + 3, keep_tail=True).ids == expected


def test_windows_by_hand():
    # A room of 4 pieces: steps of 2.
    windows = pack_windows(VOCAB, [10, 11, 12, 13, 14, 15, 16], [], 6)
    assert [row.ids[1:-1] for row in windows] == [
        [10, 11, 12, 13],
        [12, 13, 14, 15],
        [14, 15, 16],
    ]
    assert {row.ids[0] for row in windows} == {CLS} and {row.ids[-1] for row in windows} == {SEP}
    # A room of 5: two for the question, which has three pieces, three for the text, steps of 2.
    question, text = [5, 6, 7], [10, 11, 12, 13]
    assert pack_windows(VOCAB, question, text, 8) == [
        PackedText([CLS, 5, 6, SEP, 10, 11, 12, SEP], [0, 0, 0, 0, 1, 1, 1, 1]),
        PackedText([CLS, 5, 6, SEP, 12, 13, SEP], [0, 0, 0, 0, 1, 1, 1]),
    ]
    assert pack_windows(VOCAB, text, question, 8) == [
        PackedText([CLS, 10, 11, 12, SEP, 5, 6, SEP], [0, 0, 0, 0, 0, 1, 1, 1]),
        PackedText([CLS, 12, 13, SEP, 5, 6, SEP], [0, 0, 0, 0, 1, 1, 1]),
    ]


def test_a_text_that_fits_is_one_window():
    for ids_a, ids_b in ([5, 6, 7], []), ([], []), ([5, 6], [7, 8]), ([5], [6, 7, 8]):
        assert pack_windows(VOCAB, ids_a, ids_b, 9) == [pack(VOCAB, ids_a, ids_b, 9)]


def test_windows_cover_every_piece():
    draw = random.Random(1)
    several = 0
    for _ in range(2000):
        sizes = draw.randrange(60), draw.choice([0, draw.randrange(1, 60)])
        first, second = range(100, 100 + sizes[0]), range(200, 200 + sizes[1])
        length = draw.randrange(4, 40)
        windows = pack_windows(VOCAB, first, second, length)
        long, short = (first, second) if sizes[0] >= sizes[1] else (second, first)
        kept = list(short[: (length - 3) // 2])
        room = text_room(length, bool(sizes[1])) - len(kept)
        starts = []
        for row in windows:
            assert len(row.ids) == len(row.type_ids) <= length
            pieces = [piece for piece in row.ids if piece in long]
            assert [piece for piece in row.ids if piece in short] == kept
            assert row.ids == sorted_by_text(row, first, second)
            if long:
                starts.append(pieces[0] - long[0])
                assert pieces == list(long[starts[-1] : starts[-1] + room])
        if long:
            steps = {after - before for before, after in itertools.pairwise(starts)}
            assert starts[0] == 0 and steps <= {(room + 1) // 2}
            assert starts[-1] + room >= len(long)
            # The window before the last did not reach the end.
            assert len(starts) == 1 or starts[-2] + room < len(long)
        several += len(windows) > 2
    assert several > 500


def sorted_by_text(row, first, second):
    """Returns the row written anew: the pieces of the first text, then those of the second."""
    texts = [[piece for piece in row.ids if piece in text] for text in (first, second)]
    parts = [CLS, *texts[0], SEP, *texts[1], *([SEP] if texts[1] else [])]
    boundary = row.ids.index(SEP) + 1
    assert row.type_ids == [0] * boundary + [1] * (len(row.ids) - boundary)
    return parts


@pytest.mark.parametrize(("length", "is_pair", "room"), [(3, False, 1), (4, True, 1), (9, True, 6)])
def test_room_beside_the_special_tokens(length, is_pair, room):
    assert text_room(length, is_pair) == room


def test_no_room_is_an_error():
    for windows in ([5], []), ([5], [6]), ([], [6]):
        with pytest.raises(ValueError, match="max_seq_length .*2; .*3"):
            pack_windows(VOCAB, *windows, 2)
    with pytest.raises(ValueError, match="max_seq_length .*3; .*4"):
        pack(VOCAB, [5], [6], 3)
    with pytest.raises(ValueError, match="max_seq_length .*2; .*3"):
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


def test_two_separators_by_hand():
    bpe = tiny_bpe_vocab()
    cls, sep = bpe.cls_id, bpe.sep_id
    assert pack(bpe, [5, 6], None, 8) == PackedText([cls, 5, 6, sep], [0] * 4)
    assert pack(bpe, [5, 6], [7], 8) == PackedText([cls, 5, 6, sep, sep, 7, sep], [0] * 7)
    # Four special tokens leave room for two pieces.
    assert pack(bpe, [5, 6, 8], [7], 6).ids == [cls, 5, sep, sep, 7, sep]
    assert [row.ids[1:-4] for row in pack_windows(bpe, [5, 6, 8], [7], 7)] == [[5, 6], [6, 8]]
    batch = pad_batch([pack(bpe, [5], None, 8), pack(bpe, [5, 6], [7], 8)], bpe.pad_id)
    assert batch["input_word_ids"][0].tolist() == [cls, 5, sep] + [bpe.pad_id] * 4
    assert batch["input_mask"].sum(axis=1).tolist() == [3, 7]


@pytest.mark.parametrize(
    ("gpu", "expected"), [(False, [[2], [0, 3], [4, 1, 5]]), (True, [[2, 0, 3], [4, 1, 5]])]
)
def test_batches_of_a_cpu_have_a_thousand_tokens(monkeypatch, gpu, expected) -> None:
    monkeypatch.setattr(packing, "has_gpu", lambda: gpu)
    batches = []
    by_length([500, 3, 600, 400, 30, 2], 3, lambda rows: batches.append(rows) or rows)
    assert batches == expected
    assert by_length([9000], 3, lambda rows: rows) == [0]


def test_batches_are_computed_at_the_same_time_and_counted_together(monkeypatch) -> None:
    monkeypatch.setattr(packing, "has_gpu", lambda: False)
    name = contextvars.ContextVar("name", default="")
    name.set("of the caller")
    both = threading.Barrier(2, timeout=60)

    def compute(rows: list[int]) -> list[tuple[int, str]]:
        both.wait()  # Returns when two batches have come here.
        return [(row, name.get()) for row in rows]

    sizes = [900, 20, 1000, 800]
    found = by_length(sizes, 1, compute, at_once=2)
    assert found == [(row, "of the caller") for row in range(4)]
    monkeypatch.setattr(packing, "has_gpu", lambda: True)
    threads = by_length(sizes, 1, lambda rows: [threading.current_thread()], at_once=2)
    assert set(threads) == {threading.current_thread()}


def test_an_error_in_a_batch_ends_the_others(monkeypatch) -> None:
    monkeypatch.setattr(packing, "has_gpu", lambda: False)
    begun = []

    def compute(rows: list[int]) -> list[int]:
        begun.append(rows)
        if rows == [0]:
            raise MemoryError("of the longest")
        time.sleep(0.05)
        return rows

    with pytest.raises(MemoryError, match="of the longest"):
        by_length(list(range(2000, 1900, -1)), 1, compute, at_once=2)
    assert len(begun) < 50


def test_rows_by_length_need_a_batch_size() -> None:
    assert by_length([1, 3, 2], 2, lambda rows: rows) == [0, 1, 2]
    for size in (0, -1):
        with pytest.raises(ValueError, match=f"batch_size .*{size}, .*1"):
            by_length([1, 3, 2], size, lambda rows: rows)
