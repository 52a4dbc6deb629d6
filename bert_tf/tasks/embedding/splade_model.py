"""SPLADE: a text as sparse weights of the vocabulary's tokens, computed by the MLM head.

    logits [B, T, V] -> relu -> maximum over the text's tokens -> log(1 + x) -> [B, V]

Unlike in BM25, tokens that are not in the text can have a weight.

Reference: Formal et al. 2021, "SPLADE v2: Sparse Lexical and Expansion Model for Information
Retrieval", equation 6.
"""

import functools
import typing
from typing import Any

import keras
import tensorflow as tf
from keras import ops

from bert_tf.network.head_on_encoder import HeadOnEncoder
from bert_tf.network.heads import MaskedLMHead
from bert_tf.system.type_names import Tensor

if typing.TYPE_CHECKING:
    from bert_tf.checkpoints.checkpoint import Checkpoint

# Tokens of each text whose scores of the whole vocabulary are in memory at once, [B, BLOCK, V].
BLOCK = 16


@keras.saving.register_keras_serializable(package="bert_tf")
class BertSplade(HeadOnEncoder):
    """The encoder with the MLM head, whose scores become weights of the vocabulary.

    Call arguments:
      inputs: dict with the encoder's inputs; other keys are ignored.
      training, dropout_seed: see `BertEncoder`.

    Returns:
      float32 [B, V], not negative. Texts are compared by dot products.
    """

    default_name = "bert_splade"
    electra_network = "generator"

    def build_head(self) -> None:
        self.predictions = MaskedLMHead(self.config, name="predictions", dtype=self.dtype_policy)
        self.predictions.build()
        self.head = self.predictions
        self.embeddings = self.bert.embeddings

    @property
    def dimension(self) -> int:
        """The number of weights of a text, V."""
        return self.config.vocab_size

    def call(
        self, inputs: dict[str, Tensor], training: bool = False, dropout_seed: Tensor | None = None
    ) -> Tensor:
        encoded = self.bert(inputs, training=training, dropout_seed=dropout_seed)
        sequence = encoded["sequence_output"]  # [B, T, D]
        shape = ops.shape(sequence)
        rows = self.predictions.transformed(ops.reshape(sequence, (-1, shape[-1])))  # [B * T, E]
        rows = ops.reshape(rows, (-1, shape[1], rows.shape[-1]))  # [B, T, E]
        table = ops.cast(self.bert.embeddings.word_embeddings, rows.dtype)
        bias = self.predictions.output_bias
        if bias is None:
            bias = ops.zeros((self.dimension,))
        return splade_weights(rows, inputs["input_mask"], table, ops.cast(bias, "float32"))

    @classmethod
    def from_checkpoint(
        cls, checkpoint: "Checkpoint", allow_missing: Any = (), **arguments: Any
    ) -> typing.Self:
        check_head(checkpoint)
        return super().from_checkpoint(checkpoint, allow_missing, **arguments)


def check_head(checkpoint: "Checkpoint") -> None:
    """Raises ValueError if a checkpoint has no MLM head."""
    from bert_tf.checkpoints.electra_networks import refuse_discriminator

    refuse_discriminator(checkpoint)
    if "masked_lm" not in checkpoint.heads:
        raise ValueError(
            f"{checkpoint.source} has no masked-LM head, which SPLADE needs; its heads are "
            f"{list(checkpoint.heads)}."
        )


def splade_weights(rows: Tensor, input_mask: Tensor, table: Tensor, bias: Tensor) -> Tensor:
    """Returns log(1 + max(0, the highest score of each vocabulary token in the text)).

    Neither the scores [B, T, V] nor their gradient are in memory as a whole: forward and backward
    pass compute `BLOCK` tokens of each text at a time. If several tokens of a text have the highest
    score, the first one gets the gradient.

    Args:
      rows: float [B, T, E], the head's outputs before the product with the word embeddings.
      input_mask: int [B, T], 0 for padding.
      table: float [V, E], word embeddings.
      bias: float32 [V].

    Returns:
      float32 [B, V].
    """
    padding = -tf.shape(rows)[1] % BLOCK  # to a multiple of BLOCK
    rows = tf.pad(rows, [[0, 0], [0, padding], [0, 0]])
    mask = tf.pad(tf.cast(input_mask, tf.bool), [[0, 0], [0, padding]])
    return _weights(_blocks(rows), _blocks(mask), table, bias)


