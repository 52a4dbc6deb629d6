"""The task of reranking: scores each document of a query, reading both together.

Reference: Nogueira and Cho 2019, "Passage re-ranking with BERT".
"""

from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.metrics.ranking import evaluate
from bert_tf.network.losses import WeightedSum
from bert_tf.tasks.base.programs.rows_task import CollectedOutputs, RowsTask
from bert_tf.tasks.reranking.features import RankingExamples
from bert_tf.tasks.reranking.losses import RankingLoss
from bert_tf.training.task import Batch

MEASURES = ("ndcg@10", "mrr@10", "map")


class RerankingTask(RowsTask):
    """Trains and evaluates a `BertReranker` on lists of documents; see `RankingLoss`."""

    sum_names = ("loss",)
    best_metric = "ndcg@10"

    def __init__(
        self, *arguments: Any, loss: str, pos_weight: float = 1.0, k: int = 0, **keywords: Any
    ) -> None:
        super().__init__(*arguments, **keywords)
        self.loss = RankingLoss(loss, pos_weight, k)

    def loss_weights(self, batch: Batch) -> dict[str, tf.Tensor]:
        """Returns the weight of the batch, float32 [], which does not depend on the scores."""
        return {"loss": self.loss.weight(batch["list_labels"], batch["list_mask"])}

    def loss_and_metric_sums(self, batch: Batch, outputs: Any) -> dict[str, WeightedSum]:
        """Returns the loss."""
        return {"loss": self.loss(outputs, batch["list_labels"], batch["list_mask"])}

    def predictions(self, batch: Batch, outputs: Any) -> dict[str, tf.Tensor]:
        """Returns the score of each document, [B]."""
        return {"logits": outputs[:, 0]}

    def metrics(self, examples: RankingExamples, outputs: CollectedOutputs) -> dict[str, float]:
        """Returns the loss, and the means of the measures over the queries.

        The loss is the training loss over all documents of each query. For margin_mse, margins are
        relative to the first relevant document. If the file has no scores, its labels are used. In
        bce, a grade above 1 counts as 1.
        """
        measures = evaluate(self.run(examples, outputs), self.qrels(examples), MEASURES)
        return {"loss": self._loss(examples, outputs), **measures}

    def run(
        self, examples: RankingExamples, outputs: CollectedOutputs
    ) -> dict[str, dict[str, float]]:
        """Returns the scores by query and document id."""
        # One score per row, and the rows are in the order of the queries and their documents.
        scores = iter(outputs["logits"])
        run = {}
        for example in examples.examples:
            run[example.query_id] = {name: float(next(scores)) for name in example.document_ids}
        return run

    def qrels(self, examples: RankingExamples) -> dict[str, dict[str, Any]]:
        """Returns the grades by query and document id."""
        return {example.query_id: example.grades for example in examples.examples}

    def _loss(self, examples: RankingExamples, outputs: CollectedOutputs) -> float:
        """Returns the training loss of evaluated lists of any length."""
        lists = [example for example in examples.examples if example.documents]
        longest = max((len(example.documents) for example in lists), default=1)
        shape = (len(lists), longest)
        logits = np.zeros(shape, np.float32)
        labels = np.zeros(shape, np.float32)
        mask = np.zeros(shape, np.float32)
        scores = iter(outputs["logits"])
        for number, example in enumerate(lists):
            name = self.loss.name
            values = example.labels if name in ("bce", "lambda") else example.scores
            values = values or example.labels
            if name == "bce":
                # Training rejects labels above 1, but files to evaluate may have grades.
                values = tuple(np.clip(values, 0, 1))
            list_scores = [next(scores) for _ in example.documents]
            # As in training, relevant documents come first: margin_mse compares with the first.
            order = np.argsort(-np.array(example.labels), kind="stable")
            count = len(order)
            logits[number, :count] = np.array(list_scores)[order]
            labels[number, :count] = np.array(values)[order]
            mask[number, :count] = 1.0
        loss = self.loss(logits, labels, mask)
        return float(loss.total / tf.maximum(loss.weight, 1.0))
