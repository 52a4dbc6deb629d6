"""Multiple choice: one score for each choice (BERT section 4.4, SWAG)."""

import dataclasses
from typing import Any

import keras
from keras import ops

from bert_tf.checkpoints.checkpoint import Checkpoint
from bert_tf.config import ModelConfig
from bert_tf.network.losses import LabelLoss, WeightedSum, weigh
from bert_tf.system.type_names import Batch, Column, Labels, Tensor, Texts
from bert_tf.tasks.base.examples.columns import read_label_ids
from bert_tf.tasks.base.models.fine_tuned import FineTunedModel
from bert_tf.tasks.base.models.graph_labels import checked_ids
from bert_tf.tasks.base.models.raw_batches import KerasBatch
from bert_tf.tasks.multiple_choice.answers import ChoiceAnswers, read_choices
from bert_tf.tasks.multiple_choice.examples import ChoiceExample
from bert_tf.tasks.multiple_choice.features import ChoiceExamples, make_examples
from bert_tf.text.packing import INPUTS


@keras.saving.register_keras_serializable(package="bert_tf")
class BertMultipleChoice(ChoiceAnswers, FineTunedModel):
    """The encoder with a score for each choice, a linear function of the pooled output.

    Each choice is a pair, with the context as first text and the choice as second text. The scores
    of the choices of a context are the logits of a softmax, and the class is the index of the
    correct choice: `compile(loss=SparseCategoricalCrossentropy(from_logits=True))`.

        model = bert_tf.BertMultipleChoice.from_pretrained(
            "hf://google-bert/bert-base-uncased", new_head=True
        )
        model.fit((contexts, choices), right_ones)
        model.choose(["She sat down."], [["She stood.", "It rained.", "He slept."]])

    With a preprocessor, inputs are raw contexts and choices: a column of texts and a column of
    lists of texts, which have the same length. The labels are the indices of the correct choices.
    Dicts of ids are also accepted.

    google-research/bert has no program for this task. The weights are those of Hugging Face's
    BertForMultipleChoice: a classifier with one label, whose bias shifts all choices equally.

    Args:
      config: shape of the network.
      recompute, unpad: see `BertEncoder`.
      preprocessor: see `FineTunedModel`.

    Call arguments:
      inputs: dict of int32 [B, C, T], C choices each: `input_word_ids`, `input_mask`,
        `input_type_ids`; other keys are ignored.
      training, dropout_seed: see `BertEncoder`.

    Returns:
      float32 [B, C], unnormalised.

    Raises:
      ValueError: if the inputs have no axis of choices.
    """

    head_name = "classifier"
    has_label_loss = True

    def __init__(self, config: ModelConfig, **kwargs: Any) -> None:
        kwargs = {"name": "bert_multiple_choice", **kwargs, "num_labels": 1}
        kwargs["use_pooler"] = config.classifier_pooling == "pooler"
        super().__init__(config, head="classifier", **kwargs)

    def call(
        self, inputs: dict[str, Any], training: bool = False, dropout_seed: Tensor | None = None
    ) -> Any:
        shape = inputs["input_word_ids"].shape
        if len(shape) != 3:
            raise ValueError(
                f"input_word_ids have shape {tuple(shape)}, expected [B, C, T]: the ids of each "
                "choice of each context."
            )
        return self.score_choices(inputs, training, dropout_seed)

    # Raw input ---------------------------------------------------------------------------------

    def read_examples(
        self, x: Texts, y: Labels | None = None, weights: Column | None = None
    ) -> ChoiceExamples:
        contexts, choices = read_choices(x)
        for index, row in enumerate(choices):
            if len(row) != len(choices[0]) or len(row) < 2:
                raise ValueError(
                    f"choices[{index}] has {len(row)} texts, choices[0] has {len(choices[0])}; "
                    f"expected two or more, and the same number in each list."
                )
        labels = [None] * len(contexts)
        if y is not None:
            # Classes without names, so that labels must be indices.
            labels = read_label_ids(y, ("",) * len(choices[0]), len(contexts)).tolist()
        examples = []
        columns = zip(contexts, choices, labels, strict=True)
        for index, (context, texts, label) in enumerate(columns):
            example = ChoiceExample(
                context=context,
                # From Python, a choice is the whole second text.
                start="",
                choices=texts,
                label=label,
                id=str(index),
                source=f"choices[{index}]",
            )
            examples.append(example)
        packed = make_examples(examples, self.tokenizer, self.max_seq_length)
        self.set_weights_of_rows(packed, weights, len(contexts))
        return packed

    def to_checkpoint(self, tower: str = "") -> Checkpoint:
        """Returns the model as a checkpoint whose classifier scores choices."""
        # The weights alone do not tell a score of choices from a classifier with one label.
        return dataclasses.replace(super().to_checkpoint(tower), is_multiple_choice=True)

    def keras_batch(self, batch: dict[str, Any]) -> KerasBatch:
        inputs = {name: batch[name] for name in INPUTS}
        return inputs, batch["label_ids"], batch["example_weights"]

    def task_loss(
        self,
        x: Batch,
        y: Tensor,
        outputs: Tensor,
        weights: Tensor | None,
        label_loss: LabelLoss | None = None,
    ) -> WeightedSum:
        if weights is not None:
            weights = ops.reshape(ops.cast(weights, "float32"), (-1,))  # [B]
        # Keras may add an axis to labels: [B, 1].
        ids = checked_ids(ops.reshape(y, (-1,)), weights, ops.shape(outputs)[-1])
        losses = (label_loss or LabelLoss()).losses("single_label", outputs, ids)  # [B]
        return weigh(losses, ops.ones_like(losses) if weights is None else weights)
