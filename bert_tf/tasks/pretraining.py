"""Pre-training: masked language model and next-sentence prediction (BERT sections 3.1)."""

import functools
from typing import Any, cast

import numpy as np
import tensorflow as tf

from bert_tf.config import DataConfig, MaskingConfig
from bert_tf.data.pipeline import evaluation_dataset, pretraining_dataset
from bert_tf.data.tfrecords import RecordFiles
from bert_tf.modeling.losses import WeightedSum, accuracy, cross_entropy
from bert_tf.modeling.models import BertPretrainer
from bert_tf.text.tokenization import AnyVocab
from bert_tf.training.task import Batch


class PretrainingTask:
    """A `BertPretrainer` with its records, as the trainer wants a task (`training/task.py`).

    Args:
      model: the network with its heads.
      train_records, eval_records: unmasked or statically masked examples; either may be None
        if it is not used.
      vocab: the vocabulary of the records.
      data, masking: how examples are read and masked.
    """

    def __init__(
        self,
        model: BertPretrainer,
        train_records: RecordFiles | None,
        eval_records: RecordFiles | None,
        vocab: AnyVocab,
        data: DataConfig,
        masking: MaskingConfig,
    ) -> None:
        self.model = model
        self.train_records = train_records
        self.eval_records = eval_records
        self.use_next_sentence = data.use_next_sentence
        self.loss_names: tuple[str, ...] = ("masked_lm_loss",)
        self.sum_names: tuple[str, ...] = ("masked_lm_loss", "masked_lm_accuracy")
        if self.use_next_sentence:
            self.loss_names += ("next_sentence_loss",)
            self.sum_names += ("next_sentence_loss", "next_sentence_accuracy")
        self._dataset_options: dict[str, Any] = {
            "vocab": vocab,
            "masking": masking,
            "max_seq_length": data.max_seq_length,
            "seed": data.random_seed,
            "use_next_sentence": data.use_next_sentence,
        }

    def train_dataset(
        self, batch_size: int, start_step: int, worker_index: int, num_workers: int
    ) -> tf.data.Dataset:
        """Batches of `PretrainingBatch`; see `training.task.Task`."""
        return pretraining_dataset(
            cast(RecordFiles, self.train_records),
            batch_size=batch_size,
            start_step=start_step,
            worker_index=worker_index,
            num_workers=num_workers,
            **self._dataset_options,
        )

    def eval_dataset(
        self, batch_size: int, max_steps: int, worker_index: int, num_workers: int
    ) -> tf.data.Dataset:
        """The first `max_steps` batches in file order, with the same masks every time."""
        return evaluation_dataset(
            cast(RecordFiles, self.eval_records),
            batch_size=batch_size,
            max_steps=max_steps,
            worker_index=worker_index,
            num_workers=num_workers,
            **self._dataset_options,
        )

    def loss_weights(self, batch: Batch) -> dict[str, tf.Tensor]:
        """Returns how many predictions of each kind the batch holds."""
        weights = {"masked_lm_loss": tf.reduce_sum(batch["masked_lm_weights"])}
        if self.use_next_sentence:
            weights["next_sentence_loss"] = tf.reduce_sum(batch["next_sentence_weights"])
        return weights

    def score(self, results: dict[str, float]) -> float:
        """The lower the loss, the better."""
        return -results["loss"]

    def sums(self, batch: Batch, outputs: Any) -> dict[str, WeightedSum]:
        """Returns summed losses and correct predictions, with their numbers."""
        masked = (outputs["masked_lm_logits"], batch["masked_lm_ids"], batch["masked_lm_weights"])
        sums = {
            "masked_lm_loss": cross_entropy(*masked),
            "masked_lm_accuracy": accuracy(*masked),
        }
        if self.use_next_sentence:
            pair = (
                outputs["next_sentence_logits"],
                batch["next_sentence_labels"],
                batch["next_sentence_weights"],
            )
            sums["next_sentence_loss"] = cross_entropy(*pair)
            sums["next_sentence_accuracy"] = accuracy(*pair)
        return sums

    def unigram_baseline(
        self, vocab_size: int, eval_batch_size: int, max_eval_steps: int, train_steps: int = 200
    ) -> dict[str, float]:
        """Returns what a model that looks at nothing reaches on the evaluation batches.

        It predicts each masked piece from the frequencies of the masked pieces of `train_steps`
        training batches of 64 (one added to every count); NSP is a coin.

        Returns:
          masked_lm_loss (nats), masked_lm_accuracy (always the commonest piece), and, with
          NSP, next_sentence_loss and next_sentence_accuracy.
        """
        train = self.train_dataset(64, 0, 0, 1).take(train_steps)
        counts = target_counts(train, vocab_size) + 1.0
        held_out = target_counts(
            self.eval_dataset(eval_batch_size, max_eval_steps, 0, 1), vocab_size
        )
        total = held_out.sum()
        results = {
            "masked_lm_loss": float(-(held_out * np.log(counts / counts.sum())).sum() / total),
            "masked_lm_accuracy": float(held_out[counts.argmax()] / total),
        }
        if self.use_next_sentence:
            results |= {"next_sentence_loss": float(np.log(2.0)), "next_sentence_accuracy": 0.5}
        return results


def target_counts(dataset: tf.data.Dataset, vocab_size: int) -> np.ndarray:
    """Counts the pieces to be predicted in every batch: float64 [V]."""

    def count(batch: Batch) -> np.ndarray:
        ids, weights = batch["masked_lm_ids"].numpy(), batch["masked_lm_weights"].numpy()
        return np.bincount(ids.ravel(), weights.ravel(), minlength=vocab_size)

    return functools.reduce(np.add, map(count, dataset), np.zeros([vocab_size]))
