"""SQuAD: from the logits of all windows to predictions, n-best lists and null odds.

  windows of a question    start_logits [windows, T], end_logits [windows, T]
  spans, best sum first    (window, start, end): all that the rules allow as answers
  texts, each once         cut out of the context
  n-best                   with "" for no answer among them (version 2)

The best span becomes an `Answer`, which the Keras model and LiteRT files give. What the program
writes has the layout of the original's three files:

  predictions.json        {id: text}
  nbest_predictions.json  {id: [{"text", "probability", "start_logit", "end_logit"}, ...]}
  null_odds.json          {id: score of no answer - score of the best answer}, version 2 only

Differs from the original in the text of an answer: here it is the characters from the first
token's first to the last token's last, with the white space between them that the context has.
The original joins the words that the span touches by single spaces and aligns them with the
lower-cased tokens; where that fails (the span has [UNK], or lower-casing changed the
number of characters of one of the words) its answer is all of those words, punctuation included.
Over the 8,686 marked answers of train36 (uncased) three texts differ, one of them in white space
only; in all three the characters of the context are what was marked.

Reference: write_predictions in google-research/bert's run_squad.py.
"""

import abc
import collections
import dataclasses
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from bert_tf.examples.columns import is_empty
from bert_tf.examples.rows import TokenizedDataset
from bert_tf.fine_tuning_config import SquadConfig
from bert_tf.fine_tuning_defaults import BATCH_SIZE
from bert_tf.tasks.question_answering.columns import read_asked
from bert_tf.tasks.question_answering.features import (
    SquadExamples,
    SquadFeature,
    SquadQuestion,
    make_examples,
)
from bert_tf.text.tokenization import Tokenizer
from bert_tf.type_names import Column, TextColumn

# Odds of a question without any span: above every threshold. The original's starting value.
NO_SPAN_ODDS = 1e6
NO_SPAN_TEXT = "empty"  # of version 1; the original's
NO_SCORE = -1e4  # of positions after the end of a row, which are never part of an answer
START, END = "start_logits", "end_logits"
# Fields of `SquadConfig` that `answer` takes: those that choose an answer, not those of windows.
CHOOSING = (
    "n_best_size",
    "max_answer_length",
    "null_score_diff_threshold",
    "version_2_with_negative",
)


class Answer(NamedTuple):
    """The answer to a question.

    Attributes:
      answer: a part of the context; "" for no answer.
      start, end: its characters, answer == context[start:end]; -1 for no answer.
      score: the sum of the two logits of the best span (of a joint head, of its log-probabilities),
        also where the answer is ""; 0 if the context has no span that may be an answer.
      null_odds: the score of no answer minus `score` (of a joint head, the score of no answer
        alone); there is no answer if the odds are above the threshold.
      probability: of the answer among the `n_best_size` best, which in version 2 include no answer.
    """

    answer: str
    start: int
    end: int
    score: float
    null_odds: float
    probability: float


class QuestionAnswers(abc.ABC):
    """`answer`, for anything that computes the span scores of tokenized windows.

    Attributes:
      tokenizer: of the model.
      max_seq_length: maximum length of a row.
    """

    tokenizer: Tokenizer
    max_seq_length: int

    @property
    @abc.abstractmethod
    def reading(self) -> SquadConfig:
        """How contexts are split into windows, and answers chosen."""

    @abc.abstractmethod
    def compute_rows(self, rows: TokenizedDataset, batch_size: int) -> list[dict[str, np.ndarray]]:
        """Returns the outputs of each row by name, without padding."""

    def answer(
        self,
        questions: Column,
        contexts: TextColumn | None = None,
        may_be_none: bool | None = None,
        batch_size: int = BATCH_SIZE,
        **options: Any,
    ) -> list[dict[str, Any]]:
        """Returns the answer to each question.

        Args:
          questions: texts; or, without contexts, a list of pairs (question, context), or a tuple of
            the two columns.
          contexts: one text per question, of any length.
          may_be_none: whether "no answer" is allowed; None: as in `reading`, by default not.
          batch_size: windows per batch.
          options: `n_best_size`, `max_answer_length`, `null_score_diff_threshold` of `SquadConfig`.

        Returns:
          A dict per question with the fields of `Answer`: `answer`, a part of its context, or "";
            `start` and `end` in characters of the context; `score`, the sum of the logits of the
            best span (of a joint head, of its log-probabilities); `null_odds`, the score of no
            answer minus that (of a joint head, the score of no answer alone); and `probability`, of
            the answer among the best ones.

        Raises:
          ValueError: if the texts are wrong, or there is no such option.
        """
        if unknown := options.keys() - CHOOSING:
            raise ValueError(f"answer has no options {sorted(unknown)}; it has {list(CHOOSING)}.")
        if may_be_none is not None:
            options["version_2_with_negative"] = may_be_none
        asked = questions if contexts is None else (questions, contexts)
        if is_empty(asked):
            return []
        config = dataclasses.replace(self.reading, **options)
        examples = make_examples(
            read_asked(asked), self.tokenizer, self.max_seq_length, self.reading
        )
        outputs = []
        if len(examples.rows):  # Contexts without a word have no window.
            outputs = self.compute_rows(examples.rows, batch_size)
        return [answer._asdict() for answer in self.find_answers(examples, outputs, config)]

    def find_answers(
        self, examples: SquadExamples, outputs: list[dict[str, np.ndarray]], config: SquadConfig
    ) -> list[Answer]:
        """Returns the answer to each question from the outputs of all rows."""
        starts = pad_scores([row[START] for row in outputs])
        ends = pad_scores([row[END] for row in outputs])
        return best_answers(examples.questions, examples.features, starts, ends, config)


