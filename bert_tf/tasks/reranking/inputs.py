"""Reads and checks the files of `run_reranker`, without TensorFlow."""

from bert_tf.config.ranking_config import POINTWISE_LOSSES, RerankerConfig
from bert_tf.metrics.trec import read_run
from bert_tf.tasks.base.programs.program import Configs, read_inputs
from bert_tf.tasks.reranking.examples import (
    RankingExample,
    is_folder,
    read_beir_ranking,
    read_ranking,
)

# Flags that have no effect if all files of these uses are tables.
FOLDER_FLAGS = {
    ("train",): ("train_run_file",),
    ("eval", "predict"): ("eval_run_file", "beir_split", "rerank_k"),
}


def read_rankings(configs: Configs, files: dict[str, str]) -> dict[str, list[RankingExample]]:
    """Reads the queries with documents of `run_reranker`."""
    given: RerankerConfig = configs.task
    usual = RerankerConfig()
    for uses, names in FOLDER_FLAGS.items():
        paths = [files[use] for use in uses if use in files]
        if not paths or any(map(is_folder, paths)):
            continue
        for name in names:
            value = getattr(given, name)
            if value != getattr(usual, name):
                raise ValueError(
                    f"--{name}={value} has no effect: {paths[0]} is a table, which contains the "
                    f"documents of each query; leave the flag out, or give a BEIR folder."
                )
    return read_inputs(files, lambda use, file: _read_ranking(given, use, file))


def _read_ranking(given: RerankerConfig, use: str, file: str) -> list[RankingExample]:
    is_training = use == "train"
    if not is_folder(file):
        is_default = given.list_size == RerankerConfig().list_size
        if is_training and given.ranking_loss in POINTWISE_LOSSES and not is_default:
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
    # Training needs as many candidates as a list holds; evaluation ranks the first rerank_k.
    k = given.list_size if is_training else given.rerank_k
    return read_beir_ranking(file, split, read_run(path), k, adds_relevant=is_training)
