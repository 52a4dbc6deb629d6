"""ELECTRA: BERT's blocks with exact GELU, tables of their own width, no pooler.

A folder holds one of its two networks: the discriminator, which detects replaced tokens, or the
generator, a masked language model. The head for sentences has a dense layer with GELU.
"""

import dataclasses
import pathlib
from typing import Any

from bert_tf.checkpoints.families import family
from bert_tf.checkpoints.families.bert import FIELDS, encoder_rows
from bert_tf.checkpoints.weight_names import Row, dense, norm, scores
from bert_tf.config import ModelConfig


def read_config(values: dict[str, Any], path: pathlib.Path) -> ModelConfig:
    family.expect(values, path, position_embedding_type="absolute")
    if "ElectraForMultipleChoice" in family.architectures(values, path):
        family.expect(
            values, path, summary_type="first", summary_use_proj=True, summary_activation="gelu"
        )
    config = family.read_fields(
        values,
        path,
        FIELDS,
        vocab_size=30522,
        hidden_size=256,
        num_attention_heads=4,
        intermediate_size=1024,
        hidden_act="gelu_exact",
        head_act=family.gelu_head(values),
        pooler_act="gelu_exact",
    )
    return dataclasses.replace(config, embedding_size=family.read_width(values, path, config, 128))


def write_config(config: ModelConfig) -> dict[str, Any]:
    return {
        **family.written_fields(config, FIELDS),
        "embedding_size": config.table_width,
        "position_embedding_type": "absolute",
        "summary_type": "first",
        "summary_use_proj": True,
        "summary_activation": "gelu",
    }


def rows(num_layers: int, purpose: str) -> list[Row]:
    result = encoder_rows("electra.", num_layers)
    result += dense("bert/embeddings_project", "electra.embeddings_project")
    # The dense layer inside the head of its class is our pooler.
    if purpose == "classifier":
        result += dense("bert/pooler/dense", "classifier.dense")
        result += scores("classifier", "classifier.out_proj")
    if purpose == "multiple_choice":
        result += dense("bert/pooler/dense", "sequence_summary.summary")
        result += scores("classifier", "classifier")
    if purpose == "tagger":
        result += scores("tagger", "classifier")
    return [
        *result,
        *dense("cls/discriminator/dense", "discriminator_predictions.dense"),
        *dense("cls/discriminator/dense_1", "discriminator_predictions.dense_prediction"),
        *dense("cls/predictions/transform/dense", "generator_predictions.dense"),
        *norm("cls/predictions/transform", "generator_predictions.LayerNorm"),
        Row("cls/predictions/output_bias", "generator_lm_head.bias"),
        *scores("squad", "qa_outputs"),
    ]


ELECTRA = family.Family(
    title="ELECTRA",
    model_type="electra",
    prefix="electra.",
    classes={**family.task_classes("Electra"), "discriminator": "ElectraForPreTraining"},
    read_config=read_config,
    write_config=write_config,
    rows=rows,
    copies={"generator_lm_head.weight": "electra.embeddings.word_embeddings.weight"},
    held={"embedding_size": family.ANY, "pooler_act": "gelu_exact", "transform_act": "gelu_exact"},
)
