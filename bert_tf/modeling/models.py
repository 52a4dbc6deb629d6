"""Whole models: the encoder with heads for a purpose.

BertPretrainer   masked pieces and next sentence (BERT section 3.1)
"""

from typing import Any

import keras

from bert_tf.config import ModelConfig
from bert_tf.modeling.encoder import BertEncoder
from bert_tf.modeling.heads import MaskedLMHead, NextSentenceHead
from bert_tf.modeling.losses import WeightedSum, masked_lm_loss, next_sentence_loss


def pretraining_losses(batch: dict[str, Any], outputs: dict[str, Any]) -> dict[str, WeightedSum]:
    """Sums both losses of a pre-training batch.

    Args:
      batch: the labels and weights of a pre-training batch.
      outputs: what `BertPretrainer` returned for it.

    Returns:
      dict: `masked_lm_loss` and, if the model has that head, `next_sentence_loss`. The training
      loss is the sum of their means, with equal weight.
    """
    losses = {
        "masked_lm_loss": masked_lm_loss(
            outputs["masked_lm_logits"], batch["masked_lm_ids"], batch["masked_lm_weights"]
        )
    }
    if "next_sentence_logits" in outputs:
        losses["next_sentence_loss"] = next_sentence_loss(
            outputs["next_sentence_logits"],
            batch["next_sentence_labels"],
            batch["next_sentence_weights"],
        )
    return losses


@keras.saving.register_keras_serializable(package="bert_tf")
class BertPretrainer(keras.Model):
    """The encoder with the MLM head and, unless switched off, the NSP head.

    Works with Keras' own loop as it is: `compile(optimizer=...)` and `fit` on a dataset of whole
    pre-training batches; the loss is taken from the batch, none is given to `compile`.

    Args:
      config: shape of the network.
      use_next_sentence: whether there is an NSP head.
      recompute: see `BertEncoder`.

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
        name: str = "bert_pretrainer",
        **kwargs: Any,
    ) -> None:
        super().__init__(name=name, **kwargs)
        self.config, self.use_next_sentence = config, use_next_sentence
        # Everything is built here, outside this model's own name scope: the names of the variables
        # then begin with bert/ and cls/, whatever this model is called.
        self.bert = BertEncoder(config, recompute, name="bert", dtype=self.dtype_policy)
        self.predictions = MaskedLMHead(
            config.vocab_size,
            config.hidden_size,
            config.hidden_act,
            config.layer_norm_eps,
            config.initializer_range,
            name="predictions",
            dtype=self.dtype_policy,
        )
        with keras.name_scope("cls"):
            self.predictions.build()
            if use_next_sentence:
                self.seq_relationship = NextSentenceHead(
                    config.hidden_size,
                    config.initializer_range,
                    name="seq_relationship",
                    dtype=self.dtype_policy,
                )
                self.seq_relationship.build()
        self.built = True

    def call(
        self, inputs: dict[str, Any], training: bool = False, dropout_seed: Any = None
    ) -> dict[str, Any]:
        encoded = self.bert(inputs, training=training, dropout_seed=dropout_seed)
        outputs = {
            "masked_lm_logits": self.predictions(
                encoded["sequence_output"],
                inputs["masked_lm_positions"],
                self.bert.embeddings.word_embeddings,
            )
        }
        if self.use_next_sentence:
            outputs["next_sentence_logits"] = self.seq_relationship(encoded["pooled_output"])
        return outputs

    def compute_loss(
        self,
        x: Any = None,
        y: Any = None,
        y_pred: Any = None,
        sample_weight: Any = None,
        training: bool = True,
    ) -> Any:
        """Adds the means of the batch's losses; `fit` and `evaluate` call this."""
        total = sum(loss.mean() for loss in pretraining_losses(x, y_pred).values())
        # Keras' own step for extra losses: divides by the replicas, whose gradients are added.
        return self._aggregate_additional_loss(total)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "config": self.config.to_dict(),
            "use_next_sentence": self.use_next_sentence,
            "recompute": self.bert.recompute,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "BertPretrainer":
        return cls(**{**config, "config": ModelConfig.from_dict(config["config"])})
