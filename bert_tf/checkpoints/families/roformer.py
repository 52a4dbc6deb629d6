"""RoFormer: BERT's blocks; queries and keys are rotated, neighbouring numbers in pairs."""

import dataclasses
import pathlib
from typing import Any

import numpy as np

from bert_tf.checkpoints.families import bert, family
from bert_tf.checkpoints.weight_names import Row, dense, scores
from bert_tf.config import ModelConfig

THETA = 10000.0


def read_config(values: dict[str, Any], path: pathlib.Path) -> ModelConfig:
    family.expect(values, path, rotary_value=False)
    if "RoFormerForMultipleChoice" in family.architectures(values, path):
        raise ValueError(
            f"{path}: RoFormerForMultipleChoice scores the last position of a row, padding or not; "
            f"bert_tf has no such head. Use the encoder and train a new head."
        )
    config = family.read_fields(
        values,
        path,
        bert.FIELDS,
        vocab_size=50000,
        hidden_act="gelu_exact",
        max_position_embeddings=1536,
        position_type="rotary_interleaved",
        rotary_theta=THETA,
    )
    width = family.read_width(values, path, config, config.hidden_size, nullable=True)
    # The head for sentences has the activation of the layers.
    return dataclasses.replace(config, embedding_size=width, pooler_act=config.hidden_act)


def write_config(config: ModelConfig) -> dict[str, Any]:
    return {
        **family.written_fields(config, bert.FIELDS),
        "embedding_size": config.table_width,
        "rotary_value": False,
    }


def rows(num_layers: int, purpose: str) -> list[Row]:
    result = bert.encoder_rows("roformer.", num_layers)
    result += dense("bert/embeddings_project", "roformer.embeddings_project")
    if purpose == "classifier":
        result += dense("bert/pooler/dense", "classifier.dense")
        result += scores("classifier", "classifier.out_proj")
    if purpose == "tagger":
        result += scores("tagger", "classifier")
    return [*result, *bert.masked_lm_rows(), *scores("squad", "qa_outputs")]


def rotations(config: ModelConfig) -> np.ndarray:
    """Returns the sines and cosines of the rotations, [P, head size], which its files hold."""
    size = config.head_size
    positions = np.arange(config.max_position_embeddings)[:, None]
    # [P, head size / 2]: position t rotates pair i by t / THETA ** (2i / head size).
    angles = positions / np.power(THETA, 2 * np.arange(size // 2) / size)
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1).astype(np.float32)


ROFORMER = family.Family(
    title="RoFormer",
    model_type="roformer",
    prefix="roformer.",
    classes={
        purpose: name
        for purpose, name in family.task_classes("RoFormer").items()
        if purpose != "multiple_choice"
    },
    read_config=read_config,
    write_config=write_config,
    rows=rows,
    copies=bert.masked_lm_copies("roformer."),
    held={
        "position_type": "rotary_interleaved",
        "position_offset": family.ANY,
        "rotary_theta": THETA,
        "embedding_size": family.ANY,
        "pooler_act": lambda config: config.hidden_act,
    },
    constants={"roformer.encoder.embed_positions.weight": rotations},
)
