"""SQuAD: decodes the logits of all windows into predictions, n-best lists and null odds.

  windows of a question    start_logits [windows, T], end_logits [windows, T]
  spans, best sum first    (window, start, end): all spans that are allowed as answers
  different texts          substrings of the context
  n-best list              in version 2 with "" for no answer

The best span becomes an `Answer`, which the Keras model and LiteRT files return. The program's
output has the layout of the original's three files:

  predictions.json        {id: text}
  nbest_predictions.json  {id: [{"text", "probability", "start_logit", "end_logit"}, ...]}
  null_odds.json          {id: score of no answer - score of the best answer}, version 2 only

Differs from the original in the text of an answer: here it is the substring of the context from the
first character of the first token to the last character of the last token. The original joins the
words that the span touches by single spaces, and aligns them with the lower-cased tokens; where
that fails (the span has [UNK], or lower-casing changed the length of a word), its answer is all of
these words, punctuation included. In the 8,686 annotated answers of train36 (uncased) three texts
differ, one of them only in white space; in all three the substring equals the annotation.

Reference: write_predictions in google-research/bert's run_squad.py.
"""

import abc
import collections
import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Self

import numpy as np

from bert_tf.config.fine_tuning_config import SquadConfig
from bert_tf.config.fine_tuning_defaults import BATCH_SIZE
from bert_tf.system.type_names import Column, TextColumn
from bert_tf.tasks.base.examples.columns import is_empty
from bert_tf.tasks.question_answering.candidates import (
    Candidate,
    best_candidate,
    find_spans,
    n_best,
    probabilities,
)
from bert_tf.tasks.question_answering.columns import read_asked
from bert_tf.tasks.question_answering.features import (
    QUESTION_REMEDY,
    SquadExamples,
    SquadFeature,
    make_examples,
)
from bert_tf.tasks.question_answering.questions import SquadQuestion
from bert_tf.text.text_counts import counts_texts
from bert_tf.text.tokenization import Tokenizer

# The odds of a question without any span, above every threshold; the original's initial value.
NO_SPAN_ODDS = 1e6
NO_SCORE = -1e4  # score of positions after the end of a row, which are never part of an answer
START = "start_logits"
END = "end_logits"
# Fields of `SquadConfig` that `answer` accepts: they select an answer, and do not change windows.
ANSWER_OPTIONS = (
    "n_best_size",
    "max_answer_length",
    "null_score_diff_threshold",
    "version_2_with_negative",
)


class Answer(NamedTuple):
    """The answer to a question.

    Attributes:
      answer: a substring of the context; "" for no answer.
      start, end: offsets in characters, answer == context[start:end]; -1 for no answer.
      score: the sum of the two logits of the best span (with a joint head, of its
        log-probabilities), even if the answer is ""; 0 if no span of the context is allowed.
      null_odds: the score of no answer minus `score` (with a joint head, only the score of no
        answer); above the threshold the answer is "".
      probability: probability of the answer among the `n_best_size` best answers, which in
        version 2 include no answer.
    """

    answer: str
    start: int
    end: int
    score: float
    null_odds: float
    probability: float


class QuestionAnswers(abc.ABC):
    """`answer`, for anything that computes the span scores of tokenized windows.

    A subclass defines `predict_rows`, or `answer_asked`, which calls it.
    """

    tokenizer: Tokenizer
    max_seq_length: int
    predict_rows: Any  # from rows and a batch size to each row's outputs by name, without padding
    text_remedy = QUESTION_REMEDY

    @property
    @abc.abstractmethod
    def reading(self) -> SquadConfig:
        """Options for splitting contexts into windows and for selecting answers."""

    @staticmethod
    def rank(
        examples: SquadExamples, outputs: "RowOutputs", config: SquadConfig
    ) -> Iterator["Ranked"]:
        """Yields the candidates of each question from the outputs of all rows."""
        return rank_outputs(examples, outputs, config)

    @counts_texts
    def answer(
        self,
        questions: Column,
        contexts: TextColumn | None = None,
        may_be_none: bool | None = None,
        batch_size: int = BATCH_SIZE,
        **options: Any,
    ) -> list[dict[str, Any]]:
        """Answers questions with parts of their contexts.

        Args:
          questions: texts; or, without contexts, a list of pairs (question, context), or a tuple of
            the two columns.
          contexts: one text per question, of any length.
          may_be_none: whether "no answer" is allowed; None: as in `reading`, by default not.
          batch_size: windows per batch.
          options: `n_best_size`, `max_answer_length`, `null_score_diff_threshold` of `SquadConfig`.

        Returns:
          A dict per question with the fields of `Answer`: {"answer": "in London", "start": 9,
            "end": 18, "score": 11.3, "null_odds": -8.2, "probability": 0.97}: context[start:end] is
            the answer, or "" and -1.

        Raises:
          ValueError: if these are not texts, an option is unknown, or the model was exported with
            other options.
        """
        if unknown := options.keys() - ANSWER_OPTIONS:
            raise ValueError(
                f"answer has no options {sorted(unknown)}; it has {list(ANSWER_OPTIONS)}."
            )
        if may_be_none is not None:
            options["version_2_with_negative"] = may_be_none
        given = questions if contexts is None else (questions, contexts)
        if is_empty(given):
            return []
        # The options select among spans; the windows stay those of `reading`, as in training.
        config = dataclasses.replace(self.reading, **options)
        return self.answer_asked(read_asked(given), config, batch_size)

    def answer_asked(
        self, asked: list[SquadQuestion], config: SquadConfig, batch_size: int
    ) -> list[dict[str, Any]]:
        """Returns the answers of `answer`; `config` is `reading` with the options of the call."""
        examples = make_examples(asked, self.tokenizer, self.max_seq_length, self.reading)
        outputs: dict[str, list[np.ndarray]] = {}
        # Contexts without words have no windows.
        if len(examples.rows):
            for row in self.predict_rows(examples.rows, batch_size):
                for name, values in row.items():
                    outputs.setdefault(name, []).append(values)
        return [ranked.answer(config)._asdict() for ranked in self.rank(examples, outputs, config)]


