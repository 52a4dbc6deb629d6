"""Probabilities of answers in the graph: `answers.n_best` and its softmax as TensorFlow operations.

spans that may be answers, S of all questions    scores [S], keys of their texts [S]
best_texts: each text once                       scores [B, N], best first
with_null: "no answer" among them (version 2)    scores [B, N + 1]
"""

import tensorflow as tf

NO_SPAN = -1e30  # Finite, so that a maximum of these scores stays the same number.


def best_texts(
    scores: tf.Tensor, keys: tf.Tensor, questions: tf.Tensor, num_questions: tf.Tensor, count: int
) -> tf.Tensor:
    """Returns the scores of the best texts of each question, where each text counts once.

    Args:
      scores: float64 [S], of spans.
      keys: int64 [S], equal for equal texts of one question and different for all others.
      questions: int64 [S], the question of each span.
      num_questions: B.
      count: N.

    Returns:
      float64 [B, N], the best first, `NO_SPAN` after the last.
    """
    unique, index = tf.unique(keys, tf.int64)  # U different texts
    num_texts = tf.size(unique, tf.int64)
    scores = tf.math.unsorted_segment_max(scores, index, num_texts)
    questions = tf.math.unsorted_segment_max(questions, index, num_texts)
    by_question = tf.argsort(questions, stable=True)
    rows = tf.RaggedTensor.from_value_rowids(
        tf.gather(scores, by_question), tf.gather(questions, by_question), num_questions
    )
    padded = tf.pad(rows.to_tensor(NO_SPAN), [[0, 0], [0, count]], constant_values=NO_SPAN)
    return tf.math.top_k(padded, count).values


def with_null(best: tf.Tensor, null: tf.Tensor) -> tf.Tensor:
    """Adds "no answer" to the n-best lists, in the last column.

    It takes the position that its score gives it. Where the list is full before it, it is one entry
    more.

    Args:
      best: float64 [B, N], of `best_texts`.
      null: float64 [B], the score of no answer.
    """
    last = best[:, -1]
    last = tf.where(last < null, tf.constant(NO_SPAN, tf.float64), last)
    return tf.concat([best[:, :-1], last[:, tf.newaxis], null[:, tf.newaxis]], axis=1)
