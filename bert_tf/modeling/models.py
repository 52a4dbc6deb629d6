"""Whole models: the encoder with heads for a purpose.

BertPretrainer        masked pieces and next sentence (BERT section 3.1)
BertClassifier        one label for a text or a pair of texts (section 4.1)
BertTokenClassifier   one label for each piece (section 5.3)
BertSpanLabeler       start and end of an answer (section 4.2)
"""

import typing
from typing import Any

import keras
from keras import ops

from bert_tf.config import ModelConfig
from bert_tf.modeling.dropout import Dropout
from bert_tf.modeling.encoder import BertEncoder
from bert_tf.modeling.heads import HeadTransform, label_head
from bert_tf.modeling.losses import WeightedSum
from bert_tf.modeling.pooling import pool_tokens
from bert_tf.modeling.pretrained import FromPretrained
from bert_tf.objectives import Objective, make_objectives

if typing.TYPE_CHECKING:
    from bert_tf.checkpoints.checkpoint import Checkpoint


class WithObjectives:
    """What lets a Keras model be trained on its `objectives`, here and by Keras' own `fit`."""

    objectives: tuple[Objective, ...]
    _aggregate_additional_loss: Any

    def objective_losses(
        self, batch: dict[str, Any], outputs: dict[str, Any]
    ) -> dict[str, WeightedSum]:
        """Returns the losses of all objectives by name; their means add up to the loss."""
        return {
            name: sums[name]
            for objective in self.objectives
            for sums in [objective.sums(batch, outputs)]
            for name in objective.loss_names
        }

    def compute_loss(
        self,
        x: Any = None,
        y: Any = None,
        y_pred: Any = None,
        sample_weight: Any = None,
        training: bool = True,
    ) -> Any:
        """Adds the means of the batch's losses; `fit` and `evaluate` call this."""
        total = sum(loss.mean() for loss in self.objective_losses(x, y_pred).values())
        # Keras' own step for extra losses: divides by the replicas, whose gradients are added.
        return self._aggregate_additional_loss(total)


@keras.saving.register_keras_serializable(package="bert_tf")
class BertPretrainer(WithObjectives, FromPretrained, keras.Model):
    """The encoder with a head for each objective: MLM and, unless switched off, NSP.

    Works with Keras' own loop as it is: `compile(optimizer=...)` and `fit` on a dataset of whole
    pre-training batches; the loss is taken from the batch, none is given to `compile`.

    Args:
      config: shape of the network.
      use_next_sentence: whether there is an NSP head.
      recompute: see `BertEncoder`.
      use_pooler: whether the encoder has a pooler, which the NSP head needs.
      unpad: see `BertEncoder`.

    Call arguments:
      inputs: dict with the encoder's inputs and `masked_lm_positions` int32 [B, P]; other keys are
        ignored.
      training: see `BertEncoder`.
      dropout_seed: see `BertEncoder`.

    Returns:
      dict: `masked_lm_logits` float32 [B, P, V], `next_sentence_logits` float32 [B, 2].
    """

    def __init__(
        self,
        config: ModelConfig,
        use_next_sentence: bool = True,
        recompute: bool = False,
        use_pooler: bool = True,
        unpad: bool = False,
        name: str = "bert_pretrainer",
        **kwargs: Any,
    ) -> None:
        super().__init__(name=name, **kwargs)
        self.objectives = make_objectives(use_next_sentence)
        if any(objective.needs_pooler for objective in self.objectives) and not use_pooler:
            raise ValueError("The NSP head needs the pooler: use_next_sentence without use_pooler.")
        self.config, self.use_next_sentence = config, use_next_sentence
        # Everything is built here, outside this model's own name scope: the names of the variables
        # then begin with bert/ and cls/, whatever this model is called.
        self.bert = BertEncoder(config, recompute, use_pooler, unpad, dtype=self.dtype_policy)
        with keras.name_scope("cls"):
            for objective in self.objectives:
                objective.build(self)
        self.built = True

    def call(
        self, inputs: dict[str, Any], training: bool = False, dropout_seed: Any = None
    ) -> dict[str, Any]:
        encoded = self.bert(inputs, training=training, dropout_seed=dropout_seed)
        outputs: dict[str, Any] = {}
        for objective in self.objectives:
            outputs |= objective.outputs(self, encoded, inputs)
        return outputs

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "use_next_sentence": self.use_next_sentence,
            "recompute": self.bert.recompute,
            "use_pooler": self.bert.use_pooler,
            "unpad": self.bert.unpad,
        }

    @classmethod
    def arguments_for(cls, checkpoint: "Checkpoint") -> dict[str, Any]:
        return {
            "use_next_sentence": "next_sentence" in checkpoint.heads,
            "use_pooler": "pooler" in checkpoint.heads,
        }


def head_dropout(model: Any) -> Dropout:
    """Makes the dropout before a fine-tuned model's head."""
    config = model.config
    salt = 1 + 3 * config.num_hidden_layers  # The encoder's layers have the numbers before.
    return Dropout(config.hidden_dropout_prob, salt, dtype=model.dtype_policy)


