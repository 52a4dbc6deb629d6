"""Several data sets in one run: each batch is from one of them.

    step --schedule--> (data set, its own step) --choose--> examples

The set of a step, and the steps that the set has had before, are a pure function of (seed, step),
so that a run resumes in the middle of each set.
"""

import functools
import hashlib
from collections.abc import Sequence

import numpy as np

from bert_tf.corpus.example_order import order_examples
from bert_tf.tasks.base.examples.contrastive_batches import ContrastiveDataset

DATA_SET = "data_set"  # a key of batches


class MixedDataset(ContrastiveDataset):
    """Several data sets as one; their texts are rows of one table.

    The examples of all sets are numbered one set after another. The number of an epoch also says
    the set: it is the set's epoch times the number of sets, plus the set.

    Args:
      sets: the data sets, which share `rows`.
      mixing: proportional: each set has as many batches in an epoch as its examples make, in random
        order; in_turn: one batch of each set after another, until the smallest is used up.
    """

    # The sets choose examples, so that nothing of the base class's constructor is needed.
    def __init__(self, sets: Sequence[ContrastiveDataset], mixing: str) -> None:
        self.sets = list(sets)
        self.mixing = mixing
        self.rows = self.sets[0].rows
        self.queries = np.concatenate([one.queries for one in sets])
        self.positives = np.concatenate([one.positives for one in sets])
        self.num_negatives = max(one.num_negatives for one in sets)
        self.scores = [score for one in sets for score in one.scores]
        self.one_length = False
        self._starts = np.cumsum([0, *map(len, sets)])
        # The next epoch is prepared before one ends.
        self._round = functools.lru_cache(maxsize=2)(self._make_round)
        share = len(self) / len(self.queries)
        self.num_tokens = int(share * sum(one.num_tokens for one in sets))

    def __len__(self) -> int:
        sizes = list(map(len, self.sets))
        return len(sizes) * min(sizes) if self.mixing == "in_turn" else sum(sizes)

    @property
    def num_scores(self) -> int:
        """S, the most scores of an example of any set."""
        return max(one.num_scores for one in self.sets)

    def fingerprint(self) -> str:
        """Returns a digest that changes with any set, their order and the mixing."""
        parts = [self.mixing, *(one.fingerprint() for one in self.sets)]
        return hashlib.sha256(" ".join(parts).encode()).hexdigest()[:16]

    def locate(self, step: int, batch_size: int, seed: int | None) -> tuple[int, int]:
        """Returns the data set of a step, and how many earlier steps were of this set."""
        if self.mixing == "in_turn":
            own_step, index = divmod(step, len(self.sets))
            return index, own_step
        sizes = tuple(one.batches_per_epoch(batch_size) for one in self.sets)
        epoch, position = divmod(step, sum(sizes))
        order, counts = self._round(epoch, sizes, seed)
        index = int(order[position])
        return index, epoch * sizes[index] + int(counts[position])

    def _make_round(
        self, epoch: int, sizes: tuple[int, ...], seed: int | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns the set of each step of an epoch, and its earlier steps there, int64 [S] each."""
        order = np.repeat(np.arange(len(sizes)), sizes)
        if seed is not None:
            positions, _ = order_examples(
                epoch * len(order) + np.arange(len(order)), len(order), seed
            )
            order = order[positions]
        counts = np.zeros_like(order)
        for index in range(len(sizes)):
            is_of_set = order == index
            counts[is_of_set] = np.arange(is_of_set.sum())
        return order, counts

    def choose(self, step: int, batch_size: int, seed: int | None) -> tuple[np.ndarray, int]:
        """Returns a batch's examples, int64 [n], and its epoch; see the class."""
        index, own_step = self.locate(step, batch_size, seed)
        examples, epoch = self.sets[index].choose(own_step, batch_size, seed)
        return self._starts[index] + examples, epoch * len(self.sets) + index

    def longest(self, examples: np.ndarray, epoch: int) -> tuple[int, int]:
        """Returns the lengths of the longest query and of the longest document."""
        epoch, index = divmod(epoch, len(self.sets))
        return self.sets[index].longest(examples - self._starts[index], epoch)

    def batch(
        self, examples: np.ndarray, epoch: int, num_rows: int, lengths: tuple[int, int]
    ) -> dict[str, np.ndarray]:
        """Returns a batch of `ContrastiveDataset`, in the shape of the largest of all sets.

        It has `data_set` too, the set of each row, float32 [B].
        """
        epoch, index = divmod(epoch, len(self.sets))
        batch = self.sets[index].batch(examples - self._starts[index], epoch, num_rows, lengths)
        missing = self.num_negatives - self.sets[index].num_negatives
        for name, values in batch.items():
            if not name.startswith("document"):
                continue
            filling = np.zeros([num_rows, missing, *values.shape[2:]], values.dtype)
            if name == "document/input_mask":
                filling[..., :1] = 1  # One token, because an empty text has no pooled vector.
            batch[name] = np.concatenate([values, filling], axis=1)  # [B, M, ...]
        if self.num_scores:
            scores = batch.pop("scores", np.zeros([num_rows, 0], np.float32))
            padding = [[0, 0], [0, self.num_scores - scores.shape[1]]]
            batch["scores"] = np.pad(scores, padding)  # [B, S]
        batch[DATA_SET] = np.full([num_rows], index, np.float32)
        return batch
