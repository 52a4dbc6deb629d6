"""N-best lists of answers in the graph: `answers.n_best` as TensorFlow operations.

S spans of all questions that are allowed    scores [S], keys of their texts [S]
best_texts: different texts                  scores [B, N], best first
with_null: with "no answer" (version 2)      scores [B, N + 1]
"""

import tensorflow as tf

NO_SPAN = -1e30  # Finite, so that a maximum of these scores is the same number.


def best_texts(
    scores: tf.Tensor, keys: tf.Tensor, questions: tf.Tensor, num_questions: tf.Tensor, count: int
) -> tf.Tensor:
    """Returns the scores of the best texts of each question; equal texts count once.

    Args:
      scores: float64 [S], the scores of spans.
      keys: int64 [S], equal for equal texts of a question, and different otherwise.
      questions: int64 [S], the question of each span.
      num_questions: B.
      count: N.

    Returns:
      float64 [B, N], the best first, `NO_SPAN` after the last.
    """
    # From S spans to U different texts, each with the score of its best span.
    unique, index = tf.unique(keys, tf.int64)
    num_texts = tf.size(unique, tf.int64)
    scores = tf.math.unsorted_segment_max(scores, index, num_texts)  # [U]
    questions = tf.math.unsorted_segment_max(questions, index, num_texts)  # [U]
    by_question = tf.argsort(questions, stable=True)
    rows = tf.RaggedTensor.from_value_rowids(
        tf.gather(scores, by_question), tf.gather(questions, by_question), num_questions
    )
    # Padded, because `top_k` needs at least N columns.
    padded = tf.pad(rows.to_tensor(NO_SPAN), [[0, 0], [0, count]], constant_values=NO_SPAN)
    return tf.math.top_k(padded, count).values


def with_null(best: tf.Tensor, null: tf.Tensor) -> tf.Tensor:
    """Adds "no answer" to the n-best lists, in the last column.

    If it is better than the last entry, it replaces that entry; otherwise it is a further entry.

    Args:
      best: float64 [B, N], results of `best_texts`.
      null: float64 [B], the score of no answer.
    """
    last = best[:, -1]
    # The softmax over a list does not depend on the order, so that the columns are not sorted.
    last = tf.where(last < null, tf.constant(NO_SPAN, tf.float64), last)
    return tf.concat([best[:, :-1], last[:, tf.newaxis], null[:, tf.newaxis]], axis=1)
