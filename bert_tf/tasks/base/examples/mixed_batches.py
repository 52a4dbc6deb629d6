"""Several data sets in one run: each batch is from one of them.

    step --schedule--> (data set, its own step) --choose--> examples

Both are a pure function of (seed, step), so that a run resumes in the middle of each set.
"""

import hashlib
from collections.abc import Sequence

import numpy as np

from bert_tf.corpus.example_order import order_examples
from bert_tf.tasks.base.examples.contrastive_batches import ContrastiveDataset

DATA_SET = "data_set"  # a key of batches


class MixedDataset(ContrastiveDataset):
    """Several data sets as one, whose examples are numbered one set after another.

    All batches have the shape of the largest set; an example without a score has the score 0.

    Args:
      sets: the data sets. Rows are numbered as in the last one, which has the texts of all.
      mixing: proportional: each set has as many batches in an epoch as its examples make, in random
        order; in_turn: one batch of each set after another, until the smallest is used up.
    """

    def __init__(self, sets: Sequence[ContrastiveDataset], mixing: str) -> None:
        self.sets = sets
        self.mixing = mixing
        self._starts = np.cumsum([0, *map(len, sets)])
        negatives: list[np.ndarray] = []
        scores: list[Sequence[float]] = []
        for one in sets:
            negatives += np.split(one.negatives, one.negative_starts[1:-1])
            scores += one.scores or [(0.0,)] * len(one)
            one.rows = sets[-1].rows  # The others have tables of fewer texts, which are not needed.
        super().__init__(
            rows=sets[-1].rows,
            texts=sets[-1].texts,
            queries=np.concatenate([one.queries for one in sets]),
            positives=np.concatenate([one.positives for one in sets]),
            negatives=negatives,
            scores=scores if any(one.scores for one in sets) else (),
            num_negatives=max(one.num_negatives for one in sets),
            no_duplicates=False,  # The sets choose the examples of a batch.
        )
        self.num_tokens = self.num_tokens * len(self) // len(self.queries)

    def __len__(self) -> int:
        sizes = list(map(len, self.sets))
        return len(sizes) * min(sizes) if self.mixing == "in_turn" else sum(sizes)

    def fingerprint(self) -> str:
        """Returns a digest that changes with any set, their order and the mixing."""
        parts = f"{self.mixing} {self._starts.tolist()} {super().fingerprint()}"
        return hashlib.sha256(parts.encode()).hexdigest()[:16]

    def locate(self, step: int, batch_size: int, seed: int | None) -> tuple[int, int]:
        """Returns the data set of a step, and which of the set's own steps it is."""
        if self.mixing == "in_turn":
            own_step, index = divmod(step, len(self.sets))
            return index, own_step
        num_batches = [one.batches_per_epoch(batch_size) for one in self.sets]
        ends = np.cumsum(num_batches)
        epoch, batch = divmod(step, int(ends[-1]))
        if seed is not None:
            # A permutation of each epoch's batches, which are numbered one set after another.
            order, _ = order_examples(np.array([step]), int(ends[-1]), seed)
            batch = int(order[0])
        index = int(np.searchsorted(ends, batch, side="right"))
        return index, (epoch + 1) * num_batches[index] + batch - int(ends[index])

    def choose(self, step: int, batch_size: int, seed: int | None) -> tuple[np.ndarray, int]:
        """Returns a batch's examples, int64 [n], and the epoch of their set."""
        index, own_step = self.locate(step, batch_size, seed)
        examples, epoch = self.sets[index].choose(own_step, batch_size, seed)
        return self._starts[index] + examples, epoch

    def batch(
        self, examples: np.ndarray, epoch: int, num_rows: int, lengths: tuple[int, int]
    ) -> dict[str, np.ndarray]:
        """Returns a batch of `ContrastiveDataset`, and in `data_set` float32 [B] each row's set."""
        batch = super().batch(examples, epoch, num_rows, lengths)
        batch[DATA_SET] = np.zeros([num_rows], np.float32)
        indices = np.searchsorted(self._starts, examples, side="right") - 1
        batch[DATA_SET][: len(examples)] = indices
        return batch
