"""MaxSim of all queries and documents of a batch, in TensorFlow, with its gradient.

Neither the products of all token pairs [B, N, Tq, Td] nor their gradient are in memory as a whole:
documents are taken one by one, and only the position of the best token is kept.
"""

from typing import Any

import tensorflow as tf

LOWEST = -1e9  # the product with a document's token that does not score


def token_scores(queries: tf.Tensor, documents: tf.Tensor, similarity: str) -> tf.Tensor:
    """Returns the score of each query with each document, float32 [B, N].

    Args:
      queries: float32 [B, Tq, D]; vectors of zeros are tokens that do not score.
      documents: float32 [N, Td, D], the same.
      similarity: maxsim, or meanmaxsim: divided by the number of a query's tokens.
    """
    size = queries.shape[-1]
    flat = tf.reshape(queries, [-1, size])  # [B * Tq, D]
    best = _best_products(flat, documents)  # [N, B * Tq]
    shape = [tf.shape(documents)[0], tf.shape(queries)[0], tf.shape(queries)[1]]
    scored = tf.cast(tf.reduce_any(queries != 0.0, axis=-1), tf.float32)  # [B, Tq]
    scores = tf.transpose(tf.reduce_sum(tf.reshape(best, shape) * scored, axis=-1))  # [B, N]
    if similarity == "meanmaxsim":
        scores /= tf.maximum(tf.reduce_sum(scored, axis=-1, keepdims=True), 1.0)
    return scores


@tf.custom_gradient
def _best_products(queries: tf.Tensor, documents: tf.Tensor) -> Any:
    """Returns the highest product of each query token in each document.

    [T, D], [N, Td, D] -> [N, T]. If several tokens of a document have the highest product, the
    first one gets the gradient.
    """

    def best_of(document: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        products = tf.matmul(queries, document, transpose_b=True)  # [T, Td]
        is_token = tf.reduce_any(document != 0.0, axis=-1)  # [Td]
        products = tf.where(is_token, products, LOWEST)
        positions = tf.argmax(products, axis=-1, output_type=tf.int32)
        return tf.reduce_max(products, axis=-1), positions

    best, positions = tf.map_fn(
        best_of, documents, fn_output_signature=(tf.float32, tf.int32)
    )  # [N, T] each

    def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        length = tf.shape(documents)[1]

        def shares(index: tf.Tensor) -> tf.Tensor:
            # The gradient of a maximum goes to the token that has it, [T, Td].
            return tf.one_hot(positions[index], length) * upstream[index][:, None]

        numbers = tf.range(tf.shape(documents)[0])
        of_queries = tf.foldl(
            lambda total, index: total + tf.matmul(shares(index), documents[index]),
            numbers,
            tf.zeros_like(queries),
        )
        of_documents = tf.map_fn(
            lambda index: tf.matmul(shares(index), queries, transpose_a=True),
            numbers,
            fn_output_signature=tf.float32,
        )
        return of_queries, of_documents

    return best, gradient
