"""The loss of masked tokens for large vocabularies, without the logits of the whole vocabulary.

The logits [M, V] of 640 predictions and 250,000 tokens take 640 MB, and their gradient as much.
Here the vocabulary is cut into chunks of C tokens, and only [M, C] exists at a time:

    forward   each chunk updates the running maximum, the sum of exponentials, the label's logit
    backward  each chunk computes its logits again, and from them its part of the gradients

The second computation costs one matrix product more than the usual three.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from bert_tf.network.tensors import Tensor

CHUNK_BYTES = 32 << 20  # of the logits of a chunk


class TokenLosses(NamedTuple):
    """Of each prediction: `loss`, float32 [M], in nats; `best`, int32 [M], the likeliest token."""

    loss: Tensor
    best: Tensor


class _Running(NamedTuple):
    """Results for the tokens so far, each [M]."""

    maximum: Tensor
    exponentials: Tensor  # sum of exp(logit - maximum)
    label_logit: Tensor
    best: Tensor


def chunked_token_losses(
    vectors: Tensor,
    table: Tensor,
    bias: Tensor | None,
    labels: Tensor,
    chunk_size: int = 0,
) -> TokenLosses:
    """Returns the cross-entropy of predictions, equal to that of the logits but for rounding.

    Args:
      vectors: float [M, E], whose products with the table are the logits. The products are computed
        in this type, everything else in float32.
      table: float32 [V, E].
      bias: float32 [V], added to the logits; None: zero.
      labels: int32 [M] in [0, V).
      chunk_size: C; 0: determined from CHUNK_BYTES.
    """
    vocab_size, width = map(int, table.shape)
    if bias is None:
        bias = tf.zeros([vocab_size])
    if not chunk_size:
        chunk_size = default_chunk_size(vectors.shape[0], vocab_size)
    chunks = _Chunks(vocab_size, min(chunk_size, vocab_size))

    @tf.custom_gradient
    def compute(vectors: Tensor, table: Tensor, bias: Tensor) -> tuple[TokenLosses, Any]:
        def logits_of(start: Tensor, size: int) -> tuple[Tensor, Tensor, Tensor]:
            """Returns the logits of a chunk [M, C], its rows [C, E], and where the label is."""
            # Slices of a fixed size: XLA needs one.
            rows = tf.cast(tf.slice(table, [start, 0], [size, width]), vectors.dtype)
            logits = tf.cast(tf.matmul(vectors, rows, transpose_b=True), tf.float32)
            logits += tf.slice(bias, [start], [size])
            is_label = start + tf.range(size) == labels[:, None]
            return logits, rows, is_label

        def add_chunk(start: Tensor, size: int, running: _Running) -> _Running:
            logits, _, is_label = logits_of(start, size)
            chunk_maximum = tf.reduce_max(logits, axis=-1)
            maximum = tf.maximum(running.maximum, chunk_maximum)
            chunk_sum = tf.reduce_sum(tf.exp(logits - maximum[:, None]), axis=-1)
            chunk_best = start + tf.argmax(logits, axis=-1, output_type=tf.int32)
            return _Running(
                maximum=maximum,
                exponentials=running.exponentials * tf.exp(running.maximum - maximum) + chunk_sum,
                label_logit=running.label_logit
                + tf.reduce_sum(tf.where(is_label, logits, 0.0), axis=-1),
                # Of equal logits the first counts, as in argmax.
                best=tf.where(chunk_maximum > running.maximum, chunk_best, running.best),
            )

        zeros = tf.zeros_like(labels, tf.float32)
        initial = _Running(zeros + zeros.dtype.min, zeros, zeros, tf.zeros_like(labels))
        running = chunks.fold(add_chunk, initial)
        log_sum = tf.math.log(running.exponentials)  # [M]

        def gradient(loss_gradient: Tensor, _: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            scale = loss_gradient[:, None]  # [M, 1]

            def part(start: Tensor, size: int) -> tuple[Tensor, Tensor, Tensor]:
                """Returns a chunk's gradient of vectors [M, E], of its rows [C, E], of its bias."""
                logits, rows, is_label = logits_of(start, size)
                probabilities = tf.exp(logits - running.maximum[:, None] - log_sum[:, None])
                difference = scale * (probabilities - tf.cast(is_label, tf.float32))  # [M, C]
                rounded = tf.cast(difference, vectors.dtype)
                return (
                    tf.cast(tf.matmul(rounded, rows), tf.float32),
                    tf.cast(tf.matmul(rounded, vectors, transpose_a=True), table.dtype),
                    tf.reduce_sum(difference, axis=0),
                )

            total = tf.zeros_like(vectors, tf.float32)
            total, table_gradient, bias_gradient = chunks.gather(part, total)
            return tf.cast(total, vectors.dtype), table_gradient, bias_gradient

        # The difference first: it is exact where the sum of large logits is not.
        loss = log_sum + (running.maximum - running.label_logit)
        return TokenLosses(loss, running.best), gradient

    loss, best = compute(vectors, tf.convert_to_tensor(table), tf.convert_to_tensor(bias))
    return TokenLosses(loss, best)


def default_chunk_size(num_vectors: int | None, vocab_size: int) -> int:
    """Returns the number of tokens in a chunk; about a sixteenth if the batch size is unknown."""
    if not num_vectors:
        return -(-vocab_size // 16)
    return min(vocab_size, max(1024, CHUNK_BYTES // (4 * num_vectors)))


class _Chunks:
    """Goes through the rows 0 to V in chunks of C; the last one has the remainder."""

    def __init__(self, vocab_size: int, size: int) -> None:
        self.size = size
        self.count = vocab_size // size
        self.remainder = vocab_size % size

    def fold(self, function: Callable[[Tensor, int, Any], Any], state: Any) -> Any:
        """Returns the state after `function(start, size, state)` of every chunk."""

        def body(index: Tensor, *state: Tensor) -> tuple[Tensor, ...]:
            return (index + 1, *function(index * self.size, self.size, _Running(*state)))

        _, *values = tf.while_loop(
            lambda index, *_: index < self.count,
            body,
            (0, *state),
            parallel_iterations=1,
            maximum_iterations=self.count,
        )
        result = _Running(*values)
        if self.remainder:
            result = function(tf.constant(self.count * self.size), self.remainder, result)
        return result

    def gather(
        self, function: Callable[[Tensor, int], tuple[Tensor, Tensor, Tensor]], total: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Returns the sum of the first results, and the others one below the other."""

        def body(index: Tensor, total: Tensor, rows: Any, bias: Any) -> tuple[Any, ...]:
            part, chunk_rows, chunk_bias = function(index * self.size, self.size)
            return (
                index + 1,
                total + part,
                rows.write(index, chunk_rows),
                bias.write(index, chunk_bias),
            )

        arrays = [tf.TensorArray(tf.float32, self.count) for _ in range(2)]
        _, total, rows, bias = tf.while_loop(
            lambda index, *_: index < self.count,
            body,
            (0, total, *arrays),
            parallel_iterations=1,
            maximum_iterations=self.count,
        )
        all_rows = [rows.concat()]
        all_bias = [bias.concat()]
        if self.remainder:
            start = tf.constant(self.count * self.size)
            part, last_rows, last_bias = function(start, self.remainder)
            total += part
            all_rows.append(last_rows)
            all_bias.append(last_bias)
        return total, tf.concat(all_rows, axis=0), tf.concat(all_bias, axis=0)