class FineTuned(FromPretrained, keras.Model):
    """What the fine-tuned models share: the encoder, dropout and one head, called by purpose.

    Args:
      config: shape of the network.
      num_labels: classes of the head.
      head: name of the head's weights in checkpoints, after cls/.
      use_pooler: whether the encoder has a pooler.
      recompute: see `BertEncoder`.
      unpad: see `BertEncoder`.
    """

    def __init__(
        self,
        config: ModelConfig,
        num_labels: int,
        head: str,
        use_pooler: bool,
        recompute: bool = False,
        unpad: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if num_labels < 1:
            raise ValueError(
                f"num_labels is {num_labels}; the checkpoint has no {head} head to tell it, so "
                f"give the number of labels, and may_miss=['cls/'] for the new head."
            )
        self.config, self.num_labels = config, num_labels
        self.autocast = False  # See `BertEncoder`.
        self.bert = BertEncoder(config, recompute, use_pooler, unpad, dtype=self.dtype_policy)
        self.dropout = head_dropout(self)
        with keras.name_scope("cls"):
            if config.head_transform:
                self.transform = HeadTransform(
                    config, config.hidden_size, name="transform", dtype=self.dtype_policy
                )
                self.transform.build()
            self.head = label_head(self, num_labels, head)
        self.built = True

    def score_pieces(self, inputs: dict[str, Any], training: bool, seed: Any) -> Any:
        """Returns the head's scores of each piece, float32 [B, T, C]."""
        seed = self.bert.draw_dropout_seed(training, seed)
        encoded = self.bert(inputs, training=training, dropout_seed=seed)
        return self._score(encoded["sequence_output"], seed)

    def score_texts(self, inputs: dict[str, Any], training: bool, seed: Any) -> Any:
        """Returns the head's scores of each text, float32 [B, C]."""
        seed, pooling = self.bert.draw_dropout_seed(training, seed), self.config.classifier_pooling
        encoded = self.bert(inputs, training=training, dropout_seed=seed)
        if pooling == "pooler":
            return self._score(encoded["pooled_output"], seed)
        sequence = encoded["sequence_output"]
        pooled = pool_tokens(sequence, inputs["input_mask"], pooling)
        return self._score(ops.cast(pooled, sequence.dtype), seed)

    def _score(self, encoded: Any, seed: Any) -> Any:
        if self.config.head_transform:
            encoded = self.transform(encoded)
        return self.head(self.dropout(encoded, seed))

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "num_labels": self.num_labels,
            "use_pooler": self.bert.use_pooler,
            "recompute": self.bert.recompute,
            "unpad": self.bert.unpad,
        }


@keras.saving.register_keras_serializable(package="bert_tf")
class BertClassifier(FineTuned):
    """The encoder with a head on what `classifier_pooling` makes of a text.

    Works with Keras' own loop: `compile(loss=SparseCategoricalCrossentropy(from_logits=True))`.

    Args:
      config: shape of the network.
      num_labels: C; 1 for a number instead of a class.
      recompute, unpad: see `BertEncoder`.

    Call arguments:
      inputs: dict with the encoder's inputs; other keys are ignored.
      training: see `BertEncoder`.
      dropout_seed: see `BertEncoder`.

    Returns:
      float32 [B, C], unnormalised.
    """

    def __init__(self, config: ModelConfig, num_labels: int, **kwargs: Any) -> None:
        kwargs = {"name": "bert_classifier", **kwargs}
        kwargs["use_pooler"] = config.classifier_pooling == "pooler"
        super().__init__(config, num_labels, "classifier", **kwargs)

    def call(self, inputs: dict[str, Any], training: bool = False, dropout_seed: Any = None) -> Any:
        return self.score_texts(inputs, training, dropout_seed)

    @classmethod
    def arguments_for(cls, checkpoint: "Checkpoint") -> dict[str, Any]:
        has_head = "classifier" in checkpoint.heads
        return {"num_labels": checkpoint.num_labels if has_head else 0}


@keras.saving.register_keras_serializable(package="bert_tf")
class BertTokenClassifier(FineTuned):
    """The encoder with a head on every position.

    Args:
      config: shape of the network.
      num_labels: C.
      use_pooler: whether the encoder has a pooler, which is not used here.
      recompute, unpad: see `BertEncoder`.

    Call arguments: as `BertClassifier`.

    Returns:
      float32 [B, T, C], unnormalised.
    """

    def __init__(
        self, config: ModelConfig, num_labels: int, use_pooler: bool = False, **kwargs: Any
    ) -> None:
        kwargs = {"name": "bert_token_classifier", **kwargs}
        super().__init__(config, num_labels, "tagger", use_pooler, **kwargs)

    def call(self, inputs: dict[str, Any], training: bool = False, dropout_seed: Any = None) -> Any:
        return self.score_pieces(inputs, training, dropout_seed)

    @classmethod
    def arguments_for(cls, checkpoint: "Checkpoint") -> dict[str, Any]:
        has_head = "tagger" in checkpoint.heads
        return {"num_labels": checkpoint.num_labels if has_head else 0}


@keras.saving.register_keras_serializable(package="bert_tf")
class BertSpanLabeler(FineTuned):
    """The encoder with scores of being the first and the last piece of an answer.

    Differs from the original in nothing: run_squad.py has no dropout before this head either.

    Args:
      config: shape of the network.
      use_pooler: whether the encoder has a pooler, which is not used here.
      recompute, unpad: see `BertEncoder`.

    Call arguments: as `BertClassifier`.

    Returns:
      dict: `start_logits` and `end_logits`, float32 [B, T].
    """

    def __init__(self, config: ModelConfig, use_pooler: bool = False, **kwargs: Any) -> None:
        kwargs = {"name": "bert_span_labeler", **kwargs, "num_labels": 2}
        super().__init__(config, head="squad", use_pooler=use_pooler, **kwargs)
        self.dropout = Dropout(0.0, 0, dtype=self.dtype_policy)

    def call(
        self, inputs: dict[str, Any], training: bool = False, dropout_seed: Any = None
    ) -> dict[str, Any]:
        logits = self.score_pieces(inputs, training, dropout_seed)  # [B, T, 2]
        return {"start_logits": logits[..., 0], "end_logits": logits[..., 1]}

    @classmethod
    def arguments_for(cls, checkpoint: "Checkpoint") -> dict[str, Any]:
        return {}
