"""Reads and checks the questions of `run_squad`, before TensorFlow is loaded."""

from bert_tf.config.fine_tuning_config import SquadRunConfig
from bert_tf.tasks.base.programs.program import Configs, read_inputs
from bert_tf.tasks.question_answering.questions import SquadQuestion, read_squad


def read_questions(configs: Configs, files: dict[str, str]) -> dict[str, list[SquadQuestion]]:
    """Reads the questions of `run_squad`."""
    given: SquadRunConfig = configs.task
    version_2 = given.version_2_with_negative
    questions = read_inputs(files, lambda use, file: read_squad(file, use == "train", version_2))
    evaluated = questions.get("eval", ())
    unanswered = [question for question in evaluated if not question.answers]
    if unanswered and len(unanswered) == len(evaluated):
        raise ValueError(f"{files['eval']} has no answers to evaluate with; leave --do_eval out.")
    if unanswered and not version_2:
        raise ValueError(
            f"{files['eval']}, question {unanswered[0].id}: no answer to evaluate with; if "
            "questions may have no answer, give --version_2_with_negative."
        )
    return questions
