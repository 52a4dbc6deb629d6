"""Answers questions by spans of a context, searched in all its windows as in run_squad."""

from typing import Any, NamedTuple

import tensorflow as tf

from bert_tf.fine_tuning_config import reading_of_rows
from bert_tf.serving.graph_tokens import GraphTokens, check_utf8, find_tokens
from bert_tf.serving.model import Batch, Outputs, Serving
from bert_tf.serving.segments import first_of_largest
from bert_tf.tasks.question_answering.answers import NO_SPAN_ODDS
from bert_tf.tasks.question_answering.context_tokens import ContextTokens
from bert_tf.tasks.question_answering.joint_answers import (
    END_SCORES,
    ENDS,
    NO_ANSWER,
    START_SCORES,
    STARTS,
)
from bert_tf.tasks.question_answering.n_best_serving import NO_SPAN, best_texts, with_null
from bert_tf.text.packing import num_special_tokens
from bert_tf.text.tensor_packing import pack_rows

LOGITS = ("start_logits", "end_logits")


class Windows(NamedTuple):
    """Windows of contexts, R of them; a question has one at least, even of an empty context.

    Attributes:
      questions: int64 [R], whose window it is, in order.
      firsts, ends: int64 [R], its first token of the context, and the one after the last.
      offsets: int64 [R], the position of the window's first token in its row.
    """

    questions: tf.Tensor
    firsts: tf.Tensor
    ends: tf.Tensor
    offsets: tf.Tensor


class Candidates(NamedTuple):
    """Spans to choose from: N starts of each window, the best first, and N ends of each start.

    Attributes:
      first: int64 [R, N], the first token in the window.
      last: int64 [R, N, N], the last token in the window.
      scores: float64 [R, N, N], `NO_SPAN` where `may_be_answers` excludes a span.
    """

    first: tf.Tensor
    last: tf.Tensor
    scores: tf.Tensor


