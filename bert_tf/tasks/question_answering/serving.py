"""Serving functions of question answering: finds the best span of a context in the graph.

The windows, the rules for spans and the n-best lists must be the same as in Python: see `features`
and `answers`.
"""

from typing import Any, NamedTuple

import tensorflow as tf

from bert_tf.config.fine_tuning_config import reading_of_rows
from bert_tf.tasks.base.serving.graph_tokens import (
    Characters,
    GraphTokens,
    find_tokens,
    first_of_largest,
)
from bert_tf.tasks.base.serving.model import Batch, Outputs, Serving
from bert_tf.tasks.question_answering.answers import NO_SPAN_ODDS
from bert_tf.tasks.question_answering.joint_head import (
    END_SCORES,
    ENDS,
    NO_ANSWER,
    START_SCORES,
    STARTS,
)
from bert_tf.text.packing import num_special_tokens
from bert_tf.text.tensor_packing import pack_rows

LOGITS = ("start_logits", "end_logits")
NO_SPAN = -1e30  # Finite, so that a maximum of these scores is the same number.


class Windows(NamedTuple):
    """R windows of contexts. Every question has at least one, even if its context is empty."""

    questions: tf.Tensor  # int64 [R], the question of each window, ascending
    # firsts, ends: int64 [R], the first token of the context in the window, and one after the last.
    firsts: tf.Tensor
    ends: tf.Tensor
    offsets: tf.Tensor  # int64 [R], the position of the window's first token in its row


class Candidates(NamedTuple):
    """Candidate spans: N starts of each window, the best first, and N ends of each start."""

    first: tf.Tensor  # int64 [R, N], the first token in the window
    last: tf.Tensor  # int64 [R, N, N], the last token in the window
    scores: tf.Tensor  # float64 [R, N, N], `NO_SPAN` where `may_be_answers` excludes a span


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


