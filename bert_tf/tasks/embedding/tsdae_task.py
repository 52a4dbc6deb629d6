"""The task of denoising: trained to reconstruct texts, evaluated as any embedder."""

from typing import Any

import tensorflow as tf

from bert_tf.corpus.mapping import InputShard
from bert_tf.network.losses import WeightedSum, accuracy, cross_entropy
from bert_tf.tasks.embedding.task import EmbeddingTask
from bert_tf.tasks.embedding.tsdae_noise import WHOLE, DamagedTexts, damaged_batches
from bert_tf.training.task import Batch
from bert_tf.training.train_step import TrainStep


class DenoisingTask(EmbeddingTask):
    """Trains and evaluates a `BertDenoiser`."""

    # The loss is a mean over tokens, so that parts of a batch can be computed separately. In-batch
    # losses need `CachedStep`.
    step_class = TrainStep  # type: ignore[assignment]

    def __init__(
        self, model: Any, train_texts: DamagedTexts | None, *data: Any, **options: Any
    ) -> None:
        super().__init__(model, None, *data, is_ranking=False, **options)
        self.train_texts = train_texts
        self.sum_names = ("loss", "accuracy")

    def train_dataset(self, batch_size: int, start_step: int, shard: InputShard) -> tf.data.Dataset:
        """Returns batches of `DamagedTexts.batch`."""
        if self.train_texts is None:
            raise ValueError("There are no training examples; give --train_file.")
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
