"""The report of an evaluation of answers: the questions with the worst errors."""

from collections.abc import Sequence

from bert_tf.metrics.squad import f1_or_both_empty
from bert_tf.tasks.question_answering.answers import SquadPredictions
from bert_tf.tasks.question_answering.questions import SquadQuestion

MAX_QUESTIONS = 50
CONTEXT_CHARACTERS = 200


def worst_answers_text(questions: Sequence[SquadQuestion], predictions: SquadPredictions) -> str:
    """Returns a tab-separated table of the questions with the lowest F1.

    Among equal F1, answers with the highest probability in the n-best list come first.
    """
    rows = []
    for question in questions:
        prediction = predictions.predictions[question.id]
        answers = [answer.text for answer in question.answers] or [""]
        f1 = max(f1_or_both_empty(prediction, answer) for answer in answers)
        probability = 0.0
        for entry in predictions.nbest[question.id]:
            if entry["text"] == prediction:
                probability = entry["probability"]
                break
        if f1 < 1.0:
            rows.append((f1, probability, question, prediction, answers))
    rows.sort(key=lambda row: (row[0], -row[1]))
    lines = ["f1\tprobability\tid\tquestion\tprediction\tanswers\tcontext\n"]
    for f1, probability, question, prediction, answers in rows[:MAX_QUESTIONS]:
        cells = (
            f"{f1:.3f}",
            f"{probability:.3f}",
            question.id,
            question.question,
            prediction or "(no answer)",
            " | ".join(dict.fromkeys(answers)) or "(no answer)",
            question.context[:CONTEXT_CHARACTERS],
        )
        # Tabs and line ends inside cells become spaces.
        lines.append("\t".join(" ".join(cell.split()) for cell in cells) + "\n")
    return "".join(lines)
