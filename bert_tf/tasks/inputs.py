"""Reads and checks the examples of the fine-tuning programs, without TensorFlow.

Whatever is wrong with a file is found here, before the seconds that TensorFlow takes to load. The
classification program has `labelled_texts`.
"""

from typing import Any

from absl import logging

from bert_tf import config_flags
from bert_tf.examples.labels import LabelNames
from bert_tf.fine_tuning.inputs import labels_of_run, read_inputs
from bert_tf.fine_tuning.program import Configs
from bert_tf.fine_tuning_config import (
    POINTWISE_LOSSES,
    RerankerConfig,
    RetrieverConfig,
    SquadRunConfig,
    TaggerConfig,
)
from bert_tf.metrics.trec import read_run
from bert_tf.tasks.embedding.beir import read_beir
from bert_tf.tasks.embedding.examples import read_beir_examples, read_embedding_examples
from bert_tf.tasks.multiple_choice.examples import ChoiceExample, read_swag
from bert_tf.tasks.question_answering.features import SquadQuestion, read_squad
from bert_tf.tasks.reranking.examples import (
    RankingExample,
    is_folder,
    read_beir_ranking,
    read_ranking,
)
from bert_tf.tasks.tagging.files import (
    TaggedSentence,
    column_of,
    read_tagged,
    tag_ids,
    tag_names,
)

# Flags without effect where all files of these uses are tables.
OF_FOLDERS = {
    ("train",): ("train_run_file",),
    ("eval", "predict"): ("eval_run_file", "beir_split", "rerank_k"),
}


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


# Rankings ---------------------------------------------------------------------------------------


def read_rankings(configs: Configs, files: dict[str, str]) -> dict[str, list[RankingExample]]:
    """Reads the queries with documents of `run_reranker`.

    Raises:
      ValueError: if a flag has no effect, or a file is not as it should be.
    """
    given: RerankerConfig = configs.task
    usual = RerankerConfig()
    for uses, names in OF_FOLDERS.items():
        tables = [files[use] for use in uses if use in files]
        for name in names if tables and not any(map(is_folder, tables)) else ():
            value = getattr(given, name)
            if value != getattr(usual, name):
                raise ValueError(
                    f"--{name}={value} has no effect: {tables[0]} is a table, which holds the "
                    f"documents of each query; leave it out, or give a BEIR folder."
                )
    return read_inputs(files, lambda use, file: _read_ranking(given, use, file))


def _read_ranking(given: RerankerConfig, use: str, file: str) -> list[RankingExample]:
    is_training = use == "train"
    if not is_folder(file):
        usual = given.list_size == RerankerConfig().list_size
        if is_training and given.ranking_loss in POINTWISE_LOSSES and not usual:
            raise ValueError(
                f"--list_size={given.list_size} has no effect: --ranking_loss="
                f"{given.ranking_loss} trains on every document of {file}; leave it out."
            )
        return read_ranking(file, must_label=use != "predict", reading=given)
    flag = "train_run_file" if is_training else "eval_run_file"
    split = "train" if is_training else given.beir_split
    if not (path := getattr(given, flag)):
        raise ValueError(
            f"{file} is a BEIR folder, and its {split} queries need candidates: give a TREC run "
            f"as --{flag}, which python -m bert_tf.search --data_dir={file} --split={split} "
            "--output_file=... writes."
        )
    k = given.list_size if is_training else given.rerank_k
    return read_beir_ranking(file, split, read_run(path), k, adds_relevant=is_training)


# Texts to embed ---------------------------------------------------------------------------------


def read_to_embed(configs: Configs, files: dict[str, str]) -> dict[str, Any]:
    """Reads what `run_retriever` trains on and evaluates: examples, or a BEIR collection."""
    task: RetrieverConfig = configs.task
    found: dict[str, Any] = {}
    columns = {"query_column": task.query_column, "positive_column": task.positive_column}
    given = columns.keys() & config_flags.given(RetrieverConfig)
    is_meant = bool(given) and "train" not in files
    named = {"train": configs.tuning.train_file, "eval": configs.data.eval_file}
    for use, file in files.items():
        if named[use]:
            must_have = use == "train" or is_meant
            found[use] = read_embedding_examples(
                file, f"--{use}_file", **columns, must_have=must_have, reading=task
            )
        elif use == "train":
            found[use] = read_beir_examples(task.data_dir, task.train_split)
        else:
            found[use] = read_beir(task.data_dir, task.eval_split)
    return found