def pad_scores(rows: Sequence[np.ndarray]) -> np.ndarray:
    """Returns scores of rows as one array, float32 [R, T], with `NO_SCORE` after a row's end."""
    padded = np.full([len(rows), max(map(len, rows), default=0)], NO_SCORE, np.float32)
    for index, row in enumerate(rows):
        padded[index, : len(row)] = row
    return padded


class SquadPredictions(NamedTuple):
    """What the original writes to three files, in the order of the questions."""

    predictions: dict[str, str]
    nbest: dict[str, list[dict[str, Any]]]
    null_odds: dict[str, float]  # empty for version 1


class Candidate(NamedTuple):
    """An entry of an n-best list."""

    text: str  # "" for no answer
    start_logit: float
    end_logit: float
    start: int = 0  # characters of the context
    end: int = 0

    @property
    def score(self) -> float:
        return self.start_logit + self.end_logit


def make_predictions(
    questions: Iterable[SquadQuestion],
    features: Sequence[SquadFeature],
    start_logits: np.ndarray,
    end_logits: np.ndarray,
    version_2: bool,
    n_best_size: int = 20,
    max_answer_length: int = 30,
    null_score_diff_threshold: float = 0.0,
) -> SquadPredictions:
    """Finds the answer to each question in all of its windows.

    Args:
      questions: those to be answered.
      features: their windows, in order within a question; a question may have none.
      start_logits, end_logits: [features, T], a row for each of `features`.
      version_2: a question may have no answer.
      n_best_size: starts and ends looked at in each window, and entries of an n-best list; the
        empty text may come on top.
      max_answer_length: maximum number of tokens of an answer.
      null_score_diff_threshold: "" is predicted if the null odds are above it.

    Raises:
      ValueError: if the logits do not fit the features or are not finite, or a size is below 1.
    """
    if n_best_size < 1 or max_answer_length < 1:
        raise ValueError(
            f"n_best_size is {n_best_size}, max_answer_length {max_answer_length}; expected at "
            "least 1."
        )
    nbest: dict[str, list[dict[str, Any]]] = {}
    null_odds: dict[str, float] = {}
    sizes = version_2, n_best_size, max_answer_length
    for ranked in _rank(questions, features, start_logits, end_logits, *sizes):
        nbest[ranked.question.id] = to_json(ranked.entries)
        if version_2:
            null_odds[ranked.question.id] = ranked.null_odds
    if version_2:
        predictions = choose_answers(nbest, null_odds, null_score_diff_threshold)
    else:
        predictions = {name: entries[0]["text"] for name, entries in nbest.items()}
    return SquadPredictions(predictions, nbest, null_odds)


class Ranked(NamedTuple):
    """The candidates of a question.

    Attributes:
      question: the question.
      best: the best span; None if there is no span.
      null_odds: see `Answer`.
      entries: the n-best list.
    """

    question: SquadQuestion
    best: Candidate | None
    null_odds: float
    entries: list[Candidate]

    def answer(self, config: SquadConfig, null_probability: float | None = None) -> Answer:
        """Returns the answer.

        Args:
          config: how it is chosen.
          null_probability: of no answer, if the n-best list has no entry for it.
        """
        shares = {}
        for entry, probability in zip(self.entries, probabilities(self.entries), strict=True):
            shares[entry.text] = probability
        if self.best is None:
            return Answer("", -1, -1, 0.0, self.null_odds, 1.0)
        score = self.best.score
        if config.version_2_with_negative and self.null_odds > config.null_score_diff_threshold:
            share = shares.get("", 0.0) if null_probability is None else null_probability
            return Answer("", -1, -1, score, self.null_odds, share)
        text = self.best.text
        share = shares.get(text, 0.0)
        return Answer(text, self.best.start, self.best.end, score, self.null_odds, share)


