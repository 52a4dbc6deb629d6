"""The embedding task: training on similar and dissimilar texts, evaluation by retrieval."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from bert_tf.checkpoints.embedding import EmbeddingConfig
from bert_tf.corpus.input_shard import InputShard
from bert_tf.examples.contrastive_batches import ContrastiveDataset, contrastive_batches
from bert_tf.examples.rows import TokenizedDataset
from bert_tf.fine_tuning.rows_task import RowsTask
from bert_tf.fine_tuning_config import RetrieverConfig
from bert_tf.metrics.ranking import evaluate
from bert_tf.metrics.regression import pearson_and_spearman
from bert_tf.network.dropout import mix
from bert_tf.network.losses import WeightedSum, weigh
from bert_tf.objectives.distillation import EMBEDDING_DISTANCES
from bert_tf.tasks.embedding.beir import Beir
from bert_tf.tasks.embedding.examples import EmbeddingExample
from bert_tf.tasks.embedding.losses import Loss, in_batch_accuracy
from bert_tf.tasks.embedding.model import INPUTS, pack_text, prompt_pieces
from bert_tf.text.packing import PackedText
from bert_tf.text.tokenization import Tokenizer
from bert_tf.training.cached_step import CachedStep, Embeddings
from bert_tf.training.task import Batch
from bert_tf.vectors.exact import top_k

MEASURES = ("ndcg@10", "recall@100", "mrr@10", "map@100", "accuracy@1")
DEPTH = 100  # documents of a run
SIDES = ("query", "document")
TEACHERS = tuple(f"{side}/teacher_embedding" for side in SIDES)


class TextPacker:
    """Packs texts of both sides, each text of a side once.

    Args:
      tokenizer: of the model.
      embedding: its prompts and its length.
    """

    def __init__(self, tokenizer: Tokenizer, embedding: EmbeddingConfig) -> None:
        self.tokenizer, self.embedding = tokenizer, embedding
        self.prompts = {side: embedding.side_prompt(side) for side in SIDES}
        self.skipped = {
            side: prompt_pieces(tokenizer, embedding, prompt)
            for side, prompt in self.prompts.items()
        }
        self.places: dict[tuple[str, str], int] = {}
        self.packed: list[PackedText] = []
        self.pieces: list[int] = []
        self.num_cut = 0

    def add(self, side: str, text: str) -> int:
        """Returns the row of a text."""
        prompt = self.prompts[side]
        key = (prompt, text)
        if key not in self.places:
            self.places[key] = len(self.packed)
            row = self.pack(side, text)
            self.num_cut += len(row.ids) == self.embedding.max_seq_length
            self.packed.append(row)
            self.pieces.append(self.skipped[side])
        return self.places[key]

    def pack(self, side: str, text: str) -> PackedText:
        """Packs a text, which is not kept."""
        return pack_text(self.tokenizer, self.embedding, text, self.prompts[side])

    def rows(self) -> TokenizedDataset:
        """Returns all rows; `prompt_pieces` are there if any piece does not count."""
        labels = {}
        if any(self.skipped.values()):
            labels["prompt_pieces"] = np.array(self.pieces, np.int32)
        return TokenizedDataset(self.packed, labels, pad_id=self.tokenizer.vocab.pad_id)

    def text_numbers(self) -> np.ndarray:
        """Returns a number for each row, the same for rows of one text."""
        numbers: dict[str, int] = {}
        return np.array(
            [numbers.setdefault(text, len(numbers)) for _, text in self.places], np.int64
        )


class TrainingExamples(NamedTuple):
    """What is trained on."""

    rows: ContrastiveDataset
    num_cut: int

    @property
    def texts_per_row(self) -> int:
        """Texts that a row brings: query, positive, negatives."""
        return 2 + self.rows.num_negatives


class RankingExamples(NamedTuple):
    """A collection in which queries look for documents."""

    rows: TokenizedDataset
    query_rows: np.ndarray  # int64 [Q]
    document_rows: np.ndarray  # int64 [N]
    beir: Beir
    num_cut: int
    is_labelled: bool = True


class ScoredExamples(NamedTuple):
    """Pairs of texts with a number that says how like they are."""

    rows: TokenizedDataset
    pairs: np.ndarray  # int64 [E, 2], rows
    scores: np.ndarray  # float64 [E]
    num_cut: int
    is_labelled: bool = True


def make_training_examples(
    packer: TextPacker,
    examples: Sequence[EmbeddingExample],
    num_negatives: int,
    no_duplicates: bool,
) -> TrainingExamples:
    """Packs examples; see `ContrastiveDataset`."""
    queries = np.array([packer.add("query", example.query) for example in examples], np.int64)
    positives = np.array([packer.add("document", e.positive) for e in examples], np.int64)
    negatives = [[packer.add("document", text) for text in e.negatives] for e in examples]
    groups = ContrastiveDataset(
        packer.rows(),
        packer.text_numbers(),
        queries,
        positives,
        negatives,
        [example.scores for example in examples] if examples[0].scores else (),
        num_negatives,
        no_duplicates,
    )
    return TrainingExamples(groups, packer.num_cut)


def make_ranking_examples(packer: TextPacker, beir: Beir) -> RankingExamples:
    """Packs the queries and documents of a collection."""
    queries = [packer.add("query", text) for text in beir.queries.values()]
    documents = [packer.add("document", text) for text in beir.documents.values()]
    return RankingExamples(
        packer.rows(),
        np.array(queries, np.int64),
        np.array(documents, np.int64),
        beir,
        packer.num_cut,
    )


def make_scored_examples(
    packer: TextPacker, examples: Sequence[EmbeddingExample]
) -> ScoredExamples:
    """Packs scored pairs; both texts are taken as queries, since neither looks for the other.

    Raises:
      ValueError: if there are no scores, or negatives, or all scores are equal.
    """
    for example in examples:
        if len(example.scores) != 1 or example.negatives:
            raise ValueError(
                f"{example.source}: expected a pair of texts with a score; give a collection of "
                f"documents to search as --data_dir."
            )
    if len({example.scores[0] for example in examples}) < 2:
        raise ValueError(
            f"{examples[0].source}: all {len(examples)} pairs have the score "
            f"{examples[0].scores[0]:g}; a correlation needs two different ones."
        )
    pairs = [[packer.add("query", text) for text in (e.query, e.positive)] for e in examples]
    scores = np.array([example.scores[0] for example in examples], np.float64)
    return ScoredExamples(packer.rows(), np.array(pairs, np.int64), scores, packer.num_cut)


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
        shares = InputShard(worker_index, num_workers)
        return contrastive_batches(
            self.groups, batch_size, start_step, self.seed, self.buckets, shares
        )

    def embed(self, batch: Batch, dropout_seed: tf.Tensor) -> Embeddings:
        """Returns float32 [b, D] of the queries and [b, M, D] of the documents."""
        sides = {}
        for number, side in enumerate(SIDES):
            names = (*INPUTS, "prompt_pieces")
            inputs = {name: batch[f"{side}/{name}"] for name in names if f"{side}/{name}" in batch}
            shape = tf.shape(inputs["input_word_ids"])
            flat = {
                name: tf.reshape(value, [-1, shape[-1]] if name in INPUTS else [-1])
                for name, value in inputs.items()
            }
            # Another mask for each side: the same text on both has then two embeddings (SimCSE).
            seed = mix(dropout_seed + number)
            if (before := batch.get(f"{side}/before")) is not None:
                seed = tf.concat([[seed], before[0]], axis=0)
            vectors = self.model(flat, training=True, dropout_seed=seed)
            sides[side] = tf.cast(vectors, tf.float32)
        documents = batch["document/input_word_ids"]
        num_documents = documents.shape[1]
        by_example = tf.reshape(sides["document"], [-1, num_documents, self.model.dimension])
        return sides["query"], by_example

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

    def loss_and_metric_sums(self, batch: Batch, outputs: Any) -> dict[str, WeightedSum]:
        """Not called: the loss is that of `batch_sums`."""
        raise NotImplementedError

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
