"""RoBERTa: BERT's blocks; positions count from the row after padding's, and padding takes none."""

import dataclasses
import functools
import pathlib
from typing import Any

from bert_tf.checkpoints.families.bert import FIELDS, encoder_rows, label_head, write_config
from bert_tf.checkpoints.families.family import (
    Family,
    expect,
    gelu_head,
    read_fields,
    task_classes,
)
from bert_tf.checkpoints.weight_names import Row, dense, norm, scores
from bert_tf.config import ModelConfig
from bert_tf.system.files import json_field

HELD: dict[str, Any] = {
    "position_offset": lambda config: config.pad_token_id + 1,
    "transform_act": "gelu_exact",
}


def read_config(values: dict[str, Any], path: pathlib.Path, vocab_size: int = 50265) -> ModelConfig:
    """Makes the configuration; `vocab_size` is the default of the field."""
    expect(values, path, position_embedding_type="absolute")
    pad_id = json_field(values, "pad_token_id", int, path, default=1)
    return read_fields(
        values,
        path,
        FIELDS,
        vocab_size=vocab_size,
        hidden_act="gelu_exact",
        head_act=gelu_head(values),
        pad_token_id=pad_id,
        position_offset=pad_id + 1,
    )


def rows(num_layers: int, purpose: str) -> list[Row]:
    return encoder_rows("roberta.", num_layers) + head_rows("roberta.", purpose)


def head_rows(start: str, purpose: str) -> list[Row]:
    """Returns the rows of the pooler and all heads; the encoder's names begin with `start`."""
    # The pooler of its class for sentences is part of the head.
    if purpose == "classifier":
        head = dense("bert/pooler/dense", "classifier.dense")
        head += scores("classifier", "classifier.out_proj")
    else:
        head = dense("bert/pooler/dense", f"{start}pooler.dense")
        head += scores(label_head(purpose), "classifier")
    return [
        *dense("cls/predictions/transform/dense", "lm_head.dense"),
        *norm("cls/predictions/transform", "lm_head.layer_norm"),
        Row("cls/predictions/output_bias", "lm_head.bias"),
        *head,
        *scores("squad", "qa_outputs"),
    ]


def masked_lm_copies(start: str) -> dict[str, str]:
    """Returns the tied weights of the masked LM head: each name with the weight that it copies."""
    return {
        "lm_head.decoder.weight": f"{start}embeddings.word_embeddings.weight",
        "lm_head.decoder.bias": "lm_head.bias",
    }


ROBERTA = Family(
    title="RoBERTa",
    model_type="roberta",
    prefix="roberta.",
    classes=task_classes("Roberta"),
    read_config=read_config,
    write_config=write_config,
    rows=rows,
    copies=masked_lm_copies("roberta."),
    # With other tokenizers the same network is an XLM-RoBERTa.
    held={**HELD, "tokenizer": ("byte_bpe", "wordpiece")},
    idle={"classifier": "roberta.pooler."},
)
# XLM-RoBERTa and CamemBERT are the same network under the names of other classes.
XLM_ROBERTA = dataclasses.replace(
    ROBERTA,
    title="XLM-RoBERTa",
    model_type="xlm-roberta",
    classes=task_classes("XLMRoberta"),
    read_config=functools.partial(read_config, vocab_size=30522),
    held=HELD,
)
CAMEMBERT = dataclasses.replace(
    XLM_ROBERTA,
    title="CamemBERT",
    model_type="camembert",
    classes=task_classes("Camembert"),
)
