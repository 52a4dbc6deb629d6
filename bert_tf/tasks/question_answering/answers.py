"""SQuAD: from the logits of all windows to predictions, n-best lists and null odds.

  windows of a question    start_logits [windows, T], end_logits [windows, T]; position 0 is [CLS]
  spans, best sum first    (window, start, end): by all rules an answer may be there
  texts, each once         cut out of the context
  n-best                   with "" for no answer among them (version 2)

The three results have the layout of the original's files:

  predictions.json        {id: text}
  nbest_predictions.json  {id: [{"text", "probability", "start_logit", "end_logit"}, ...]}
  null_odds.json          {id: score of no answer - score of the best answer}, version 2 only

Differs from the original in the text of an answer: here it is the characters from the first
piece's first to the last piece's last, with the white space between them as it stands in the
context. The original joins the words that the span touches by single spaces and aligns them anew
with the lower-cased pieces; where that fails (the span has [UNK], or lower-casing changed the
number of characters of one of the words) its answer is all of those words, punctuation included.
Over the 8,686 marked answers of train36 (uncased) three texts differ, one of them in white space
only; in all three the characters of the context are what was marked.

Reference: write_predictions in google-research/bert's run_squad.py.
"""

import collections
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from bert_tf.fine_tuning_config import SquadConfig
from bert_tf.tasks.question_answering.features import SquadFeature, SquadQuestion

# Odds of a question without any span: above every threshold. The original's starting value.
NO_SPAN_ODDS = 1e6
NO_SPAN_TEXT = "empty"  # of version 1; the original's


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
      max_answer_length: most pieces of an answer.
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
    for question, null, entries in _rank(questions, features, start_logits, end_logits, *sizes):
        nbest[question.id] = to_json(entries)
        if null is not None:
            null_odds[question.id] = _null_odds(null, entries)
    if version_2:
        predictions = choose_answers(nbest, null_odds, null_score_diff_threshold)
    else:
        predictions = {name: entries[0]["text"] for name, entries in nbest.items()}
    return SquadPredictions(predictions, nbest, null_odds)


class Answer(NamedTuple):
    """The best answer to a question.

    Attributes:
      text: as it stands in the context; "" for none.
      score: its probability among the `n_best_size` best.
      start, end: characters of the context, text == context[start:end]; -1 of no answer.
    """

    text: str
    score: float
    start: int
    end: int


def best_answers(
    questions: Iterable[SquadQuestion],
    features: Sequence[SquadFeature],
    start_logits: np.ndarray,
    end_logits: np.ndarray,
    config: SquadConfig,
) -> list[Answer]:
    """Returns the answer to each question that `make_predictions` predicts, with its place."""
    sizes = config.version_2_with_negative, config.n_best_size, config.max_answer_length
    found = []
    for _, null, entries in _rank(questions, features, start_logits, end_logits, *sizes):
        # The word may be an answer, too, which ends behind 0.
        if entries[0].text == NO_SPAN_TEXT and not entries[0].end:
            entries = [Candidate("", 0.0, 0.0)]
        place = next((i for i, entry in enumerate(entries) if entry.text), 0)
        threshold = config.null_score_diff_threshold
        if null is not None and _null_odds(null, entries) > threshold:
            place = next(i for i, entry in enumerate(entries) if not entry.text)
        best, score = entries[place], probabilities(entries)[place]
        places = (best.start, best.end) if best.text else (-1, -1)
        found.append(Answer(best.text, score, *places))
    return found


def _rank(
    questions: Iterable[SquadQuestion],
    features: Sequence[SquadFeature],
    start_logits: np.ndarray,
    end_logits: np.ndarray,
    version_2: bool,
    n_best_size: int,
    max_answer_length: int,
) -> Iterator[tuple[SquadQuestion, Candidate | None, list[Candidate]]]:
    """Yields of each question "no answer", in version 2, and the n-best list."""
    start_logits, end_logits = np.asarray(start_logits), np.asarray(end_logits)
    _check_logits(features, start_logits, end_logits)
    for question, rows in with_rows(questions, features):
        # Sums in float64, as of the original's Python floats: [windows of the question, T].
        starts, ends = start_logits[rows].astype(np.float64), end_logits[rows].astype(np.float64)
        windows = [features[row] for row in rows]
        null = _null_candidate(starts, ends) if version_2 else None
        spans = _find_spans(windows, starts, ends, n_best_size, max_answer_length)
        yield question, null, n_best(question, windows, spans, null, n_best_size)


