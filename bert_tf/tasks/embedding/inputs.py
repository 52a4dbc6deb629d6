"""Reads and checks the files of `run_retriever`, without TensorFlow."""

from typing import Any

from bert_tf.config import config_flags
from bert_tf.config.ranking_config import RetrieverConfig
from bert_tf.tasks.base.programs.program import Configs
from bert_tf.tasks.embedding.beir import read_collections
from bert_tf.tasks.embedding.examples import (
    EmbeddingExample,
    read_beir_examples,
    read_embedding_examples,
)
from bert_tf.tasks.embedding.loss_names import check_examples


def read_to_embed(configs: Configs, files: dict[str, str]) -> dict[str, Any]:
    """Reads the examples, or the BEIR collection, that `run_retriever` trains on and evaluates."""
    task: RetrieverConfig = configs.task
    inputs: dict[str, Any] = {}
    columns = {"query_column": task.query_column, "positive_column": task.positive_column}
    given = columns.keys() & config_flags.given(RetrieverConfig)
    # Columns that are named for the training file may be missing in the file to evaluate.
    is_meant = bool(given) and "train" not in files
    named = {"train": configs.tuning.train_file, "eval": configs.data.eval_file}
    for use, file in files.items():
        if use == "train" and task.has_data_sets:
            inputs[use] = _read_data_sets(task, named[use])
        elif named[use]:
            must_have = use == "train" or is_meant
            inputs[use] = read_embedding_examples(
                file, f"--{use}_file", **columns, must_have=must_have, reading=task
            )
        elif use == "train":
            inputs[use] = read_beir_examples(task.data_dir, task.train_split)
        else:
            inputs[use] = read_collections(task.data_dirs, task.eval_split)
    if "train" in inputs and task.losses and task.retrieval_loss != "denoising":
        data_sets = inputs["train"] if task.has_data_sets else [inputs["train"]]
        names = task.losses if len(task.losses) > 1 else task.losses * len(data_sets)
        for examples, name in zip(data_sets, names, strict=True):
            check_examples(examples, name)
    return inputs


def _read_data_sets(task: RetrieverConfig, train_file: str) -> list[list[EmbeddingExample]]:
    """Reads each file of --train_file as a data set.

    Raises:
      ValueError: if there are not as many files as losses, or less than two.
    """
    paths = [path.strip() for path in train_file.split(",") if path.strip()]
    counts = {len(paths), len(task.losses)} if len(task.losses) > 1 else {len(paths)}
    if len(counts) > 1 or len(paths) < 2:
        raise ValueError(
            f"--train_file={train_file} names {len(paths)} files for the losses "
            f"{task.retrieval_loss or 'of each'!r}; expected two files or more, and one loss, or "
            "one for each file."
        )
    data_sets = []
    for path in paths:
        examples = read_embedding_examples(
            path, "--train_file", task.query_column, task.positive_column, reading=task
        )
        data_sets.append(examples)
    return data_sets
