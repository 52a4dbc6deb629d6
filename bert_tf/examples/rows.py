"""Tokenized examples with labels in memory, without TensorFlow; `row_batches.py` deals them out.

texts [N] of any length --gather, pad to the batch's longest--> input_word_ids [B, T], ...
"""

import hashlib
from collections.abc import Mapping, Sequence

import numpy as np

from bert_tf.text.packing import PackedText

NO_LABEL = -1
LENGTH_STEP = 8


class TokenizedDataset:
    """Packed texts with labels.

    Args:
      texts: N texts; with choices C texts a row, one after the other.
      labels: by name, an array [N, ...] of int32 or float32.
      piece_labels: by name, N arrays int32 [t], a label for each piece of the row, NO_LABEL where
        there is none.
      num_choices: C; 0 where a row is one text.
      pad_id: the vocabulary's padding.

    Attributes:
      lengths: int32 [N], pieces of the (longest) text of each row.
      piece_scores: by name, float32 [num_pieces, C], the rows one after the other.
      num_pieces: of all texts.
    """

    def __init__(
        self,
        texts: Sequence[PackedText],
        labels: Mapping[str, np.ndarray] | None = None,
        piece_labels: Mapping[str, Sequence[np.ndarray]] | None = None,
        num_choices: int = 0,
        pad_id: int = 0,
    ) -> None:
        sizes = np.array([len(text.ids) for text in texts], np.int32).reshape(-1, num_choices or 1)
        self.num_choices, self.pad_id = num_choices, pad_id
        self.lengths = sizes.max(axis=1, initial=0)
        self.num_pieces = int(sizes.sum())
        self._sizes, self._starts = sizes, _starts(sizes)
        self._ids, self._type_ids = _flat(texts, 0), _flat(texts, 1)
        self.labels = dict(labels or {})
        self.piece_scores: dict[str, np.ndarray] = {}
        self._piece_labels = {
            name: np.concatenate([*values, np.zeros([0], np.int32)]).astype(np.int32)
            for name, values in (piece_labels or {}).items()
        }
        wrong = [name for name, values in self.labels.items() if len(values) != len(self)]
        wrong += [n for n, values in self._piece_labels.items() if len(values) != self.num_pieces]
        if wrong:
            raise ValueError(f"{len(self)} rows, but another number of labels in {wrong}.")

    def __len__(self) -> int:
        return len(self.lengths)

    def has(self, name: str) -> bool:
        """Tells whether there are labels or scores of this name."""
        return name in (*self.labels, *self.piece_scores)

    def fingerprint(self) -> str:
        """Returns a digest that changes with any piece or label."""
        digest = hashlib.sha256()
        arrays = [self._sizes, self._ids, self._type_ids]
        arrays += [values for _, values in sorted(self.labels.items())]
        arrays += [values for _, values in sorted(self._piece_labels.items())]
        for values in arrays:
            digest.update(np.ascontiguousarray(values).tobytes())
        return digest.hexdigest()[:16]

    def batch(self, row_ids: np.ndarray, num_rows: int, length: int) -> dict[str, np.ndarray]:
        """Makes a batch, filled up with rows of weight 0.

        Args:
          row_ids: int64 [n], n <= B.
          num_rows: B.
          length: T, at least the longest of the rows.

        Returns:
          The encoder's inputs, int32 [B, T] ([B, C, T] with choices), the labels, `row_ids` int32
          [B] with -1 in rows that fill, `example_weights` float32 [B], where the labels have
          none: 1, and the scores of pieces, float32 [B, T, C].
        """
        positions = np.arange(length)
        mask = positions < self._sizes[row_ids][..., None]  # [n, C, T]
        places = np.where(mask, self._starts[row_ids][..., None] + positions, 0)
        shape = (len(row_ids), *([self.num_choices] if self.num_choices else []), length)

        def gather(flat: np.ndarray, empty: int = 0) -> np.ndarray:
            values = np.where(mask, flat[places] if len(flat) else empty, empty)
            return _fill(values.reshape(shape).astype(np.int32), num_rows, empty)

        batch = {
            "input_word_ids": gather(self._ids, self.pad_id),
            "input_mask": _fill(mask.reshape(shape).astype(np.int32), num_rows),
            "input_type_ids": gather(self._type_ids),
            "row_ids": _fill(row_ids.astype(np.int32), num_rows, -1),
            "example_weights": _fill(np.ones([len(row_ids)], np.float32), num_rows),
        }
        batch |= {name: gather(flat, NO_LABEL) for name, flat in self._piece_labels.items()}
        batch |= {
            name: _fill(np.where(mask[:, 0, :, None], flat[places[:, 0]], 0.0), num_rows)
            for name, flat in self.piece_scores.items()
        }
        return batch | {
            name: _fill(values[row_ids], num_rows) for name, values in self.labels.items()
        }


def longest_first(rows: TokenizedDataset) -> np.ndarray:
    """Returns the numbers of the rows by their length, int64 [N]: those of like length together."""
    return np.argsort(-rows.lengths, kind="stable")


def length_buckets(max_seq_length: int, is_compiled: bool, is_plain: bool = False) -> list[int]:
    """Returns the lengths that batches are padded to, ascending, the last is the maximum.

    Args:
      max_seq_length: the maximum.
      is_compiled: whether XLA compiles the step, anew for each length: then there are few.
      is_plain: the maximum alone.
    """
    if is_plain:
        return [max_seq_length]
    if is_compiled:
        lengths = [32, 64, 96, 128, 192, 256, 384, 512]
    else:
        lengths = list(range(LENGTH_STEP, max_seq_length, LENGTH_STEP))
    return [length for length in lengths if length < max_seq_length] + [max_seq_length]


def _starts(sizes: np.ndarray) -> np.ndarray:
    ends = np.cumsum(sizes.ravel(), dtype=np.int64)
    return (ends - sizes.ravel()).reshape(sizes.shape)


def _flat(texts: Sequence[PackedText], field: int) -> np.ndarray:
    count = sum(len(text.ids) for text in texts)
    return np.fromiter((value for text in texts for value in text[field]), np.int32, count)


def _fill(values: np.ndarray, num_rows: int, empty: float = 0) -> np.ndarray:
    missing = [(0, num_rows - len(values))] + [(0, 0)] * (values.ndim - 1)
    return np.pad(values, missing, constant_values=empty)
