"""Answers to questions with the joint head of google-research/electra; see `joint_head`."""

import dataclasses
import typing
from collections.abc import Mapping
from typing import Any

import keras
from keras import ops

from bert_tf.config import ModelConfig
from bert_tf.config.fine_tuning_config import SquadConfig
from bert_tf.network.losses import WeightedSum, weigh
from bert_tf.system.type_names import Batch, Tensor
from bert_tf.tasks.base.models.raw_batches import KerasBatch
from bert_tf.tasks.question_answering.joint_answers import rank_beam_outputs
from bert_tf.tasks.question_answering.joint_head import (
    END,
    NO_ANSWER,
    START,
    AnswerableHead,
    JointSpanHead,
    answer_mask,
    joint_losses,
)
from bert_tf.tasks.question_answering.model import JOINT_HEAD, BertSpanLabeler

if typing.TYPE_CHECKING:
    from bert_tf.checkpoints.checkpoint import Checkpoint


@keras.saving.register_keras_serializable(package="bert_tf")
class BertJointSpanLabeler(BertSpanLabeler):
    """The encoder with the joint head: scores of starts, of ends given a start, and of no answer.

        model = bert_tf.BertJointSpanLabeler.from_pretrained(
            "hf://google/electra-small-discriminator", new_head=True
        )
        model.fit((questions, contexts), answers)
        model.answer(["Who left?"], ["Ada left Oslo."], may_be_none=True)

    Raw inputs, labels and `answer` are those of `BertSpanLabeler`. Question and context are
    distinguished by their types, so that the model must have two segment types.

    Args:
      config: shape of the network.
      answerable: whether there is a score for no answer, which `may_be_none=True` needs.
      options: arguments of `BertSpanLabeler`; `reading` has the size of the beam.

    Call arguments: see `BertClassifier`; `inputs` may also have `start_positions`, int32 [B], which
      training needs.

    Returns:
      dict: the outputs of `JointSpanHead`, with a beam unless `training`, and, if `answerable`,
      `no_answer_logit` float32 [B].
    """

    head_name = JOINT_HEAD
    rank = staticmethod(rank_beam_outputs)
    others_reading = ()

    def __init__(self, config: ModelConfig, answerable: bool = True, **options: Any) -> None:
        if config.pooled_token != "first":
            raise ValueError(
                "The joint head (--span_head=joint) scores no answer by the first token, but this "
                f"model's pooled_token is the {config.pooled_token}; give --span_head=independent."
            )
        super().__init__(config, **{"name": "bert_joint_span_labeler", **options})
        self.answerable: AnswerableHead | None = None
        if answerable:
            with keras.name_scope("cls"):
                self.answerable = AnswerableHead(config, name="answerable", dtype=self.dtype_policy)
                self.answerable.build()

    def make_head(self, num_labels: int, head: str) -> JointSpanHead:
        joint_head = JointSpanHead(self.config, name=self.head_name, dtype=self.dtype_policy)
        joint_head.build()
        return joint_head

    def call(
        self, inputs: dict[str, Any], training: bool = False, dropout_seed: Tensor | None = None
    ) -> dict[str, Any]:
        starts = inputs.get("start_positions")
        if training and starts is None:
            raise ValueError(
                "The joint head is trained with start_positions among its inputs, int32 [B]; ends "
                "are scored given the start."
            )
        seed = self.bert.draw_dropout_seed(training, dropout_seed)
        # [B, T, D]
        sequence = self.bert(inputs, training=training, dropout_seed=seed)["sequence_output"]
        if self.config.head_transform:
            sequence = self.transform(sequence)
        reading = self._reading or SquadConfig()
        # In training, ends are scored only for the annotated start.
        beam_size = 0 if training else reading.beam_size
        outputs = self.head(sequence, answer_mask(inputs), starts, beam_size=beam_size)
        if self.answerable is not None:
            # It reads the start scores as well: they weight the tokens of its second vector.
            outputs[NO_ANSWER] = self.answerable(sequence, outputs[START])
        return outputs

    @property
    def reading(self) -> SquadConfig:
        return dataclasses.replace(super().reading, span_head="joint")

    def keras_batch(self, batch: dict[str, Any]) -> KerasBatch:
        inputs, labels, weights = super().keras_batch(batch)
        inputs["start_positions"] = batch["start_positions"]
        if self.answerable is not None:
            labels[NO_ANSWER] = batch["is_impossible"]
            weights[NO_ANSWER] = batch["example_weights"]
        return inputs, labels, weights

    def task_loss(self, x: Batch, y: Batch, outputs: Batch, weights: Batch | None) -> WeightedSum:
        if self.answerable is not None and NO_ANSWER not in y:
            raise ValueError(f"The labels need {NO_ANSWER}, 1 without an answer: int32 [B].")
        losses = joint_losses(outputs, y[START], y[END], y.get(NO_ANSWER))
        # All outputs of a row have the same weight.
        row_weights = weights[START] if isinstance(weights, Mapping) else weights
        if row_weights is None:
            row_weights = ops.ones_like(losses)
        return weigh(losses, ops.cast(row_weights, losses.dtype))

    def compute_metrics(
        self, x: Batch, y: Batch, y_pred: Batch, sample_weight: Batch | None = None
    ) -> Any:
        """Computes Keras' metrics of the outputs that have labels."""
        if isinstance(y, Mapping):
            # The beams have no labels, and Keras pairs each output that it gets with labels.
            y_pred = {name: y_pred[name] for name in y}
        return super().compute_metrics(x, y, y_pred, sample_weight)

    @property
    def default_metrics(self) -> Any:
        metrics = super().default_metrics
        if self.answerable is not None:
            # A logit above 0 is a probability above one half.
            accuracy = keras.metrics.BinaryAccuracy("accuracy", threshold=0.0)
            metrics = {**metrics, NO_ANSWER: [accuracy]}
        return metrics

    def output_of_row(self, outputs: Batch, position: int, length: int) -> Any:
        row = {}
        for name, values in outputs.items():
            row[name] = values[position]
            if name in (START, END):
                row[name] = row[name][:length]  # without padding; beams have no axis of tokens
        return row

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "answerable": self.answerable is not None}

    @classmethod
    def arguments_for(cls, checkpoint: "Checkpoint") -> dict[str, Any]:
        arguments = super().arguments_for(checkpoint)
        if cls.head_name in checkpoint.heads:
            arguments["answerable"] = "answerable" in checkpoint.heads
        return arguments
