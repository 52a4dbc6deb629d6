"""Reranking: scores each document of a query, reading both together (BERT section 4.1).

Nogueira and Cho 2019, "Passage re-ranking with BERT".
"""

from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.fine_tuning.rows_task import RowsTask
from bert_tf.metrics.ranking import evaluate
from bert_tf.network.losses import WeightedSum
from bert_tf.tasks.reranking.features import RankingExamples
from bert_tf.tasks.reranking.losses import RankingLoss
from bert_tf.training.task import Batch

MEASURES = ("ndcg@10", "mrr@10", "map")


class RerankingTask(RowsTask):
    """A `BertReranker` with lists of documents.

    Args:
      arguments: of `RowsTask`.
      loss: name of the loss, see `RankingLoss`.
      pos_weight: see `RankingLoss`.
      k: see `RankingLoss`.
      keywords: of `RowsTask`.
    """

    sum_names = ("loss",)
    best_metric = "ndcg@10"

    def __init__(
        self, *arguments: Any, loss: str, pos_weight: float = 1.0, k: int = 0, **keywords: Any
    ) -> None:
        super().__init__(*arguments, **keywords)
        self.loss = RankingLoss(loss, pos_weight, k)

    def loss_weights(self, batch: Batch) -> dict[str, tf.Tensor]:
        """Returns the weight of the batch, float32 [], which the scores do not change."""
        return {"loss": self.loss.weight(batch["list_labels"], batch["list_mask"])}

    def loss_and_metric_sums(self, batch: Batch, outputs: Any) -> dict[str, WeightedSum]:
        """Returns the loss."""
        return {"loss": self.loss(outputs, batch["list_labels"], batch["list_mask"])}

    def predictions(self, batch: Batch, outputs: Any) -> dict[str, tf.Tensor]:
        """Returns the score of each document."""
        return {"logits": outputs[:, 0]}

    def metrics(self, examples: RankingExamples, outputs: Any) -> dict[str, float]:
        """Returns the loss and the measures, means over the queries.

        The loss is that of training, over all documents of each query: margin_mse takes the margins
        from the first relevant one; where a file has no scores, its labels are used. A grade above
        1 counts as 1 in bce.
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
            name = self.loss.name
            values = example.labels if name in ("bce", "lambda") else example.scores
            values = values or example.labels
            if name == "bce":  # Training refuses other labels.
                values = tuple(np.clip(values, 0, 1))
            own = [next(scores) for _ in example.documents]
            # Margins are from the first one.
            order = np.argsort(-np.array(example.labels), kind="stable")
            count = len(order)
            table[:, number, :count] = np.array([own, values, np.ones(count)])[:, order]
        found = self.loss(*table)
        return float(found.total / tf.maximum(found.weight, 1.0))
