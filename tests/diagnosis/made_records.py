"""Examples of a made vocabulary, as record files, for the doctor's tests."""

import numpy as np

from bert_tf.data.tfrecords import encode_examples, write_records
from bert_tf.text.vocab import Vocab

NUM_WORDS = 2000
PAD, UNK, CLS, SEP, MASK, STOP = range(6)
FIRST_WORD = 6
LENGTH, SLOTS = 32, 5


def made_vocab() -> Vocab:
    """Returns the special tokens, a stop, and words w6, w7, ..."""
    words = [f"w{n}" for n in range(FIRST_WORD, NUM_WORDS)]
    return Vocab(("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ".", *words))


def made_rows(count: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Returns good examples, unmasked: [CLS] 13 [SEP] 15 . [SEP], every other pair random."""
    generator = np.random.default_rng(seed)
    ids = generator.integers(FIRST_WORD, NUM_WORDS, [count, LENGTH])
    ids[:, 0], ids[:, 14], ids[:, 30], ids[:, 31] = CLS, SEP, STOP, SEP
    types = np.zeros([count, LENGTH], int)
    types[:, 15:] = 1
    return {
        "input_ids": ids,
        "input_mask": np.ones([count, LENGTH], int),
        "segment_ids": types,
        "next_sentence_labels": np.arange(count)[:, None] % 2,
    }


def masked(rows: dict[str, np.ndarray], split=(8, 1, 1)) -> dict[str, np.ndarray]:
    """Returns the examples with 5 predictions each at 3, 7, 10, 20, 25 (5 of 32: 15.6 %).

    Of each ten predictions, in the order of the rows, `split` are [MASK], kept, random.
    """
    positions = np.tile([3, 7, 10, 20, 25], [len(rows["input_ids"]), 1])
    labels = np.take_along_axis(rows["input_ids"], positions, axis=1)
    number = np.arange(labels.size).reshape(labels.shape) % 10
    other = np.where(labels == FIRST_WORD, FIRST_WORD + 1, FIRST_WORD)
    shown = np.where(number < split[0], MASK, np.where(number < sum(split[:2]), labels, other))
    ids = rows["input_ids"].copy()
    np.put_along_axis(ids, positions, shown, axis=1)
    return {
        **rows,
        "input_ids": ids,
        "masked_lm_positions": positions,
        "masked_lm_ids": labels,
        "masked_lm_weights": np.ones(labels.shape, np.float32),
    }


def shortened(rows: dict[str, np.ndarray], first: int, length: int) -> dict[str, np.ndarray]:
    """Returns the examples, from number `first` on cut to `length` pieces, at least 17."""
    rows = {name: values.copy() for name, values in rows.items()}
    rows["input_ids"][first:, length - 1] = SEP
    for name in ("input_ids", "input_mask", "segment_ids"):
        rows[name][first:, length:] = 0
    return rows


def write(path, rows: dict[str, np.ndarray]):
    """Writes the examples to a file; returns its path."""
    write_records(path, encode_examples(rows))
    return path
