"""Reads and checks the examples of `run_multiple_choice`, before TensorFlow is loaded."""

from bert_tf.tasks.base.programs.program import Configs, read_inputs
from bert_tf.tasks.multiple_choice.examples import ChoiceExample, read_swag


def read_choices(configs: Configs, files: dict[str, str]) -> dict[str, list[ChoiceExample]]:
    """Reads the examples of `run_multiple_choice`."""

    def read(use: str, file: str) -> list[ChoiceExample]:
        return read_swag(file, is_needed=use != "predict", reading=configs.task)

    return read_inputs(files, read)
