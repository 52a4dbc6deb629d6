"""Answers questions by spans of a context, searched in all its windows as in run_squad."""

from typing import Any, NamedTuple

import tensorflow as tf

from bert_tf.fine_tuning_config import reading_of_rows
from bert_tf.serving.graph_tokens import Characters, GraphTokens, check_utf8, find_tokens
from bert_tf.serving.model import Batch, Outputs, Serving
from bert_tf.serving.segments import first_of_largest
from bert_tf.tasks.question_answering.answers import NO_SPAN_ODDS
from bert_tf.tasks.question_answering.joint_answers import (
    END_SCORES,
    ENDS,
    NO_ANSWER,
    START_SCORES,
    STARTS,
)
from bert_tf.text.packing import num_special_tokens
from bert_tf.text.tensor_packing import pack_rows

LOGITS = ("start_logits", "end_logits")
NO_SPAN = -1e30  # Finite, so that a maximum of these scores stays the same number.


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
        context = find_tokens(self.tokenizer, texts[1])
        windows = self.make_windows(question.row_lengths(), context.lengths())
        rows = context.slice(windows.questions, windows.firsts, windows.ends)
        batch = pack_rows(self.vocab, tf.gather(question, windows.questions), rows.ids)
        outputs = self.call_in_parts(batch, self.dtypes)
        is_first = shows_most_context(windows, context.lengths())
        spans = self.candidates(outputs, batch, windows)
        first, last, scores = self.best_spans(*spans, windows, rows, is_first)  # [R]
        by_question = (windows.questions, context.ids.nrows())
        best = first_of_largest(scores, *by_question)  # [B], a row
        score = tf.gather(scores, best)
        odds = self.null_odds(outputs, self.class_positions(batch), score, by_question)
        is_span = score > NO_SPAN
        is_answer = is_span & (odds <= self.threshold) if self.version_2 else is_span
        first, last = tf.gather(first, best), tf.gather(last, best)
        answers = cut_out(texts[1], context, first, last, is_answer)
        return {
            **answers,
            "score": tf.cast(tf.where(is_span, score, 0.0), tf.float32),
            "null_odds": tf.cast(tf.where(is_span, odds, NO_SPAN_ODDS), tf.float32),
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

    def candidates(
        self, outputs: Outputs, batch: Batch, windows: Windows
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Returns the spans to choose from, N starts of each window and N ends of each start.

        Args:
          outputs: of the model, for the rows of the windows.
          batch: these rows.
          windows: of these rows.

        Returns:
          First tokens in the window, int64 [R, N]; last ones, int64 [R, N, N]; scores, float64
          [R, N, N], the better start first, then the better end.
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
        return first, last, values[0][:, :, tf.newaxis] + values[1][:, tf.newaxis, :]

    def class_positions(self, batch: Batch) -> tf.Tensor:
        """Returns the position of [CLS] in each row of a batch, int32 [R]."""
        lengths = tf.reduce_sum(batch["input_mask"], axis=1)
        return lengths - 1 if self.vocab.class_at_end else tf.zeros_like(lengths)

    def null_odds(
        self, outputs: Outputs, class_positions: tf.Tensor, score: tf.Tensor, by_question: Any
    ) -> tf.Tensor:
        """Returns the odds of no answer, float64 [B], by the window that believes in it least.

        Args:
          outputs: of the model, for the rows of all windows.
          class_positions: of these rows.
          score: of the best span of each question, float64 [B].
          by_question: the questions of the windows, and how many there are.
        """
        null = tf.zeros_like(class_positions, tf.float64)
        for name in LOGITS:
            of_class = tf.gather(outputs[name], class_positions, batch_dims=1)
            null += tf.cast(of_class, tf.float64)
        return tf.math.unsorted_segment_min(null, *by_question) - score

    def best_spans(
        self,
        first: tf.Tensor,
        last: tf.Tensor,
        sums: tf.Tensor,
        windows: Windows,
        rows: GraphTokens,
        is_first: tf.RaggedTensor,
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Finds the best span of each window.

        Args:
          first, last, sums: see `candidates`.
          windows: of these rows.
          rows: the tokens of the windows.
          is_first: bool ragged [R, (tokens)], whether a span may begin there.

        Returns:
          The first and the last token of the span in the context, int64 [R], and its score, float64
          [R], `NO_SPAN` where there is none.
        """
        count = tf.shape(first)[1]
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
        is_span &= first_bytes[:, :, tf.newaxis] < end_bytes
        flat = tf.reshape(tf.where(is_span, sums, NO_SPAN), [-1, count * count])
        best = tf.argmax(flat, axis=1, output_type=tf.int32)  # The first of equal ones.
        return (
            tf.gather(first, best // count, batch_dims=1) + windows.firsts,
            tf.gather(tf.reshape(last, tf.shape(flat)), best, batch_dims=1) + windows.firsts,
            tf.gather(flat, best, batch_dims=1),
        )


class JointQuestionAnsweringServing(QuestionAnsweringServing):
    """A `BertJointSpanLabeler`; `joint_answers` says how it answers.

    Args:
      arguments, options: of `QuestionAnsweringServing`; `n_best_size` has no effect.

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

    def candidates(
        self, outputs: Outputs, batch: Batch, windows: Windows
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        offsets = windows.offsets[:, tf.newaxis]
        first = tf.cast(outputs[STARTS], tf.int64) - offsets
        last = tf.cast(outputs[ENDS], tf.int64) - offsets[:, :, tf.newaxis]
        starts, ends = (tf.cast(outputs[name], tf.float64) for name in (START_SCORES, END_SCORES))
        return first, last, starts[:, :, tf.newaxis] + ends

    def null_odds(
        self, outputs: Outputs, class_positions: tf.Tensor, score: tf.Tensor, by_question: Any
    ) -> tf.Tensor:
        if not self.is_answerable:
            return tf.fill(tf.shape(score), tf.constant(-NO_SPAN_ODDS, tf.float64))
        null = tf.cast(outputs[NO_ANSWER], tf.float64)
        return tf.math.unsorted_segment_min(null, *by_question)


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


def cut_out(
    contexts: tf.Tensor,
    tokens: GraphTokens,
    first: tf.Tensor,
    last: tf.Tensor,
    is_answer: tf.Tensor,
) -> Outputs:
    """Returns `answer`, `start` and `end` of spans of tokens, as `SquadFeature.span_text` cuts.

    Args:
      contexts: string [B].
      tokens: of the contexts.
      first, last: int64 [B], tokens of the context.
      is_answer: bool [B]; without an answer they are "", -1, -1.
    """
    asked = tf.where(is_answer)[:, 0]  # [A]
    before = tf.gather(tokens.ids.row_splits, asked)

    def gather_offsets(column: tf.RaggedTensor, index: tf.Tensor) -> tf.RaggedTensor:
        chosen = tf.gather(column.values, before + tf.gather(index, asked))
        return tf.RaggedTensor.from_row_lengths(chosen, tf.cast(is_answer, tf.int64))

    characters = Characters(contexts)
    start = characters.before(gather_offsets(tokens.starts, first))
    end = characters.after_marks(characters.before(gather_offsets(tokens.ends, last)))
    texts = characters.texts(start, end)

    def dense(column: tf.RaggedTensor, default: Any) -> tf.Tensor:
        return column.to_tensor(default, shape=[None, 1])[:, 0]

    return {"answer": dense(texts, ""), "start": dense(start, -1), "end": dense(end, -1)}
