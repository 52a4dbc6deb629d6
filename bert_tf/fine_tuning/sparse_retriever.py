"""Sparse embeddings as a program: `Retriever` with SPLADE's model, loss and measures."""

import dataclasses
import pathlib
from typing import Any

from absl import logging

from bert_tf import config_flags
from bert_tf.checkpoints.checkpoint import Checkpoint
from bert_tf.checkpoints.embedding import EmbeddingConfig
from bert_tf.config import ModelConfig
from bert_tf.fine_tuning.program import RowsTaskData
from bert_tf.fine_tuning.retriever import IN_BATCH, Retriever, make_losses
from bert_tf.fine_tuning_config import RetrieverConfig
from bert_tf.modeling import embedding_losses as losses
from bert_tf.modeling.splade import BertSplade, check_head
from bert_tf.tasks.embedding import RankingExamples
from bert_tf.tasks.splade import SpladeTask

REFUSED = ("embedding_pooling", "query_prompt", "document_prompt", "matryoshka_dims", "teacher")


class SparseRetriever(Retriever):
    """See `Program`."""

    head = "masked_lm"
    panels = Retriever.panels | {
        "pieces_per_query": "pieces a query weighs",
        "pieces_per_document": "pieces a document weighs",
    }

    def begin_from(self, weights: Checkpoint | None) -> None:
        """Checks that there is an MLM head, and takes the length of texts."""
        for name in REFUSED:
            if getattr(self.configs.task, name):
                raise ValueError(f"--{name} is for dense embeddings; leave it out with splade.")
        if weights is not None:
            check_head(weights)
        data = self.configs.data
        length = min(data.max_seq_length, self.configs.model.longest_row)
        self.embedding = EmbeddingConfig(max_seq_length=length, similarity="dot")
        self.configs = self.configs._replace(data=dataclasses.replace(data, max_seq_length=length))
        logging.info(
            "SPLADE: weights of %s pieces, texts up to %d pieces, compared by dot products.",
            *(f"{self.configs.model.vocab_size:,}", length),
        )

    def write_record(self, folder: pathlib.Path) -> None:
        """Nothing: the model is one with an MLM head."""

    def make_task(
        self, config: ModelConfig, labels: tuple[str, ...], data: RowsTaskData, **options: Any
    ) -> SpladeTask:
        """Makes the model and its task."""
        if self.configs.training.do_train and self.configs.training.pack_rows:
            raise ValueError("--pack_rows is not for embeddings; leave it out.")
        is_trained = "train" in self.files
        is_ranked = isinstance(data[1], RankingExamples)
        return SpladeTask(
            BertSplade(config, **options),
            *data,
            loss=make_sparse_loss(self.loss_name, self.configs.task) if is_trained else None,
            is_ranking=is_trained and self.loss_name in IN_BATCH,
            best_metric="ndcg@10" if is_ranked else "spearman",
            ignore_identical_ids=self.configs.task.ignore_identical_ids,
        )


def make_sparse_loss(name: str, task: RetrieverConfig) -> losses.Loss:
    """Returns the loss of a name with the regularizer.

    Dot products need no factor: it is 1 unless --loss_scale_factor is given.
    """
    if "loss_scale_factor" not in config_flags.given(RetrieverConfig):
        task = dataclasses.replace(task, loss_scale_factor=1.0)
    loss = make_losses(task, "dot")[name]
    return losses.sparse(loss, task.query_regularizer, task.document_regularizer)
