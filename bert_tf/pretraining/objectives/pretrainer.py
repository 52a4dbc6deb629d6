"""The encoder with the heads of pre-training, MLM and NSP (BERT section 3.1)."""

import pathlib
import typing
from collections.abc import Sequence
from typing import Any, Self, Unpack

import keras
from keras import ops

from bert_tf.config import ModelConfig
from bert_tf.network.encoder import BertEncoder
from bert_tf.network.losses import WeightedSum
from bert_tf.network.pretrained import FromPretrained
from bert_tf.network.query_stream import unordered_queries
from bert_tf.pretraining.objectives import Objective, make_objectives
from bert_tf.system.type_names import Batch, Fields, ModelOptions, Outputs, Tensor
from bert_tf.tasks.base.models.preprocessing import (
    FROM_CHECKPOINT,
    Preprocessing,
    choose_preprocessor,
    with_saved_preprocessor,
)
from bert_tf.tasks.base.models.preprocessor import BertPreprocessor
from bert_tf.text.tokenization import Tokenizer

if typing.TYPE_CHECKING:
    from bert_tf.checkpoints.checkpoint import Checkpoint


class WithObjectives:
    """Trains a Keras model on its `objectives`: by `pretraining.task`, or by Keras' own `fit`."""

    objectives: tuple[Objective, ...]

    @property
    def loss_names(self) -> tuple[str, ...]:
        """Names of the losses, whose means add up to the training loss."""
        names: list[str] = []
        for objective in self.objectives:
            names += objective.loss_names
        return tuple(names)

    def loss_and_metric_sums(self, batch: Batch, outputs: Outputs) -> dict[str, WeightedSum]:
        """Returns the losses and metrics of all objectives by name, as sums over the batch."""
        sums: dict[str, WeightedSum] = {}
        for objective in self.objectives:
            sums |= objective.loss_and_metric_sums(batch, outputs)
        return sums

    def objective_losses(self, batch: Batch, outputs: Outputs) -> dict[str, WeightedSum]:
        """Returns the losses of all objectives by name."""
        sums = self.loss_and_metric_sums(batch, outputs)
        return {name: sums[name] for name in self.loss_names}

    def own_loss(
        self,
        x: Batch,
        y: Tensor | None,
        outputs: Outputs | Tensor,
        weights: Tensor | None,
        training: bool,
    ) -> Tensor:
        """Returns the sum of the means of the batch's losses."""
        return sum(loss.mean() for loss in self.objective_losses(x, outputs).values())


