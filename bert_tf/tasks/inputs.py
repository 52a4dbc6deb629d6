"""Reads and checks the examples of reranking and embedding programs, without TensorFlow.

Whatever is wrong with a file is found here, before the seconds that TensorFlow takes to load.
"""

from typing import Any

from bert_tf import config_flags
from bert_tf.fine_tuning.inputs import read_inputs
from bert_tf.fine_tuning.program import Configs
from bert_tf.fine_tuning_config import (
    POINTWISE_LOSSES,
    RerankerConfig,
    RetrieverConfig,
)
from bert_tf.metrics.trec import read_run
from bert_tf.tasks.embedding.beir import read_beir
from bert_tf.tasks.embedding.examples import read_beir_examples, read_embedding_examples
from bert_tf.tasks.reranking.examples import (
    RankingExample,
    is_folder,
    read_beir_ranking,
    read_ranking,
)

# Flags without effect where all files of these uses are tables.
OF_FOLDERS = {
    ("train",): ("train_run_file",),
    ("eval", "predict"): ("eval_run_file", "beir_split", "rerank_k"),
}


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