class QuestionAnsweringServing(Serving):
    """A `BertSpanLabeler` with questions and contexts.

    An answer is what google-research/bert's run_squad finds: in each window of the context the best
    sum of a start and an end among the `n_best_size` best of each, in order, at most
    `max_answer_length` tokens long, and beginning where no other window shows more context; of all
    windows the best.

    Args:
      arguments: of `Serving`.
      version_2: there may be no answer.
      null_score_diff_threshold: there is no answer if `null_odds` are above it.
      doc_stride, max_query_length: see `run_squad`; None: as `reading_of_rows`.
      n_best_size, max_answer_length: see `run_squad`.

    Outputs of texts:
      answer: string [B], characters of the context; "" for none.
      start, end: int32 [B], characters of the context: context[start:end] is the answer; -1.
      score: float32 [B], sum of the logits of the best answer that is a span.
      null_odds: float32 [B], the score of no answer minus that of the best span.
      probability: float32 [B], of the answer among the `n_best_size` best.

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
        self.version_2, self.threshold = version_2, null_score_diff_threshold
        usual = reading_of_rows(self.max_seq_length)
        self.doc_stride = usual.doc_stride if doc_stride is None else doc_stride
        self.max_query_length = usual.max_query_length
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
        """Also says how answers are found, for programs that do so outside the graph."""
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
        question = self.tokenizer.tokenize(check_utf8(texts[0])).merge_dims(1, 2)
        question = question[:, : self.max_query_length]
        context = ContextTokens(texts[1], find_tokens(self.tokenizer, texts[1]))
        windows = self.make_windows(question.row_lengths(), context.lengths)
        rows = context.tokens.slice(windows.questions, windows.firsts, windows.ends)
        batch = pack_rows(self.vocab, tf.gather(question, windows.questions), rows.ids)
        outputs = self.call_in_parts(batch, self.dtypes)
        is_first = shows_most_context(windows, context.lengths)
        spans = self.candidates(outputs, batch, windows)
        is_span = self.may_be_answers(spans, windows, rows, is_first)
        spans = spans._replace(scores=tf.where(is_span, spans.scores, NO_SPAN))
        first, last, scores = best_spans(spans, windows)  # [R]
        by_question = (windows.questions, context.tokens.ids.nrows())
        best = first_of_largest(scores, *by_question)  # [B], a row
        score = tf.gather(scores, best)
        null = self.null_scores(outputs, self.class_positions(batch), by_question)
        odds = self.null_odds(null, score)
        is_span = score > NO_SPAN
        is_answer = is_span & (odds <= self.threshold) if self.version_2 else is_span
        first, last = tf.gather(first, best), tf.gather(last, best)
        answers = context.cut_out(first, last, is_answer)
        listed = self.n_best_scores(spans, windows, context)
        probability = self.probabilities(listed, null, is_answer)
        return {
            **answers,
            "score": tf.cast(tf.where(is_span, score, 0.0), tf.float32),
            "null_odds": tf.cast(tf.where(is_span, odds, NO_SPAN_ODDS), tf.float32),
            "probability": tf.cast(tf.where(is_span, probability, 1.0), tf.float32),
        }

    def make_windows(self, question_lengths: tf.Tensor, context_lengths: tf.Tensor) -> Windows:
        """Cuts contexts into windows that overlap, as `features.make_windows`."""
        room = self.max_seq_length - self.num_special - question_lengths  # [B]
        stride = tf.minimum(room, self.doc_stride)
        counts = 1 + tf.maximum(-(-(context_lengths - room) // stride), 0)
        questions = tf.repeat(tf.range(tf.size(counts, tf.int64)), counts)
        firsts = tf.ragged.range(counts).values * tf.gather(stride, questions)
        ends = tf.minimum(
            firsts + tf.gather(room, questions), tf.gather(context_lengths, questions)
        )
        # [CLS] question [SEP]
        before = self.vocab.text_start + self.vocab.num_separators
        offsets = before + tf.gather(question_lengths, questions)
        return Windows(questions, firsts, ends, offsets)

    @property
    def dtypes(self) -> dict[str, tf.DType]:
        """Types of the model's outputs."""
        return dict.fromkeys(LOGITS, tf.float32)

    def candidates(self, outputs: Outputs, batch: Batch, windows: Windows) -> Candidates:
        """Returns the spans to choose from, the better start first, then the better end.

        Args:
          outputs: of the model, for the rows of the windows.
          batch: these rows.
          windows: of these rows.
        """
        # Padding is among the best of no row, whatever the model says of it.
        is_token = batch["input_mask"] > 0
        logits = {name: tf.where(is_token, outputs[name], NO_SPAN) for name in LOGITS}
        count = tf.minimum(self.n_best_size, tf.shape(logits[LOGITS[0]])[1])
        starts, ends = (tf.math.top_k(logits[name], count) for name in LOGITS)
        offsets = windows.offsets[:, tf.newaxis]
        first, last = (tf.cast(top.indices, tf.int64) - offsets for top in (starts, ends))  # [R, N]
        values = [tf.cast(top.values, tf.float64) for top in (starts, ends)]
        last = tf.tile(last[:, tf.newaxis, :], [1, count, 1])
        return Candidates(first, last, values[0][:, :, tf.newaxis] + values[1][:, tf.newaxis, :])

    def class_positions(self, batch: Batch) -> tf.Tensor:
        """Returns the position of [CLS] in each row of a batch, int32 [R]."""
        lengths = tf.reduce_sum(batch["input_mask"], axis=1)
        return lengths - 1 if self.vocab.class_at_end else tf.zeros_like(lengths)

    def null_scores(
        self, outputs: Outputs, class_positions: tf.Tensor, by_question: tuple[tf.Tensor, tf.Tensor]
    ) -> tf.Tensor:
        """Returns the score of no answer, float64 [B], by the window that believes in it least.

        Args:
          outputs: of the model, for the rows of all windows.
          class_positions: of these rows.
          by_question: the questions of the windows, and how many there are.
        """
        null = tf.zeros_like(class_positions, tf.float64)
        for name in LOGITS:
            of_class = tf.gather(outputs[name], class_positions, batch_dims=1)
            null += tf.cast(of_class, tf.float64)
        return tf.math.unsorted_segment_min(null, *by_question)

    def null_odds(self, null: tf.Tensor, score: tf.Tensor) -> tf.Tensor:
        """Returns the odds of no answer, float64 [B].

        Args:
          null: float64 [B], of `null_scores`.
          score: float64 [B], of the best span of each question.
        """
        return null - score

    def may_be_answers(
        self, spans: Candidates, windows: Windows, rows: GraphTokens, is_first: tf.RaggedTensor
    ) -> tf.Tensor:
        """Returns which spans may be answers, bool [R, N, N], as `answers.may_be_answers`.

        Args:
          spans: of the windows.
          windows: of these rows.
          rows: the tokens of the windows.
          is_first: bool ragged [R, (tokens)], whether a span may begin there.
        """
        first = spans.first
        last = spans.last
        sizes = (windows.ends - windows.firsts)[:, tf.newaxis]
        allowed = tf.pad(is_first.to_tensor(), [[0, 0], [0, 1]])  # Never empty.
        inside = tf.clip_by_value(first, 0, sizes)
        begins = (first >= 0) & tf.gather(allowed, inside, batch_dims=1)
        stops = (last >= 0) & (last < sizes[:, :, tf.newaxis])
        is_span = begins[:, :, tf.newaxis] & stops  # [R, N, N]
        length = last - first[:, :, tf.newaxis] + 1
        is_span &= (length > 0) & (length <= self.max_answer_length)
        # A token of byte-level BPE that is only the space before a word has no characters.
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
        """Returns the scores of the n-best lists without "no answer", float64 [B, N].

        Args:
          spans: of the windows.
          windows: of the contexts.
          context: the contexts.
        """
        found = tf.where(spans.scores > NO_SPAN)  # [S, 3]: window, start, end
        window = found[:, 0]
        questions = tf.gather(windows.questions, window)
        before = tf.gather(windows.firsts, window)
        first = tf.gather_nd(spans.first, found[:, :2]) + before
        last = tf.gather_nd(spans.last, found) + before
        return best_texts(
            tf.gather_nd(spans.scores, found),
            context.keys(questions, first, last),
            questions,
            context.tokens.ids.nrows(),
            self.n_best_size,
        )

    def probabilities(self, listed: tf.Tensor, null: tf.Tensor, is_answer: tf.Tensor) -> tf.Tensor:
        """Returns the probability of each answer, float64 [B], as `answers.Ranked.answer`.

        Args:
          listed: of `n_best_scores`.
          null: of `null_scores`.
          is_answer: bool [B], whether the answer is a span.
        """
        if not self.version_2:
            return tf.nn.softmax(listed)[:, 0]
        shares = tf.nn.softmax(with_null(listed, null))
        return tf.where(is_answer, shares[:, 0], shares[:, -1])


