"""The program of TSDAE: `Retriever`, trained on single texts by reconstructing them."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from bert_tf.checkpoints.checkpoint import HEADS, Checkpoint
from bert_tf.checkpoints.embedding import DECODER
from bert_tf.config import ModelConfig
from bert_tf.network.pretrained import assign_checkpoint
from bert_tf.tasks.base.programs.program import RowsTaskData
from bert_tf.tasks.embedding.features import TextPacker
from bert_tf.tasks.embedding.program import Retriever
from bert_tf.tasks.embedding.tsdae_model import BertDenoiser, check_blocks
from bert_tf.tasks.embedding.tsdae_noise import DenoisingExamples, make_denoising_examples
from bert_tf.tasks.embedding.tsdae_task import DenoisingTask


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
