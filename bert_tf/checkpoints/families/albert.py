"""ALBERT: BERT's blocks, shared by groups of layers; tables of their own width; sentence order."""

import dataclasses
import pathlib
from typing import Any

from bert_tf.checkpoints.families import family
from bert_tf.checkpoints.families.bert import FIELDS, encoder_rows, label_head
from bert_tf.checkpoints.weight_names import Row, dense, norm, scores
from bert_tf.config import ModelConfig

GROUPED_FIELDS = {**FIELDS, "num_layer_groups": "num_hidden_groups"}


def read_config(values: dict[str, Any], path: pathlib.Path) -> ModelConfig:
    family.expect(values, path, position_embedding_type="absolute", inner_group_num=1)
    config = family.read_fields(
        values,
        path,
        GROUPED_FIELDS,
        vocab_size=30000,
        hidden_size=4096,
        num_attention_heads=64,
        intermediate_size=16384,
        hidden_act="gelu_tanh",
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        num_layer_groups=1,
    )
    if not config.num_layer_groups:
        raise ValueError(f"{path}: num_hidden_groups is 0, expected at least 1.")
    width = family.read_width(values, path, config, 128)
    return dataclasses.replace(config, embedding_size=width, embedding_projection=not width)


def write_config(config: ModelConfig) -> dict[str, Any]:
    return {
        **family.written_fields(config, GROUPED_FIELDS),
        "inner_group_num": 1,
        "embedding_size": config.table_width,
        "classifier_dropout_prob": config.hidden_dropout_prob,
        "position_embedding_type": "absolute",
    }


def other_differences(config: ModelConfig) -> list[str]:
    result = []
    if not config.num_layer_groups:
        result.append("num_layer_groups is 0, not 1 (its layers share their weights)")
    if not config.projects_embeddings:
        result.append("embedding_size is that of the layers (it projects the embeddings)")
    return result


def rows(num_layers: int, purpose: str) -> list[Row]:
    """Returns the table of weights; `num_layers` is the number of groups of layers."""
    return [
        *encoder_rows(
            "albert.",
            num_layers,
            # A group has one layer, as `inner_group_num` is 1.
            layer="encoder.albert_layer_groups.{}.albert_layers.0",
            query="attention.query",
            key="attention.key",
            value="attention.value",
            context="attention.dense",
            attention_norm="attention.LayerNorm",
            intermediate="ffn",
            output="ffn_output",
            output_norm="full_layer_layer_norm",
        ),
        *dense("bert/embeddings_project", "albert.encoder.embedding_hidden_mapping_in"),
        *dense("bert/pooler/dense", "albert.pooler"),
        *dense("cls/predictions/transform/dense", "predictions.dense"),
        *norm("cls/predictions/transform", "predictions.LayerNorm"),
        Row("cls/predictions/output_bias", "predictions.bias"),
        # ALBERT predicts the order of sentences instead.
        *scores("next_sentence", "sop_classifier.classifier"),
        *scores(label_head(purpose), "classifier"),
        *scores("squad", "qa_outputs"),
    ]


ALBERT = family.Family(
    title="ALBERT",
    model_type="albert",
    prefix="albert.",
    classes={
        **family.task_classes("Albert"),
        "pretrained": "AlbertForPreTraining",
        "next_sentence": "AlbertForPreTraining",
    },
    read_config=read_config,
    write_config=write_config,
    rows=rows,
    copies={
        "predictions.decoder.weight": "albert.embeddings.word_embeddings.weight",
        "predictions.decoder.bias": "predictions.bias",
    },
    held={
        "num_layer_groups": family.ANY,
        "embedding_size": family.ANY,
        "embedding_projection": family.ANY,
    },
    other_differences=other_differences,
    pretrains_pooler=True,
)
