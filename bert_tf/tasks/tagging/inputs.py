"""Reads and checks the sentences of `run_tagger`, before TensorFlow is loaded."""

from absl import logging

from bert_tf.examples.labels import LabelNames
from bert_tf.fine_tuning.inputs import labels_of_run
from bert_tf.fine_tuning.program import Configs
from bert_tf.fine_tuning_config import TaggerConfig
from bert_tf.tasks.tagging.files import (
    TaggedSentence,
    column_of,
    read_tagged,
    tag_ids,
    tag_names,
)


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
