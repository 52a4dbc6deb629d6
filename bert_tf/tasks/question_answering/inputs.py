"""Reads and checks the questions of `run_squad`, before TensorFlow is loaded."""

from bert_tf.fine_tuning.inputs import read_inputs
from bert_tf.fine_tuning.program import Configs
from bert_tf.fine_tuning_config import SquadRunConfig
from bert_tf.tasks.question_answering.features import SquadQuestion, read_squad


def read_questions(configs: Configs, files: dict[str, str]) -> dict[str, list[SquadQuestion]]:
    """Reads the questions of `run_squad`.

    Raises:
      ValueError: if a file is not SQuAD's, or one to evaluate lacks answers.
    """
    given: SquadRunConfig = configs.task
    version_2 = given.version_2_with_negative
    found = read_inputs(files, lambda use, file: read_squad(file, use == "train", version_2))
    answered = [bool(question.answers) for question in found.get("eval", ())]
    if answered and not (any(answered) if version_2 else all(answered)):
        bare = next(question for question in found["eval"] if not question.answers)
        raise ValueError(
            f"{files['eval']}, question {bare.id}: no answer to judge by; if it has none, "
            "give --version_2_with_negative."
            if any(answered)
            else f"{files['eval']} has no answers to judge by; leave --do_eval out."
        )
    return found
