"""Report of an evaluation of answers: the questions with the worst errors."""

from collections.abc import Sequence

from bert_tf.metrics.squad import f1_or_both_empty
from bert_tf.tasks.question_answering.answers import SquadPredictions
from bert_tf.tasks.question_answering.features import SquadQuestion

MAX_QUESTIONS = 50
CONTEXT_CHARACTERS = 200


def worst_answers_text(questions: Sequence[SquadQuestion], found: SquadPredictions) -> str:
    """Returns a table of the questions with the lowest F1, the surest first; tab-separated.

    How sure an answer is: its probability among the n best.
    """
    rows = []
    for question in questions:
        prediction = found.predictions[question.id]
        answers = [answer.text for answer in question.answers] or [""]
        score = max(f1_or_both_empty(prediction, answer) for answer in answers)
        entries = found.nbest[question.id]
        sure = next((e["probability"] for e in entries if e["text"] == prediction), 0.0)
        if score < 1.0:
            rows.append((score, -sure, question, prediction, answers))
    rows.sort(key=lambda row: row[:2])
    lines = ["f1\tprobability\tid\tquestion\tprediction\tanswers\tcontext\n"]
    for score, sure, question, prediction, answers in rows[:MAX_QUESTIONS]:
        cells = (
            f"{score:.3f}",
            f"{-sure:.3f}",
            question.id,
            question.question,
            prediction or "(no answer)",
            " | ".join(dict.fromkeys(answers)) or "(no answer)",
            question.context[:CONTEXT_CHARACTERS],
        )
        lines.append("\t".join(" ".join(cell.split()) for cell in cells) + "\n")
    return "".join(lines)