class PretrainingModel(WithObjectives, FromPretrained, keras.Model):
    """The encoder with a head for each objective: MLM and, unless switched off, NSP.

    Works with Keras' own loop: `compile(optimizer=...)` and `fit` on a dataset of complete
    pre-training batches; the loss is computed from the batch, so `compile` gets none. The class to
    use is `BertPretrainer`, which adds the methods that answer.

    Args:
      use_next_sentence: whether there is an NSP head.
      recompute, unpad: see `BertEncoder`.
      use_pooler: whether the encoder has a pooler, which the NSP head needs.
      preprocessor: makes the inputs from raw texts; None for a model that only takes ids.
      sentence_order: whether the labels of pairs mean swapped segments (ALBERT), not random ones.
      objective: the loss of masked tokens, `masked_lm`, `masked_diffusion`, `permuted_lm` or
        `masked_permuted_lm`.

    Call arguments:
      inputs: dict with the encoder's inputs and `masked_lm_positions` int32 [B, P]; other keys are
        ignored. `permuted_lm` and `masked_permuted_lm` predict the encoder's `query_positions`,
        if they are given. A network with a `query_vector` (XLNet) always predicts by a query
        stream: without `query_positions`, each masked token from all tokens that are not masked.
      training, dropout_seed: see `BertEncoder`.

    Returns:
      dict: `masked_lm_logits` float32 [B, P, V], `next_sentence_logits` float32 [B, 2].
    """

    electra_network = "generator"

    @property
    def reads_pooler(self) -> bool:  # type: ignore[override]
        """Whether an objective takes the pooled output."""
        return any(part.needs_pooler for part in self.objectives)

    def __init__(
        self,
        config: ModelConfig,
        use_next_sentence: bool = True,
        recompute: bool = False,
        use_pooler: bool = True,
        unpad: bool = False,
        preprocessor: BertPreprocessor | None = None,
        sentence_order: bool = False,
        objective: str = "masked_lm",
        name: str = "bert_pretrainer",
        **kwargs: Unpack[ModelOptions],
    ) -> None:
        super().__init__(name=name, **kwargs)
        self.objectives = make_objectives(
            use_next_sentence, sentence_order, objective, config.reads_left_to_right
        )
        self.sentence_order = sentence_order
        self.objective = objective
        if any(part.needs_pooler for part in self.objectives) and not use_pooler:
            raise ValueError("The NSP head needs the pooler: use_next_sentence without use_pooler.")
        self.config = config
        self.use_next_sentence = use_next_sentence
        # Everything is built here, outside this model's own name scope: the names of the variables
        # then begin with bert/ and cls/, whatever this model is called.
        self.bert = BertEncoder(
            config,
            recompute,
            use_pooler,
            unpad,
            trains_queries=True,
            dtype=self.dtype_policy,
        )
        with keras.name_scope("cls"):
            for part in self.objectives:
                part.build(self)
        self.built = True
        self._texts = Preprocessing(preprocessor, config)

    def call(
        self, inputs: Batch, training: bool = False, dropout_seed: Tensor | None = None
    ) -> Outputs:
        # XLNet has no vector for [MASK]: its targets are always queries of the second stream.
        if self.config.query_vector and "query_positions" not in inputs:
            length = ops.shape(inputs["input_word_ids"])[1]
            inputs = {**inputs, **unordered_queries(inputs["masked_lm_positions"], length)}
        encoded = self.bert(inputs, training=training, dropout_seed=dropout_seed)
        outputs: Outputs = {}
        for objective in self.objectives:
            # Each objective adds its logits under its own keys.
            outputs |= objective.outputs(self, encoded, inputs)
        return outputs

    @property
    def preprocessor(self) -> BertPreprocessor | None:
        """Makes the model's inputs from texts; None for a model that only takes ids."""
        return self._texts.preprocessor

    @preprocessor.setter
    def preprocessor(self, preprocessor: BertPreprocessor | None) -> None:
        # A new object, because the tokenizer of the old one caches words of another vocabulary.
        self._texts = Preprocessing(preprocessor, self.config)

    @property
    def tokenizer(self) -> Tokenizer:
        """See `Preprocessing.tokenizer`."""
        return self._texts.tokenizer

    @property
    def max_seq_length(self) -> int:
        """Maximum length of a sequence made from raw input."""
        return self._texts.max_seq_length

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "preprocessor": self._texts.to_config(),
            "use_next_sentence": self.use_next_sentence,
            "use_pooler": self.bert.use_pooler,
            "sentence_order": self.sentence_order,
            "objective": self.objective,
        }

    @classmethod
    def from_config(cls, config: Fields) -> Self:
        return super().from_config(with_saved_preprocessor(config))

    @classmethod
    def from_pretrained(
        cls,
        path: str | pathlib.Path,
        allow_missing: Sequence[str] = (),
        allow_unexpected: Sequence[str] = (),
        *,
        preprocessor: BertPreprocessor | str | None = FROM_CHECKPOINT,
        max_seq_length: int = 0,
        **arguments: Any,
    ) -> Self:
        """Makes the model, with its preprocessor; see `FineTunedModel.from_pretrained`."""
        checkpoint = cls.read(path, allow_missing, allow_unexpected)
        arguments["preprocessor"] = choose_preprocessor(checkpoint, preprocessor, max_seq_length)
        return cls.from_checkpoint(checkpoint, allow_missing, **arguments)

    @classmethod
    def arguments_for(cls, checkpoint: "Checkpoint") -> dict[str, Any]:
        return {
            "use_next_sentence": "next_sentence" in checkpoint.heads,
            "use_pooler": "pooler" in checkpoint.heads,
        }
