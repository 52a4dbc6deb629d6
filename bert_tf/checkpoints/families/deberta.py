"""DeBERTa-v2 and v3: BERT's blocks with disentangled attention; a pooler with GELU in each task.

The masked LM's head has two sets of names. Since transformers 4.48 `legacy` in config.json says
which: `lm_predictions` are the original's, `cls.predictions` those of earlier releases.
"""

import dataclasses
import pathlib
from collections.abc import Iterable
from typing import Any

from bert_tf.checkpoints.families.bert import (
    FIELDS,
    encoder_rows,
    label_head,
    masked_lm_copies,
    masked_lm_rows,
)
from bert_tf.checkpoints.families.family import (
    ANY,
    Family,
    expect,
    read_activation,
    read_fields,
    task_classes,
    written_activation,
    written_fields,
)
from bert_tf.checkpoints.weight_names import Row, dense, norm, scores, table
from bert_tf.config import DISENTANGLED_POSITIONS, ModelConfig
from bert_tf.system.files import json_field

START = "deberta."
LM_HEAD = "lm_predictions.lm_head"
# Weights of microsoft's files that no class of transformers computes with: the head that detects
# replaced tokens, and the part of each table that its training added to the generator's; the
# table itself is in the file as well (DeBERTaV3).
IDLE = (
    "mask_predictions.",
    f"{START}embeddings.word_embeddings._weight",
    f"{START}embeddings.position_embeddings._weight",
)
POSITION_TABLE = f"{START}embeddings.position_embeddings."
TERMS = ("c2p", "p2c")


