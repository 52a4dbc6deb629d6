"""Reads and checks the files of `run_retriever`, without TensorFlow."""

from typing import Any

from bert_tf.config import config_flags
from bert_tf.config.ranking_config import RetrieverConfig
from bert_tf.tasks.base.programs.program import Configs
from bert_tf.tasks.embedding.beir import read_beir
from bert_tf.tasks.embedding.examples import read_beir_examples, read_embedding_examples
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
        if named[use]:
            must_have = use == "train" or is_meant
            inputs[use] = read_embedding_examples(
                file, f"--{use}_file", **columns, must_have=must_have, reading=task
            )
        elif use == "train":
            inputs[use] = read_beir_examples(task.data_dir, task.train_split)
        else:
            inputs[use] = read_beir(task.data_dir, task.eval_split)
    if "train" in inputs and task.retrieval_loss not in ("", "denoising"):
        check_examples(inputs["train"], task.retrieval_loss)
    return inputs