def best_answers(
    questions: Iterable[SquadQuestion],
    features: Sequence[SquadFeature],
    start_logits: np.ndarray,
    end_logits: np.ndarray,
    config: SquadConfig,
) -> list[Answer]:
    """Returns the answer to each question that `make_predictions` predicts, with its position."""
    sizes = config.version_2_with_negative, config.n_best_size, config.max_answer_length
    ranked = _rank(questions, features, start_logits, end_logits, *sizes)
    return [one.answer(config) for one in ranked]


def _rank(
    questions: Iterable[SquadQuestion],
    features: Sequence[SquadFeature],
    start_logits: np.ndarray,
    end_logits: np.ndarray,
    version_2: bool,
    n_best_size: int,
    max_answer_length: int,
) -> Iterator[Ranked]:
    """Yields the candidates of each question; in version 2 "no answer" is in the n-best list."""
    start_logits = np.asarray(start_logits)
    end_logits = np.asarray(end_logits)
    _check_logits(features, start_logits, end_logits)
    for question, rows in with_rows(questions, features):
        # Sums in float64, as of the original's Python floats: [windows of the question, T].
        starts = start_logits[rows].astype(np.float64)
        ends = end_logits[rows].astype(np.float64)
        windows = [features[row] for row in rows]
        null = _null_candidate(windows, starts, ends)
        spans = _find_spans(windows, starts, ends, n_best_size, max_answer_length)
        best = best_candidate(question, windows, spans)
        entries = n_best(question, windows, spans, null if version_2 else None, n_best_size)
        yield Ranked(question, best, _null_odds(null, best), entries)


def with_rows(
    questions: Iterable[SquadQuestion], features: Sequence[SquadFeature]
) -> Iterator[tuple[SquadQuestion, list[int]]]:
    """Yields each question with the indices of its windows in `features`."""
    rows = collections.defaultdict(list)
    for row, feature in enumerate(features):
        rows[feature.question_id].append(row)
    for question in questions:
        yield question, rows[question.id]


def choose_answers(
    nbest: dict[str, list[dict[str, Any]]], null_odds: dict[str, float], threshold: float
) -> dict[str, str]:
    """Returns the predictions of version 2: "" above the threshold, else the best text.

    Args:
      nbest, null_odds: of `make_predictions`, or read from the files.
      threshold: see `null_score_diff_threshold`.
    """
    predictions = {}
    for name, entries in nbest.items():
        best = next((entry["text"] for entry in entries if entry["text"]), "")
        predictions[name] = "" if null_odds[name] > threshold else best
    return predictions


def _check_logits(
    features: Sequence[SquadFeature], start_logits: np.ndarray, end_logits: np.ndarray
) -> None:
    longest = max((len(feature.ids) for feature in features), default=0)
    for name, logits in (("start_logits", start_logits), ("end_logits", end_logits)):
        if logits.ndim != 2 or len(logits) != len(features) or logits.shape[1] < longest:
            raise ValueError(
                f"{name} have shape {logits.shape}, expected [{len(features)}, at least {longest}]:"
                " a row for each feature."
            )
        is_bad = ~np.isfinite(logits).all(axis=1)  # [features]
        if is_bad.any():
            question_id = features[int(is_bad.argmax())].question_id
            raise ValueError(
                f"{name} of question {question_id} are not finite; look at the model that made "
                "them."
            )
    if start_logits.shape != end_logits.shape:
        raise ValueError(
            f"start_logits have shape {start_logits.shape}, end_logits {end_logits.shape}; "
            "expected the same."
        )


def _null_candidate(
    windows: Sequence[SquadFeature], starts: np.ndarray, ends: np.ndarray
) -> Candidate:
    """Returns "no answer", [CLS], with the logits of the window that believes in it least."""
    if not len(starts):
        return Candidate("", 0.0, 0.0)
    columns = [window.class_position for window in windows]
    rows = np.arange(len(windows))
    null_starts = starts[rows, columns]  # [windows]
    null_ends = ends[rows, columns]
    row = int((null_starts + null_ends).argmin())
    return Candidate("", float(null_starts[row]), float(null_ends[row]))


class Spans(NamedTuple):
    """Spans that may be answers, each field [spans], the best sum of logits first."""

    window: np.ndarray
    start: np.ndarray  # positions in the row
    end: np.ndarray
    start_logit: np.ndarray
    end_logit: np.ndarray


