"""The embedding tasks: training on similar and dissimilar texts, evaluation by retrieval."""

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf.config.ranking_config import RetrieverConfig
from bert_tf.corpus.mapping import InputShard
from bert_tf.metrics.candidates import best_of_queries
from bert_tf.metrics.exact import top_k
from bert_tf.metrics.maxsim import TokenMatrix, maxsim
from bert_tf.metrics.ranking import evaluate
from bert_tf.metrics.regression import pearson_and_spearman
from bert_tf.metrics.sparse import SparseIndex, SparseVectors
from bert_tf.metrics.vectors import unit
from bert_tf.network.losses import WeightedSum, accuracy, cross_entropy, weigh
from bert_tf.network.soft_losses import EMBEDDING_DISTANCES
from bert_tf.system.type_names import Outputs
from bert_tf.tasks.base.examples.contrastive_batches import ContrastiveDataset, contrastive_batches
from bert_tf.tasks.base.examples.mixed_batches import DATA_SET, MixedDataset
from bert_tf.tasks.base.programs.rows_task import RowsTask
from bert_tf.tasks.embedding.features import SIDES, Collections, RankingExamples, ScoredExamples
from bert_tf.tasks.embedding.losses import Loss, Vectors, in_batch_accuracy
from bert_tf.tasks.embedding.sides import embed_sides
from bert_tf.tasks.embedding.tsdae_noise import WHOLE, DamagedTexts, damaged_batches
from bert_tf.training.cached_step import CachedStep, Embeddings
from bert_tf.training.task import Batch
from bert_tf.training.train_step import TrainStep

MEASURES = ("ndcg@10", "recall@100", "mrr@10", "map@100", "accuracy@1")
DEPTH = 100  # documents per query in a run
MAX_TOKENS = 1024  # evaluations of SPLADE keep the largest weights of each text
TEACHERS = tuple(f"{side}/teacher_embedding" for side in SIDES)