def with_rows(
    questions: Iterable[SquadQuestion], features: Sequence[SquadFeature]
) -> Iterator[tuple[SquadQuestion, list[int]]]:
    """Yields each question with the places of its windows in `features`."""
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


def _null_candidate(starts: np.ndarray, ends: np.ndarray) -> Candidate:
    """Returns "no answer" with the logits of the window that believes in it least."""
    if not len(starts):
        return Candidate("", 0.0, 0.0)
    row = int((starts[:, 0] + ends[:, 0]).argmin())
    return Candidate("", float(starts[row, 0]), float(ends[row, 0]))


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

    As in the original the best are taken first, over the whole row with question and padding, and
    what is no answer is dropped then: a window may yield fewer, or none. Of equal sums the earlier
    window, then the better start, comes first.
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

    They lie in the context, begin where no other window shows more of it, and are no longer than
    allowed.

    Args:
      window: the row.
      first, last: positions in the row, or beyond it, of shapes that broadcast.
      max_answer_length: most pieces of an answer.
    """
    begin, end = first - window.context_start, last - window.context_start
    count = len(window.starts)
    is_span = (begin >= 0) & (begin < count) & (end >= 0) & (end < count)
    is_span &= window.is_max_context[np.clip(begin, 0, count - 1)]
    return is_span & (begin <= end) & (end < begin + max_answer_length)


def best_first(found: Sequence[tuple[np.ndarray, ...]]) -> Spans:
    """Joins the fields of `Spans` of all windows, in order of the sums."""
    if not found:
        return Spans(*(np.zeros(0, np.int64) for _ in Spans._fields))
    spans = Spans(*(np.concatenate(values) for values in zip(*found, strict=True)))
    order = np.argsort(-(spans.start_logit + spans.end_logit), kind="stable")
    return Spans(*(values[order] for values in spans))


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
        places = windows[window].span_places(question.context, start, end)
        text = question.context[slice(*places)]
        found = Candidate(text, float(start_logit), float(end_logit), *places)
        entries.setdefault(text, found)
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


def _null_odds(null: Candidate, entries: Sequence[Candidate]) -> float:
    """Returns the score of no answer minus that of the best answer.

    Differs from the original: it fails where no span is allowed at all; here "" is predicted then.
    """
    best = next((entry for entry in entries if entry.text), None)
    if best is None:
        return NO_SPAN_ODDS
    return null.score - best.start_logit - best.end_logit


class BestSpan(NamedTuple):
    """The best answer to a question that is a part of its context.

    Attributes:
      start, end: characters of the context.
      score: sum of the logits.
      null_odds: the score of no answer minus this one.
    """

    start: int
    end: int
    score: float
    null_odds: float


def find_best_span(
    context: str,
    windows: Sequence[SquadFeature],
    start_logits: np.ndarray,
    end_logits: np.ndarray,
    n_best_size: int,
    max_answer_length: int,
) -> BestSpan | None:
    """Returns the best answer of all windows of a question; None if there is no span.

    Args:
      context: of the question.
      windows: all of it, R of them.
      start_logits, end_logits: float64 [R, T].
      n_best_size, max_answer_length: see `make_predictions`.
    """
    spans = _find_spans(windows, start_logits, end_logits, n_best_size, max_answer_length)
    if not len(spans.window):
        return None
    window, first, last = windows[spans.window[0]], int(spans.start[0]), int(spans.end[0])
    start = int(window.starts[first - window.context_start])
    end = start + len(window.span_text(context, first, last))
    score = float(spans.start_logit[0] + spans.end_logit[0])
    return BestSpan(start, end, score, _null_candidate(start_logits, end_logits).score - score)
