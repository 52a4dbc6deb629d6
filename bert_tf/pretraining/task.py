"""Pre-training: masked language model and next-sentence prediction (BERT sections 3.1)."""

import math
from collections.abc import Iterable
from typing import Any, cast

import tensorflow as tf

from bert_tf.config import DataConfig, MaskingConfig
from bert_tf.corpus.mapping import ALL, InputShard
from bert_tf.corpus.pipeline import MaskedBatches
from bert_tf.corpus.tfrecords import RecordFiles
from bert_tf.network.losses import WeightedSum
from bert_tf.pretraining.masked_words.model import BertPretrainer
from bert_tf.system.type_names import Batch, Outputs
from bert_tf.text.tokenization import AnyVocab


class PretrainingTask:
    """A `BertPretrainer` or `ElectraPretrainer` with its records: a task of `training/task.py`.

    Args:
      model: the network with its heads.
      train_records, eval_records: unmasked or statically masked examples; None if not used.
      data, masking: how examples are read and masked.
      num_train_steps: number of steps of the run, for a share of masks that changes in it.
    """

    def __init__(
        self,
        model: BertPretrainer,
        train_records: RecordFiles | None,
        eval_records: RecordFiles | None,
        vocab: AnyVocab,
        data: DataConfig,
        masking: MaskingConfig,
        num_train_steps: int = 0,
    ) -> None:
        self.model = model
        self.train_records = train_records
        self.eval_records = eval_records
        # Steps are counted from 0.
        self._last_step = num_train_steps - 1
        self.objectives = model.objectives
        self.loss_names = model.loss_names
        self.sum_names = tuple(union(objective.plot_titles for objective in self.objectives))
        self._dataset_options: dict[str, Any] = {
            "vocab": vocab,
            "masking": masking,
            "max_seq_length": data.max_seq_length,
            "seed": data.random_seed,
            "use_next_sentence": data.use_next_sentence,
            # An objective may draw its own masks; the first that does decides.
            "mask": next((o.mask_batch for o in self.objectives if o.mask_batch), None),
        }

    def train_dataset(self, batch_size: int, start_step: int, shard: InputShard) -> tf.data.Dataset:
        """Returns the training batches; see `training.task.Task`."""
        batches = MaskedBatches(cast(RecordFiles, self.train_records), **self._dataset_options)
        return batches.training(batch_size, start_step, shard=shard, last_step=self._last_step)

    def eval_dataset(self, batch_size: int, max_steps: int, shard: InputShard) -> tf.data.Dataset:
        """Returns the first `max_steps` batches in file order, with the same masks every time."""
        batches = MaskedBatches(cast(RecordFiles, self.eval_records), **self._dataset_options)
        return batches.evaluation(batch_size, max_steps, shard)

    def loss_weights(self, batch: Batch) -> dict[str, tf.Tensor]:
        """Returns how many predictions of each kind the batch holds."""
        return union(objective.loss_weights(batch) for objective in self.objectives)

    def score(self, results: dict[str, float]) -> float:
        """Returns the negative loss, so that higher is better; -inf if it is not finite."""
        if math.isfinite(results["loss"]):
            return -results["loss"]
        return -math.inf

    def loss_and_metric_sums(self, batch: Batch, outputs: Outputs) -> dict[str, WeightedSum]:
        """Returns summed losses and correct predictions, with their numbers."""
        return self.model.loss_and_metric_sums(batch, outputs)

    @property
    def plot_titles(self) -> dict[str, str]:
        """Titles of the sums in plots."""
        return union(objective.plot_titles for objective in self.objectives)

    def baseline(
        self, eval_batch_size: int, max_eval_steps: int, train_steps: int = 200
    ) -> dict[str, float]:
        """Returns the evaluation results of a guess that does not see the inputs.

        It knows `train_steps` training batches of 64; see `Objective.baseline`.
        """
        # A fixed batch size, so that the baseline does not depend on that of the run.
        train = self.train_dataset(64, 0, ALL).take(train_steps)
        held_out = self.eval_dataset(eval_batch_size, max_eval_steps, ALL)
        return union(o.baseline(self.model.config, train, held_out) for o in self.objectives)


def union(parts: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Returns the items of all dicts as one dict."""
    joined: dict[str, Any] = {}
    for part in parts:
        joined |= part
    return joined