class JointQuestionAnsweringServing(QuestionAnsweringServing):
    """A `BertJointSpanLabeler`; `joint_answers` says how it answers.

    Args:
      arguments, options: of `QuestionAnsweringServing`; `n_best_size` is that of the probability.

    Outputs of texts are those of `QuestionAnsweringServing`, with the sum of the log-probabilities
    as `score` and the score of no answer alone as `null_odds`, without one -1e6. Outputs of ids are
    the model's.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.is_answerable = self.model.answerable is not None
        if self.version_2 and not self.is_answerable:
            raise ValueError(
                "The joint head of this model has no score for no answer, as it was made for "
                "questions that all have one; leave the threshold out."
            )

    @property
    def dtypes(self) -> dict[str, tf.DType]:
        names = ("start_logits", START_SCORES, END_SCORES, *[NO_ANSWER] * self.is_answerable)
        return dict.fromkeys(names, tf.float32) | dict.fromkeys((STARTS, ENDS), tf.int32)

    def candidates(self, outputs: Outputs, batch: Batch, windows: Windows) -> Candidates:
        offsets = windows.offsets[:, tf.newaxis]
        first = tf.cast(outputs[STARTS], tf.int64) - offsets
        last = tf.cast(outputs[ENDS], tf.int64) - offsets[:, :, tf.newaxis]
        starts, ends = (tf.cast(outputs[name], tf.float64) for name in (START_SCORES, END_SCORES))
        return Candidates(first, last, starts[:, :, tf.newaxis] + ends)

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
        # "No answer" has a class for itself and is in no list.
        return tf.where(is_answer, tf.nn.softmax(listed)[:, 0], tf.sigmoid(null))


def shows_most_context(windows: Windows, context_lengths: tf.Tensor) -> tf.RaggedTensor:
    """Returns which tokens no other window shows better: `features.find_max_context`.

    Args:
      windows: of the contexts.
      context_lengths: int64 [B].

    Returns:
      bool, ragged [R, (tokens)].
    """
    tokens = tf.ragged.range(windows.firsts, windows.ends)  # [R, (tokens)]
    rows = tokens.value_rowids()
    left = tokens.values - tf.gather(windows.firsts, rows)
    right = tf.gather(windows.ends, rows) - 1 - tokens.values
    size = tf.cast(left + right + 1, tf.float64)
    scores = tf.cast(tf.minimum(left, right), tf.float64) + 0.01 * size
    before = tf.cumsum(context_lengths, exclusive=True)  # [B]
    keys = tokens.values + tf.gather(before, tf.gather(windows.questions, rows))
    total = tf.reduce_sum(context_lengths)
    best = tf.gather(rows, first_of_largest(scores, keys, total))  # a window for each token
    return tokens.with_values(tf.gather(best, keys) == rows)


def best_spans(spans: Candidates, windows: Windows) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Finds the best span of each window.

    Returns:
      The first and the last token of the span in the context, int64 [R], and its score, float64
      [R], `NO_SPAN` where there is none.
    """
    count = tf.shape(spans.first)[1]
    flat = tf.reshape(spans.scores, [-1, count * count])
    best = tf.argmax(flat, axis=1, output_type=tf.int32)  # The first of equal ones.
    first = tf.gather(spans.first, best // count, batch_dims=1)
    last = tf.gather(tf.reshape(spans.last, tf.shape(flat)), best, batch_dims=1)
    return (
        first + windows.firsts,
        last + windows.firsts,
        tf.gather(flat, best, batch_dims=1),
    )
