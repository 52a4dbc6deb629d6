"""MPNet: RoBERTa's network without types, and one table of biases of distances for all layers."""

import pathlib
from typing import Any

from bert_tf.checkpoints.families import family
from bert_tf.checkpoints.families.bert import FIELDS as BERT_FIELDS
from bert_tf.checkpoints.families.bert import encoder_rows
from bert_tf.checkpoints.families.roberta import head_rows, masked_lm_copies
from bert_tf.checkpoints.weight_names import Row, table
from bert_tf.config import ModelConfig
from bert_tf.system.files import json_field

START = "mpnet."
# Constants of transformers' code, which computes with them whatever config.json says.
PAD_ID = 1
BUCKETS = 32
MAX_DISTANCE = 128
# Its network has no types, so its config.json has no `type_vocab_size`.
FIELDS = {name: key for name, key in BERT_FIELDS.items() if name != "type_vocab_size"}


def read_config(values: dict[str, Any], path: pathlib.Path) -> ModelConfig:
    family.expect(values, path, nullable=True, pad_token_id=PAD_ID)
    # The network sorts distances into as many buckets whatever the field says.
    key = "relative_attention_num_buckets"
    rows = json_field(values, key, int, path, least=BUCKETS, default=BUCKETS)
    return family.read_fields(
        {**values, "pad_token_id": PAD_ID},
        path,
        FIELDS,
        vocab_size=30527,
        hidden_act="gelu_exact",
        head_act=family.gelu_head(values),
        type_vocab_size=0,
        position_type="learned_relative",
        position_offset=PAD_ID + 1,
        relative_buckets=BUCKETS,
        relative_max_distance=MAX_DISTANCE,
        relative_unused_rows=rows - BUCKETS,
    )


def write_config(config: ModelConfig) -> dict[str, Any]:
    return {
        **family.written_fields(config, FIELDS),
        "relative_attention_num_buckets": config.relative_rows,
    }


def rows(num_layers: int, purpose: str) -> list[Row]:
    return [
        *encoder_rows(
            START,
            num_layers,
            query="attention.attn.q",
            key="attention.attn.k",
            value="attention.attn.v",
            context="attention.attn.o",
            attention_norm="attention.LayerNorm",
        ),
        *table("bert/encoder/relative_attention_bias", f"{START}encoder.relative_attention_bias"),
        *head_rows(START, purpose),
    ]


MPNET = family.Family(
    title="MPNet",
    model_type="mpnet",
    prefix=START,
    classes=family.task_classes("MPNet"),
    read_config=read_config,
    write_config=write_config,
    rows=rows,
    copies=masked_lm_copies(START),
    held={
        "position_type": "learned_relative",
        "type_vocab_size": 0,
        "pad_token_id": PAD_ID,
        "position_offset": PAD_ID + 1,
        "relative_buckets": BUCKETS,
        "relative_max_distance": MAX_DISTANCE,
        "relative_bias_per_layer": False,
        "transform_act": "gelu_exact",
    },
    idle={"classifier": f"{START}pooler."},
)
