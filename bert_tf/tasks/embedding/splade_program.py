"""The program of sparse retrievers: `Retriever` with SPLADE's model, loss and measures."""

import pathlib
from typing import Any

from absl import logging

from bert_tf.checkpoints.checkpoint import Checkpoint
from bert_tf.checkpoints.embedding import EmbeddingConfig
from bert_tf.checkpoints.hub import record_of
from bert_tf.checkpoints.run_record import recorded
from bert_tf.checkpoints.sentence_transformers import splade_length
from bert_tf.config import DataConfig, ModelConfig, config_flags
from bert_tf.config.ranking_config import RetrieverConfig
from bert_tf.tasks.embedding import losses
from bert_tf.tasks.embedding.program import Retriever
from bert_tf.tasks.embedding.splade_model import BertSplade, check_head
from bert_tf.tasks.embedding.splade_task import SpladeTask


class SparseRetriever(Retriever):
    """See `Program`."""

    task_class = SpladeTask
    head = "masked_lm"
    default_scale = 1.0  # Dot products need no factor.
    refused_losses = ("cosent", "cosine")
    plot_titles = Retriever.plot_titles | {
        "pieces_per_query": "weighted tokens per query",
        "pieces_per_document": "weighted tokens per document",
    }

    def receive_weights(self, weights: Checkpoint | None) -> None:
        """Checks that there is an MLM head, and sets the maximum length of texts."""
        data = self.configs.data
        longest = self.configs.model.longest_row
        if weights is None:
            # A resumed run.
            stated = int(recorded(self.configs.training.output_dir, "max_seq_length") or 0)
        else:
            check_head(weights)
            stated = splade_length(record_of(weights.source), longest)
        is_given = "max_seq_length" in config_flags.given(DataConfig)
        length = min(data.max_seq_length if is_given or not stated else stated, longest)
        self.embedding = EmbeddingConfig(max_seq_length=length, similarity="dot")
        self.set_length(length)
        logging.info(
            "SPLADE: weights of %s tokens, texts up to %d tokens, compared by dot products.",
            f"{self.configs.model.vocab_size:,}",
            length,
        )

    def write_record(self, folder: pathlib.Path) -> None:
        """Writes nothing: the checkpoint is that of a model with an MLM head."""

    def make_model(self, config: ModelConfig, **options: Any) -> Any:
        """Creates the model."""
        return BertSplade(config, **options)

    def make_loss(self, model: Any) -> losses.Loss:
        """Returns the loss with the regularizers, which make the weights sparse."""
        task: RetrieverConfig = self.configs.task
        loss = losses.make_losses(task, "dot")[self.loss_name]
        return losses.sparse(loss, task.query_regularizer, task.document_regularizer)
