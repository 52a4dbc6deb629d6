"""Start and end of the answer to a question in a context (BERT section 4.2)."""

import typing
from collections.abc import Mapping, Sequence
from typing import Any, Self

import keras
from keras import ops

from bert_tf.config import ModelConfig
from bert_tf.config.fine_tuning_config import SquadConfig, reading_of_rows
from bert_tf.config.fine_tuning_defaults import SPAN_LENGTH
from bert_tf.network.dropout import Dropout
from bert_tf.network.losses import WeightedSum, span_losses, weigh
from bert_tf.system.type_names import Batch, Column, Labels, Tensor, Texts
from bert_tf.tasks.base.examples.columns import check_count, read_column
from bert_tf.tasks.base.models.fine_tuned import FineTunedModel
from bert_tf.tasks.base.models.graph_labels import LabelAccuracy
from bert_tf.tasks.base.models.raw_batches import KerasBatch
from bert_tf.tasks.base.serving.kind import import_object
from bert_tf.tasks.question_answering.answers import END, START, QuestionAnswers
from bert_tf.tasks.question_answering.columns import read_asked, with_answer
from bert_tf.tasks.question_answering.features import SquadExamples, make_examples
from bert_tf.tasks.question_answering.kinds import recorded_reading
from bert_tf.text.packing import INPUTS

if typing.TYPE_CHECKING:
    from bert_tf.checkpoints.checkpoint import Checkpoint

# The subclass with another head, which `BertSpanLabeler.from_checkpoint` creates.
JOINT_HEAD = "joint_squad"
JOINT_MODEL = "bert_tf.tasks.question_answering.joint_model.BertJointSpanLabeler"


@keras.saving.register_keras_serializable(package="bert_tf")
class BertSpanLabeler(QuestionAnswers, FineTunedModel):
    """The encoder with scores for the first and the last token of an answer.

    `from_pretrained` returns a `BertJointSpanLabeler`, which has the same methods, if the model has
    the joint head of google-research/electra.

        model = bert_tf.BertSpanLabeler.from_pretrained(
            "hf://google-bert/bert-base-uncased", new_head=True
        )
        model.fit((questions, contexts), answers)
        model.answer(["Who left?"], ["Ada left Oslo."])

    With a preprocessor, inputs are raw questions and contexts: a tuple of two columns, or a list of
    pairs. Answers are substrings of their contexts (the first occurrence counts); or dicts of
    `text` and `answer_start` as in SQuAD; or dicts of lists of these as in Hugging Face's data
    sets, of which the first entry counts. "" or empty lists mean that the context has no answer.
    Long contexts are split into windows. Dicts of ids are also accepted.

    As in the original's run_squad.py, there is no dropout before the head.

    Args:
      config: shape of the network.
      use_pooler: whether the encoder has a pooler, which is not used here.
      recompute, unpad: see `BertEncoder`.
      reading: options for splitting contexts into windows and for selecting answers; None:
        run_squad's defaults, with shorter windows and questions for rows below 384 tokens.
      preprocessor: see `FineTunedModel`.

    Call arguments: see `BertClassifier`.

    Returns:
      dict: `start_logits` and `end_logits`, float32 [B, T].
    """

    head_name = "squad"
    scores_tokens = True
    default_length = SPAN_LENGTH
    reads_pooler = False
    # Fields of `reading` that belong to the joint head.
    others_reading: tuple[str, ...] = ("span_head", "beam_size")

    def __init__(
        self,
        config: ModelConfig,
        use_pooler: bool = False,
        reading: SquadConfig | dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        kwargs = {"name": "bert_span_labeler", **kwargs, "num_labels": 2}
        super().__init__(config, head="squad", use_pooler=use_pooler, **kwargs)
        self._reading = SquadConfig(**reading) if isinstance(reading, dict) else reading
        self.dropout = Dropout(0.0, 0, dtype=self.dtype_policy)

    def call(
        self, inputs: dict[str, Any], training: bool = False, dropout_seed: Tensor | None = None
    ) -> dict[str, Any]:
        logits = self.score_tokens(inputs, training, dropout_seed)  # [B, T, 2]
        return {START: logits[..., 0], END: logits[..., 1]}

    # Raw input ---------------------------------------------------------------------------------

    @property
    def reading(self) -> SquadConfig:
        return self._reading or reading_of_rows(self.max_seq_length)

    def read_examples(
        self, x: Texts, y: Labels | None = None, weights: Column | None = None
    ) -> SquadExamples:
        asked = read_asked(x)
        if y is not None:
            given = read_column(y, "y")
            check_count(given, len(asked), "y")
            for index, answer in enumerate(given):
                asked[index] = with_answer(asked[index], answer, f"y[{index}]")
        examples = make_examples(asked, self.tokenizer, self.max_seq_length, self.reading)
        # Each window has the weight of its question.
        self.set_weights_of_rows(examples, weights, len(asked), examples.owners)
        if not len(examples.rows):
            raise ValueError("None of the contexts has a word; give contexts with text.")
        return examples

    def keras_batch(self, batch: dict[str, Any]) -> KerasBatch:
        # Keras matches labels and weights, [B] each, to the outputs by name.
        labels = {START: batch["start_positions"], END: batch["end_positions"]}
        weights = batch["example_weights"]
        inputs = {name: batch[name] for name in INPUTS}
        return inputs, labels, {START: weights, END: weights}

    def task_loss(self, x: Batch, y: Batch, outputs: Batch, weights: Batch | None) -> WeightedSum:
        losses = position_losses(outputs, x["input_mask"], y)
        sums = []
        for name in (START, END):
            row_weights = weights[name] if isinstance(weights, Mapping) else weights
            if row_weights is None:
                row_weights = ops.ones_like(losses[name])
            sums.append(weigh(losses[name], ops.cast(row_weights, losses[name].dtype)))
        # Adding totals and weights gives the mean of both losses.
        start, end = sums
        return WeightedSum(start.total + end.total, start.weight + end.weight)

    @property
    def default_metrics(self) -> Any:
        return {START: [LabelAccuracy("accuracy")], END: [LabelAccuracy("accuracy")]}

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "reading": self._reading and self._reading.to_dict()}

    @classmethod
    def from_checkpoint(
        cls,
        checkpoint: "Checkpoint",
        allow_missing: Sequence[str] = (),
        new_head: bool = False,
        **arguments: Any,
    ) -> Self:
        """Creates the model from a loaded checkpoint, whose head determines the class."""
        # Only the base class chooses its class by the head, and only if it keeps that head.
        if cls is BertSpanLabeler and JOINT_HEAD in checkpoint.heads and not new_head:
            model_class = import_object(JOINT_MODEL)
            return model_class.from_checkpoint(checkpoint, allow_missing, **arguments)
        return super().from_checkpoint(checkpoint, allow_missing, new_head, **arguments)

    @classmethod
    def arguments_for(cls, checkpoint: "Checkpoint") -> dict[str, Any]:
        """Returns the `reading` of a checkpoint's run."""
        reading = recorded_reading(checkpoint.settings, cls.others_reading)
        return {"reading": reading} if reading else {}


def position_losses(outputs: Batch, input_mask: Tensor, positions: Batch) -> dict[str, Tensor]:
    """Returns the cross-entropies of start and end, by name of the output, float32 [B] each.

    Args:
      positions: int32 [B], by name of the output.
    """
    losses = {}
    for name in (START, END):
        losses[name] = span_losses(outputs[name], input_mask, positions[name])
    return losses