class EmbeddingTask(RowsTask):
    """Trains and evaluates a `BertEmbedder`; see below for others.

    Args:
      loss: loss of `losses.make_loss`, or for a `MixedDataset` one that takes the batch's data set
        first; None if nothing is trained.
      similarity: cosine, dot, maxsim or meanmaxsim, of in-batch losses.
      is_ranking: whether the loss ranks the documents of a batch, so that the fraction of queries
        that find their positive is reported.
      best_metric: metric that selects the best checkpoint.
      ignore_identical_ids: see `metrics.ranking.evaluate`.
    """

    step_class = CachedStep
    model: Any
    teacher: RetrieverConfig

    def __init__(
        self,
        model: Any,
        train_rows: ContrastiveDataset | None,
        *data: Any,
        loss: Loss | None = None,
        similarity: str = "cosine",
        is_ranking: bool = True,
        best_metric: str = "ndcg@10",
        ignore_identical_ids: bool = False,
        teacher: RetrieverConfig | None = None,
    ) -> None:
        super().__init__(model, train_rows, *data)
        self.loss: Any = loss
        self.similarity = similarity
        self.is_ranking = is_ranking
        self.best_metric = best_metric
        self.ignore_identical_ids = ignore_identical_ids
        if is_ranking:
            self.sum_names = ("loss", "accuracy")
        has_scores = train_rows is not None and bool(train_rows.scores)
        # The labels that `CachedStep` passes to `batch_sums`.
        self.label_names = ("document_weights", *(["scores"] if has_scores else []))
        if isinstance(train_rows, MixedDataset):
            self.label_names += (DATA_SET,)
        self.teacher = teacher or RetrieverConfig()
        if train_rows is not None and "teacher_embedding" in train_rows.rows.labels:
            self.sum_names = (*self.sum_names, "teacher_loss")
            self.label_names += ("example_weights", *TEACHERS)

    def train_dataset(self, batch_size: int, start_step: int, shard: InputShard) -> tf.data.Dataset:
        """Returns batches of `ContrastiveDataset.batch`."""
        groups = self.train_rows
        return contrastive_batches(groups, batch_size, start_step, self.seed, self.buckets, shard)

    def embed(self, batch: Batch, dropout_seed: tf.Tensor) -> Embeddings:
        """Returns the embeddings of the queries, float32 [b, D], and documents, [b, M, D].

        The batch is a part of b examples of a batch of B.
        """
        joint = self.train_rows is not None and self.train_rows.one_length
        return embed_sides(
            lambda inputs, seed, side: self.model(inputs, training=True, dropout_seed=seed),
            batch,
            dropout_seed,
            joint,
        )

    def sizes(self, batch: Batch) -> Batch:
        """Returns the numbers of texts and tokens of each example and side, int32 [B, 2].

        Dropout masks are numbered by text and token. With the sizes of the preceding examples, a
        part of a batch gets the same masks as in the whole batch.
        """
        sizes = {}
        for side in SIDES:
            mask = tf.cast(batch[f"{side}/input_mask"], tf.int32)
            length = mask.shape[-1] or tf.shape(mask)[-1]
            # Queries have no axis of documents: [B, T] becomes [B, 1, T].
            mask = tf.reshape(mask, [tf.shape(mask)[0], -1, length])  # [B, M, T]
            # Without unpadding, padding is computed and counts as tokens.
            is_token = mask if self.model.bert.unpad else tf.ones_like(mask)
            num_texts = tf.reduce_sum(tf.ones_like(mask[..., 0]), axis=1)
            num_tokens = tf.reduce_sum(is_token, axis=[1, 2])
            sizes[f"{side}/before"] = tf.stack([num_texts, num_tokens], axis=1)
        return sizes

    def batch_sums(self, embeddings: Embeddings, labels: Batch) -> dict[str, WeightedSum]:
        """Returns the sums of the loss and, with in-batch losses, of the accuracy."""
        queries, documents = embeddings  # [B, D], [B, M, D]
        vectors = Vectors(queries, documents, labels["document_weights"], labels.get("scores"))
        loss = self.loss
        if DATA_SET in labels:
            loss = functools.partial(loss, labels[DATA_SET])
        sums = {"loss": loss(vectors)}
        if "teacher_loss" in self.sum_names:
            sums |= self._with_teacher(sums["loss"], embeddings, labels)
        if self.is_ranking:
            sums["accuracy"] = in_batch_accuracy(vectors, self.similarity)
        return sums

    def _with_teacher(
        self, loss: WeightedSum, embeddings: Embeddings, labels: Batch
    ) -> dict[str, WeightedSum]:
        """Returns the distance of all texts from the teacher, and the loss that includes it."""
        distance = EMBEDDING_DISTANCES[self.teacher.teacher_distance]
        weights = (labels["example_weights"], labels["document_weights"])  # [B], [B, M]
        teacher_loss = WeightedSum(0.0, 0.0)
        for vectors, name, side_weights in zip(embeddings, TEACHERS, weights, strict=True):
            side_loss = weigh(distance(vectors, labels[name]), side_weights)
            teacher_loss = WeightedSum(
                teacher_loss.total + side_loss.total, teacher_loss.weight + side_loss.weight
            )
        factor = self.teacher.teacher_weight
        if not self.teacher.learn_labels:
            loss = teacher_loss._replace(total=factor * teacher_loss.total)
            return {"teacher_loss": teacher_loss, "loss": loss}
        # The two losses have different weights (examples and texts), so that their means are added.
        total = loss.total + factor * teacher_loss.mean() * loss.weight
        return {"teacher_loss": teacher_loss, "loss": loss._replace(total=total)}

    def loss_and_metric_sums(self, batch: Batch, outputs: Embeddings) -> dict[str, WeightedSum]:
        """Returns `batch_sums` for a batch that is computed in one part."""
        return self.batch_sums(outputs, batch)

    def predictions(self, batch: Batch, outputs: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns the embedding of each row."""
        return {"embedding": outputs}

    def metrics(self, examples: Any, outputs: Outputs) -> dict[str, float]:
        """Returns ranking measures of a collection, or correlations for scored pairs."""
        if isinstance(examples, ScoredExamples):
            similarities_of_pairs = self.pair_similarities(examples.pairs, outputs)
            correlations = pearson_and_spearman(examples.scores, similarities_of_pairs)
            return {name: correlations[name] for name in ("pearson", "spearman")}
        # The results of several collections are their means, and those of each.
        results = dict.fromkeys(MEASURES, 0.0)
        for name, collection in examples.parts.items():
            values = evaluate(
                self.search(collection, outputs),
                collection.beir.qrels,
                MEASURES,
                ignore_identical_ids=self.ignore_identical_ids,
            )
            for measure, value in values.items():
                results[measure] += value / len(examples.parts)
                if len(examples.parts) > 1:
                    results[f"{name}_{measure}"] = value
        return results

    def pair_similarities(self, pairs: np.ndarray, outputs: Outputs) -> np.ndarray:
        """Returns the similarity of each pair of rows, float64 [E]."""
        vectors = np.stack(outputs["embedding"]).astype(np.float32)
        first = vectors[pairs[:, 0]]
        second = vectors[pairs[:, 1]]
        return similarities(first, second, self.model.embedding.similarity)

    def nearest(
        self, examples: RankingExamples, outputs: Outputs, depth: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns scores and indices of documents, both [Q, depth], the nearest first."""
        vectors = np.stack(outputs["embedding"]).astype(np.float32)
        queries, documents = to_comparable(
            vectors[examples.query_rows],
            vectors[examples.document_rows],
            self.model.embedding.similarity,
        )
        return top_k(queries, documents, depth)

    def search(self, examples: RankingExamples, outputs: Outputs) -> dict[str, dict[str, float]]:
        """Returns the nearest documents of each query with their scores."""
        names = list(examples.beir.documents)
        # One document more, because the query itself may be among the documents.
        depth = min(len(names), DEPTH + self.ignore_identical_ids)
        scores, documents = self.nearest(examples, outputs, depth)  # [Q, depth]
        run = {}
        for index, query in enumerate(examples.beir.queries):
            names_found = [names[document] for document in documents[index]]
            ranking = dict(zip(names_found, scores[index].tolist(), strict=True))
            if self.ignore_identical_ids:
                ranking.pop(query, None)
            # If the query was not among them, there is one document too many.
            run[query] = dict(list(ranking.items())[:DEPTH])
        return run


class SpladeTask(EmbeddingTask):
    """Trains and evaluates a `BertSplade`."""

    def predictions(self, batch: Batch, outputs: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns the largest weights of each row, their tokens, and the number of weights."""
        # [B, V] for a whole evaluation would not fit in memory.
        most = min(MAX_TOKENS, outputs.shape[-1])
        weights, token_ids = tf.math.top_k(outputs, most)  # [B, most]
        counts = tf.math.count_nonzero(outputs, axis=1, dtype=tf.int32)  # [B]
        return {"weights": weights, "token_ids": token_ids, "count": counts}

    def metrics(self, examples: Any, outputs: Outputs) -> dict[str, float]:
        """Adds the mean number of tokens with a weight, for queries and for documents."""
        counts = np.array(outputs["count"])
        if cut := int((counts > MAX_TOKENS).sum()):
            logging.warning(
                "%d texts have weights for more than %d tokens, and measures use only the largest; "
                "train longer, or with a larger regularizer.",
                cut,
                MAX_TOKENS,
            )
        sides = {"text": np.arange(len(counts))}
        if isinstance(examples, Collections):
            parts = examples.parts.values()
            sides = {
                "query": np.concatenate([part.query_rows for part in parts]),
                "document": np.concatenate([part.document_rows for part in parts]),
            }
        metrics = super().metrics(examples, outputs)
        for side, rows in sides.items():
            metrics[f"pieces_per_{side}"] = float(counts[rows].mean())
        return metrics

    def pair_similarities(self, pairs: np.ndarray, outputs: Outputs) -> np.ndarray:
        """Returns the dot product of each pair of rows."""
        rows = _sparse_rows(outputs)
        products = []
        for first, second in pairs:
            ids, weights = rows[first]
            other_ids, other_weights = rows[second]
            _, own, other = np.intersect1d(ids, other_ids, True, return_indices=True)
            products.append(weights[own] @ other_weights[other])
        return np.array(products, np.float64)

    def nearest(
        self, examples: RankingExamples, outputs: Outputs, depth: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns the scores and indices of the nearest documents, both [Q, depth]."""
        rows = _sparse_rows(outputs)
        queries, documents = [
            SparseVectors.from_tokens([rows[row] for row in chosen])
            for chosen in (examples.query_rows, examples.document_rows)
        ]
        return SparseIndex(documents).search(queries, depth)


def _sparse_rows(outputs: Outputs) -> list[tuple[np.ndarray, np.ndarray]]:
    """Returns the token ids, ascending, and the positive weights of each row."""
    rows = []
    for token_ids, weights in zip(outputs["token_ids"], outputs["weights"], strict=True):
        order = np.argsort(token_ids, kind="stable")
        # If a text has fewer weights than are kept, the rest are zeros.
        order = order[weights[order] > 0]
        rows.append((token_ids[order], weights[order]))
    return rows


class LateInteractionTask(EmbeddingTask):
    """Trains and evaluates a `BertLateInteraction`."""

    def embed(self, batch: Batch, dropout_seed: tf.Tensor) -> Embeddings:
        """Returns the vectors of the queries' tokens, float32 [b, Tq, D], and the documents'.

        Those are [b, M, Td, D]; both are 0 for tokens that do not score.
        """
        return self.model.embed_batch(batch, True, dropout_seed)

    def sizes(self, batch: Batch) -> Batch:
        """Returns the numbers of texts and tokens; see `EmbeddingTask`."""
        sizes = dict(super().sizes(batch))
        tokens = self.model.tokens
        # Queries have the tokens that expand them as well.
        mask = tf.cast(batch["query/input_mask"], tf.int32)  # [B, T]
        num_tokens = tf.reduce_sum(mask, axis=1)
        if tokens.fills_padding or not self.model.bert.unpad:
            num_tokens = tf.fill(tf.shape(num_tokens), tf.shape(mask)[1])
        num_tokens = tf.maximum(num_tokens, tokens.expansion_length)
        sizes["query/before"] = tf.stack([tf.ones_like(num_tokens), num_tokens], axis=1)
        return sizes

    def predictions(self, batch: Batch, outputs: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns the vectors of each row's tokens, in half of the memory."""
        return {"vectors": tf.cast(outputs, tf.float16)}

    def pair_similarities(self, pairs: np.ndarray, outputs: Outputs) -> np.ndarray:
        """Returns the score of the second text of each pair with the first as query."""
        scores = []
        for first, second in pairs:
            query, document = self._scoring(outputs, [first, second])
            scores.append(maxsim([query], TokenMatrix.of([document]), self.similarity)[0, 0])
        return np.array(scores, np.float64)

    def nearest(
        self, examples: RankingExamples, outputs: Outputs, depth: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns the scores and indices of the nearest documents, both [Q, depth]."""
        queries = self._scoring(outputs, examples.query_rows)
        documents = TokenMatrix.of(self._scoring(outputs, examples.document_rows))
        return best_of_queries(maxsim(queries, documents, self.similarity), depth)

    def _scoring(self, outputs: Outputs, rows: Sequence[int] | np.ndarray) -> list[np.ndarray]:
        """Returns the vectors [t, D] of the tokens that score, for each of these rows."""
        vectors = [outputs["vectors"][row] for row in rows]
        return [one[one.any(axis=-1)] for one in vectors]


class DenoisingTask(EmbeddingTask):
    """Trains and evaluates a `BertDenoiser`."""

    # The loss is a mean over tokens, so that parts of a batch can be computed separately. In-batch
    # losses need `CachedStep`.
    step_class = TrainStep  # type: ignore[assignment]

    def __init__(
        self, model: Any, train_texts: DamagedTexts | None, *data: Any, **options: Any
    ) -> None:
        super().__init__(model, None, *data, **options)
        self.train_texts: Any = train_texts
        self.sum_names = ("loss", "accuracy")

    def train_dataset(self, batch_size: int, start_step: int, shard: InputShard) -> tf.data.Dataset:
        """Returns batches of `DamagedTexts.batch`."""
        return damaged_batches(
            self.train_texts, batch_size, start_step, self.seed, self.buckets, shard
        )

    def loss_weights(self, batch: Batch) -> dict[str, tf.Tensor]:
        """Returns the number of tokens to predict, float32 []."""
        is_predicted = batch[f"{WHOLE}input_mask"][:, 1:]  # all except the first
        return {"loss": tf.reduce_sum(tf.cast(is_predicted, tf.float32))}

    def loss_and_metric_sums(self, batch: Batch, outputs: Any) -> dict[str, WeightedSum]:
        """Returns the sums of the tokens' cross-entropy and accuracy."""
        logits = outputs["logits"]  # [U, V]
        labels = outputs["labels"]  # [U]
        weights = outputs["weights"]  # [U]
        return {
            "loss": cross_entropy(logits, labels, weights),
            "accuracy": accuracy(logits, labels, weights),
        }


def to_comparable(
    queries: np.ndarray, documents: np.ndarray, similarity: str
) -> tuple[np.ndarray, np.ndarray]:
    """Returns vectors whose dot products rank documents as a similarity does, float32."""
    if similarity == "cosine":
        return unit(queries), unit(documents)
    if similarity == "euclidean":
        # -|q - d|^2 / 2 = q d - |d|^2 / 2 - |q|^2 / 2. The last term does not change the ranking;
        # the second is a further dimension of the documents, for which queries have a 1.
        half_norms = -0.5 * np.sum(documents**2, axis=1, keepdims=True)  # [N, 1]
        ones = np.ones([len(queries), 1], np.float32)  # [Q, 1]
        queries = np.concatenate([queries, ones], axis=1)  # [Q, D + 1]
        documents = np.concatenate([documents, half_norms], axis=1)  # [N, D + 1]
        return queries.astype(np.float32), documents.astype(np.float32)
    if similarity != "dot":
        raise ValueError(f"Similarity {similarity!r} cannot be searched by dot products.")
    return queries, documents


def similarities(first: np.ndarray, second: np.ndarray, kind: str) -> np.ndarray:
    """Returns the similarity of each pair of vectors, float64 [E]; distances are negated."""
    first = first.astype(np.float64)
    second = second.astype(np.float64)
    if kind in ("euclidean", "manhattan"):
        return -np.linalg.norm(first - second, ord=2 if kind == "euclidean" else 1, axis=1)
    products = np.sum(first * second, axis=1)
    if kind == "cosine":
        norms = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
        products /= np.maximum(norms, 1e-12)
    return products
