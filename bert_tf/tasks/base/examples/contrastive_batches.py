"""Examples of a query and documents in memory, in batches without repeated texts.

    query, positive, negatives --chosen per epoch--> [N, 1 + M] texts --distributed--> batches of B

With in-batch negatives a text must not be its own negative: an example with a text that is already
in the batch waits for a later batch. The examples of a batch are a pure function of (seed, step),
as in `row_batches.py`. An epoch has N // B batches, at least one. The remaining examples, others in
each epoch, are left out.

    query_ids [B] --> query/input_word_ids [B, Tq], document/input_word_ids [B, M, Td] ...
"""

import functools
import hashlib
import itertools
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import tensorflow as tf

from bert_tf.corpus.example_order import order_examples
from bert_tf.corpus.mapping import ALL, InputShard, map_in_numpy, steps_from
from bert_tf.tasks.base.examples.rows import TokenizedDataset, bucket_of
from bert_tf.text.packing import INPUTS

# Limit of the examples that wait for a batch without their texts, in batches.
MAX_WAITING = 8
NO_TEXT = -1


class ContrastiveDataset:
    """N examples of a query and documents, the positive first.

    Args:
      rows: the packed texts of both sides, each once.
      texts: int64 [R], the text id of each row. A text that is packed differently as query and as
        document has two rows with the same id.
      queries: int64 [N], row of each query.
      positives: int64 [N], row of each positive.
      negatives: N lists of rows.
      scores: N tuples of numbers, see `EmbeddingExample`; empty for data without scores.
      num_negatives: M - 1, negatives per example; an example with more shows others in each epoch.
      no_duplicates: whether a batch must not contain a text twice.
      one_length: whether queries and documents of a batch have the same length.
    """

    def __init__(
        self,
        rows: TokenizedDataset,
        texts: np.ndarray,
        queries: np.ndarray,
        positives: np.ndarray,
        negatives: Sequence[Sequence[int] | np.ndarray],
        scores: Sequence[Sequence[float]],
        num_negatives: int,
        no_duplicates: bool,
        one_length: bool = False,
    ) -> None:
        self.rows = rows
        self.texts = texts
        self.queries = queries
        self.positives = positives
        self.scores = scores
        self.num_negatives = num_negatives
        self.no_duplicates = no_duplicates
        self.one_length = one_length
        # The negatives of all examples are concatenated.
        counts = list(map(len, negatives))
        self.negative_starts = np.cumsum([0, *counts])
        self.negatives = np.array(list(itertools.chain.from_iterable(negatives)), np.int64)
        # Every step looks up its plan; two, because the next epoch is prepared before one ends.
        self._plan = functools.lru_cache(maxsize=2)(self._make_plan)
        # The expected number of tokens in an epoch, for the rates in the log.
        num_tokens = rows.lengths[queries].sum() + rows.lengths[positives].sum()
        if len(self.negatives):
            shares = np.minimum(counts, num_negatives) / np.maximum(counts, 1)  # [N]
            shown = np.repeat(shares, counts)  # for each negative, the share of epochs
            num_tokens += (rows.lengths[self.negatives] * shown).sum()
        self.num_tokens = int(num_tokens)

    def __len__(self) -> int:
        return len(self.queries)

    def fingerprint(self) -> str:
        """Returns a digest that changes with any text, its position or a score."""
        digest = hashlib.sha256(self.rows.fingerprint().encode())
        scores = np.array(list(itertools.chain.from_iterable(self.scores)), np.float64)
        arrays = [self.texts, self.queries, self.positives, self.negatives, self.negative_starts]
        for values in [*arrays, scores]:
            digest.update(np.ascontiguousarray(values).tobytes())
        return digest.hexdigest()[:16]

    def documents(self, examples: np.ndarray, epoch: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns the documents of examples in an epoch.

        An example with more negatives than `num_negatives` shows others in each epoch.

        Returns:
          Rows, int64 [n, M], NO_TEXT if an example has fewer; and the index of each negative among
          those of its example, int64 [n, M - 1].
        """
        starts = self.negative_starts[examples]  # [n]
        counts = self.negative_starts[examples + 1] - starts  # [n]
        slots = np.arange(self.num_negatives)  # [M - 1]
        # Each epoch continues in the list of negatives where the previous one ended.
        chosen = (epoch * self.num_negatives + slots) % np.maximum(counts, 1)[:, None]
        has_negative = slots < counts[:, None]  # [n, M - 1]
        # Index 0 must exist even without negatives; `where` replaces its value below.
        flat = self.negatives if len(self.negatives) else np.zeros([1], np.int64)
        rows = flat[np.where(has_negative, starts[:, None] + chosen, 0)]
        negatives = np.where(has_negative, rows, NO_TEXT)
        documents = np.concatenate([self.positives[examples][:, None], negatives], axis=1)
        return documents, chosen

    @property
    def lengths(self) -> np.ndarray:
        """Tokens of each text, int32 [R]."""
        return self.rows.lengths

    def batches_per_epoch(self, batch_size: int) -> int:
        """Returns the number of batches of an epoch."""
        return max(1, len(self) // batch_size)

    def choose(self, step: int, batch_size: int, seed: int | None) -> tuple[np.ndarray, int]:
        """Returns a batch's examples, int64 [n], n <= B, and its epoch; without a seed in order."""
        epoch, index = divmod(step, self.batches_per_epoch(batch_size))
        return self._plan(epoch, batch_size, seed)[index], epoch

    def _make_plan(self, epoch: int, batch_size: int, seed: int | None) -> list[np.ndarray]:
        """Returns the examples of each batch of an epoch."""
        size = len(self)
        order = np.arange(size)
        if seed is not None:
            # Positions count on over the epochs, so each epoch has another order.
            order, _ = order_examples(epoch * size + order, size, seed)
        batches = self._batches(order, epoch, batch_size)
        return list(itertools.islice(batches, self.batches_per_epoch(batch_size)))

    def evaluation_plan(self, batch_size: int) -> list[np.ndarray]:
        """Returns the examples of each batch, with every example in one of the batches."""
        return list(self._batches(np.arange(len(self)), 0, batch_size))

    def _batches(self, order: np.ndarray, epoch: int, batch_size: int) -> Iterator[np.ndarray]:
        """Yields the examples of batches until all examples are used."""
        if not self.no_duplicates:
            for start in range(0, len(order), batch_size):
                yield order[start : start + batch_size]
            return
        documents, _ = self.documents(order, epoch)
        rows = np.concatenate([self.queries[order][:, None], documents], axis=1)
        # NO_TEXT reads the last text, which `where` replaces.
        texts = np.where(rows == NO_TEXT, NO_TEXT, self.texts[rows])
        groups = [frozenset(group) - {NO_TEXT} for group in texts.tolist()]
        for batch in _deal(groups, batch_size):
            yield order[batch]

    def batch(
        self, examples: np.ndarray, epoch: int, num_rows: int, lengths: tuple[int, int]
    ) -> dict[str, np.ndarray]:
        """Returns a batch of B examples, filled up with examples of weight 0.

        Args:
          examples: int64 [n], n <= B.
          epoch: selects the negatives.
          lengths: lengths of queries and of documents.

        Returns:
          The encoder's inputs with the prefixes query/ [B, Tq] and document/ [B, M, Td], int32;
          `document_weights` float32 [B, M], 0 for missing documents; `example_weights` float32 [B];
          `scores` float32 [B, S] if the examples have scores.
        """
        example_documents, chosen = self.documents(examples, epoch)
        documents = np.full([num_rows, example_documents.shape[1]], NO_TEXT)  # [B, M]
        documents[: len(examples)] = example_documents
        queries = np.full([num_rows], NO_TEXT)  # [B]
        queries[: len(examples)] = self.queries[examples]
        batch = {}
        for name, values in self._inputs(queries, lengths[0]).items():
            batch[f"query/{name}"] = values  # [B, Tq]
        for name, values in self._inputs(documents.ravel(), lengths[1]).items():
            shape = (*documents.shape, *values.shape[1:])
            batch[f"document/{name}"] = values.reshape(shape)  # [B * M, Td] -> [B, M, Td]
        batch["document_weights"] = (documents != NO_TEXT).astype(np.float32)
        batch["example_weights"] = (queries != NO_TEXT).astype(np.float32)
        if self.scores:
            # With negatives, one score for each; without, as many as all examples have.
            num_scores = self.num_negatives or min(map(len, self.scores))
            scores = np.zeros([num_rows, num_scores], np.float32)
            for index, example in enumerate(examples):
                example_scores = np.array(self.scores[example], np.float32)
                if self.num_negatives:
                    scores[index] = example_scores[chosen[index] % len(example_scores)]
                else:
                    scores[index] = example_scores[:num_scores]
            batch["scores"] = scores
        return batch

    def _inputs(self, rows: np.ndarray, length: int) -> dict[str, np.ndarray]:
        """Returns the encoder's inputs for rows; NO_TEXT becomes a text of one token."""
        inputs = self.rows.batch(np.maximum(rows, 0), len(rows), length)
        del inputs["row_ids"], inputs["example_weights"]
        is_missing = rows == NO_TEXT
        if is_missing.any():  # One token is kept, because an empty text has no pooled vector.
            inputs["input_mask"] = inputs["input_mask"].copy()
            inputs["input_mask"][is_missing, 1:] = 0
        return inputs

    def longest(self, examples: np.ndarray, epoch: int) -> tuple[int, int]:
        """Returns the lengths of the longest query and of the longest document."""
        documents, _ = self.documents(examples, epoch)
        rows = documents[documents != NO_TEXT]
        longest_query = self.rows.lengths[self.queries[examples]].max()
        longest_document = self.rows.lengths[rows].max()
        if self.one_length:
            longest = max(int(longest_query), int(longest_document))
            return longest, longest
        return int(longest_query), int(longest_document)


def _deal(groups: Sequence[frozenset], batch_size: int) -> Iterator[np.ndarray]:
    """Yields the groups of batches, by index, in which no two groups share a member.

    Groups that do not fit into a batch wait, and have precedence in the next one.
    """
    waiting: list[int] = []
    next_index = 0
    while waiting or next_index < len(groups):
        # All texts of the batch so far: a text twice would be a negative of itself.
        members: set = set()
        batch: list[int] = []
        still_waiting: list[int] = []
        for index in waiting:
            if len(batch) < batch_size and members.isdisjoint(groups[index]):
                batch.append(index)
                members |= groups[index]
            else:
                still_waiting.append(index)
        while len(batch) < batch_size and next_index < len(groups):
            # Many copies of one text: end the batch early instead of looking through all examples.
            if len(still_waiting) >= MAX_WAITING * batch_size:
                break
            if members.isdisjoint(groups[next_index]):
                batch.append(next_index)
                members |= groups[next_index]
            else:
                still_waiting.append(next_index)
            next_index += 1
        waiting = still_waiting
        yield np.array(batch, np.int64)


def contrastive_batches(
    dataset: ContrastiveDataset,
    batch_size: int,
    start_step: int,
    seed: int | None,
    buckets: Sequence[int],
    shard: InputShard,
) -> tf.data.Dataset:
    """Returns an endless `tf.data` dataset of batches; see `row_batches.training_batches`."""

    def choose(step: int) -> tuple[np.ndarray, int]:
        return dataset.choose(step, batch_size, seed)

    return _make_batches(dataset, steps_from(start_step), choose, batch_size, buckets, shard)


def evaluation_contrastive_batches(
    dataset: ContrastiveDataset, batch_size: int, buckets: Sequence[int]
) -> tf.data.Dataset:
    """Returns a `tf.data` dataset of batches with every example once, in order if possible."""
    plan = dataset.evaluation_plan(batch_size)
    steps = tf.data.Dataset.range(len(plan))
    return _make_batches(dataset, steps, lambda step: (plan[step], 0), batch_size, buckets, ALL)


def _make_batches(
    dataset: ContrastiveDataset,
    steps: tf.data.Dataset,
    choose: Callable[[int], tuple[np.ndarray, int]],
    batch_size: int,
    buckets: Sequence[int],
    shard: InputShard,
) -> tf.data.Dataset:
    """Returns the shard's part of the batches whose examples and epoch `choose` returns."""
    shard_rows = shard.rows(batch_size)
    longest = (buckets[-1], buckets[-1])
    # A batch without examples has the names, types and shapes of all batches.
    sample = dataset.batch(np.zeros([0], np.int64), 0, len(shard_rows), longest)
    # The length differs between batches.
    tokens = [name for name in sample if name.endswith(INPUTS) and len(buckets) > 1]

    def make(step: int) -> dict[str, np.ndarray]:
        examples, epoch = choose(step)
        # The lengths are those of the whole batch, so that all workers have the same.
        longest_query, longest_document = dataset.longest(examples, epoch)
        lengths = (bucket_of(longest_query, buckets), bucket_of(longest_document, buckets))
        # The rows of this shard that the batch has; `batch` fills up the others.
        local_examples = examples[shard_rows[shard_rows < len(examples)]]
        return dataset.batch(local_examples, epoch, len(shard_rows), lengths)

    return map_in_numpy(steps, make, sample, dict.fromkeys(tokens, (-1,)))
