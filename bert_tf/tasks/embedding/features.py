"""Tokenizes texts to train on, to search or to compare, and packs them for the encoder."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from absl import logging

from bert_tf.checkpoints.embedding import EmbeddingConfig
from bert_tf.config.ranking_config import RetrieverConfig
from bert_tf.tasks.base.examples.contrastive_batches import ContrastiveDataset
from bert_tf.tasks.base.examples.known_texts import pair_keys, text_keys
from bert_tf.tasks.base.examples.mixed_batches import MixedDataset
from bert_tf.tasks.base.examples.rows import TokenizedDataset
from bert_tf.tasks.embedding import loss_names
from bert_tf.tasks.embedding.beir import Beir
from bert_tf.tasks.embedding.examples import EmbeddingExample
from bert_tf.tasks.embedding.packing import pack_text, prompt_length
from bert_tf.text.packing import PackedText
from bert_tf.text.tokenization import Tokenizer

SIDES = ("query", "document")


class TextPacker:
    """Packs texts of both sides; a repeated text becomes a single row.

    Attributes:
      prompts: the prompt of each side.
      prompt_lengths: the number of first tokens that the pooling skips, of each side.
    """

    def __init__(self, tokenizer: Tokenizer, embedding: EmbeddingConfig) -> None:
        self.tokenizer = tokenizer
        self.embedding = embedding
        self.prompts = {}
        self.prompt_lengths = {}
        for side in SIDES:
            prompt = embedding.side_prompt(side)
            self.prompts[side] = prompt
            self.prompt_lengths[side] = prompt_length(tokenizer, embedding, prompt)
        # By prompt and text: without prompts a text is the same row on both sides.
        self._row_of: dict[tuple[str, str], int] = {}
        self._packed: list[PackedText] = []
        self._prompt_length_of_row: list[int] = []
        self._is_query: list[int] = []

    def add(self, side: str, text: str) -> int:
        """Returns the index of a text's row, which is added if it is new."""
        # Queries and documents of late interaction differ in more than the prompt.
        prompt = self.prompts[side] if self.embedding.tokens is None else side
        key = (prompt, text)
        if key not in self._row_of:
            self._row_of[key] = len(self._packed)
            row = self.pack(side, text)
            self._packed.append(row)
            self._prompt_length_of_row.append(self.prompt_lengths[side])
            self._is_query.append(int(side == "query"))
        return self._row_of[key]

    def pack(self, side: str, text: str) -> PackedText:
        """Packs a text without adding it."""
        return pack_text(self.tokenizer, self.embedding, text, self.prompts[side], side)

    def rows(self) -> TokenizedDataset:
        """Returns all rows, with `prompt_lengths` if the pooling skips the tokens of a prompt.

        Those of late interaction have `is_query`.
        """
        labels = {}
        if any(self.prompt_lengths.values()):
            labels["prompt_lengths"] = np.array(self._prompt_length_of_row, np.int32)
        if self.embedding.tokens is not None:
            labels["is_query"] = np.array(self._is_query, np.int32)
        return TokenizedDataset(self._packed, labels, pad_id=self.tokenizer.vocab.pad_id)

    def text_numbers(self) -> np.ndarray:
        """Returns a number for each row, int64 [R]; rows of the same text have the same number.

        A text with the prompts of both sides has two rows. Batches without duplicates contain only
        one of them. Texts that the model cannot tell apart, because their rows have the same
        tokens, are the same text.
        """
        numbers: dict[str | tuple[int, ...], int] = {}
        number_of_row = []
        # A dict keeps the order in which its keys were added, which is that of the rows.
        for (_, text), row in zip(self._row_of, self._packed, strict=True):
            ids = tuple(row.ids)
            number = numbers.get(text, numbers.get(ids, len(numbers)))
            numbers[text] = numbers[ids] = number
            number_of_row.append(number)
        return np.array(number_of_row, np.int64)


class TrainingExamples(NamedTuple):
    """Packed examples to train on."""

    rows: ContrastiveDataset

    @property
    def texts_per_row(self) -> int:
        """Number of texts of an example: query, positive and negatives."""
        return 2 + self.rows.num_negatives

    @property
    def keys(self) -> np.ndarray:
        """Keys of the queries."""
        return text_keys(self.rows.rows)[self.rows.queries, 0]

    @property
    def train_keys(self) -> list[int]:
        """Keys of the queries, and of the pairs of query and positive."""
        pairs = zip(self.rows.queries, self.rows.positives, strict=True)
        return [*self.keys.tolist(), *pair_keys(text_keys(self.rows.rows)[:, 0], pairs)]


class RankingExamples(NamedTuple):
    """A collection in which documents are searched for queries."""

    query_rows: np.ndarray  # int64 [Q]
    document_rows: np.ndarray  # int64 [N]
    beir: Beir


class Collections(NamedTuple):
    """Collections by name; their texts are rows of one table."""

    rows: TokenizedDataset
    parts: dict[str, RankingExamples]
    is_labelled: bool = True

    @property
    def keys(self) -> np.ndarray:
        """Keys of the queries."""
        query_rows = np.concatenate([part.query_rows for part in self.parts.values()])
        return text_keys(self.rows)[query_rows, 0]


