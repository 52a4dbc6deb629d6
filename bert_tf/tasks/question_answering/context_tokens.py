"""Tokens of contexts inside the graph, and the offsets of spans in characters."""

import tensorflow as tf

from bert_tf.tasks.base.serving.graph_tokens import Characters, GraphTokens
from bert_tf.tasks.base.serving.model import Outputs


class ContextTokens:
    """Tokens of contexts with their offsets, which are those of `SquadFeature.span_offsets`."""

    def __init__(self, contexts: tf.Tensor, tokens: GraphTokens) -> None:
        self.tokens = tokens
        self.lengths = tokens.lengths()
        self._characters = Characters(contexts)
        # From bytes to characters, ragged int32 [B, (tokens)].
        self._starts = self._characters.before(tokens.starts)
        self._ends = self._characters.after_marks(self._characters.before(tokens.ends))

    def cut_out(self, first: tf.Tensor, last: tf.Tensor, is_answer: tf.Tensor) -> Outputs:
        """Returns `answer`, `start` and `end` of a span of each context.

        Args:
          first, last: int64 [B], first and last token of the span in the context.
          is_answer: bool [B]; without an answer the outputs are "", -1, -1.
        """
        answered = tf.where(is_answer)[:, 0]  # [A], indices of contexts with an answer
        counts = tf.cast(is_answer, tf.int64)  # [B], 0 or 1 spans

        def gather_offsets(column: tf.RaggedTensor, index: tf.Tensor) -> tf.RaggedTensor:
            chosen = self._gather(column, answered, tf.gather(index, answered))  # [A]
            # Ragged with 0 or 1 spans in a row, because `Characters` works on ragged offsets.
            return tf.RaggedTensor.from_row_lengths(chosen, counts)

        start = gather_offsets(self._starts, first)
        end = gather_offsets(self._ends, last)
        texts = self._characters.texts(start, end)

        def dense(column: tf.RaggedTensor, default: str | int) -> tf.Tensor:
            return column.to_tensor(default, shape=[None, 1])[:, 0]

        return {"answer": dense(texts, ""), "start": dense(start, -1), "end": dense(end, -1)}

    def keys(self, contexts: tf.Tensor, first: tf.Tensor, last: tf.Tensor) -> tf.Tensor:
        """Returns `Characters.keys` of spans, int64 [S].

        Args:
          contexts: int64 [S], the context of each span.
          first, last: int64 [S], first and last token of each span in its context.
        """
        starts = self._gather(self._starts, contexts, first)
        ends = self._gather(self._ends, contexts, last)
        return self._characters.keys(contexts, starts, ends)

    def _gather(self, column: tf.RaggedTensor, contexts: tf.Tensor, index: tf.Tensor) -> tf.Tensor:
        """Returns the values of single tokens."""
        # row_splits has the number of tokens before each context, in the flat values of all.
        return tf.gather(column.values, tf.gather(self.tokens.ids.row_splits, contexts) + index)
