"""Reads and checks the files of `run_retriever`, without TensorFlow."""

from collections.abc import Mapping
from typing import Any

from bert_tf.config import config_flags
from bert_tf.config.ranking_config import RetrieverConfig, comma_list
from bert_tf.config.rules import Exclusion, Rule
from bert_tf.tasks.base.programs.program import Configs
from bert_tf.tasks.embedding.beir import read_collections
from bert_tf.tasks.embedding.examples import (
    EmbeddingExample,
    read_beir_examples,
    read_embedding_examples,
)
from bert_tf.tasks.embedding.loss_names import (
    LOSS_SIMILARITIES,
    check_examples,
    check_similarity,
    natural_loss,
)


def read_to_embed(configs: Configs, files: dict[str, str]) -> dict[str, Any]:
    """Reads the examples, or the BEIR collection, that `run_retriever` trains on and evaluates."""
    task: RetrieverConfig = configs.task
    inputs: dict[str, Any] = {}
    columns = {"query_column": task.query_column, "positive_column": task.positive_column}
    given = columns.keys() & config_flags.given(RetrieverConfig)
    # Columns that are named for the training file may be missing in the file to evaluate.
    is_meant = bool(given) and "train" not in files
    named = {"train": configs.tuning.train_file, "eval": configs.data.eval_file}

    def read(use: str, file: str) -> list[EmbeddingExample]:
        must_have = use == "train" or is_meant
        return read_embedding_examples(
            file, f"--{use}_file", **columns, must_have=must_have, reading=task
        )

    for use, file in files.items():
        if use == "train" and task.has_data_sets:
            inputs[use] = [read(use, path) for path in _data_set_files(task, named[use])]
        elif named[use]:
            inputs[use] = read(use, file)
        elif use == "train":
            inputs[use] = read_beir_examples(task.data_dir, task.train_split)
        else:
            inputs[use] = read_collections(task.data_dirs, task.eval_split)
    if "train" in inputs and task.retrieval_loss != "denoising":
        data_sets = data_sets_of(task, inputs)
        for examples, loss in zip(data_sets, task.losses_of(len(data_sets)), strict=True):
            check_examples(examples, loss)
            check_similarity(loss or natural_loss(examples), LOSS_SIMILARITIES[task.embedding_type])
    return inputs


def data_sets_of(task: RetrieverConfig, inputs: Mapping[str, Any]) -> list[list[EmbeddingExample]]:
    """Returns the data sets to train on; without several, all examples are one."""
    return inputs["train"] if task.has_data_sets else [inputs["train"]]


def _data_set_files(task: RetrieverConfig, train_file: str) -> list[str]:
    """Returns the files that are data sets; ValueError if there are not as many as losses."""
    paths = comma_list(train_file)
    if len(paths) < 2 or len(task.losses_of(len(paths))) != len(paths):
        raise ValueError(
            f"--train_file={train_file} names {len(paths)} files for the losses "
            f"{task.retrieval_loss or 'of each'!r}; expected two files or more, and one loss, or "
            "one for each file."
        )
    return paths


DENSE_ALONE = "matryoshka_dims matryoshka_weights teacher"
RETRIEVER_RULES = (
    Rule(
        lambda c: c.tuning.do_predict,
        "--do_predict: a retriever has nothing to predict; extract_features --pooling=own writes "
        "embeddings.",
    ),
    Exclusion(
        "retrieval_loss=denoising",
        "makes dense embeddings by reconstructing texts",
        f"embedding_type=splade embedding_type=colbert {DENSE_ALONE}",
    ),
    Exclusion(
        "embedding_type=colbert", "has a vector for each token", f"{DENSE_ALONE} embedding_pooling"
    ),
    Rule(
        lambda c: c.task.has_data_sets and (c.task.embedding_type != "dense" or c.task.teacher),
        "--mixing and several losses are for dense embeddings without --teacher; leave them out.",
    ),
    Exclusion(
        "embedding_type=splade",
        "weighs tokens by the masked-LM head, without pooling or prompts",
        f"{DENSE_ALONE} embedding_pooling query_prompt document_prompt new_head",
    ),
)
