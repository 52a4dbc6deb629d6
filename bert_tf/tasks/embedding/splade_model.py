"""SPLADE: a text as weights of the vocabulary's pieces, most of them 0, made by the MLM head.

    logits [B, T, V] -> relu -> maximum over the pieces of the text -> log(1 + x) -> [B, V]

Unlike BM25 a text weighs pieces that it does not hold. Reference: Formal et al. 2021, "SPLADE v2:
Sparse Lexical and Expansion Model for Information Retrieval", equation 6.
"""

import typing
from typing import Any

import keras
import tensorflow as tf
from keras import ops

from bert_tf.network.encoder import HeadOnEncoder
from bert_tf.objectives.masked_lm import MaskedLM
from bert_tf.renamed import accepts_earlier_names
from bert_tf.type_names import Tensor

if typing.TYPE_CHECKING:
    from bert_tf.checkpoints.checkpoint import Checkpoint

BLOCK = 16  # pieces of each text whose scores of the whole vocabulary are in memory at once


@keras.saving.register_keras_serializable(package="bert_tf")
class BertSplade(HeadOnEncoder):
    """The encoder with the MLM head, whose scores weigh the vocabulary.

    Args:
      config: shape of the network.
      recompute, unpad: see `BertEncoder`.

    Call arguments:
      inputs: dict with the encoder's inputs; other keys are ignored.
      training: see `BertEncoder`.
      dropout_seed: see `BertEncoder`.

    Returns:
      float32 [B, V], 0 and above. Compared by dot products.
    """

    default_name = "bert_splade"
    electra_network = "generator"

    def build_head(self) -> None:
        MaskedLM().build(self)

    @property
    def dimension(self) -> int:
        """V, the pieces that a text weighs."""
        return self.config.vocab_size

    def call(self, inputs: dict[str, Any], training: bool = False, dropout_seed: Any = None) -> Any:
        encoded = self.bert(inputs, training=training, dropout_seed=dropout_seed)
        sequence = encoded["sequence_output"]  # [B, T, D]
        shape = ops.shape(sequence)
        rows = self.predictions.transformed(ops.reshape(sequence, (-1, shape[-1])))  # [B * T, E]
        rows = ops.reshape(rows, (-1, shape[1], rows.shape[-1]))
        table = ops.cast(self.bert.embeddings.word_embeddings, rows.dtype)
        bias = self.predictions.output_bias
        if bias is None:
            bias = ops.zeros((self.dimension,))
        return splade_weights(rows, inputs["input_mask"], table, ops.cast(bias, "float32"))

    @classmethod
    @accepts_earlier_names
    def from_checkpoint(
        cls, checkpoint: "Checkpoint", allow_missing: Any = (), **arguments: Any
    ) -> typing.Self:
        """See `FromPretrained`.

        Raises:
          ValueError: if there is no MLM head, or something else does not fit.
        """
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


def splade_weights(rows: Tensor, input_mask: Tensor, table: Tensor, bias: Tensor) -> Any:
    """Returns log(1 + the highest score of each piece of the vocabulary, 0 at least).

    Neither the scores [B, T, V] nor their gradient are in memory as a whole: both ways go over
    `BLOCK` pieces of each text at a time. Of equal highest scores the first has the gradient.

    Args:
      rows: float [B, T, E], what the head compares with the table.
      input_mask: int [B, T], 1 for pieces that count.
      table: float [V, E], word embeddings.
      bias: float32 [V].

    Returns:
      float32 [B, V].
    """
    more = -tf.shape(rows)[1] % BLOCK
    rows = tf.pad(rows, [[0, 0], [0, more], [0, 0]])
    mask = tf.pad(tf.cast(input_mask, tf.bool), [[0, 0], [0, more]])
    return _weights(_blocks(rows), _blocks(mask), table, bias)


def _blocks(values: tf.Tensor) -> tf.Tensor:
    """Returns [n, B, BLOCK, ...] of [B, n * BLOCK, ...]."""
    size = tf.shape(values)
    shape = tf.concat([[size[0], size[1] // BLOCK, BLOCK], size[2:]], axis=0)
    places = [1, 0, *range(2, len(values.shape) + 1)]
    return tf.transpose(tf.reshape(values, shape), places)


@tf.custom_gradient
def _weights(rows: Tensor, mask: Tensor, table: Tensor, bias: Tensor) -> Any:
    """`splade_weights` of blocks: rows [n, B, BLOCK, E], mask bool [n, B, BLOCK]."""
    count, size = tf.shape(rows)[0], tf.shape(rows)[1]
    vocab_size, width = table.shape

    def look(index: Any, highest: Any, places: Any) -> tuple[Any, Any, Any]:
        block = tf.reshape(rows[index], [-1, width])
        scores = tf.cast(tf.matmul(block, table, transpose_b=True), tf.float32) + bias
        scores = tf.reshape(scores, [-1, BLOCK, vocab_size])
        scores = tf.where(mask[index][:, :, None], scores, 0.0)
        best = tf.argmax(scores, axis=1, output_type=tf.int32)  # [B, V]
        found = tf.reduce_max(scores, axis=1)
        places = tf.where(found > highest, index * BLOCK + best, places)
        return index + 1, tf.maximum(highest, found), places

    start = tf.zeros([size, vocab_size]), tf.fill([size, vocab_size], -1)
    _, highest, places = tf.while_loop(
        lambda index, *_: index < count, look, (tf.constant(0), *start)
    )

    def gradient(upstream: Any) -> tuple[Any, None, Any, Any]:
        upstream = upstream / (1.0 + highest)  # Where the highest is 0, no place matches.

        def spread(index: Any, arrays: Any, of_table: Any, of_bias: Any) -> tuple[Any, ...]:
            numbers = index * BLOCK + tf.range(BLOCK)
            is_here = tf.equal(places[:, None], numbers[None, :, None])  # [B, BLOCK, V]
            scores = tf.reshape(tf.where(is_here, upstream[:, None], 0.0), [-1, vocab_size])
            of_bias += tf.reduce_sum(scores, axis=0)
            scores = tf.cast(scores, table.dtype)
            block = tf.reshape(rows[index], [-1, width])
            of_table += tf.cast(tf.matmul(scores, block, transpose_a=True), tf.float32)
            of_rows = tf.reshape(tf.matmul(scores, table), [-1, BLOCK, width])
            return index + 1, arrays.write(index, of_rows), of_table, of_bias

        arrays = tf.TensorArray(rows.dtype, count, element_shape=[None, BLOCK, width])
        state = tf.constant(0), arrays, tf.zeros([vocab_size, width]), tf.zeros([vocab_size])
        _, arrays, of_table, of_bias = tf.while_loop(lambda index, *_: index < count, spread, state)
        return arrays.stack(), None, tf.cast(of_table, table.dtype), of_bias

    return tf.math.log1p(highest), gradient
