"""The table of the worst answers, line by line."""

from bert_tf.tasks.question_answering.answers import SquadPredictions
from bert_tf.tasks.question_answering.program import MAX_QUESTIONS, worst_answers_text
from bert_tf.tasks.question_answering.questions import SquadAnswer, SquadQuestion


def question(name: str, *answers: str, context: str = "c\td\n  e") -> SquadQuestion:
    marked = tuple(SquadAnswer(answer, 0) for answer in answers)
    return SquadQuestion(name, "who?\n", context, None, marked, not answers)


def found(**texts: tuple[str, float]) -> SquadPredictions:
    nbest = {
        name: [{"text": "other", "probability": 0.9}, {"text": text, "probability": probability}]
        for name, (text, probability) in texts.items()
    }
    return SquadPredictions({name: text for name, (text, _) in texts.items()}, nbest, {})


def test_the_worst_come_first_and_of_those_the_surest():
    questions = [
        question("right", "the cat", "dog"),
        question("half", "red dog", "red dog", "big red dog"),
        question("unsure", "cat"),
        question("sure", "cat", context="x" * 500),
        question("none"),
        question("rightly none"),
    ]
    answers = {
        "right": ("A Cat.", 0.1),
        "half": ("dog", 0.5),
        "unsure": ("", 0.2),
        "sure": ("fox", 0.75),
        "none": ("owl", 0.5),
        "rightly none": ("", 0.5),
    }
    lines = worst_answers_text(questions, found(**answers)).splitlines()
    assert [line.split("\t") for line in lines] == [
        "f1 probability id question prediction answers context".split(),
        ["0.000", "0.750", "sure", "who?", "fox", "cat", "x" * 200],
        ["0.000", "0.500", "none", "who?", "owl", "(no answer)", "c d e"],
        ["0.000", "0.200", "unsure", "who?", "(no answer)", "cat", "c d e"],
        ["0.667", "0.500", "half", "who?", "dog", "red dog | big red dog", "c d e"],
    ]


def test_no_more_than_fit_on_a_few_screens():
    names = [f"q{number}" for number in range(MAX_QUESTIONS + 9)]
    text = worst_answers_text(
        [question(name, "cat") for name in names], found(**dict.fromkeys(names, ("fox", 0.5)))
    )
    assert len(text.splitlines()) == 1 + MAX_QUESTIONS