def read_config(values: dict[str, Any], path: pathlib.Path) -> ModelConfig:
    hidden = json_field(values, "hidden_size", int, path, default=1536)
    heads = json_field(values, "num_attention_heads", int, path, default=24)
    # Without these fields transformers computes something else, so that they must be given.
    required = {"relative_attention": True, "share_att_key": True}
    for key, value in required.items():
        if key not in values:
            raise ValueError(
                f"{path}: {key} is missing, expected {str(value).lower()}, the only value that "
                "bert_tf supports."
            )
    expect(values, path, **required)
    expect(values, path, conv_kernel_size=0)
    expect(values, path, embedding_size=hidden, pooler_hidden_size=hidden)
    if heads > 0 and "attention_head_size" in values:
        expect(values, path, attention_head_size=hidden // heads)
    _check_norm(values, path)
    buckets, longest = _read_buckets(values, path)
    has_table = json_field(values, "position_biased_input", bool, path)
    return read_fields(
        values,
        path,
        FIELDS,
        vocab_size=128100,
        hidden_size=1536,
        num_hidden_layers=24,
        num_attention_heads=24,
        intermediate_size=6144,
        hidden_act="gelu_exact",
        type_vocab_size=0,
        layer_norm_eps=1e-7,
        position_type="disentangled" if has_table is False else "learned_disentangled",
        pos_att_type=_read_terms(values, path),
        relative_buckets=buckets,
        relative_max_distance=longest,
        pooler_act=read_activation(values, path, "pooler_hidden_act"),
    )


def _check_norm(values: dict[str, Any], path: pathlib.Path) -> None:
    norms = json_field(values, "norm_rel_ebd", str, path, default="")
    if "layer_norm" not in map(str.strip, norms.lower().split("|")):
        raise ValueError(
            f"{path}: norm_rel_ebd is {norms!r}, expected 'layer_norm', the only one that bert_tf "
            "supports."
        )


def _read_terms(values: dict[str, Any], path: pathlib.Path) -> str:
    """Returns the `pos_att_type` of ModelConfig for that of the file, a list or "p2c|c2p"."""
    given = values.get("pos_att_type")
    terms = given.lower().split("|") if isinstance(given, str) else given
    if isinstance(terms, list):
        terms = [term.strip() if isinstance(term, str) else term for term in terms]
        if terms and len(set(map(str, terms))) == len(terms) and set(map(str, terms)) <= {*TERMS}:
            return ",".join(terms)
    raise ValueError(
        f"{path}: pos_att_type is {given!r}, expected c2p, p2c or both; bert_tf supports no other "
        "attention of DeBERTa."
    )


def _read_buckets(values: dict[str, Any], path: pathlib.Path) -> tuple[int, int]:
    """Returns the rows of the table of distances, and the distance that has the last one."""
    positions = json_field(values, "max_position_embeddings", int, path, default=512)
    longest = json_field(values, "max_relative_positions", int, path, default=-1)
    if longest < 1:
        longest = positions
    half = json_field(values, "position_buckets", int, path, default=-1)
    if half < 1:  # Each distance has a row.
        return 2 * longest, longest
    if half < 2 or half >= longest:
        raise ValueError(
            f"{path}: position_buckets is {half}, expected 2 to {longest - 1}: less than "
            "max_relative_positions or, without it, max_position_embeddings."
        )
    return 2 * half, longest


def write_config(config: ModelConfig) -> dict[str, Any]:
    half = config.relative_buckets // 2
    longest = config.relative_max_distance
    return {
        **written_fields(config, FIELDS),
        "legacy": False,
        # With true, transformers ties the dense layer of this head to the word table and fails;
        # the scores are computed with the word table in any case.
        "tie_word_embeddings": False,
        "relative_attention": True,
        "position_buckets": -1 if half == longest else half,
        "max_relative_positions": -1 if longest == config.max_position_embeddings else longest,
        "pos_att_type": config.pos_att_type.split(","),
        "share_att_key": True,
        "norm_rel_ebd": "layer_norm",
        "position_biased_input": config.has_position_table,
        "pooler_hidden_act": written_activation(config.pooler_act),
        "pooler_hidden_size": config.hidden_size,
        "pooler_dropout": 0,
    }


def write_legacy_config(config: ModelConfig) -> dict[str, Any]:
    return {**write_config(config), "legacy": True, "tie_word_embeddings": True}


def rows(num_layers: int, purpose: str) -> list[Row]:
    return [
        *_encoder_and_task_rows(num_layers, purpose),
        *dense("cls/predictions/transform/dense", f"{LM_HEAD}.dense"),
        *norm("cls/predictions/transform", f"{LM_HEAD}.LayerNorm"),
        Row("cls/predictions/output_bias", f"{LM_HEAD}.bias"),
    ]


def legacy_rows(num_layers: int, purpose: str) -> list[Row]:
    return [*_encoder_and_task_rows(num_layers, purpose), *masked_lm_rows()]


def _encoder_and_task_rows(num_layers: int, purpose: str) -> list[Row]:
    relative = "bert/encoder/relative_embeddings"
    result = [
        *encoder_rows(
            START,
            num_layers,
            query="attention.self.query_proj",
            key="attention.self.key_proj",
            value="attention.self.value_proj",
        ),
        *table(f"{relative}/table", f"{START}encoder.rel_embeddings"),
        *norm(relative, f"{START}encoder.LayerNorm"),
    ]
    if purpose in ("classifier", "multiple_choice"):
        result += dense("bert/pooler/dense", "pooler.dense")
    return [*result, *scores(label_head(purpose), "classifier"), *scores("squad", "qa_outputs")]


def variant(values: dict[str, Any], names: Iterable[str]) -> Family:
    """Returns the family with the names of a file, and the idle weights of its configuration."""
    names = list(names)
    family = DEBERTA
    if not any(name.startswith("lm_predictions.") for name in names):
        if any(name.startswith("cls.predictions.") for name in names) or values.get("legacy", True):
            family = LEGACY_DEBERTA
    idle: tuple[str, ...] = IDLE
    if values.get("position_biased_input") is False:
        idle = (*IDLE, POSITION_TABLE)
    # A discriminator's file has a masked LM's head that its training did not learn.
    by_purpose = dict.fromkeys(family.classes, (*idle, "lm_predictions.", "cls.predictions."))
    return dataclasses.replace(family, idle={**by_purpose, "masked_lm": idle})


DEBERTA = Family(
    title="DeBERTa",
    model_type="deberta-v2",
    prefix=START,
    # transformers has no head that detects replaced tokens, so it is left out.
    classes={**task_classes("DebertaV2"), "discriminator": "DebertaV2Model"},
    read_config=read_config,
    write_config=write_config,
    rows=rows,
    copies={},
    held={"position_type": DISENTANGLED_POSITIONS, "type_vocab_size": ANY, "pooler_act": ANY},
    variant=variant,
)
LEGACY_DEBERTA = dataclasses.replace(
    DEBERTA,
    title="DeBERTa (legacy head)",
    write_config=write_legacy_config,
    rows=legacy_rows,
    copies=masked_lm_copies(START),
)
