"""Targets that are predicted one after the other, while every position stays visible (MPNet).

  tokens            the text with [MASK] at each target: attend to each other, as in a plain pass
  content of k-th   its own token; sees the content of targets 1 .. k, and [MASK] of the later ones
  query of k-th     starts as [MASK]; sees the content of targets 1 .. k - 1, and [MASK] of the
                    others, its own included

Both also see all tokens that are not targets. So a target sees something at each position of the
text, like a masked language model ("position compensation"), and depends on the targets before it,
like a permuted one. In the query stream of `query_stream.py` later positions are hidden instead.

Keys of the content are put at the positions of the targets in a second row of T keys, so that each
position scheme works as it does for tokens; dense layers compute T + 2 K vectors.

Reference: Song et al. 2020 (MPNet), sections 2.2 and 2.3. Their code computes the same numbers with
the tokens in the order of prediction; here they stay in the order of the text.
"""

import functools
from collections.abc import Iterable

from keras import ops

from bert_tf.network.attention import (
    AttentionPattern,
    ScoreTerms,
    SelfAttention,
    attend_from_scaled,
)
from bert_tf.network.layout import PADDING_BIAS, PaddedBatch
from bert_tf.network.query_stream import QueryStream, check_query_layout, dropping
from bert_tf.system.type_names import Batch, Tensor


class CompensatedStream(QueryStream):
    """The content and query vectors of the targets, [B, 2 K, D]: first all content.

    `positions` are in the order of prediction; see `QueryStream`.
    """

    def __init__(self, positions: Tensor, layout: PaddedBatch) -> None:
        super().__init__(positions, layout)
        self.vector_positions = ops.concatenate([positions, positions], axis=1)
        self.num_vectors = 2 * self.size
        # By whether attention is local: the biases of the content and of the query vectors.
        self.biases: dict[bool, tuple[Tensor, Tensor]] = {}

    def word_ids(self, inputs: Batch) -> Tensor:
        ids = ops.concatenate([inputs["query_content_ids"], inputs["query_word_ids"]], axis=1)
        return ops.cast(ids, "int32")

    def add_patterns(self, patterns: Iterable[AttentionPattern]) -> None:
        for pattern in patterns:
            bias = pattern.full_bias()
            self.biases[pattern.is_local] = (
                self._bias(bias, sees_itself=True),
                self._bias(bias, sees_itself=False),
            )

    def _bias(self, bias: Tensor, sees_itself: bool) -> Tensor:
        """Returns the bias of T keys of the tokens and T of the content, float32 [B, ., T, 2*T].

        `bias` is that of a plain pass, float32 [B, 1 or N, 1 or T, T]; with `sees_itself` a target
        sees its own content instead of [MASK].
        """
        numbers = ops.arange(1, self.size + 1, dtype="int32")
        one_hot = ops.one_hot(self.positions, self.layout.length, dtype="int32")  # [B, K, T]
        ranks = ops.sum(one_hot * ops.reshape(numbers, (1, -1, 1)), axis=1)  # [B, T]; 0: no target
        key_ranks = ops.expand_dims(ranks, 1)  # [B, 1, T]
        limits = ops.expand_dims(ranks + int(sees_itself), 2)  # [B, T, 1]
        # A target that is known replaces [MASK] at its position.
        is_known = ops.logical_and(key_ranks > 0, key_ranks < limits)
        is_known = ops.expand_dims(is_known, 1)  # [B, 1, T, T]
        of_tokens = ops.where(is_known, PADDING_BIAS, bias)
        of_content = ops.where(is_known, bias, PADDING_BIAS)
        return ops.concatenate([of_tokens, of_content], axis=-1)

    def attend(
        self,
        attention: SelfAttention,
        queries: Tensor,
        key: Tensor,
        value: Tensor,
        pattern: AttentionPattern,
        shared_terms: Tensor | None,
        dropout_seed: Tensor | None,
    ) -> Tensor:
        size = queries.shape[-1]

        def in_rows(vectors: Tensor) -> Tensor:
            rows = self.scatter(ops.reshape(vectors, (-1, size)))
            return ops.reshape(rows, ops.shape(key))  # [B, T, N, H]

        vectors = ops.reshape(queries, (-1, self.num_vectors, size))
        content = vectors[:, : self.size]  # [B, K, D]
        rotate = functools.partial(pattern.positions.rotate, position_ids=pattern.position_ids)
        content_query, content_key = rotate(
            in_rows(attention.query(content)),
            in_rows(attention.key(content)),
        )
        # The query vectors, and the keys of the tokens, which are not rotated before.
        query, key = rotate(in_rows(attention.query(vectors[:, self.size :])), key)
        keys = ops.concatenate([key, content_key], axis=1)  # [B, 2*T, N, H]
        values = ops.concatenate([value, in_rows(attention.value(content))], axis=1)
        terms = attention.score_terms(shared_terms, pattern)
        if terms is not None:
            terms = functools.partial(_terms_of_both, terms)
        query_seed = self.dropout_seed(dropout_seed)
        # Three masks of one layer: tokens, queries and content.
        content_seed = self.dropout_seed(query_seed)
        content_bias, query_bias = self.biases[pattern.is_local]
        contexts = []
        for rows, bias, seed in (
            (content_query, content_bias, content_seed),
            (query, query_bias, query_seed),
        ):
            context = attend_from_scaled(
                rows * pattern.scale(rows.shape[-1]),
                keys,
                values,
                bias,
                dropping(attention, seed),
                terms,
            )
            taken = self.take(ops.reshape(context, (-1, size)))
            contexts.append(ops.reshape(taken, (-1, self.size, size)))
        # First all content, then all queries: [B, 2*K, D] -> [B*2*K, D].
        return ops.reshape(ops.concatenate(contexts, axis=1), (-1, size))

    def predictions(self, vectors: Tensor) -> Tensor:
        return super().predictions(vectors)[:, self.size :]


def _terms_of_both(terms: ScoreTerms, query: Tensor, keys: Tensor, offset: Tensor) -> Tensor | None:
    """Returns the terms of the keys of tokens and of content, which have the same positions."""
    of_tokens, of_content = ops.split(keys, 2, axis=1)
    token_terms = terms(query, of_tokens, offset)
    content_terms = terms(query, of_content, offset)
    if token_terms is None or content_terms is None:
        return None
    return ops.concatenate([token_terms, content_terms], axis=-1)


def find_stream(inputs: Batch, layout: PaddedBatch) -> QueryStream | None:
    """Returns the stream of targets that a batch asks for; None without targets.

    Packed rows, or two orders, are an error. `inputs`: see `BertEncoder`.
    """
    if "query_positions" not in inputs:
        return None
    check_query_layout(layout)
    positions = ops.cast(inputs["query_positions"], "int32")
    if "query_content_ids" not in inputs:
        return QueryStream(positions, layout)
    if layout.ranks is not None:
        raise ValueError(
            "query_content_ids and key_ranks are two orders of the targets; with query_content_ids "
            "it is the order of query_positions: leave out key_ranks and query_ranks."
        )
    return CompensatedStream(positions, layout)
