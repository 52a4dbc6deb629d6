"""Denoising texts as a task: trained to reconstruct them, judged as any embedder is."""

from typing import Any

import tensorflow as tf

from bert_tf.corpus.input_shard import InputShard
from bert_tf.network.losses import WeightedSum, accuracy, cross_entropy
from bert_tf.tasks.embedding.task import EmbeddingTask
from bert_tf.tasks.embedding.tsdae_noise import WHOLE, DamagedTexts, damaged_batches
from bert_tf.training.task import Batch
from bert_tf.training.train_step import TrainStep


class DenoisingTask(EmbeddingTask):
    """An `EmbeddingTask` with a `BertDenoiser`.

    The loss is a mean over all pieces of the batch, so it is summed up row by row.

    Args:
      model: a `BertDenoiser`.
      train_texts: None if nothing is trained.
      data: the other arguments of `RowsTask`.
      options: those of `EmbeddingTask`.
    """

    step_class = TrainStep  # type: ignore[assignment]

    def __init__(
        self, model: Any, train_texts: DamagedTexts | None, *data: Any, **options: Any
    ) -> None:
        super().__init__(model, None, *data, is_ranking=False, **options)
        self.train_texts = train_texts
        self.sum_names = ("loss", "accuracy")

    def train_dataset(
        self, batch_size: int, start_step: int, worker_index: int, num_workers: int
    ) -> tf.data.Dataset:
        """Batches of `DamagedTexts.batch`."""
        if self.train_texts is None:
            raise ValueError("There are no training examples.")
        shares = InputShard(worker_index, num_workers)
        return damaged_batches(
            self.train_texts, batch_size, start_step, self.seed, self.buckets, shares
        )

    def loss_weights(self, batch: Batch) -> dict[str, tf.Tensor]:
        """Returns the number of pieces to write: float32 []."""
        written = batch[f"{WHOLE}input_mask"][:, 1:]
        return {"loss": tf.reduce_sum(tf.cast(written, tf.float32))}

    def loss_and_metric_sums(self, batch: Batch, outputs: Any) -> dict[str, WeightedSum]:
        """Returns the cross-entropy of the pieces, and how many were the likeliest."""
        parts = outputs["logits"], outputs["labels"], outputs["weights"]
        return {"loss": cross_entropy(*parts), "accuracy": accuracy(*parts)}
