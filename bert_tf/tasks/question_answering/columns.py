"""Reads questions, contexts and answers passed from Python."""

import dataclasses
from collections.abc import Mapping

from bert_tf.system.type_names import Column
from bert_tf.tasks.base.examples.columns import as_two_columns, is_missing, read_texts
from bert_tf.tasks.question_answering.questions import SquadAnswer, SquadQuestion


def read_asked(x: Column, name: str = "questions") -> list[SquadQuestion]:
    """Returns questions without answers; their ids are their indices.

    Args:
      x: a tuple of two columns, questions and contexts; or a list of pairs (question, context).
    """
    given = as_two_columns(
        x, "(questions, contexts), a tuple of two lists of texts, or a list of pairs"
    )
    questions = read_texts(given[0], name)
    contexts = read_texts(given[1], "contexts")
    if len(questions) != len(contexts):
        raise ValueError(
            f"{len(questions):,} questions and {len(contexts):,} contexts; expected equal numbers."
        )
    asked = []
    for index, (question, context) in enumerate(zip(questions, contexts, strict=True)):
        asked.append(SquadQuestion(str(index), question, context, None, (), is_impossible=False))
    return asked


def with_answer(question: SquadQuestion, value: object, where: str) -> SquadQuestion:
    """Returns a question with its answer, or as impossible.

    Args:
      value: a substring of the context, "" for none; or a dict of `text` and `answer_start`, or of
        lists of these.
    """
    context = question.context
    none = dataclasses.replace(question, is_impossible=True)
    if isinstance(value, Mapping) and {"text", "answer_start"} <= set(value):
        text = value["text"]
        start = value["answer_start"]
        if not isinstance(text, str):
            # Lists, as in Hugging Face's data sets; the first answer is used.
            if not len(text):
                return none
            text = text[0]
            start = start[0]
        start = int(start)
    elif isinstance(value, str):
        text = value
        start = context.find(value)
    else:
        shown = "missing" if is_missing(value) else f"{value!r:.80}"
        raise ValueError(
            f"{where} is {shown}, expected a part of the context or a dict of text and "
            'answer_start; "" for no answer.'
        )
    if not text:
        return none
    if start < 0 or context[start : start + len(text)] != text:
        position = f" at character {start}" if start >= 0 else ""
        raise ValueError(f"{where}: {text!r:.80} does not occur{position} in its context.")
    answer = SquadAnswer(text, start)
    return dataclasses.replace(question, answer=answer, answers=(answer,))
