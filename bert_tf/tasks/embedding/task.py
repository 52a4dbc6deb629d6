"""The embedding task: training on similar and dissimilar texts, evaluation by retrieval."""

from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.corpus.input_shard import InputShard
from bert_tf.examples.contrastive_batches import ContrastiveDataset, contrastive_batches
from bert_tf.fine_tuning.rows_task import RowsTask
from bert_tf.fine_tuning_config import RetrieverConfig
from bert_tf.metrics.ranking import evaluate
from bert_tf.metrics.regression import pearson_and_spearman
from bert_tf.network.losses import WeightedSum, weigh
from bert_tf.objectives.distillation import EMBEDDING_DISTANCES
from bert_tf.tasks.embedding.features import SIDES, RankingExamples, ScoredExamples
from bert_tf.tasks.embedding.losses import Loss, in_batch_accuracy
from bert_tf.tasks.embedding.sides import embed_sides
from bert_tf.training.cached_step import CachedStep, Embeddings
from bert_tf.training.task import Batch
from bert_tf.vectors.exact import top_k

MEASURES = ("ndcg@10", "recall@100", "mrr@10", "map@100", "accuracy@1")
DEPTH = 100  # documents of a run
TEACHERS = tuple(f"{side}/teacher_embedding" for side in SIDES)


