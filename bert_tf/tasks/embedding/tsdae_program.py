"""The task and program of TSDAE: `Retriever`, trained on single texts by reconstructing them."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from bert_tf.checkpoints.checkpoint import HEADS, Checkpoint
from bert_tf.checkpoints.embedding import DECODER
from bert_tf.config import ModelConfig
from bert_tf.corpus.mapping import InputShard
from bert_tf.network.losses import WeightedSum, accuracy, cross_entropy
from bert_tf.network.pretrained import assign_checkpoint
from bert_tf.tasks.base.programs.program import RowsTaskData
from bert_tf.tasks.embedding.features import TextPacker
from bert_tf.tasks.embedding.program import Retriever
from bert_tf.tasks.embedding.task import EmbeddingTask
from bert_tf.tasks.embedding.tsdae_model import BertDenoiser, check_blocks
from bert_tf.tasks.embedding.tsdae_noise import (
    WHOLE,
    DamagedTexts,
    DenoisingExamples,
    damaged_batches,
    make_denoising_examples,
)
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


class DenoisingRetriever(Retriever):
    """See `Program`."""

    kept_heads = ("masked_lm",)
    plot_titles = Retriever.plot_titles | {"accuracy": "tokens predicted"}

    def receive_weights(self, weights: Checkpoint | None) -> None:
        """Checks that the network fits the decoder; see `Retriever`."""
        check_blocks(self.configs.model)
        super().receive_weights(weights)

    def read_training(self, packer: TextPacker) -> DenoisingExamples:
        """Reads texts; see `DamagedTexts`."""
        # Without a file, the examples are the pairs of the BEIR folder.
        if not self.configs.tuning.train_file:
            raise ValueError(
                "--retrieval_loss=denoising learns from texts: give --train_file, for example "
                "the collection's corpus.jsonl."
            )
        examples = self.inputs["train"]
        for example in examples:
            if example.scores:
                raise ValueError(
                    f"{example.source} has a label or a score, which --retrieval_loss=denoising "
                    "does not use; keep the column text alone."
                )
            if example.query != example.positive or example.negatives:
                raise ValueError(
                    f"{example.source}: --retrieval_loss=denoising learns from single texts, in a "
                    "column text, but the file has pairs or triplets. Leave the flag out, or give "
                    "single texts."
                )
        texts = [example.query for example in examples]
        return make_denoising_examples(packer, texts, self.configs.task.deletion_rate)

    def make_task(
        self, config: ModelConfig, labels: tuple[str, ...], data: RowsTaskData, **options: Any
    ) -> DenoisingTask:
        """Creates the model and its task."""
        self.check_rows()
        return DenoisingTask(
            BertDenoiser(config, self.embedding, **options),
            *data,
            best_metric="spearman" if self.configs.data.eval_file else "ndcg@10",
            ignore_identical_ids=self.configs.task.ignore_identical_ids,
        )

    def load_initial_weights(
        self, model: Any, start: Checkpoint, allow_missing: Sequence[str]
    ) -> None:
        """Initializes the decoder's head from the checkpoint's masked-LM head, if it has one."""
        head = HEADS["masked_lm"]
        weights = {}
        for name, weight in start.weights.items():
            if name.startswith(head):
                name = f"{DECODER}predictions/{name.removeprefix(head)}"
            weights[name] = weight
        start = dataclasses.replace(start, weights=weights)
        # No checkpoint has cross-attention, and not every one has a masked-LM head.
        assign_checkpoint(model, start, (*allow_missing, DECODER))
