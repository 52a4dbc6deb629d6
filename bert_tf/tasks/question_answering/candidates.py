"""Candidates for the answer to a question: spans of its windows, and their n-best list."""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from bert_tf.tasks.question_answering.features import SquadFeature
from bert_tf.tasks.question_answering.questions import SquadQuestion

NO_SPAN_TEXT = "empty"  # the original's answer in version 1 if there is no span


class Candidate(NamedTuple):
    """An entry of an n-best list."""

    text: str  # "" for no answer
    start_logit: float
    end_logit: float
    start: int = 0  # offsets in characters of the context
    end: int = 0

    @property
    def score(self) -> float:
        return self.start_logit + self.end_logit


class Spans(NamedTuple):
    """Spans that are allowed as answers, each field [spans], the best sum of logits first."""

    window: np.ndarray
    start: np.ndarray  # position in the row
    end: np.ndarray  # position of the last token
    start_logit: np.ndarray
    end_logit: np.ndarray


def may_be_answers(
    window: SquadFeature, first: np.ndarray, last: np.ndarray, max_answer_length: int
) -> np.ndarray:
    """Returns whether spans of a row, whose positions broadcast, are allowed as answers.

    A span must be in the context, begin at a token that no other window shows with more context,
    have characters, and not be longer than allowed.
    """
    begin = first - window.context_start
    end = last - window.context_start
    count = len(window.starts)
    is_span = (begin >= 0) & (begin < count) & (end >= 0) & (end < count)
    # Clipped, so that spans outside, which are excluded above, can be looked up as well.
    inside = np.clip(begin, 0, count - 1)
    is_span &= window.is_max_context[inside]
    # With byte-level BPE, a token that is only the space before a word has no characters.
    is_span &= window.starts[inside] < window.ends[np.clip(end, 0, count - 1)]
    return is_span & (begin <= end) & (end < begin + max_answer_length)


def find_spans(
    windows: Sequence[SquadFeature], beams: Iterable[Sequence[np.ndarray]], max_answer_length: int
) -> Spans:
    """Returns the spans of a question's windows that are allowed, the best sum first.

    Among equal sums, the earlier window comes first, then the better start, then the better end.

    Args:
      beams: for each window K starts and their scores, [K] each, and the ends of each start and
        their scores, [K, N] each, the best first.
    """
    found = []
    for number, (window, beam) in enumerate(zip(windows, beams, strict=True)):
        starts, start_scores, ends, end_scores = beam
        is_span = may_be_answers(window, starts[:, None], ends, max_answer_length)  # [K, N]
        # Row by row, which keeps the better start first, then the better end.
        rows, columns = np.nonzero(is_span)
        spans = Spans(
            window=np.full(len(rows), number),
            start=starts[rows],
            end=ends[rows, columns],
            start_logit=start_scores[rows],
            end_logit=end_scores[rows, columns],
        )
        found.append(spans)
    if not found:
        return Spans(*[np.zeros(0, np.int64)] * 5)
    joined = Spans(*map(np.concatenate, zip(*found, strict=True)))
    order = np.argsort(-(joined.start_logit + joined.end_logit), kind="stable")
    return Spans(*(values[order] for values in joined))


def best_candidate(
    question: SquadQuestion, windows: Sequence[SquadFeature], spans: Spans
) -> Candidate | None:
    """Returns the best span of a question; None if it has no span."""
    if not len(spans.window):
        return None
    first_span = Spans(*(values[:1] for values in spans))
    return n_best(question, windows, first_span, None, 1)[0]


def n_best(
    question: SquadQuestion,
    windows: Sequence[SquadFeature],
    spans: Spans,
    null: Candidate | None,
    n_best_size: int,
) -> list[Candidate]:
    """Returns at least one candidate; candidates have different texts, the best first.

    "No answer" is sorted by its score, after spans of the same score; if the list is full before,
    it is added at the end. A list without candidates gets the original's "empty".
    """
    entries: dict[str, Candidate] = {}  # by text: a text in several windows counts once
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


def probabilities(entries: Sequence[Candidate]) -> list[float]:
    """Returns the softmax of the scores of an n-best list."""
    best = max(entry.score for entry in entries)
    # The difference to the maximum, so that `exp` does not overflow.
    weights = [math.exp(entry.score - best) for entry in entries]
    total = sum(weights)
    return [weight / total for weight in weights]
