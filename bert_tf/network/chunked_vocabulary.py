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

from bert_tf.system.type_names import Tensor

CHUNK_BYTES = 32 << 20  # of the logits of a chunk


class TokenLosses(NamedTuple):
    """The loss of each prediction in nats, float32 [M], and the likeliest token, int32 [M]."""

    loss: Tensor
    best: Tensor


class _Running(NamedTuple):
    """Results for the tokens so far, each [M]."""

    maximum: Tensor
    exponentials: Tensor  # sum of exp(logit - maximum)
    label_logit: Tensor
    best: Tensor


class _Chunk(NamedTuple):
    """The logits of a chunk."""

    start: Tensor  # its first token
    logits: Tensor  # float32 [M, C]
    rows: Tensor  # of the table, in the type of the vectors [C, E]
    is_label: Tensor  # bool [M, C]


class _Head(NamedTuple):
    """The arguments of `chunked_token_losses`."""

    vectors: Tensor
    table: Tensor
    bias: Tensor
    labels: Tensor

    def chunk(self, start: Tensor, size: int) -> _Chunk:
        """Computes the logits of C = `size` tokens."""
        # Slices of a fixed size: XLA needs one.
        rows = tf.slice(self.table, [start, 0], [size, int(self.table.shape[1])])
        rows = tf.cast(rows, self.vectors.dtype)
        logits = tf.cast(tf.matmul(self.vectors, rows, transpose_b=True), tf.float32)
        logits += tf.slice(self.bias, [start], [size])
        is_label = start + tf.range(size) == self.labels[:, None]
        return _Chunk(start, logits, rows, is_label)

    def gradient(
        self, chunk: _Chunk, probabilities: Tensor, loss_gradient: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Returns a chunk's gradient of vectors [M, E], of its rows [C, E], of its bias [C].

        `probabilities` are those of its tokens, float32 [M, C]; `loss_gradient` is float32 [M].
        """
        # The gradient of the cross-entropy: softmax minus the one-hot label.
        difference = probabilities - tf.cast(chunk.is_label, tf.float32)
        difference = loss_gradient[:, None] * difference  # [M, C]
        rounded = tf.cast(difference, self.vectors.dtype)
        return (
            tf.cast(tf.matmul(rounded, chunk.rows), tf.float32),
            tf.cast(tf.matmul(rounded, self.vectors, transpose_a=True), self.table.dtype),
            tf.reduce_sum(difference, axis=0),
        )


def _add_chunk(running: _Running, chunk: _Chunk) -> _Running:
    """Returns the results for the tokens so far and those of a chunk."""
    logits = chunk.logits
    chunk_maximum = tf.reduce_max(logits, axis=-1)
    maximum = tf.maximum(running.maximum, chunk_maximum)
    chunk_sum = tf.reduce_sum(tf.exp(logits - maximum[:, None]), axis=-1)
    chunk_best = chunk.start + tf.argmax(logits, axis=-1, output_type=tf.int32)
    label_logit = tf.reduce_sum(tf.where(chunk.is_label, logits, 0.0), axis=-1)
    return _Running(
        maximum=maximum,
        # The sum so far is relative to the old maximum: rescale it to the new one.
        exponentials=running.exponentials * tf.exp(running.maximum - maximum) + chunk_sum,
        label_logit=running.label_logit + label_logit,
        # Of equal logits the first counts, as in argmax.
        best=tf.where(chunk_maximum > running.maximum, chunk_best, running.best),
    )


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
    vocab_size = int(table.shape[0])
    if bias is None:
        bias = tf.zeros([vocab_size])
    if not chunk_size:
        chunk_size = default_chunk_size(vectors.shape[0], vocab_size)
    chunks = _Chunks(vocab_size, min(chunk_size, vocab_size))

    @tf.custom_gradient
    def compute(vectors: Tensor, table: Tensor, bias: Tensor) -> tuple[TokenLosses, Any]:
        head = _Head(vectors, table, bias, labels)

        def add(start: Tensor, size: int, running: _Running) -> _Running:
            return _add_chunk(running, head.chunk(start, size))

        zeros = tf.zeros_like(labels, tf.float32)
        # Not -inf: its difference from -inf would be NaN.
        initial = _Running(zeros + zeros.dtype.min, zeros, zeros, tf.zeros_like(labels))
        running = chunks.fold(add, initial)
        log_sum = tf.math.log(running.exponentials)  # [M]

        def gradient(loss_gradient: Tensor, _: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            def part(start: Tensor, size: int) -> tuple[Tensor, Tensor, Tensor]:
                chunk = head.chunk(start, size)
                logits = chunk.logits - running.maximum[:, None]
                probabilities = tf.exp(logits - log_sum[:, None])
                return head.gradient(chunk, probabilities, loss_gradient)

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

    def fold(
        self, function: Callable[[Tensor, int, _Running], _Running], state: _Running
    ) -> _Running:
        """Returns the state after `function(start, size, state)` of every chunk."""

        def body(index: Tensor, *state: Tensor) -> tuple[Tensor, ...]:
            return (index + 1, *function(index * self.size, self.size, _Running(*state)))

        _, *values = tf.while_loop(
            lambda index, *_: index < self.count,
            body,
            (0, *state),
            # Two chunks at a time would need twice the memory.
            parallel_iterations=1,
            maximum_iterations=self.count,
        )
        result = _Running(*values)
        # The remainder is outside the loop, because XLA needs equal shapes inside.
        if self.remainder:
            result = function(tf.constant(self.count * self.size), self.remainder, result)
        return result

    def gather(
        self, function: Callable[[Tensor, int], tuple[Tensor, Tensor, Tensor]], total: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Returns the sum of the first results, and the others one below the other."""

        def body(
            index: Tensor, total: Tensor, rows: tf.TensorArray, bias: tf.TensorArray
        ) -> tuple[Tensor, ...]:
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
