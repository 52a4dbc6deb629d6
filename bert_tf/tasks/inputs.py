"""Reads and checks the examples of the fine-tuning programs, without TensorFlow.

Whatever is wrong with a file is found here, before the seconds that TensorFlow takes to load. The
other tasks have an `inputs.py` in their folders.
"""

import pathlib
from collections.abc import Callable
from typing import Any

from absl import logging

from bert_tf.examples.labels import LabelNames
from bert_tf.files import read_lines
from bert_tf.fine_tuning.program import Configs, source_of
from bert_tf.fine_tuning_config import SquadRunConfig, TaggerConfig
from bert_tf.run_identity import LABELS
from bert_tf.tasks.multiple_choice.examples import ChoiceExample, read_swag
from bert_tf.tasks.question_answering.features import SquadQuestion, read_squad
from bert_tf.tasks.tagging.files import (
    TaggedSentence,
    column_of,
    read_tagged,
    tag_ids,
    tag_names,
)


def read_inputs(files: dict[str, str], read: Callable[[str, str], Any]) -> dict[str, Any]:
    """Returns `read(use, file)` of each file by use; one object where eval is predict."""
    found: dict[str, Any] = {}
    for use, file in files.items():
        is_again = use == "predict" and file == files.get("eval")
        found[use] = found["eval"] if is_again else read(use, file)
    return found


def labels_of_run(configs: Configs) -> tuple[str, ...]:
    """Returns the labels of the run whose weights are used, if these are in a run directory."""
    training = configs.training
    # A training is to resume from its own folder only; others may have to be downloaded.
    folder = training.output_dir if training.do_train else source_of(training)
    path = pathlib.Path(folder).expanduser() / LABELS
    return tuple(read_lines(path)) if path.is_file() else ()


# Questions --------------------------------------------------------------------------------------


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


# Choices ----------------------------------------------------------------------------------------


def read_choices(configs: Configs, files: dict[str, str]) -> dict[str, list[ChoiceExample]]:
    """Reads the examples of `run_multiple_choice`."""

    def read(use: str, file: str) -> list[ChoiceExample]:
        is_needed = use != "predict"
        return read_swag(file, is_needed, is_needed=is_needed, reading=configs.task)

    return read_inputs(files, read)


# Words ------------------------------------------------------------------------------------------


class TaggedInputs:
    """The sentences of `run_tagger`.

    Args:
      configs, files: of `Program`.

    Attributes:
      labelled: the sentences to train on and to evaluate, by use.
    """

    def __init__(self, configs: Configs, files: dict[str, str]) -> None:
        given: TaggerConfig = configs.task
        self.files = files
        self.columns = given.word_column, column_of(given.tag_column)
        self.reading = given
        self.labelled = {
            use: read_tagged(file, *self.columns, reading=given, is_needed=True)
            for use, file in files.items()
            if use != "predict"
        }
        before = labels_of_run(configs)
        if "train" in self.labelled or before:
            labels = self.choose_labels(before)
            for sentences in self.labelled.values():
                tag_ids(sentences, labels)
        if "predict" in files and files["predict"] != files.get("eval"):
            read_tagged(files["predict"], self.columns[0], None, reading=given)

    def choose_labels(self, labels: tuple[str, ...]) -> tuple[str, ...]:
        """Returns the tags in the order of the head: those of the weights, unless others are
        trained.

        Args:
          labels: those of the weights; () for none.

        Raises:
          ValueError: if there is no sentence with tags.
        """
        if "train" not in self.labelled and labels:
            return labels
        source = self.labelled.get("train") or self.labelled.get("eval")
        if source is None:
            raise ValueError(
                "The weights name no tags, so predictions would be numbers: give a model with "
                "labels.txt."
            )
        found = tag_names(source)
        return labels if LabelNames(labels).are_same(found) else found

    def sentences(self, use: str, labels: tuple[str, ...]) -> tuple[list[TaggedSentence], bool]:
        """Returns the sentences of a use, and whether all their tags are known, so that they can
        be judged.

        In a file to tag, tags that are all the same only fill the column.
        """
        if use in self.labelled:
            return self.labelled[use], True
        word_column, tag_column = self.columns
        file = self.files[use]
        try:
            sentences = read_tagged(file, word_column, tag_column, reading=self.reading)
            if all(sentence.tags is not None for sentence in sentences):
                tag_ids(sentences, labels)
                if len(tag_names(sentences)) > 1:
                    return sentences, True
        except ValueError as error:
            logging.info("Tagged, but not judged: %s", error)
        return read_tagged(file, word_column, None, reading=self.reading), False
