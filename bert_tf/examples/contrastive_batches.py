"""Examples of several texts in memory, and batches of them in which no text stands twice.

    query, positive, negatives --chosen for an epoch--> [N, 1 + M] texts --dealt--> batches of B

With the other rows of a batch as negatives a text must not be its own negative: an example whose
text is in the batch already waits for a later one. Which examples a batch holds is a pure function
of (seed, step), as in `rows.py`. An epoch has N // B batches, at least one; what is left over of an
epoch, another rest each time, is left out.

    query_ids [B] --> query/input_word_ids [B, Tq], document/input_word_ids [B, M, Td] ...
"""

import functools
import hashlib
import itertools
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import tensorflow as tf

from bert_tf.corpus.example_order import order_examples
from bert_tf.corpus.input_shard import ALL, InputShard
from bert_tf.corpus.mapping import map_in_numpy
from bert_tf.examples.rows import TokenizedDataset
from bert_tf.text.packing import INPUTS

# Examples that wait for a batch without their texts, at most this many batches of them.
MOST_WAITING = 8
NO_TEXT = -1


class TextGroups:
    """N examples of a query and texts to compare it with, the positive first.

    Args:
      rows: the packed texts of both sides, each once.
      texts: int64 [R], the same number for rows of the same text: a query and a document may be
        packed differently.
      queries: int64 [N], rows.
      positives: int64 [N], rows.
      negatives: N lists of rows.
      scores: N tuples of numbers, see `EmbeddingExample`; empty if there are none.
      num_negatives: M - 1, negatives that an example brings; which of its own, the epoch decides.
      no_duplicates: whether no text may stand twice in a batch.
    """

    def __init__(
        self,
        rows: TokenizedDataset,
        texts: np.ndarray,
        queries: np.ndarray,
        positives: np.ndarray,
        negatives: Sequence[Sequence[int]],
        scores: Sequence[Sequence[float]],
        num_negatives: int,
        no_duplicates: bool,
    ) -> None:
        self.rows, self.texts = rows, texts
        self.queries, self.positives, self.scores = queries, positives, scores
        self.num_negatives, self.no_duplicates = num_negatives, no_duplicates
        counts = [len(group) for group in negatives]
        self._negative_starts = np.cumsum([0, *counts])
        self._negatives = np.array([row for group in negatives for row in group], np.int64)
        self._plan = functools.lru_cache(maxsize=2)(self._make_plan)
        # Pieces of an example on average, for the rates in the log.
        used = rows.lengths[queries].sum() + rows.lengths[positives].sum()
        shown = np.minimum(counts, num_negatives) / np.maximum(counts, 1)
        owners = np.repeat(np.arange(len(counts)), counts)
        used += (rows.lengths[self._negatives] * shown[owners]).sum() if owners.size else 0
        self.num_pieces = int(used)

    def __len__(self) -> int:
        return len(self.queries)

    def fingerprint(self) -> str:
        """Returns a digest that changes with any text, its place or a score."""
        digest = hashlib.sha256(self.rows.fingerprint().encode())
        flat = [np.array([value for group in self.scores for value in group], np.float64)]
        arrays = [self.texts, self.queries, self.positives, self._negatives, self._negative_starts]
        for values in [*arrays, *flat]:
            digest.update(np.ascontiguousarray(values).tobytes())
        return digest.hexdigest()[:16]

    def documents(self, examples: np.ndarray, epoch: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns the rows of the documents of some examples, and the numbers of their negatives.

        An example with more negatives than `num_negatives` shows others of them in each epoch.

        Returns:
          rows int64 [n, M], NO_TEXT where an example has fewer; and which of its own negatives
          each is, int64 [n, M - 1].
        """
        starts = self._negative_starts[examples]
        counts = self._negative_starts[examples + 1] - starts
        places = np.arange(self.num_negatives)
        chosen = (epoch * self.num_negatives + places) % np.maximum(counts, 1)[:, None]
        has_one = places < counts[:, None]
        flat = self._negatives if len(self._negatives) else np.zeros([1], np.int64)
        found = flat[np.where(has_one, starts[:, None] + chosen, 0)]
        negatives = np.where(has_one, found, NO_TEXT)
        return np.concatenate([self.positives[examples][:, None], negatives], axis=1), chosen

    @property
    def lengths(self) -> np.ndarray:
        """Tokens of each text, int32 [R]."""
        return self.rows.lengths

    def batches_per_epoch(self, batch_size: int) -> int:
        """Returns the number of batches of an epoch."""
        return max(1, len(self) // batch_size)

    def choose(self, step: int, batch_size: int, seed: int | None) -> tuple[np.ndarray, int]:
        """Returns the examples of a batch, int64 [n], n <= B, and the epoch.

        Args:
          step: number of the batch.
          batch_size: B.
          seed: of the order; None: the order of the examples.
        """
        epoch, place = divmod(step, self.batches_per_epoch(batch_size))
        return self._plan(epoch, batch_size, seed)[place], epoch

    def _make_plan(self, epoch: int, batch_size: int, seed: int | None) -> list[np.ndarray]:
        """Returns the examples of each batch of an epoch."""
        size = len(self)
        order = np.arange(size)
        if seed is not None:
            order, _ = order_examples(epoch * size + order, size, seed)
        batches = self._batches(order, epoch, batch_size)
        return list(itertools.islice(batches, self.batches_per_epoch(batch_size)))

    def evaluation_plan(self, batch_size: int) -> list[np.ndarray]:
        """Returns the examples of each batch, so that every example is in one of them."""
        return list(self._batches(np.arange(len(self)), 0, batch_size))

    def _batches(self, order: np.ndarray, epoch: int, batch_size: int) -> Iterator[np.ndarray]:
        """Yields the examples of batches until none is left."""
        if not self.no_duplicates:
            for start in range(0, len(order), batch_size):
                yield order[start : start + batch_size]
            return
        documents, _ = self.documents(order, epoch)
        rows = np.concatenate([self.queries[order][:, None], documents], axis=1)
        texts = np.where(rows == NO_TEXT, NO_TEXT, self.texts[rows])
        groups = [frozenset(group) - {NO_TEXT} for group in texts.tolist()]
        for batch in _deal(groups, batch_size):
            yield order[batch]

    def batch(
        self, examples: np.ndarray, epoch: int, num_rows: int, lengths: tuple[int, int]
    ) -> dict[str, np.ndarray]:
        """Makes a batch, filled up with examples of weight 0.

        Args:
          examples: int64 [n], n <= B.
          epoch: decides which negatives are shown.
          num_rows: B.
          lengths: of queries and of documents.

        Returns:
          Inputs of the encoder behind query/ [B, Tq] and document/ [B, M, Td], int32;
          `document_weights` float32 [B, M], 0 where an example has no such document;
          `example_weights` float32 [B]; `scores` float32 [B, S] if the examples have any.
        """
        documents, chosen = self.documents(examples, epoch)
        filled = np.full([num_rows, documents.shape[1]], NO_TEXT)
        filled[: len(examples)] = documents
        queries = np.full([num_rows], NO_TEXT)
        queries[: len(examples)] = self.queries[examples]
        batch = {
            f"query/{name}": values
            for name, values in self._inputs(queries, lengths[0]).items()
        }  # fmt: skip
        shape = (num_rows, documents.shape[1])
        batch |= {
            f"document/{name}": values.reshape(*shape, *values.shape[1:])
            for name, values in self._inputs(filled.ravel(), lengths[1]).items()
        }
        batch["document_weights"] = (filled != NO_TEXT).astype(np.float32)
        batch["example_weights"] = (queries != NO_TEXT).astype(np.float32)
        if self.scores:
            width = max(1, self.num_negatives)
            scores = np.zeros([num_rows, width], np.float32)
            for place, example in enumerate(examples):
                own = np.array(self.scores[example], np.float32)
                picked = own[chosen[place] % len(own)] if self.num_negatives else own[:1]
                scores[place] = picked
            batch["scores"] = scores
        return batch

    def _inputs(self, rows: np.ndarray, length: int) -> dict[str, np.ndarray]:
        """Returns the encoder's inputs of rows; NO_TEXT is a row of one piece, which counts 0."""
        made = self.rows.batch(np.maximum(rows, 0), len(rows), length)
        names = [name for name in made if name not in ("row_ids", "example_weights")]
        inputs = {name: made[name] for name in names}
        empty = rows == NO_TEXT
        if empty.any():  # Padding alone would be a row without any piece.
            inputs["input_mask"] = inputs["input_mask"].copy()
            inputs["input_mask"][empty, 1:] = 0
        return inputs

    def longest(self, examples: np.ndarray, epoch: int) -> tuple[int, int]:
        """Returns the pieces of the longest query and of the longest document."""
        documents, _ = self.documents(examples, epoch)
        rows = documents[documents != NO_TEXT]
        return int(self.rows.lengths[self.queries[examples]].max()), int(
            self.rows.lengths[rows].max()
        )


def _deal(groups: Sequence[frozenset], batch_size: int) -> Iterator[np.ndarray]:
    """Deals the indices of groups to batches so that no two groups of a batch share a member.

    A group that does not fit waits, and comes before all groups that were not looked at yet.
    """
    waiting: list[int] = []
    place = 0
    while waiting or place < len(groups):
        used: set = set()
        batch: list[int] = []
        still: list[int] = []
        for index in waiting:
            if len(batch) < batch_size and used.isdisjoint(groups[index]):
                batch.append(index)
                used |= groups[index]
            else:
                still.append(index)
        while len(batch) < batch_size and place < len(groups):
            if len(still) >= MOST_WAITING * batch_size:
                break
            if used.isdisjoint(groups[place]):
                batch.append(place)
                used |= groups[place]
            else:
                still.append(place)
            place += 1
        waiting = still
        yield np.array(batch, np.int64)


def group_batches(
    groups: TextGroups,
    batch_size: int,
    start_step: int,
    seed: int | None,
    buckets: Sequence[int],
    shares: InputShard,
) -> tf.data.Dataset:
    """Returns an endless dataset of `TextGroups.batch`; see `row_batches.training_batches`."""
    steps = tf.data.Dataset.range(start_step, np.iinfo(np.int64).max)

    def choose(step: int) -> tuple[np.ndarray, int]:
        return groups.choose(step, batch_size, seed)

    return _make_batches(groups, steps, choose, batch_size, buckets, shares)


def evaluation_group_batches(
    groups: TextGroups, batch_size: int, buckets: Sequence[int]
) -> tf.data.Dataset:
    """Returns a dataset of `TextGroups.batch` with every example once, in order where possible."""
    plan = groups.evaluation_plan(batch_size)
    steps = tf.data.Dataset.range(len(plan))
    return _make_batches(groups, steps, lambda step: (plan[step], 0), batch_size, buckets, ALL)


def _make_batches(
    groups: TextGroups,
    steps: tf.data.Dataset,
    choose: Callable[[int], tuple[np.ndarray, int]],
    batch_size: int,
    buckets: Sequence[int],
    shares: InputShard,
) -> tf.data.Dataset:
    """Makes the batches whose examples and epoch `choose` names."""
    own = shares.rows(batch_size)
    example = groups.batch(np.zeros([0], np.int64), 0, len(own), (buckets[-1], buckets[-1]))

    def bucket(longest: int) -> int:
        return next((length for length in buckets if length >= longest), buckets[-1])

    def make(step: np.ndarray) -> list[np.ndarray]:
        chosen, epoch = choose(int(step))
        longest = groups.longest(chosen, epoch)  # of the whole batch: alike on all workers
        mine = chosen[own[own < len(chosen)]]
        lengths = (bucket(longest[0]), bucket(longest[1]))
        return list(groups.batch(mine, epoch, len(own), lengths).values())

    def static_shape(name: str) -> list[int | None]:
        shape: list[int | None] = list(example[name].shape)
        is_long = name.endswith(INPUTS) and len(buckets) > 1
        return [*shape[:-1], None] if is_long else shape

    return map_in_numpy(
        steps, make, {name: (example[name].dtype, static_shape(name)) for name in example}
    )