class QuestionAnsweringServing(Serving):
    """Serving functions of a `BertSpanLabeler`.

    Answers are those of google-research/bert's run_squad: the span with the highest sum of a start
    and an end logit, of the `n_best_size` best starts and ends of each window. A span has at most
    `max_answer_length` tokens, and begins at a token that no other window shows with more context.

    Args:
      version_2: whether a question may have no answer.
      null_score_diff_threshold: the answer is "" if `null_odds` are above it.
      doc_stride, max_query_length: see `run_squad`; None: as in `reading_of_rows`.

    Outputs of texts:
      answer: string [B], a substring of the context; "" for no answer.
      start, end: int32 [B], offsets in characters: context[start:end] is the answer; -1 for no
        answer.
      score: float32 [B], sum of the logits of the best span.
      null_odds: float32 [B], the score of no answer minus the score of the best span.
      probability: float32 [B], probability of the answer among the `n_best_size` best answers.

    Outputs of ids: `start_logits` and `end_logits`, float32 [B, T].
    """

    kind = "question_answering"

    def __init__(
        self,
        *arguments: Any,
        version_2: bool = False,
        null_score_diff_threshold: float = 0.0,
        doc_stride: int | None = None,
        max_query_length: int | None = None,
        n_best_size: int = 20,
        max_answer_length: int = 30,
        **options: Any,
    ) -> None:
        super().__init__(*arguments, **{**options, "texts": ("question", "context")})
        self.version_2 = version_2
        self.threshold = null_score_diff_threshold
        defaults = reading_of_rows(self.max_seq_length)
        self.doc_stride = defaults.doc_stride if doc_stride is None else doc_stride
        self.max_query_length = defaults.max_query_length
        if max_query_length is not None:
            self.max_query_length = max_query_length
        self.n_best_size = n_best_size
        self.max_answer_length = max_answer_length
        self.num_special = num_special_tokens(True, self.vocab.num_separators)
        if self.max_seq_length <= self.max_query_length + self.num_special:
            raise ValueError(
                f"max_seq_length is {self.max_seq_length}: with a question of max_query_length, "
                f"{self.max_query_length}, no token of a context fits; expected at least "
                f"{self.max_query_length + self.num_special + 1}."
            )

    def card(self) -> dict[str, Any]:
        """Adds the options of the search, for programs that search outside the graph."""
        return {
            **super().card(),
            "version_2": self.version_2,
            "null_score_diff_threshold": self.threshold,
            "doc_stride": self.doc_stride,
            "max_query_length": self.max_query_length,
            "n_best_size": self.n_best_size,
            "max_answer_length": self.max_answer_length,
        }

    def from_ids(self, batch: Batch) -> Outputs:
        return self.call_model(batch)

    def from_texts(self, *texts: tf.Tensor) -> Outputs:
        question = self.tokenize(texts[0])
        question = question[:, : self.max_query_length]  # [B, (tokens)]
        context = ContextTokens(texts[1], find_tokens(self.tokenizer, texts[1]))
        windows = self.make_windows(question.row_lengths(), context.lengths)
        rows = context.tokens.slice(windows.questions, windows.firsts, windows.ends)
        batch = pack_rows(self.vocab, tf.gather(question, windows.questions), rows.ids)
        outputs = self.call_in_parts(batch, self.dtypes)
        # The spans of all windows; those that are not allowed get the score NO_SPAN.
        shows_most = shows_most_context(windows, context.lengths)
        spans = self.candidates(outputs, batch, windows)
        is_allowed = self.may_be_answers(spans, windows, rows, shows_most)
        spans = spans._replace(scores=tf.where(is_allowed, spans.scores, NO_SPAN))
        # The best span of each window [R], and of these the best of each question [B].
        first, last, scores = best_spans(spans, windows)
        by_question = (windows.questions, context.tokens.ids.nrows())
        best_window = first_of_largest(scores, *by_question)
        score = tf.gather(scores, best_window)
        first = tf.gather(first, best_window)
        last = tf.gather(last, best_window)
        null = self.null_scores(outputs, self.class_positions(batch), by_question)
        odds = self.null_odds(null, score)
        has_span = score > NO_SPAN
        is_answer = has_span & (odds <= self.threshold) if self.version_2 else has_span
        n_best_scores = self.n_best_scores(spans, windows, context)
        probability = self.probabilities(n_best_scores, null, is_answer)
        return {
            **context.cut_out(first, last, is_answer),
            "score": tf.cast(tf.where(has_span, score, 0.0), tf.float32),
            "null_odds": tf.cast(tf.where(has_span, odds, NO_SPAN_ODDS), tf.float32),
            "probability": tf.cast(tf.where(has_span, probability, 1.0), tf.float32),
        }

    def make_windows(self, question_lengths: tf.Tensor, context_lengths: tf.Tensor) -> Windows:
        """Splits contexts into overlapping windows, as `features.make_windows` does."""
        room = self.max_seq_length - self.num_special - question_lengths  # [B]
        stride = tf.minimum(room, self.doc_stride)  # [B]
        # Windows begin at multiples of the stride, until one reaches the end of the context.
        counts = 1 + tf.maximum(-(-(context_lengths - room) // stride), 0)
        questions = tf.repeat(tf.range(tf.size(counts, tf.int64)), counts)
        firsts = tf.ragged.range(counts).values * tf.gather(stride, questions)
        ends = tf.minimum(
            firsts + tf.gather(room, questions), tf.gather(context_lengths, questions)
        )
        # Before the window: [CLS] question [SEP].
        num_special = self.vocab.text_start + self.vocab.num_separators
        offsets = num_special + tf.gather(question_lengths, questions)
        return Windows(questions, firsts, ends, offsets)

    @property
    def dtypes(self) -> dict[str, tf.DType]:
        """Types of the model's outputs."""
        return dict.fromkeys(LOGITS, tf.float32)

    def candidates(self, outputs: Outputs, batch: Batch, windows: Windows) -> Candidates:
        """Returns the candidate spans, the better start first, then the better end."""
        # The best starts and ends never include padding, whose logits are arbitrary.
        is_token = batch["input_mask"] > 0
        start_logits, end_logits = (tf.where(is_token, outputs[name], NO_SPAN) for name in LOGITS)
        count = tf.minimum(self.n_best_size, tf.shape(start_logits)[1])
        starts = tf.math.top_k(start_logits, count)  # [R, N]
        ends = tf.math.top_k(end_logits, count)  # [R, N]
        # From positions in the row to tokens of the window.
        offsets = windows.offsets[:, tf.newaxis]
        first = tf.cast(starts.indices, tf.int64) - offsets
        last = tf.cast(ends.indices, tf.int64) - offsets
        last = tf.tile(last[:, tf.newaxis, :], [1, count, 1])  # [R, N, N]
        # Sums are in float64, as in Python.
        start_values = tf.cast(starts.values, tf.float64)
        end_values = tf.cast(ends.values, tf.float64)
        scores = start_values[:, :, tf.newaxis] + end_values[:, tf.newaxis, :]
        return Candidates(first, last, scores)

    def class_positions(self, batch: Batch) -> tf.Tensor:
        """Returns the position of [CLS] in each row of a batch, int32 [R]."""
        lengths = tf.reduce_sum(batch["input_mask"], axis=1)
        if self.vocab.class_at_end:
            return lengths - 1
        return tf.zeros_like(lengths)

    def null_scores(
        self, outputs: Outputs, class_positions: tf.Tensor, by_question: tuple[tf.Tensor, tf.Tensor]
    ) -> tf.Tensor:
        """Returns the score of no answer, float64 [B]: the lowest of all windows.

        Args:
          by_question: the question of each window, and the number of questions.
        """
        null = tf.zeros_like(class_positions, tf.float64)  # [R]
        for name in LOGITS:
            class_logits = tf.gather(outputs[name], class_positions, batch_dims=1)
            null += tf.cast(class_logits, tf.float64)
        return tf.math.unsorted_segment_min(null, *by_question)

    def null_odds(self, null: tf.Tensor, score: tf.Tensor) -> tf.Tensor:
        """Returns the odds of no answer, float64 [B]."""
        return null - score

    def may_be_answers(
        self, spans: Candidates, windows: Windows, rows: GraphTokens, shows_most: tf.RaggedTensor
    ) -> tf.Tensor:
        """Returns whether spans are allowed, bool [R, N, N], as `answers.may_be_answers` does.

        Args:
          shows_most: bool ragged [R, (tokens)], whether a span may begin at a token.
        """
        # Counted from the window's first token: negative in the question. [R, N] and [R, N, N]
        first = spans.first
        last = spans.last
        sizes = (windows.ends - windows.firsts)[:, tf.newaxis]  # [R, 1]
        # One more column, so that an empty window can be looked up as well.
        allowed = tf.pad(shows_most.to_tensor(), [[0, 0], [0, 1]])
        inside = tf.clip_by_value(first, 0, sizes)
        begins = (first >= 0) & tf.gather(allowed, inside, batch_dims=1)
        stops = (last >= 0) & (last < sizes[:, :, tf.newaxis])
        is_span = begins[:, :, tf.newaxis] & stops  # [R, N, N]
        length = last - first[:, :, tf.newaxis] + 1
        is_span &= (length > 0) & (length <= self.max_answer_length)
        # With byte-level BPE, a token that is only the space before a word has no characters.
        starts = tf.pad(rows.starts.to_tensor(), [[0, 0], [0, 1]])
        ends = tf.pad(rows.ends.to_tensor(), [[0, 0], [0, 1]])
        first_bytes = tf.gather(starts, inside, batch_dims=1)  # [R, N]
        end_bytes = tf.gather(
            ends, tf.clip_by_value(last, 0, sizes[:, :, tf.newaxis]), batch_dims=1
        )
        return is_span & (first_bytes[:, :, tf.newaxis] < end_bytes)

    def n_best_scores(
        self, spans: Candidates, windows: Windows, context: ContextTokens
    ) -> tf.Tensor:
        """Returns the scores of the n-best lists without "no answer", float64 [B, N]."""
        indices = tf.where(spans.scores > NO_SPAN)  # [S, 3]: window, start, end
        window = indices[:, 0]
        questions = tf.gather(windows.questions, window)
        # From tokens of the window to tokens of the context.
        window_start = tf.gather(windows.firsts, window)
        first = tf.gather_nd(spans.first, indices[:, :2]) + window_start
        last = tf.gather_nd(spans.last, indices) + window_start
        return best_texts(
            tf.gather_nd(spans.scores, indices),
            context.keys(questions, first, last),
            questions,
            context.tokens.ids.nrows(),
            self.n_best_size,
        )

    def probabilities(self, listed: tf.Tensor, null: tf.Tensor, is_answer: tf.Tensor) -> tf.Tensor:
        """Returns the probability of each answer, float64 [B], as `answers.Ranked.answer` does.

        Args:
          listed: float64 [B, N], results of `n_best_scores`.
          is_answer: bool [B], whether the answer is a span.
        """
        # The best span is in the first column, and no answer in the last.
        if not self.version_2:
            return tf.nn.softmax(listed)[:, 0]
        probabilities = tf.nn.softmax(with_null(listed, null))  # [B, N + 1]
        return tf.where(is_answer, probabilities[:, 0], probabilities[:, -1])


class JointQuestionAnsweringServing(QuestionAnsweringServing):
    """Serving functions of a `BertJointSpanLabeler`; see `joint_answers`.

    Args:
      arguments, options: arguments of `QuestionAnsweringServing`; `n_best_size` affects only the
        probability.

    Outputs of texts are those of `QuestionAnsweringServing`, but `score` is the sum of the
    log-probabilities, and `null_odds` is the score of no answer, or -1e6 if the head has none.
    Outputs of ids are the model's outputs.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.is_answerable = self.model.answerable is not None
        if self.version_2 and not self.is_answerable:
            raise ValueError(
                "The joint head of this model has no score for no answer, because it was trained "
                "on questions that all have an answer; leave the threshold out."
            )

    @property
    def dtypes(self) -> dict[str, tf.DType]:
        names = ("start_logits", START_SCORES, END_SCORES, *[NO_ANSWER] * self.is_answerable)
        return dict.fromkeys(names, tf.float32) | dict.fromkeys((STARTS, ENDS), tf.int32)

    def candidates(self, outputs: Outputs, batch: Batch, windows: Windows) -> Candidates:
        offsets = windows.offsets[:, tf.newaxis]
        first = tf.cast(outputs[STARTS], tf.int64) - offsets
        last = tf.cast(outputs[ENDS], tf.int64) - offsets[:, :, tf.newaxis]
        start_scores = tf.cast(outputs[START_SCORES], tf.float64)  # [R, N]
        end_scores = tf.cast(outputs[END_SCORES], tf.float64)  # [R, N, N]
        return Candidates(first, last, start_scores[:, :, tf.newaxis] + end_scores)

    def null_scores(
        self, outputs: Outputs, class_positions: tf.Tensor, by_question: tuple[tf.Tensor, tf.Tensor]
    ) -> tf.Tensor:
        if not self.is_answerable:
            return tf.fill([by_question[1]], tf.constant(-NO_SPAN_ODDS, tf.float64))
        null = tf.cast(outputs[NO_ANSWER], tf.float64)
        return tf.math.unsorted_segment_min(null, *by_question)

    def null_odds(self, null: tf.Tensor, score: tf.Tensor) -> tf.Tensor:
        return null

    def probabilities(self, listed: tf.Tensor, null: tf.Tensor, is_answer: tf.Tensor) -> tf.Tensor:
        # "No answer" has a separate class, and is not in the n-best list.
        return tf.where(is_answer, tf.nn.softmax(listed)[:, 0], tf.sigmoid(null))


def shows_most_context(windows: Windows, context_lengths: tf.Tensor) -> tf.RaggedTensor:
    """Returns whether a window shows a token with more context than other windows.

    It is bool, ragged [R, (tokens)], the same as of `features.find_max_context`; lengths are [B].
    """
    tokens = tf.ragged.range(windows.firsts, windows.ends)  # [R, (tokens)]
    rows = tokens.value_rowids()  # the window of each entry
    # The shorter side, plus a hundredth of the window's length.
    left = tokens.values - tf.gather(windows.firsts, rows)
    right = tf.gather(windows.ends, rows) - 1 - tokens.values
    size = tf.cast(left + right + 1, tf.float64)
    scores = tf.cast(tf.minimum(left, right), tf.float64) + 0.01 * size
    # Tokens are numbered over all contexts, so that a token in several windows has one key.
    tokens_before = tf.cumsum(context_lengths, exclusive=True)  # [B]
    keys = tokens.values + tf.gather(tokens_before, tf.gather(windows.questions, rows))
    num_tokens = tf.reduce_sum(context_lengths)
    best_window = tf.gather(rows, first_of_largest(scores, keys, num_tokens))  # [all tokens]
    return tokens.with_values(tf.gather(best_window, keys) == rows)


def best_spans(spans: Candidates, windows: Windows) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Finds the best span of each window.

    Returns:
      The first and the last token of the span in the context, int64 [R], and its score, float64
      [R], `NO_SPAN` if no span is allowed.
    """
    count = tf.shape(spans.first)[1]
    flat = tf.reshape(spans.scores, [-1, count * count])  # [R, N * N]
    best = tf.argmax(flat, axis=1, output_type=tf.int32)  # of equal scores, the first
    first = tf.gather(spans.first, best // count, batch_dims=1)
    last = tf.gather(tf.reshape(spans.last, tf.shape(flat)), best, batch_dims=1)
    return (first + windows.firsts, last + windows.firsts, tf.gather(flat, best, batch_dims=1))


def best_texts(
    scores: tf.Tensor, keys: tf.Tensor, questions: tf.Tensor, num_questions: tf.Tensor, count: int
) -> tf.Tensor:
    """Returns the scores of the best `count` texts of each question; equal texts count once.

    Args:
      scores, questions: float64 [S] and int64 [S], of each span.
      keys: int64 [S], equal for equal texts of a question, and different otherwise.

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
    """Adds the scores of no answer, [B], to those of `best_texts`, [B, N], in the last column.

    If it is better than the last entry, it replaces that entry; otherwise it is a further entry.
    """
    last = best[:, -1]
    # The softmax over a list does not depend on the order, so that the columns are not sorted.
    last = tf.where(last < null, tf.constant(NO_SPAN, tf.float64), last)
    return tf.concat([best[:, :-1], last[:, tf.newaxis], null[:, tf.newaxis]], axis=1)