def _blocks(values: tf.Tensor) -> tf.Tensor:
    """Splits [B, n * BLOCK, ...] into blocks, [n, B, BLOCK, ...]."""
    size = tf.shape(values)
    shape = tf.concat([[size[0], size[1] // BLOCK, BLOCK], size[2:]], axis=0)
    axes = [1, 0, *range(2, len(values.shape) + 1)]
    return tf.transpose(tf.reshape(values, shape), axes)


@tf.custom_gradient
def _weights(rows: Tensor, mask: Tensor, table: Tensor, bias: Tensor) -> Any:
    """Computes `splade_weights` from blocks: rows [n, B, BLOCK, E], mask bool [n, B, BLOCK]."""
    num_blocks = tf.shape(rows)[0]
    batch_size = tf.shape(rows)[1]
    vocab_size, width = table.shape
    # One at a time: the scores of several blocks would take the memory that blocks save.
    loop = functools.partial(
        tf.while_loop, lambda index, *_: index < num_blocks, parallel_iterations=1
    )

    def add_block(index: Tensor, highest: Tensor, positions: Tensor) -> tuple[Tensor, ...]:
        block = tf.reshape(rows[index], [-1, width])  # [B * BLOCK, E]
        scores = tf.cast(tf.matmul(block, table, transpose_b=True), tf.float32) + bias
        scores = tf.reshape(scores, [-1, BLOCK, vocab_size])
        # 0 is the lowest result, so that padding never raises a weight.
        scores = tf.where(mask[index][:, :, None], scores, 0.0)
        best = tf.argmax(scores, axis=1, output_type=tf.int32)  # [B, V]
        block_highest = tf.reduce_max(scores, axis=1)  # [B, V]
        positions = tf.where(block_highest > highest, index * BLOCK + best, positions)
        return index + 1, tf.maximum(highest, block_highest), positions

    # Highest scores begin at 0, which is the relu. Position -1: no score is positive. Both [B, V].
    highest = tf.zeros([batch_size, vocab_size])
    positions = tf.fill([batch_size, vocab_size], -1)
    _, highest, positions = loop(add_block, (tf.constant(0), highest, positions))

    def gradient(upstream: Tensor) -> tuple[Tensor | None, ...]:
        # The derivative of log(1 + x). Tokens without a positive score match no position below.
        upstream = upstream / (1.0 + highest)

        def add_block(
            index: Tensor,
            row_gradients: tf.TensorArray,
            table_gradient: Tensor,
            bias_gradient: Tensor,
        ) -> tuple[Tensor, ...]:
            # The gradient of a maximum goes to the position that has it.
            block_positions = index * BLOCK + tf.range(BLOCK)
            is_highest = tf.equal(positions[:, None], block_positions[None, :, None])
            scores = tf.where(is_highest, upstream[:, None], 0.0)  # [B, BLOCK, V]
            scores = tf.reshape(scores, [-1, vocab_size])
            bias_gradient += tf.reduce_sum(scores, axis=0)
            scores = tf.cast(scores, table.dtype)
            block = tf.reshape(rows[index], [-1, width])
            table_gradient += tf.cast(tf.matmul(scores, block, transpose_a=True), tf.float32)
            row_gradient = tf.reshape(tf.matmul(scores, table), [-1, BLOCK, width])
            row_gradients = row_gradients.write(index, row_gradient)
            return index + 1, row_gradients, table_gradient, bias_gradient

        row_gradients = tf.TensorArray(rows.dtype, num_blocks, element_shape=[None, BLOCK, width])
        # The sums over blocks are in float32, even if the table is in bfloat16.
        table_gradient = tf.zeros([vocab_size, width])
        bias_gradient = tf.zeros([vocab_size])
        start = (tf.constant(0), row_gradients, table_gradient, bias_gradient)
        _, row_gradients, table_gradient, bias_gradient = loop(add_block, start)
        table_gradient = tf.cast(table_gradient, table.dtype)
        return row_gradients.stack(), None, table_gradient, bias_gradient

    return tf.math.log1p(highest), gradient
