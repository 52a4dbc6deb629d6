"""Reranking: scores each document of a query, reading both together (BERT section 4.1).

Nogueira and Cho 2019, "Passage re-ranking with BERT".
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from bert_tf.examples.rows import TokenizedDataset
from bert_tf.fine_tuning.rows_task import RowsTask
from bert_tf.fine_tuning_config import POINTWISE_LOSSES
from bert_tf.metrics.ranking import evaluate
from bert_tf.network.losses import WeightedSum
from bert_tf.tasks.reranking import losses as ranking_losses
from bert_tf.tasks.reranking.examples import RankingExample
from bert_tf.text.packing import pack_pair
from bert_tf.text.tokenization import Tokenizer
from bert_tf.training.task import Batch

OF_SCORES = ("mse", "margin_mse")  # need a teacher's
MEASURES = ("ndcg@10", "mrr@10", "map")


class RankingExamples(NamedTuple):
    """Examples with their rows.

    Of examples to judge a row is one document, query by query in their order.
    """

    examples: list[RankingExample]
    rows: TokenizedDataset
    is_labelled: bool = True


def judged_examples(
    examples: list[RankingExample], tokenizer: Tokenizer, max_seq_length: int
) -> RankingExamples:
    """Packs each document behind its query: [CLS] query [SEP] document [SEP]."""
    encode = functools.cache(tokenizer.encode)
    texts = [
        pack_pair(tokenizer.vocab, encode(example.query), encode(text), max_seq_length)
        for example in examples
        for text in example.documents
    ]
    rows = TokenizedDataset(texts, num_choices=1, pad_id=tokenizer.vocab.pad_id)
    return RankingExamples(examples, rows, all(example.grades for example in examples))


def training_rows(
    examples: Sequence[RankingExample],
    tokenizer: Tokenizer,
    max_seq_length: int,
    loss: str,
    list_size: int,
) -> TokenizedDataset:
    """Returns rows of lists: L documents of a query, or of `POINTWISE_LOSSES` one.

    A longer list loses its end, the relevant documents standing first; one that is shorter is
    filled with rows that weigh nothing. Of margin_mse a list has one relevant document, so that
    there is a list for each.

    Raises:
      ValueError: naming the example, if it lacks what the loss needs.
    """
    if loss not in POINTWISE_LOSSES and list_size < 2:
        raise ValueError(
            f"--list_size={list_size}: --ranking_loss={loss} compares documents; give 2 or more."
        )
    lists = [part for example in examples for part in _lists(example, loss, list_size)]
    if not lists:
        raise ValueError("No query has a document to train on; check the training file.")
    length = max(len(part) for part in lists)
    encode, vocab = functools.cache(tokenizer.encode), tokenizer.vocab
    empty = pack_pair(vocab, [], [], max_seq_length)
    texts, shape = [], (len(lists), length)
    labels, mask = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
    for number, part in enumerate(lists):
        for place, (query, text, label) in enumerate(part):
            texts.append(pack_pair(vocab, encode(query), encode(text), max_seq_length))
            labels[number, place], mask[number, place] = label, 1.0
        texts += [empty] * (length - len(part))
    columns = {"list_labels": labels, "list_mask": mask}
    return TokenizedDataset(texts, columns, num_choices=length, pad_id=vocab.pad_id)


def _lists(example: RankingExample, loss: str, list_size: int) -> list[list[tuple]]:
    """Returns lists of (query, document, label) of an example."""
    values = example.labels if loss in ("bce", "lambda") else example.scores or example.labels
    if loss in OF_SCORES and not example.scores:
        raise ValueError(
            f"{example.source} has no scores, which --ranking_loss={loss} learns; give a teacher's "
            "for each document, or another loss."
        )
    if loss == "bce" and not all(0 <= value <= 1 for value in values):
        raise ValueError(
            f"{example.source} has the labels {list(values)[:10]}; bce needs them between 0 and 1. "
            "Divide grades by the highest one, or use --ranking_loss=lambda."
        )
    every = list(zip(example.documents, example.labels, values, strict=True))
    relevant = [(example.query, text, value) for text, label, value in every if label > 0]
    others = [(example.query, text, value) for text, label, value in every if label <= 0]
    if loss in POINTWISE_LOSSES:
        return [[pair] for pair in relevant + others]
    if loss == "margin_mse":
        return [[first, *others[: list_size - 1]] for first in relevant if others]
    both = (relevant + others)[:list_size]
    return [both] if len(both) > 1 else []


class RerankingTask(RowsTask):
    """A `BertMultipleChoice` whose choices are the documents of a query.

    Arguments after those of `RowsTask`:

    Args:
      loss: bce, mse, margin_mse, listnet or lambda.
      pos_weight: of bce.
      k: of lambda. The total is divided by all pairs of unequal labels, whichever k: the weight of
        a batch is known before its scores are.
    """

    sum_names = ("loss",)
    best_metric = "ndcg@10"

    def __init__(
        self, *arguments: Any, loss: str, pos_weight: float = 1.0, k: int = 0, **keywords: Any
    ) -> None:
        super().__init__(*arguments, **keywords)
        known: dict[str, Callable[..., Any]] = {
            "bce": functools.partial(ranking_losses.binary_losses, pos_weight=pos_weight),
            "mse": ranking_losses.squared_losses,
            "margin_mse": ranking_losses.margin_losses,
            "listnet": ranking_losses.list_losses,
            "lambda": functools.partial(ranking_losses.lambda_losses, k=k),
        }
        self.loss, self._losses = loss, known[loss]

    def loss_weights(self, batch: Batch) -> dict[str, tf.Tensor]:
        """Returns the documents, margins, lists or pairs of the batch: float32 []."""
        labels, mask = batch["list_labels"], batch["list_mask"]
        if self.loss == "lambda":
            return {"loss": tf.reduce_sum(ranking_losses.pair_counts(labels, mask))}
        _, weights = self._losses(tf.zeros_like(labels), labels, mask)
        return {"loss": tf.reduce_sum(weights)}

    def loss_and_metric_sums(self, batch: Batch, outputs: Any) -> dict[str, WeightedSum]:
        """Returns the loss."""
        totals, _ = self._losses(outputs, batch["list_labels"], batch["list_mask"])
        return {"loss": WeightedSum(tf.reduce_sum(totals), self.loss_weights(batch)["loss"])}

    def predictions(self, batch: Batch, outputs: Any) -> dict[str, tf.Tensor]:
        """Returns the score of each document."""
        return {"logits": outputs[:, 0]}

    def metrics(self, examples: RankingExamples, outputs: Any) -> dict[str, float]:
        """Returns the loss and the measures, means over the queries.

        The loss is that of training, but of all documents of each query: of margin_mse the margins
        from its first relevant one; where a file has no scores, of its labels. To bce a grade above
        1 is 1.
        """
        found = evaluate(self.run(examples, outputs), self.qrels(examples), MEASURES)
        return {"loss": self._loss(examples, outputs), **found}

    def run(self, examples: RankingExamples, outputs: Any) -> dict[str, dict[str, float]]:
        """Returns the scores by query and document id."""
        scores = iter(outputs["logits"])
        return {
            example.query_id: {name: float(next(scores)) for name in example.document_ids}
            for example in examples.examples
        }

    def qrels(self, examples: RankingExamples) -> dict[str, dict[str, Any]]:
        """Returns the grades by query and document id."""
        return {example.query_id: example.grades for example in examples.examples}

    def _loss(self, examples: RankingExamples, outputs: Any) -> float:
        lists = [example for example in examples.examples if example.documents]
        longest = max((len(example.documents) for example in lists), default=1)
        table = np.zeros([3, len(lists), longest], np.float32)
        scores = iter(outputs["logits"])
        for number, example in enumerate(lists):
            values = example.labels if self.loss in ("bce", "lambda") else example.scores
            values = values or example.labels
            if self.loss == "bce":  # In training others are refused.
                values = tuple(np.clip(values, 0, 1))
            own = [next(scores) for _ in example.documents]
            # Margins are from the first one.
            order = np.argsort(-np.array(example.labels), kind="stable")
            count = len(order)
            table[:, number, :count] = np.array([own, values, np.ones(count)])[:, order]
        totals, weights = self._losses(*table)
        if self.loss == "lambda":  # As in training, whichever k.
            weights = ranking_losses.pair_counts(*table[1:])
        return float(tf.reduce_sum(totals) / tf.maximum(tf.reduce_sum(weights), 1.0))
