"""SQuAD with the joint head: decodes the beams of all windows into predictions and null odds.

The files have the layout of `answers`, with the numbers of google-research/electra:

  start_logit, end_logit  log-probabilities; that of the end is conditional on the start
  probability             softmax of the sums in the n-best list, which has no entry for "no answer"
  null odds               the lowest score of no answer of all windows

Differs from the original: here "" is predicted if the odds are above `null_score_diff_threshold`;
there this is a separate step for test sets, with a threshold of -2.75. In version 2, a question
without any span has no answer; there its answer is the text "empty".

Reference: finetune/qa/qa_metrics.py, write_predictions.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Self

import numpy as np

from bert_tf.config.fine_tuning_config import SquadConfig
from bert_tf.tasks.question_answering import answers, candidates
from bert_tf.tasks.question_answering.features import SquadExamples, SquadFeature
from bert_tf.tasks.question_answering.joint_head import (
    END_SCORES,
    ENDS,
    NO_ANSWER,
    START_SCORES,
    STARTS,
)
from bert_tf.tasks.question_answering.questions import SquadQuestion


class Beams(NamedTuple):
    """The best starts of windows, and the best ends of each start: the joint head's outputs."""

    starts: np.ndarray  # int [features, K], positions in the rows
    start_scores: np.ndarray  # float64 [features, K]
    # ends, end_scores: positions and scores of the ends given each start, [features, K, K].
    ends: np.ndarray
    end_scores: np.ndarray
    no_answer: np.ndarray | None  # float64 [features]; None if the head has no score for no answer

    @classmethod
    def of_rows(cls, outputs: Mapping[str, Sequence[Any]]) -> Self:
        """Stacks the outputs of all rows; {} if contexts without words have no rows."""
        if not outputs:
            nothing = np.zeros(0)
            return cls(nothing, nothing, nothing, nothing, None)
        scores = {}
        for name in (START_SCORES, END_SCORES, NO_ANSWER):
            if name in outputs:
                # Sums of scores are in float64, as in `answers`.
                scores[name] = np.stack(outputs[name]).astype(np.float64)
                if not np.isfinite(scores[name]).all():
                    raise ValueError(f"{name} are not finite; check the model that computed them.")
        return cls(
            starts=np.stack(outputs[STARTS]),
            start_scores=scores[START_SCORES],
            ends=np.stack(outputs[ENDS]),
            end_scores=scores[END_SCORES],
            no_answer=scores.get(NO_ANSWER),
        )


def rank_beam_outputs(
    examples: SquadExamples, outputs: answers.RowOutputs, config: SquadConfig
) -> Iterator[answers.Ranked]:
    """Yields the candidates of each question from the joint head's outputs of all rows, by name."""
    return rank_beams(examples.questions, examples.features, Beams.of_rows(outputs), config)


def rank_beams(
    questions: Iterable[SquadQuestion],
    features: Sequence[SquadFeature],
    beams: Beams,
    config: SquadConfig,
) -> Iterator[answers.Ranked]:
    """Yields the candidates of each question, from the beams of all of its windows.

    A question may have no window. The probability of no answer is that of its class, or 1 if there
    is no span.
    """
    if config.version_2_with_negative and features and beams.no_answer is None:
        raise ValueError(
            "This joint head has no score for no answer, because it was trained on questions that "
            "all have an answer. Train with version_2_with_negative."
        )
    for question, rows in answers.with_rows(questions, features):
        windows = [features[row] for row in rows]
        beams_of_windows = zip(*(values[rows] for values in beams[:4]), strict=True)
        spans = candidates.find_spans(windows, beams_of_windows, config.max_answer_length)
        entries = candidates.n_best(question, windows, spans, None, config.n_best_size)
        best = candidates.best_candidate(question, windows, spans)
        if best is None:
            odds = answers.NO_SPAN_ODDS
            if config.version_2_with_negative:
                entries = [candidates.Candidate("", 0.0, 0.0)]
        elif beams.no_answer is None:
            # A head without this score never prefers no answer.
            odds = -answers.NO_SPAN_ODDS
        else:
            # A window without the answer scores no answer high, so that the lowest score counts.
            odds = float(beams.no_answer[rows].min())
        # The logistic function, in a form that does not overflow.
        null_probability = 0.5 + 0.5 * math.tanh(0.5 * odds)
        yield answers.Ranked(question, best, odds, entries, null_probability)
