"""Finds the texts of development and test data that the training data contain as well.

Texts are compared by the ids of their tokens: spelling that the tokenizer does
not tell apart makes no difference. Only eight bytes of each training text are kept.
"""

import hashlib
from collections.abc import Iterable
from typing import Any

import numpy as np

from bert_tf.tasks.base.examples.rows import TokenizedDataset


def text_keys(rows: TokenizedDataset) -> np.ndarray:
    """Returns a 64-bit key for the tokens of each text, uint64 [N, C]; C is 1 without choices."""
    keys = list(map(key_of, rows.texts()))
    return np.array(keys, np.uint64).reshape(len(rows), -1)


def key_of(ids: np.ndarray) -> int:
    """Returns the key of some integers."""
    digest = hashlib.blake2b(np.ascontiguousarray(ids).tobytes(), digest_size=8)
    return int.from_bytes(digest.digest())


def pair_keys(keys: np.ndarray, pairs: Iterable[Iterable[int]]) -> list[int]:
    """Returns a key for each pair of texts, in whichever order, from the keys of the texts."""
    return [key_of(np.sort(keys[list(pair)])) for pair in pairs]


class KnownTexts:
    """The keys of the training texts."""

    def __init__(self, train: Any) -> None:
        stated = getattr(train, "train_keys", None)
        self._keys = np.unique(_keys_of(train) if stated is None else np.array(stated, np.uint64))

    def count(self, examples: Any) -> tuple[int, int]:
        """Returns how many examples consist of training texts alone, and the number of examples."""
        keys = _keys_of(examples)
        # [N, C], or [N, 1] if there is a key for each example.
        found = np.isin(keys, self._keys).reshape(len(keys), -1)
        is_known = np.asarray(found.all(axis=-1))
        owners = getattr(examples, "owners", None)
        if owners is None or not len(owners):
            return int(is_known.sum()), len(is_known)
        # Windows of a text: all of them have to be known.
        unknown = np.bincount(owners, weights=~is_known, minlength=int(max(owners)) + 1)
        has_rows = np.bincount(owners, minlength=len(unknown)) > 0
        return int((unknown[has_rows] == 0).sum()), int(has_rows.sum())


def _keys_of(examples: Any) -> np.ndarray:
    """Returns the keys of examples: those that the task defines, or those of all texts."""
    stated = getattr(examples, "keys", None)
    if stated is None:
        return text_keys(examples.rows)
    return np.array(stated, np.uint64)