class EmbeddingTask(RowsTask):
    """A `BertEmbedder` with examples; arguments are those of `RowsTask`.

    `tasks.splade` has the same of sparse vectors.

    Args:
      train_rows: `ContrastiveDataset`.
      loss: of `embedding_losses`; None if nothing is trained.
      is_ranking: whether the loss is that of finding the positive in the batch, so that the share
        of those found is reported, too.
      best_metric: names the best checkpoint.
      ignore_identical_ids: see `metrics.ranking.evaluate`.
      teacher: how texts with a `teacher_embedding` are learned.
    """

    step_class = CachedStep
    similarity = "cosine"  # of in-batch losses
    model: Any
    teacher: RetrieverConfig

    def __init__(
        self,
        model: Any,
        train_rows: ContrastiveDataset | None,
        *data: Any,
        loss: Loss | None = None,
        is_ranking: bool = True,
        best_metric: str = "ndcg@10",
        ignore_identical_ids: bool = False,
        teacher: RetrieverConfig | None = None,
    ) -> None:
        super().__init__(model, train_rows, *data)  # type: ignore[arg-type]
        self.groups = train_rows
        self.loss, self.is_ranking, self.best_metric = loss, is_ranking, best_metric
        self.ignore_identical_ids = ignore_identical_ids
        if is_ranking:
            self.sum_names = ("loss", "accuracy")
        has_scores = train_rows is not None and bool(train_rows.scores)
        self.label_names = ("document_weights", *(["scores"] if has_scores else []))
        self.teacher = teacher or RetrieverConfig()
        if train_rows is not None and "teacher_embedding" in train_rows.rows.labels:
            self.sum_names = (*self.sum_names, "teacher_loss")
            self.label_names += ("example_weights", *TEACHERS)

    def train_dataset(
        self, batch_size: int, start_step: int, worker_index: int, num_workers: int
    ) -> tf.data.Dataset:
        """Batches of `ContrastiveDataset.batch`."""
        if self.groups is None:
            raise ValueError("There are no training examples.")
        shard = InputShard(worker_index, num_workers)
        return contrastive_batches(
            self.groups, batch_size, start_step, self.seed, self.buckets, shard
        )

    def embed(self, batch: Batch, dropout_seed: tf.Tensor) -> Embeddings:
        """Returns float32 [b, D] of the queries and [b, M, D] of the documents."""
        joint = self.groups is not None and self.groups.one_length
        return embed_sides(
            lambda inputs, seed: self.model(inputs, training=True, dropout_seed=seed),
            batch,
            dropout_seed,
            joint,
        )

    def sizes(self, batch: Batch) -> Batch:
        """Returns the texts and pieces of each row and side, int32 [B, 2]."""
        found = {}
        for side in SIDES:
            mask = tf.cast(batch[f"{side}/input_mask"], tf.int32)
            mask = tf.reshape(mask, [tf.shape(mask)[0], -1, mask.shape[-1] or tf.shape(mask)[-1]])
            pieces = mask if self.model.bert.unpad else tf.ones_like(mask)  # [B, M, T]
            texts = tf.reduce_sum(tf.ones_like(mask[..., 0]), axis=1)
            found[f"{side}/before"] = tf.stack([texts, tf.reduce_sum(pieces, axis=[1, 2])], axis=1)
        return found

    def batch_sums(self, embeddings: Embeddings, labels: Batch) -> dict[str, WeightedSum]:
        """Returns the loss and, of in-batch losses, how many positives were found."""
        queries, documents = embeddings
        if self.loss is None:
            raise ValueError("The task has no loss.")
        weights = labels["document_weights"]
        found = {"loss": self.loss(queries, documents, weights, labels.get("scores"))}
        if "teacher_loss" in self.sum_names:
            found |= self._with_teacher(found["loss"], embeddings, labels)
        if self.is_ranking:
            found["accuracy"] = in_batch_accuracy(queries, documents, weights, self.similarity)
        return found

    def _with_teacher(
        self, loss: WeightedSum, embeddings: Embeddings, labels: Batch
    ) -> dict[str, WeightedSum]:
        """Returns the mean distance of all texts from the teacher, and the loss with it."""
        distance = EMBEDDING_DISTANCES[self.teacher.teacher_distance]
        weights = labels["example_weights"], labels["document_weights"]
        sides = zip(embeddings, TEACHERS, weights, strict=True)
        parts = [weigh(distance(own, labels[name]), weight) for own, name, weight in sides]
        taught = WeightedSum(*(tf.add_n(list(values)) for values in zip(*parts, strict=True)))
        factor = self.teacher.teacher_weight
        if not self.teacher.learn_labels:
            return {"teacher_loss": taught, "loss": taught._replace(total=factor * taught.total)}
        # The loss of a batch is one number: its own mean and the teacher's are added up.
        total = loss.total + factor * taught.mean() * loss.weight
        return {"teacher_loss": taught, "loss": loss._replace(total=total)}

    def loss_and_metric_sums(self, batch: Batch, outputs: Embeddings) -> dict[str, WeightedSum]:
        """Returns `batch_sums` of a batch that is not cut into parts."""
        return self.batch_sums(outputs, batch)

    def predictions(self, batch: Batch, outputs: Any) -> dict[str, tf.Tensor]:
        """Returns the embedding of each row."""
        return {"embedding": outputs}

    def metrics(self, examples: Any, outputs: Any) -> dict[str, float]:
        """Judges embeddings: ranking measures of a collection, correlations of scored pairs."""
        if isinstance(examples, ScoredExamples):
            found = self.pair_similarities(examples.pairs, outputs)
            correlations = pearson_and_spearman(examples.scores, found)
            return {name: correlations[name] for name in ("pearson", "spearman")}
        run = self.search(examples, outputs)
        return evaluate(
            run,
            examples.beir.qrels,
            MEASURES,
            ignore_identical_ids=self.ignore_identical_ids,
        )

    def pair_similarities(self, pairs: np.ndarray, outputs: Any) -> np.ndarray:
        """Returns how like the texts of each pair of rows are, float64 [E]."""
        vectors = np.stack(outputs["embedding"]).astype(np.float32)
        first, second = (vectors[pairs[:, place]] for place in (0, 1))
        return similarities(first, second, self.model.embedding.similarity)

    def nearest(
        self, examples: RankingExamples, outputs: Any, depth: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns scores and documents, both [Q, depth], the nearest first."""
        vectors = np.stack(outputs["embedding"]).astype(np.float32)
        queries, documents = to_comparable(
            vectors[examples.query_rows],
            vectors[examples.document_rows],
            self.model.embedding.similarity,
        )
        return top_k(queries, documents, depth)

    def search(self, examples: RankingExamples, outputs: Any) -> dict[str, dict[str, float]]:
        """Returns the nearest documents of each query with their scores."""
        names = list(examples.beir.documents)
        depth = min(len(names), DEPTH + self.ignore_identical_ids)
        scores, rows = self.nearest(examples, outputs, depth)
        run = {}
        for i, query in enumerate(examples.beir.queries):
            found = dict(zip([names[row] for row in rows[i]], scores[i].tolist(), strict=True))
            if self.ignore_identical_ids:
                found.pop(query, None)
            run[query] = dict(list(found.items())[:DEPTH])
        return run


def to_comparable(
    queries: np.ndarray, documents: np.ndarray, similarity: str
) -> tuple[np.ndarray, np.ndarray]:
    """Returns vectors whose dot products rank documents as a similarity does, float32.

    Raises:
      ValueError: if there are none: manhattan.
    """
    if similarity == "cosine":
        return unit(queries), unit(documents)
    if similarity == "euclidean":  # -|q - d|^2 / 2 = q d - |d|^2 / 2 - |q|^2 / 2
        half = -0.5 * np.sum(documents**2, axis=1, keepdims=True)
        ones = np.ones([len(queries), 1], np.float32)
        both = np.concatenate([queries, ones], 1), np.concatenate([documents, half], 1)
        return both[0].astype(np.float32), both[1].astype(np.float32)
    if similarity != "dot":
        raise ValueError(f"Similarity {similarity!r} cannot be searched by dot products.")
    return queries, documents


def similarities(first: np.ndarray, second: np.ndarray, kind: str) -> np.ndarray:
    """Returns how like vectors are, pair by pair, float64 [E]; of distances the negative."""
    first, second = first.astype(np.float64), second.astype(np.float64)
    if kind in ("euclidean", "manhattan"):
        return -np.linalg.norm(first - second, ord=2 if kind == "euclidean" else 1, axis=1)
    found = np.sum(first * second, axis=1)
    if kind == "cosine":
        norms = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
        found /= np.maximum(norms, 1e-12)
    return found


def unit(vectors: np.ndarray) -> np.ndarray:
    """Returns vectors of length 1; zeros stay zeros."""
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    return (vectors / np.maximum(norms, 1e-12)).astype(np.float32)
