"""Makes the encoder's rows of texts that are trained on, searched or compared."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from absl import logging

from bert_tf.checkpoints.embedding import EmbeddingConfig
from bert_tf.examples.contrastive_batches import ContrastiveDataset
from bert_tf.examples.rows import TokenizedDataset
from bert_tf.fine_tuning_config import RetrieverConfig
from bert_tf.tasks.embedding.beir import Beir
from bert_tf.tasks.embedding.examples import EmbeddingExample
from bert_tf.tasks.embedding.losses import (
    JOINT,
    NO_DUPLICATES,
    OF_NEGATIVES,
    check_examples,
    natural_loss,
)
from bert_tf.tasks.embedding.packing import pack_text, prompt_pieces
from bert_tf.text.packing import PackedText
from bert_tf.text.tokenization import Tokenizer

SIDES = ("query", "document")


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
        self._row_of: dict[tuple[str, str], int] = {}
        self._packed: list[PackedText] = []
        self._prompt_tokens: list[int] = []
        self.num_cut = 0

    def add(self, side: str, text: str) -> int:
        """Returns the row of a text."""
        prompt = self.prompts[side]
        key = (prompt, text)
        if key not in self._row_of:
            self._row_of[key] = len(self._packed)
            row = self.pack(side, text)
            self.num_cut += len(row.ids) == self.embedding.max_seq_length
            self._packed.append(row)
            self._prompt_tokens.append(self.skipped[side])
        return self._row_of[key]

    def pack(self, side: str, text: str) -> PackedText:
        """Packs a text, which is not kept."""
        return pack_text(self.tokenizer, self.embedding, text, self.prompts[side])

    def rows(self) -> TokenizedDataset:
        """Returns all rows, with `prompt_pieces` if the pooling leaves any token out."""
        labels = {}
        if any(self.skipped.values()):
            labels["prompt_pieces"] = np.array(self._prompt_tokens, np.int32)
        return TokenizedDataset(self._packed, labels, pad_id=self.tokenizer.vocab.pad_id)

    def text_numbers(self) -> np.ndarray:
        """Returns a number for each row, the same for rows of one text."""
        numbers: dict[str, int] = {}
        return np.array(
            [numbers.setdefault(text, len(numbers)) for _, text in self._row_of], np.int64
        )


class TrainingExamples(NamedTuple):
    """Packed examples to train on."""

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
    one_length: bool = False,
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
        one_length,
    )
    return TrainingExamples(groups, packer.num_cut)


def prepare_training(
    packer: TextPacker,
    examples: Sequence[EmbeddingExample],
    task: RetrieverConfig,
    has_dropout: bool,
) -> tuple[TrainingExamples, str]:
    """Chooses the loss and packs the examples to train on.

    Args:
      packer: of the model.
      examples: as read.
      task: the loss and its settings, as flags name them.
      has_dropout: whether the model has any.

    Returns:
      The packed examples and the name of the loss.

    Raises:
      ValueError: naming an example that lacks what the loss needs.
    """
    loss = task.retrieval_loss or natural_loss(examples)
    check_examples(examples, loss)
    if task.learn_labels and not has_dropout:  # Otherwise the teacher's embedding is learned.
        _check_single_texts(packer, examples)
    most = max(len(example.negatives) for example in examples)
    count = min(task.num_negatives, most)
    if loss in OF_NEGATIVES and not count:
        raise ValueError(f"--num_negatives=0, but {loss} needs negatives.")
    made = make_training_examples(
        packer,
        examples,
        count,
        no_duplicates=loss in NO_DUPLICATES,
        one_length=loss in JOINT,
    )
    logging.info(
        "train: %d examples of a query, a positive and up to %d negatives, %d texts (%d cut to %d "
        "tokens); loss %s.",
        len(examples),
        count,
        len(made.rows.rows),
        made.num_cut,
        packer.embedding.max_seq_length,
        loss,
    )
    return made, loss


def _check_single_texts(packer: TextPacker, examples: Sequence[EmbeddingExample]) -> None:
    """Raises ValueError if most examples are single texts with a single embedding each."""
    same = [example for example in examples if example.query == example.positive]
    if 2 * len(same) > len(examples) and len(set(packer.prompts.values())) == 1:
        raise ValueError(
            f"{same[0].source} is a single text, whose two embeddings differ only by dropout "
            "(SimCSE), but the model has none; give --hidden_dropout_prob=0.1."
        )


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