class Ranked(NamedTuple):
    """The candidates of a question."""

    question: SquadQuestion
    best: Candidate | None  # the best span; None if there is no span
    null_odds: float  # see `Answer`
    entries: list[Candidate]  # the n-best list
    # Probability of no answer, if the n-best list has no entry for it.
    null_probability: float | None = None

    def answer(self, config: SquadConfig) -> Answer:
        """Returns the answer; `config` selects it."""
        # The texts of an n-best list are different, so that they can be keys.
        probability_of_text = {}
        for entry, probability in zip(self.entries, probabilities(self.entries), strict=True):
            probability_of_text[entry.text] = probability
        if self.best is None:
            # No span is allowed: "" is the only possible answer.
            return Answer("", -1, -1, 0.0, self.null_odds, 1.0)
        score = self.best.score
        if config.version_2_with_negative and self.null_odds > config.null_score_diff_threshold:
            null_probability = self.null_probability
            if null_probability is None:
                null_probability = probability_of_text.get("", 0.0)
            return Answer("", -1, -1, score, self.null_odds, null_probability)
        text = self.best.text
        probability = probability_of_text.get(text, 0.0)
        return Answer(text, self.best.start, self.best.end, score, self.null_odds, probability)


class SquadPredictions(NamedTuple):
    """The contents of the original's three output files, in the order of the questions."""

    predictions: dict[str, str]
    nbest: dict[str, list[dict[str, Any]]]
    null_odds: dict[str, float]  # empty for version 1

    @classmethod
    def of_ranked(cls, all_ranked: Iterable[Ranked], config: SquadConfig) -> Self:
        """Selects the answers of questions."""
        nbest: dict[str, list[dict[str, Any]]] = {}
        null_odds: dict[str, float] = {}
        for ranked in all_ranked:
            nbest[ranked.question.id] = to_json(ranked.entries)
            if config.version_2_with_negative:
                null_odds[ranked.question.id] = ranked.null_odds
        predictions = {name: entries[0]["text"] for name, entries in nbest.items()}
        if config.version_2_with_negative:
            predictions = choose_answers(nbest, null_odds, config.null_score_diff_threshold)
        return cls(predictions, nbest, null_odds)


# The outputs of all rows by name: for each an array per row, without padding.
RowOutputs = Mapping[str, Sequence[np.ndarray]]


def rank_outputs(
    examples: SquadExamples, outputs: RowOutputs, config: SquadConfig
) -> Iterator[Ranked]:
    """Yields the candidates of each question from a model's scores; {} if there are no rows."""
    starts = pad_scores(outputs.get(START, ()))
    ends = pad_scores(outputs.get(END, ()))
    return rank_spans(examples.questions, examples.features, starts, ends, config)


def pad_scores(rows: Sequence[np.ndarray]) -> np.ndarray:
    """Pads the scores of rows with `NO_SCORE`, float32 [R, T]."""
    padded = np.full([len(rows), max(map(len, rows), default=0)], NO_SCORE, np.float32)
    for index, row in enumerate(rows):
        padded[index, : len(row)] = row
    return padded


