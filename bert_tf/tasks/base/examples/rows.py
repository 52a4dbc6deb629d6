"""Tokenized examples with labels in memory, without TensorFlow; see `row_batches.py` for batches.

texts [N] of any length --gather, pad to the batch's longest--> input_word_ids [B, T], ...
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

import numpy as np

from bert_tf.text.packing import PackedText

NO_LABEL = -1
LENGTH_STEP = 8


class TokenizedDataset:
    """Packed texts with labels.

    Args:
      texts: N texts; with choices, C consecutive texts per example.
      labels: by name, an array [N, ...] of int32 or float32.
      token_labels: by name, N arrays int32 [t] with a label for each token, NO_LABEL for tokens
        without label.
      num_choices: C; 0 if an example is one text.

    Attributes:
      lengths: int32 [N], number of tokens in the (longest) text of each example.
      token_scores: by name, float32 [num_tokens, C], all examples concatenated.
      num_tokens: number of tokens in all texts.
    """

    def __init__(
        self,
        texts: Sequence[PackedText],
        labels: Mapping[str, np.ndarray] | None = None,
        token_labels: Mapping[str, Sequence[np.ndarray]] | None = None,
        num_choices: int = 0,
        pad_id: int = 0,
    ) -> None:
        sizes = np.array([len(text.ids) for text in texts], np.int32).reshape(-1, num_choices or 1)
        self.num_choices = num_choices
        self.pad_id = pad_id
        self.lengths = sizes.max(axis=1, initial=0)
        self.num_tokens = int(sizes.sum())
        self._sizes = sizes  # [N, C], or [N, 1] without choices
        self._starts = _starts(sizes)
        # All texts are concatenated into one array, which takes little memory.
        self._ids = _flat(texts, 0)
        self._type_ids = _flat(texts, 1)
        self.labels = dict(labels or {})
        self.token_scores: dict[str, np.ndarray] = {}
        self._token_labels: dict[str, np.ndarray] = {}
        for name, values in (token_labels or {}).items():
            # The empty array is for a dataset without examples.
            flat = np.concatenate([*values, np.zeros([0], np.int32)])
            self._token_labels[name] = flat.astype(np.int32)
        wrong = [name for name, values in self.labels.items() if len(values) != len(self)]
        wrong += [n for n, values in self._token_labels.items() if len(values) != self.num_tokens]
        if wrong:
            raise ValueError(
                f"The number of labels in {wrong} is not that of {len(self)} examples."
            )

    def __len__(self) -> int:
        return len(self.lengths)

    def has(self, name: str) -> bool:
        """Returns whether there are labels or scores of this name."""
        return name in (*self.labels, *self.token_scores)

    def fingerprint(self) -> str:
        """Returns a digest that changes with any token or label."""
        digest = hashlib.sha256()
        arrays = [self._sizes, self._ids, self._type_ids]
        arrays += [values for _, values in sorted(self.labels.items())]
        arrays += [values for _, values in sorted(self._token_labels.items())]
        for values in arrays:
            digest.update(np.ascontiguousarray(values).tobytes())
        return digest.hexdigest()[:16]

    def texts(self) -> Iterator[np.ndarray]:
        """Yields the token ids of each text, int32 [t]; with choices, C texts per example."""
        for start, size in zip(self._starts.ravel(), self._sizes.ravel(), strict=True):
            yield self._ids[start : start + size]

    def batch(self, row_ids: np.ndarray, num_rows: int, length: int) -> dict[str, np.ndarray]:
        """Returns a batch of B examples, filled up with examples of weight 0.

        Args:
          row_ids: int64 [n], indices of the examples, n <= B.
          length: T, at least the length of the longest example.

        Returns:
          The encoder's inputs, int32 [B, T] ([B, C, T] with choices); the labels; `row_ids` int32
          [B], -1 for fillers; `example_weights` float32 [B], by default 1; and the scores of
          tokens, float32 [B, T, C].
        """
        positions = np.arange(length)  # [T]
        mask = positions < self._sizes[row_ids][..., None]  # [n, C, T]
        # [n, C, T]; padding reads index 0, which `gather` replaces.
        flat_positions = np.where(mask, self._starts[row_ids][..., None] + positions, 0)
        shape = [len(row_ids), length]
        if self.num_choices:
            shape.insert(1, self.num_choices)

        def gather(flat: np.ndarray, empty: int = 0) -> np.ndarray:
            # Without any tokens even index 0 does not exist.
            values = np.where(mask, flat[flat_positions] if len(flat) else empty, empty)
            return _fill(values.reshape(shape).astype(np.int32), num_rows, empty)

        batch = {
            "input_word_ids": gather(self._ids, self.pad_id),
            "input_mask": _fill(mask.reshape(shape).astype(np.int32), num_rows),
            "input_type_ids": gather(self._type_ids),
            "row_ids": _fill(row_ids.astype(np.int32), num_rows, -1),
            "example_weights": _fill(np.ones([len(row_ids)], np.float32), num_rows),
        }
        for name, labels in self._token_labels.items():
            batch[name] = gather(labels, NO_LABEL)
        for name, scores in self.token_scores.items():
            values = np.where(mask[:, 0, :, None], scores[flat_positions[:, 0]], 0.0)  # [n, T, C]
            batch[name] = _fill(values, num_rows)
        for name, labels in self.labels.items():
            batch[name] = _fill(labels[row_ids], num_rows)
        return batch


def longest_first(rows: TokenizedDataset) -> np.ndarray:
    """Returns the indices of the examples by descending length, int64 [N]."""
    return np.argsort(-rows.lengths, kind="stable")


def length_buckets(max_seq_length: int, is_compiled: bool, is_plain: bool = False) -> list[int]:
    """Returns the lengths that batches are padded to, ascending; the last is the maximum.

    XLA compiles a step once per length, so that there are few; `is_plain`: only the maximum.
    """
    if is_plain:
        return [max_seq_length]
    if is_compiled:
        lengths = [32, 64, 96, 128, 192, 256, 384, 512]
    else:
        lengths = list(range(LENGTH_STEP, max_seq_length, LENGTH_STEP))
    return [length for length in lengths if length < max_seq_length] + [max_seq_length]


def bucket_of(longest: int, buckets: Sequence[int]) -> int:
    """Returns the first of the buckets that holds a length, or else the last."""
    return next((bucket for bucket in buckets if bucket >= longest), buckets[-1])


def _starts(sizes: np.ndarray) -> np.ndarray:
    ends = np.cumsum(sizes.ravel(), dtype=np.int64)
    return (ends - sizes.ravel()).reshape(sizes.shape)


def _flat(texts: Sequence[PackedText], field: int) -> np.ndarray:
    count = sum(len(text.ids) for text in texts)
    return np.fromiter((value for text in texts for value in text[field]), np.int32, count)


def _fill(values: np.ndarray, num_rows: int, empty: float = 0) -> np.ndarray:
    missing = [(0, num_rows - len(values))] + [(0, 0)] * (values.ndim - 1)
    return np.pad(values, missing, constant_values=empty)


class TaskExamples(Protocol):
    """Examples that were read, with their rows; each task adds its labels and texts."""

    @property
    def rows(self) -> TokenizedDataset: ...