def _find_spans(
    windows: Sequence[SquadFeature],
    starts: np.ndarray,
    ends: np.ndarray,
    n_best_size: int,
    max_answer_length: int,
) -> Spans:
    """Joins the best starts and the best ends of each window to the spans that are allowed.

    As in the original, the best are taken first, over the whole row with question and padding, and
    spans that cannot be answers are dropped then: a window may yield fewer spans, or no span. If
    sums are equal, the earlier window, then the better start, comes first.
    """
    found: list[tuple[np.ndarray, ...]] = []
    for number, window in enumerate(windows):
        first = np.argsort(-starts[number], kind="stable")[:n_best_size, None]  # [n, 1]
        last = np.argsort(-ends[number], kind="stable")[None, :n_best_size]  # [1, n]
        by_start, by_end = np.nonzero(may_be_answers(window, first, last, max_answer_length))
        first, last = first[by_start, 0], last[0, by_end]
        logits = (starts[number, first], ends[number, last])
        found.append((np.full(len(first), number), first, last, *logits))
    return best_first(found)


def may_be_answers(
    window: SquadFeature, first: np.ndarray, last: np.ndarray, max_answer_length: int
) -> np.ndarray:
    """Returns which spans of a row may be answers.

    They lie in the context, begin where no other window shows more of it, have characters, and are
    no longer than allowed.

    Args:
      window: the row.
      first, last: positions in the row, or beyond it, of shapes that broadcast.
      max_answer_length: maximum number of tokens of an answer.
    """
    begin, end = first - window.context_start, last - window.context_start
    count = len(window.starts)
    is_span = (begin >= 0) & (begin < count) & (end >= 0) & (end < count)
    inside = np.clip(begin, 0, count - 1)
    is_span &= window.is_max_context[inside]
    # A token of byte-level BPE that is only the space before a word has no characters.
    is_span &= window.starts[inside] < window.ends[np.clip(end, 0, count - 1)]
    return is_span & (begin <= end) & (end < begin + max_answer_length)


def best_first(found: Sequence[tuple[np.ndarray, ...]]) -> Spans:
    """Joins the fields of `Spans` of all windows, in order of the sums."""
    if not found:
        return Spans(*(np.zeros(0, np.int64) for _ in Spans._fields))
    spans = Spans(*(np.concatenate(values) for values in zip(*found, strict=True)))
    order = np.argsort(-(spans.start_logit + spans.end_logit), kind="stable")
    return Spans(*(values[order] for values in spans))


def best_candidate(
    question: SquadQuestion, windows: Sequence[SquadFeature], spans: Spans
) -> Candidate | None:
    """Returns the best span of a question; None if there is none."""
    if not len(spans.window):
        return None
    return n_best(question, windows, Spans(*(values[:1] for values in spans)), None, 1)[0]


def n_best(
    question: SquadQuestion,
    windows: Sequence[SquadFeature],
    spans: Spans,
    null: Candidate | None,
    n_best_size: int,
) -> list[Candidate]:
    """Returns candidates of different texts, best first; at least one.

    "No answer" stands where its score puts it, behind spans of the same score, and is added at
    the end if the list was full before. Without anything there is the original's "empty".
    """
    entries: dict[str, Candidate] = {}
    for window, start, end, start_logit, end_logit in zip(*spans, strict=True):
        if null is not None and "" not in entries and null.score > start_logit + end_logit:
            entries[""] = null
        if len(entries) >= n_best_size:
            break
        begin, stop = windows[window].span_offsets(question.context, start, end)
        text = question.context[begin:stop]
        candidate = Candidate(text, float(start_logit), float(end_logit), begin, stop)
        entries.setdefault(text, candidate)
    if null is not None:
        entries.setdefault("", null)
    return list(entries.values()) or [Candidate(NO_SPAN_TEXT, 0.0, 0.0)]


def to_json(entries: Sequence[Candidate]) -> list[dict[str, Any]]:
    """Returns an n-best list."""
    return [
        {
            "text": entry.text,
            "probability": probability,
            "start_logit": entry.start_logit,
            "end_logit": entry.end_logit,
        }
        for entry, probability in zip(entries, probabilities(entries), strict=True)
    ]


def probabilities(entries: Sequence[Candidate]) -> list[float]:
    """Returns a softmax over the scores of an n-best list."""
    best = max(entry.score for entry in entries)
    weights = [math.exp(entry.score - best) for entry in entries]
    total = sum(weights)
    return [weight / total for weight in weights]


def _null_odds(null: Candidate, best: Candidate | None) -> float:
    """Returns the score of no answer minus that of the best span.

    Differs from the original: it fails where no span is allowed at all; here "" is predicted then.
    """
    if best is None:
        return NO_SPAN_ODDS
    return null.score - best.start_logit - best.end_logit
