"""Masked language model: predicts the tokens that [MASK] replaced (BERT section 3.1, task 1)."""

import numpy as np
import tensorflow as tf
from keras import ops

from bert_tf.config import ModelConfig
from bert_tf.network.chunked_vocabulary import chunked_token_losses
from bert_tf.network.heads import MaskedLMHead, gather_positions
from bert_tf.network.losses import WeightedSum, class_losses, right_labels, weigh
from bert_tf.pretraining.objectives.objective import Objective, count_labels
from bert_tf.system.type_names import Batch, Model, Outputs

# For more tokens the losses are computed in chunks. Below, results stay the same to the bit.
LARGE_VOCABULARY = 1 << 17
VECTORS = "masked_lm_vectors"


class MaskedLM(Objective):
    """Predicts the token at each masked position: `masked_lm_logits`, float32 [B, P, V].

    A large vocabulary adds `masked_lm_vectors`, float [B, P, E], from which the losses are computed
    in chunks. The logits are then not needed, and a compiled step never computes them.
    """

    plot_titles = {"masked_lm_loss": "MLM loss (nats)", "masked_lm_accuracy": "MLM accuracy"}

    def build(self, model: Model) -> None:
        model.predictions = MaskedLMHead(model.config, name="predictions", dtype=model.dtype_policy)
        model.predictions.build()
        self.head = model.predictions
        self.embeddings = model.bert.embeddings

    def outputs(self, model: Model, encoded: Outputs, inputs: Batch) -> Outputs:
        table = model.bert.embeddings.word_embeddings
        # Permuted objectives predict from the query stream, which does not see the targets.
        if "query_output" in encoded:
            predicted = encoded["query_output"]  # [B, P, D]
        else:
            positions = inputs["masked_lm_positions"]
            predicted = gather_positions(encoded["sequence_output"], positions)
        logits = model.predictions(predicted, table)
        if model.config.vocab_size <= LARGE_VOCABULARY:
            return {"masked_lm_logits": logits}
        return {"masked_lm_logits": logits, VECTORS: model.predictions.transformed(predicted)}

    def loss_weights(self, batch: Batch) -> dict[str, tf.Tensor]:
        return {"masked_lm_loss": tf.reduce_sum(batch["masked_lm_weights"])}

    def loss_and_metric_sums(self, batch: Batch, outputs: Outputs) -> dict[str, WeightedSum]:
        labels = ops.cast(batch["masked_lm_ids"], "int32")
        weights = ops.cast(batch["masked_lm_weights"], "float32")
        losses, is_right = self.judge_predictions(outputs, labels)
        return self.sums_of(losses, is_right, weights, batch)

    def sums_of(
        self, losses: tf.Tensor, is_right: tf.Tensor, weights: tf.Tensor, batch: Batch
    ) -> dict[str, WeightedSum]:
        """Returns the sums of the predictions' losses and hits, float32 [B, P] each."""
        return {
            "masked_lm_loss": weigh(losses, weights),
            "masked_lm_accuracy": weigh(is_right, weights),
        }

    def judge_predictions(self, outputs: Outputs, labels: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the cross-entropy of each prediction and whether it is right, float32 [B, P]."""
        if VECTORS not in outputs:
            logits = outputs["masked_lm_logits"]
            return class_losses(logits, labels), right_labels(logits, labels)
        flat_labels = ops.reshape(labels, (-1,))  # [B*P]
        found = chunked_token_losses(
            ops.reshape(outputs[VECTORS], (-1, self.head.config.table_width)),
            # The float32 values: autocast would round the table before the chunks are cut.
            self.embeddings.word_embeddings.value,
            None if self.head.output_bias is None else self.head.output_bias.value,
            flat_labels,
        )
        is_right = ops.cast(ops.equal(found.best, flat_labels), "float32")
        shape = ops.shape(labels)
        return ops.reshape(found.loss, shape), ops.reshape(is_right, shape)

    def baseline(
        self, config: ModelConfig, train: tf.data.Dataset, held_out: tf.data.Dataset
    ) -> dict[str, float]:
        """Predicts every token by its frequency among the masked tokens of the training data.

        Each count is raised by one. The accuracy is that of the most frequent token.
        """
        counts = count_labels(train, "masked_lm_ids", "masked_lm_weights", config.vocab_size)
        labels = count_labels(held_out, "masked_lm_ids", "masked_lm_weights", config.vocab_size)
        # Plus one, so that a token that never occurs in training has a finite loss.
        probabilities = (counts + 1.0) / (counts + 1.0).sum()
        return {
            "masked_lm_loss": float(-(labels * np.log(probabilities)).sum() / labels.sum()),
            "masked_lm_accuracy": float(labels[counts.argmax()] / labels.sum()),
        }