class ScoredExamples(NamedTuple):
    """Pairs of texts with their similarity."""

    rows: TokenizedDataset
    pairs: np.ndarray  # int64 [E, 2], rows
    scores: np.ndarray  # float64 [E]
    is_labelled: bool = True

    @property
    def keys(self) -> list[int]:
        """Keys of the pairs."""
        return pair_keys(text_keys(self.rows)[:, 0], self.pairs)


def _without_positives(
    numbers: np.ndarray, positives: Sequence[int], negatives: Sequence[Sequence[int]]
) -> list[list[int]]:
    """Returns the negatives that the model can tell from the positive, and logs the others."""
    kept = []
    for positive, group in zip(positives, negatives, strict=True):
        kept.append([row for row in group if numbers[row] != numbers[positive]])
    if left_out := sum(map(len, negatives)) - sum(map(len, kept)):
        logging.warning(
            "train: %d negatives are left out: they have the same tokens as their positive.",
            left_out,
        )
    return kept


def prepare_training(
    packer: TextPacker,
    examples: Sequence[EmbeddingExample],
    task: RetrieverConfig,
    has_dropout: bool,
) -> tuple[TrainingExamples, str]:
    """Chooses the loss and packs the examples to train on; returns them and its name."""
    loss = task.retrieval_loss or loss_names.natural_loss(examples)
    loss_names.check_examples(examples, loss)
    if task.learn_labels and not has_dropout:
        # Without the labels, single texts can learn from the teacher's embeddings.
        _check_single_texts(packer, examples)
    # A batch has room for `num_negatives` in every example: at most as many as any has.
    most = max(len(example.negatives) for example in examples)
    num_negatives = min(task.num_negatives, most)
    if loss in loss_names.OF_NEGATIVES and not num_negatives:
        raise ValueError(f"--num_negatives=0, but {loss} needs negatives.")
    # Rows are numbered in this order, which the digest of the data depends on.
    queries = [packer.add("query", example.query) for example in examples]
    positives = [packer.add("document", example.positive) for example in examples]
    negatives = []
    for example in examples:
        negatives.append([packer.add("document", text) for text in example.negatives])
    has_scores = bool(examples[0].scores)
    if not has_scores:  # A score belongs to each negative.
        negatives = _without_positives(packer.text_numbers(), positives, negatives)
    dataset = ContrastiveDataset(
        packer.rows(),
        packer.text_numbers(),
        np.array(queries, np.int64),
        np.array(positives, np.int64),
        negatives,
        [example.scores for example in examples] if has_scores else (),
        num_negatives,
        no_duplicates=loss in loss_names.NO_DUPLICATES,
        one_length=loss in loss_names.JOINT,
    )
    logging.info(
        "train: %d examples of a query, a positive and up to %d negatives, %d texts; loss %s.",
        len(examples),
        num_negatives,
        len(dataset.rows),
        loss,
    )
    return TrainingExamples(dataset), loss


def prepare_data_sets(
    packer: TextPacker,
    data_sets: Sequence[Sequence[EmbeddingExample]],
    task: RetrieverConfig,
    has_dropout: bool,
) -> tuple[TrainingExamples, list[str]]:
    """Packs each data set for its loss; returns them as one, and the names of the losses."""
    sets = []
    names = []
    for examples, name in zip(data_sets, task.losses_of(len(data_sets)), strict=True):
        set_task = dataclasses.replace(task, retrieval_loss=name)
        packed, loss = prepare_training(packer, examples, set_task, has_dropout)
        sets.append(packed.rows)
        names.append(loss)
    if len(sets) == 1:
        return packed, names
    return TrainingExamples(MixedDataset(sets, task.mixing or "proportional")), names


def _check_single_texts(packer: TextPacker, examples: Sequence[EmbeddingExample]) -> None:
    """Raises ValueError if most examples are single texts that have only one embedding.

    Query and positive of such an example would be identical, and the loss would teach nothing.
    """
    same = [example for example in examples if example.query == example.positive]
    # Two prompts would make two embeddings of a single text.
    if 2 * len(same) > len(examples) and len(set(packer.prompts.values())) == 1:
        raise ValueError(
            f"{same[0].source} is a single text, whose two embeddings differ only by dropout "
            "(SimCSE), but the model has none; give --hidden_dropout_prob=0.1."
        )


def make_collections(packer: TextPacker, collections: Mapping[str, Beir]) -> Collections:
    """Packs the queries and documents of collections."""
    parts = {}
    for name, beir in collections.items():
        queries = [packer.add("query", text) for text in beir.queries.values()]
        documents = [packer.add("document", text) for text in beir.documents.values()]
        parts[name] = RankingExamples(
            np.array(queries, np.int64), np.array(documents, np.int64), beir
        )
    return Collections(packer.rows(), parts)


def make_scored_examples(
    packer: TextPacker, examples: Sequence[EmbeddingExample]
) -> ScoredExamples:
    """Packs scored pairs; both texts are packed as queries, because similarity is symmetric."""
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
    pairs = []
    for example in examples:
        first = packer.add("query", example.query)
        second = packer.add("query", example.positive)
        pairs.append((first, second))
    scores = np.array([example.scores[0] for example in examples], np.float64)
    return ScoredExamples(packer.rows(), np.array(pairs, np.int64), scores)