def rank_spans(
    questions: Iterable[SquadQuestion],
    features: Sequence[SquadFeature],
    start_logits: np.ndarray,
    end_logits: np.ndarray,
    config: SquadConfig,
) -> Iterator[Ranked]:
    """Yields the candidates of each question; in version 2 "no answer" is in the n-best list.

    Args:
      features: their windows, in order within a question; a question may have no window.
      start_logits, end_logits: [features, T].
      config: its `n_best_size` is the number of starts and of ends that are considered in each
        window, and of entries in an n-best list, which may have "" as a further entry.
    """
    _check_finite(features, START, start_logits)
    _check_finite(features, END, end_logits)
    size = config.n_best_size
    for question, rows in with_rows(questions, features):
        # Sums are in float64, like those of the original's Python floats.
        starts = start_logits[rows].astype(np.float64)  # [windows of the question, T]
        ends = end_logits[rows].astype(np.float64)
        windows = [features[row] for row in rows]
        null = _null_candidate(windows, starts, ends)
        spans = find_spans(windows, _beams(starts, ends, size), config.max_answer_length)
        best = best_candidate(question, windows, spans)
        listed_null = null if config.version_2_with_negative else None
        entries = n_best(question, windows, spans, listed_null, size)
        # Differs from the original, which fails if no span is allowed; here "" is predicted.
        odds = NO_SPAN_ODDS if best is None else null.score - best.start_logit - best.end_logit
        yield Ranked(question, best, odds, entries)


def with_rows(
    questions: Iterable[SquadQuestion], features: Sequence[SquadFeature]
) -> Iterator[tuple[SquadQuestion, list[int]]]:
    """Yields each question with the indices of its windows in `features`."""
    # A context without words has no windows: its question gets an empty list.
    rows = collections.defaultdict(list)
    for row, feature in enumerate(features):
        rows[feature.question_id].append(row)
    for question in questions:
        yield question, rows[question.id]


def choose_answers(
    nbest: dict[str, list[dict[str, Any]]], null_odds: dict[str, float], threshold: float
) -> dict[str, str]:
    """Returns the predictions of version 2: "" above the threshold, otherwise the best text."""
    predictions = {}
    for name, entries in nbest.items():
        # In version 2 the list also contains "", which only the odds may choose.
        best = next((entry["text"] for entry in entries if entry["text"]), "")
        predictions[name] = "" if null_odds[name] > threshold else best
    return predictions


def _check_finite(features: Sequence[SquadFeature], name: str, logits: np.ndarray) -> None:
    """Raises ValueError for NaN, which a sort accepts silently: the answer would be arbitrary."""
    is_invalid = ~np.isfinite(logits).all(axis=1)  # [features]
    if is_invalid.any():
        question_id = features[int(is_invalid.argmax())].question_id
        raise ValueError(
            f"{name} of question {question_id} are not finite; check the model that computed them."
        )


def _null_candidate(
    windows: Sequence[SquadFeature], starts: np.ndarray, ends: np.ndarray
) -> Candidate:
    """Returns "no answer", the span [CLS], with its lowest score of all windows.

    A window without the answer scores no answer high, so that one window with an answer is enough.
    """
    if not len(starts):
        # Without windows, "" is the only entry, and its probability is 1 for any score.
        return Candidate("", 0.0, 0.0)
    columns = [window.class_position for window in windows]
    rows = np.arange(len(windows))
    null_starts = starts[rows, columns]  # [windows]
    null_ends = ends[rows, columns]
    row = int((null_starts + null_ends).argmin())
    return Candidate("", float(null_starts[row]), float(null_ends[row]))


def _beams(
    starts: np.ndarray, ends: np.ndarray, n_best_size: int
) -> Iterator[tuple[np.ndarray, ...]]:
    """Yields the best starts and ends of each window for `find_spans`.

    As in the original, they are taken from the whole row, question and padding included, and spans
    that cannot be answers are removed afterwards: a window may have fewer spans, or no span.
    """
    for start_scores, end_scores in zip(starts, ends, strict=True):
        # Stable: of equal logits the earlier position comes first, as with `top_k` in the graph.
        first = np.argsort(-start_scores, kind="stable")[:n_best_size]  # [n]
        last = np.argsort(-end_scores, kind="stable")[:n_best_size]
        last = np.tile(last, (len(first), 1))  # [n, n], as each start has the same ends
        yield first, start_scores[first], last, end_scores[last]


def to_json(entries: Sequence[Candidate]) -> list[dict[str, Any]]:
    """Converts an n-best list to the original's JSON."""
    rows = []
    for entry, probability in zip(entries, probabilities(entries), strict=True):
        rows.append(
            {
                "text": entry.text,
                "probability": probability,
                "start_logit": entry.start_logit,
                "end_logit": entry.end_logit,
            }
        )
    return rows
