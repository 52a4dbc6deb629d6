"""SQuAD's questions, with their answers, from files of all formats of `sources`.

Reference: google-research/bert's run_squad.py; Rajpurkar et al. 2016 and 2018.
"""

import bisect
import contextlib
import dataclasses
import functools
import logging
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from bert_tf.tasks.base.examples.offsets import code_points, find_unit, is_at
from bert_tf.tasks.base.examples.row_errors import RowError, RowErrors
from bert_tf.tasks.question_answering.sources import field, read_paragraphs

# The original's definition of white space between words of a context, without U+00A0.
_WORD = re.compile("[^ \t\r\n\u202f]+")
_log = logging.getLogger(__name__)


class SquadAnswer(NamedTuple):
    """An annotated answer."""

    text: str
    start: int  # offset in characters of the context


@dataclasses.dataclass(frozen=True)
class SquadQuestion:
    """A question about a context."""

    id: str  # key in the output files
    # question, context: texts as in the file.
    question: str
    context: str
    # The answer to train on; None if the question is impossible or has no answer, or, in a file
    # that is not for training, if the first answer is not at its start.
    answer: SquadAnswer | None
    answers: tuple[SquadAnswer, ...]  # all correct answers for an evaluation; may be empty
    is_impossible: bool  # whether the context does not contain the answer (SQuAD 2.0)


def are_answered(questions: Iterable[SquadQuestion], version_2: bool) -> bool:
    """Returns whether there are answers for an evaluation."""
    # In version 2, impossible questions have no answers; in version 1, every question has one.
    answered = [bool(question.answers) for question in questions]
    return any(answered) if version_2 else all(answered)


def read_squad(path: str | os.PathLike, is_training: bool, version_2: bool) -> list[SquadQuestion]:
    """Reads the questions of an official file, SQuAD 1.1 or 2.0.

    In training, a question is skipped if the words at its answer's start do not contain the answer,
    as in the original; the number of skipped questions is logged.

    An id may also be an integer, which is converted to a string.

    Differs from the original, which in training needs exactly one answer; here the first of several
    is used. Two questions with the same id are an error here; there the second overwrites the
    prediction of the first.

    Args:
      path: JSON with data / paragraphs / context and qas, or tfds:squad/v1.1 and similar names.
      is_training: whether every question needs an answer or must be impossible; otherwise `answers`
        may be missing.
      version_2: whether questions may be impossible; `is_impossible` is then needed in training.

    Raises:
      ValueError: if the file has another format, or no questions.
    """
    questions: dict[str, SquadQuestion] = {}
    skipped: dict[str, SquadQuestion] = {}
    errors = RowErrors()
    paragraphs = list(read_paragraphs(path))
    answers = list(_answers_of(paragraphs))
    unit = find_unit(functools.partial(_count_lost, answers), str(path))
    for text, answer in answers:
        with contextlib.suppress(ValueError):  # It is wrong in any unit, and is reported.
            answer["answer_start"] = code_points(text, answer["answer_start"], unit)
    for paragraph, where in paragraphs:
        context = field(paragraph, "context", str, where)
        for values in field(paragraph, "qas", list, where):
            if is_training and isinstance(values, dict) and errors.leaves_out(values):
                continue
            with errors:
                question = _read_question(values, context, is_training, version_2, path, where)
                if question.id in questions or question.id in skipped:
                    raise ValueError(
                        f"{path}, question {question.id}: two questions have this id; predictions "
                        "are written by id, so that ids must be unique."
                    )
                if question.answer is None or _is_found(question.answer, context):
                    questions[question.id] = question
                elif is_training:
                    skipped[question.id] = question
                else:
                    questions[question.id] = dataclasses.replace(question, answer=None)
    errors.finish(str(path))
    if skipped:
        _log.warning(
            "%s: %d of %d questions skipped, because their answer is not at answer_start; the "
            "first is %s.",
            path,
            len(skipped),
            len(skipped) + len(questions),
            next(iter(skipped)),
        )
    if not questions:
        raise ValueError(f"{path}: no usable question; expected SQuAD's JSON.")
    return list(questions.values())


def _answers_of(paragraphs: Sequence[tuple[Any, str]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields the answers with text and start, after their context; errors are reported later."""
    for paragraph, _ in paragraphs:
        questions = paragraph.get("qas") if isinstance(paragraph, dict) else None
        context = paragraph.get("context") if questions else None
        for question in questions if isinstance(questions, list) else ():
            answers = question.get("answers") if isinstance(question, dict) else None
            for answer in answers if isinstance(answers, list) else ():
                if not isinstance(answer, dict) or type(answer.get("answer_start")) is not int:
                    continue
                if isinstance(context, str) and isinstance(answer.get("text"), str):
                    yield context, answer


def _count_lost(answers: list[tuple[str, dict[str, Any]]], unit: str) -> int:
    """Returns how many answers of a file are not at their starts."""
    found = (is_at(answer["text"], text, answer["answer_start"], unit) for text, answer in answers)
    return len(answers) - sum(found)


def _read_question(
    values: Any,
    context: str,
    is_training: bool,
    version_2: bool,
    path: str | os.PathLike,
    where: str,
) -> SquadQuestion:
    """Reads an entry of "qas"; see `read_squad`."""
    if isinstance(values, dict) and type(values.get("id")) is int:
        values = {**values, "id": str(values["id"])}
    question_id = field(values, "id", str, where)
    where = f"{path}, question {question_id}"
    # SQuAD 1.1 does not have the field, and a file to predict may leave it out.
    is_impossible = False
    if version_2 and (is_training or "is_impossible" in values):
        is_impossible = field(values, "is_impossible", bool, where)
    answers = []
    if is_training or "answers" in values:
        for item in field(values, "answers", list, where):
            text = field(item, "text", str, where)
            start = field(item, "answer_start", int, where)
            answers.append(SquadAnswer(text, start))
    if is_training and not is_impossible and not answers:
        raise RowError(
            f"{where}: no answer to train on; give one, or set --version_2_with_negative if the "
            "question is impossible."
        )
    answer = answers[0] if answers and not is_impossible else None
    is_within = answer and 0 <= answer.start <= len(context) - len(answer.text)
    if answer and not (is_within and answer.text.strip()):
        if is_training:
            raise RowError(
                f"{where}: answer {answer.text!r} at character {answer.start} of a context of "
                f"{len(context)}; expected a text within it."
            )
        answer = None
    text = field(values, "question", str, where)
    return SquadQuestion(question_id, text, context, answer, tuple(answers), is_impossible)


# Cached, because all questions about a context follow each other.
@functools.lru_cache(maxsize=4)
def find_words(context: str) -> tuple[list[str], list[int]]:
    """Returns the words of a context and their offsets."""
    matches = list(_WORD.finditer(context))
    return list(map(re.Match.group, matches)), list(map(re.Match.start, matches))


def answer_words(answer: SquadAnswer, context: str) -> tuple[int, int]:
    """Returns the indices of the first and the last word that the answer overlaps."""
    starts = find_words(context)[1]
    # The last words that begin at or before the answer's first and last character.
    first = bisect.bisect_right(starts, answer.start) - 1
    last = bisect.bisect_right(starts, answer.start + len(answer.text) - 1) - 1
    # -1 if the answer begins with white space before the first word.
    return max(first, 0), last


def _is_found(answer: SquadAnswer, context: str) -> bool:
    """Returns whether the words that the answer overlaps contain it, apart from white space."""
    first, last = answer_words(answer, context)
    words = find_words(context)[0][first : last + 1]
    return " ".join(answer.text.split()) in " ".join(words)
