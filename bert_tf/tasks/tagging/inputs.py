"""Reads and checks the sentences of `run_tagger`, before TensorFlow is loaded."""

from absl import logging

from bert_tf.config.fine_tuning_config import TaggerConfig
from bert_tf.tasks.base.examples.labels import LabelNames
from bert_tf.tasks.base.programs.program import Configs, labels_of_run
from bert_tf.tasks.tagging.files import column_of, read_tagged, tag_ids, tag_names, with_entity_tags
from bert_tf.tasks.tagging.sentences import TaggedSentence


class TaggedInputs:
    """The sentences of `run_tagger`.

    Attributes:
      labelled: sentences with tags, by use: "train", "eval".
    """

    def __init__(self, configs: Configs, files: dict[str, str]) -> None:
        given: TaggerConfig = configs.task
        self.files = files
        self.columns = given.word_column, column_of(given.tag_column)
        self.reading = given
        self.labelled = {}
        for use, file in files.items():
            if use != "predict":
                self.labelled[use] = read_tagged(file, *self.columns, reading=given, is_needed=True)
        known = labels_of_run(configs)
        for use, sentences in self.labelled.items():
            # A file of few sentences may lack the tags that show the scheme.
            scheme = known or self._train_tags() if use != "train" else ()
            self.labelled[use] = with_entity_tags(sentences, scheme)
        # The results are discarded: an unknown tag or an unreadable line fails now, not after the
        # training.
        if "train" in self.labelled or known:
            labels = self.choose_labels(known)
            for sentences in self.labelled.values():
                tag_ids(sentences, labels)
        if "predict" in files and files["predict"] != files.get("eval"):
            self._read_words(files["predict"])

    def _train_tags(self) -> tuple[str, ...]:
        """Returns the tags of the sentences for training; () without training."""
        if "train" in self.labelled:
            return tag_names(self.labelled["train"])
        return ()

    def choose_labels(self, labels: tuple[str, ...]) -> tuple[str, ...]:
        """Returns the tags in the order of the head.

        They are those of the weights, unless the training data has others.
        """
        if "train" not in self.labelled and labels:
            return labels
        source = self.labelled.get("train") or self.labelled.get("eval")
        if source is None:
            raise ValueError(
                "The weights name no tags, so predictions would be numbers: give a model with "
                "labels.txt."
            )
        names = tag_names(source)
        # The weights' order and spelling are kept where only these differ.
        return labels if LabelNames(labels).are_same(names) else names

    def sentences(self, use: str, labels: tuple[str, ...]) -> tuple[list[TaggedSentence], bool]:
        """Returns the sentences of a use, and whether they have tags to evaluate against."""
        if use in self.labelled:
            return self.labelled[use], True
        file = self.files[use]
        try:
            sentences = read_tagged(file, *self.columns, reading=self.reading)
            if all(sentence.tags is not None for sentence in sentences):
                sentences = with_entity_tags(sentences, labels)
                tag_ids(sentences, labels)
                # A single tag everywhere, such as O, is a filler in files that are to be tagged.
                if len(tag_names(sentences)) > 1:
                    return sentences, True
        except ValueError as error:
            logging.info("The file is tagged without an evaluation: %s", error)
        return self._read_words(file), False

    def _read_words(self, file: str) -> list[TaggedSentence]:
        """Reads sentences without their tags, with the words that predictions are written for."""
        return read_tagged(file, *self.columns, reading=self.reading, reads_tags=False)
