"""ModernBERT and Ettin: gated pre-norm blocks, rotations, local attention in most layers."""

import pathlib
from typing import Any

from bert_tf.checkpoints.families import family
from bert_tf.checkpoints.weight_names import Row, dense, joined, norm, scores, table
from bert_tf.config import BIASES, ModelConfig
from bert_tf.system.files import json_field

FIELDS = {
    "vocab_size": "vocab_size",
    "hidden_size": "hidden_size",
    "num_hidden_layers": "num_hidden_layers",
    "num_attention_heads": "num_attention_heads",
    "intermediate_size": "intermediate_size",
    "hidden_act": "hidden_activation",
    "hidden_dropout_prob": "mlp_dropout",
    "attention_probs_dropout_prob": "attention_dropout",
    "max_position_embeddings": "max_position_embeddings",
    "initializer_range": "initializer_range",
    "layer_norm_eps": "norm_eps",
    "classifier_pooling": "classifier_pooling",
    "pad_token_id": "pad_token_id",
    "rotary_theta": "global_rope_theta",
    "local_rotary_theta": "local_rope_theta",
    "local_attention": "local_attention",
    "global_attention_every": "global_attn_every_n_layers",
}
# The switches for biases in config.json, and their defaults.
BIAS_FIELDS = {
    "attention": ("attention_bias", False),
    "feed_forward": ("mlp_bias", False),
    "norm": ("norm_bias", False),
    "head": ("classifier_bias", False),
    "output": ("decoder_bias", True),
}
GLOBAL = "full_attention"
LOCAL = "sliding_attention"
EVERY = "global_attn_every_n_layers"
THETAS = {GLOBAL: ("global_rope_theta", 160000.0), LOCAL: ("local_rope_theta", 10000.0)}
NUM_LAYERS = 22


def read_config(values: dict[str, Any], path: pathlib.Path) -> ModelConfig:
    # classifier_activation is that of every head, also of the masked LM's.
    head_act = family.read_activation(values, path, "classifier_activation")
    json_field(values, "classifier_pooling", str, path, choices=("cls", "mean"))
    config = family.read_fields(
        {**values, **_read_thetas(values, path), **_read_windows(values, path)},
        path,
        FIELDS,
        vocab_size=50368,
        num_hidden_layers=NUM_LAYERS,
        intermediate_size=1152,
        hidden_act="gelu_exact",
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        max_position_embeddings=8192,
        layer_norm_eps=1e-5,
        classifier_pooling="cls",
        pad_token_id=50283,
        type_vocab_size=0,
        position_type="rotary",
        block_type="pre_norm",
        gated_feed_forward=True,
        biases=_read_biases(values, path),
        head_act=head_act,
        head_transform=True,
    )
    family.expect(values, path, head_dim=config.head_size, nullable=True)
    return config


def _read_biases(values: dict[str, Any], path: pathlib.Path) -> str:
    parts = []
    for part, (field, default) in BIAS_FIELDS.items():
        if json_field(values, field, bool, path, default=default):
            parts.append(part)
    if not parts:
        return "none"
    if len(parts) == len(BIASES):
        return "all"
    return ",".join(parts)


def _read_thetas(values: dict[str, Any], path: pathlib.Path) -> dict[str, float]:
    """Returns the bases of the rotations by field; transformers 5 has them in rope_parameters."""
    family.expect(values, path, rope_scaling={}, nullable=True)
    parameters = json_field(values, "rope_parameters", dict, path, nullable=True) or {}
    unknown = sorted(set(parameters) - {GLOBAL, LOCAL})
    if unknown:
        raise ValueError(
            f"{path}: rope_parameters has {unknown}, expected {GLOBAL} and {LOCAL} alone."
        )
    thetas = {}
    for kind, (field, default) in THETAS.items():
        part = json_field(parameters, kind, dict, path, nullable=True) or {}
        family.expect(part, path, rope_type="default")
        # The field of transformers 4.
        older = values.get(field, default)
        if older is None and kind == LOCAL:
            older = 0.0
        newer = part.get("rope_theta")
        if "rope_theta" in part and (isinstance(newer, bool) or not isinstance(newer, int | float)):
            raise ValueError(
                f"{path}: rope_theta is {newer!r} in rope_parameters for {kind}, expected a number."
            )
        if newer is not None and field in values and newer != older:
            raise ValueError(
                f"{path}: {field} is {older}, but rope_parameters has {newer} for {kind}; they "
                "must be the same."
            )
        theta = older if newer is None else newer
        stated = field in values and values[field] is not None or newer is not None
        # 0 would mean the same as the other theta.
        if stated and theta == 0:
            raise ValueError(f"{path}: the rope_theta of {kind} ({field}) is 0, expected above 0.")
        thetas[field] = theta
    return thetas


def _read_windows(values: dict[str, Any], path: pathlib.Path) -> dict[str, int]:
    """Returns the window of local layers, 0 without such layers, and how often a global one comes.

    transformers 5 lists the layers as layer_types; global layers must come at equal distances.
    """
    num_layers = _read_num_layers(values, path)
    window = json_field(values, "local_attention", int, path, default=128)
    every = json_field(values, EVERY, int, path, least=1)
    kinds = json_field(values, "layer_types", list, path, nullable=True)
    if kinds is not None:
        # The list of a model with few layers may fit several n; the first is taken.
        distances = range(1, len(kinds) + 1) if every is None else (every,)
        fitting = [n for n in distances if kinds == _layer_types(num_layers, n)]
        if not fitting:
            wanted = "any n" if every is None else f"n = {every}, its {EVERY}"
            raise ValueError(
                f"{path}: layer_types is {kinds}, expected {GLOBAL} in the layers 0, n, 2n .. of "
                f"{num_layers}, {LOCAL} in the others, for {wanted}."
            )
        every = fitting[0]
    if every is None:
        every = 3
    # Without local layers the window has no effect.
    if LOCAL not in _layer_types(num_layers, every):
        return {"local_attention": 0, EVERY: 3}
    if window < 1:
        # 0 would mean full attention; in transformers each token then attends to itself alone.
        raise ValueError(f"{path}: local_attention is {window}, expected at least 1.")
    longest = json_field(values, "max_position_embeddings", int, path, default=window)
    # A wider window sees every token of the longest sequence as well.
    return {"local_attention": min(window, 2 * longest), EVERY: every}


def _read_num_layers(values: dict[str, Any], path: pathlib.Path) -> int:
    """Returns the number of layers, checked before anything is listed for each of them."""
    names = {"num_hidden_layers": "num_hidden_layers", "hidden_act": "hidden_activation"}
    return family.read_fields(values, path, names, num_hidden_layers=NUM_LAYERS).num_hidden_layers


def _layer_types(num_layers: int, every: int) -> list[str]:
    return [LOCAL if index % every else GLOBAL for index in range(num_layers)]


def write_config(config: ModelConfig) -> dict[str, Any]:
    pooling = config.classifier_pooling
    return {
        **family.written_fields(config, FIELDS),
        **{field: config.has_bias(part) for part, (field, _) in BIAS_FIELDS.items()},
        "classifier_activation": family.written_activation(config.transform_act),
        # Another pooling is that of a head in a separate module.
        "classifier_pooling": pooling if pooling in ("cls", "mean") else "cls",
        "embedding_dropout": config.hidden_dropout_prob,
        "classifier_dropout": config.hidden_dropout_prob,
        "local_attention": config.local_attention or 128,
        EVERY: config.global_attention_every if config.local_attention else 1,
        "local_rope_theta": config.local_rotary_theta or config.rotary_theta,
    }


def rows(num_layers: int, purpose: str) -> list[Row]:
    result = [
        *table("bert/embeddings/word_embeddings", "model.embeddings.tok_embeddings"),
        *norm("bert/embeddings", "model.embeddings.norm"),
    ]
    for index in range(num_layers):
        layer = f"bert/encoder/layer_{index}"
        file_layer = f"model.layers.{index}"
        heads = [f"{layer}/attention/self/{part}" for part in ("query", "key", "value")]
        # The embeddings are normalized, so layer 0 has no norm before its attention.
        if index:
            result += norm(f"{layer}/attention", f"{file_layer}.attn_norm")
        # One matrix of all three: the rows of queries, then keys, then values.
        result += joined(heads, f"{file_layer}.attn.Wqkv")
        result += dense(f"{layer}/attention/output/dense", f"{file_layer}.attn.Wo")
        result += norm(f"{layer}/intermediate", f"{file_layer}.mlp_norm")
        result += dense(f"{layer}/intermediate/dense", f"{file_layer}.mlp.Wi")
        result += dense(f"{layer}/output/dense", f"{file_layer}.mlp.Wo")
    result += norm("bert/encoder", "model.final_norm")
    # One transformation under one name, whatever comes after it.
    head = "cls/transform"
    if purpose in ("masked_lm", "encoder"):
        head = "cls/predictions/transform"
        result += [Row("cls/predictions/output_bias", "decoder.bias")]
    elif purpose == "multiple_choice":
        result += scores("classifier", "classifier")
    else:
        result += scores(purpose, "classifier")
    return [*result, *dense(f"{head}/dense", "head.dense"), *norm(head, "head.norm")]


MODERNBERT = family.Family(
    title="ModernBERT",
    model_type="modernbert",
    prefix="model.",
    classes=family.task_classes("ModernBert"),
    read_config=read_config,
    write_config=write_config,
    rows=rows,
    copies={"decoder.weight": "model.embeddings.tok_embeddings.weight"},
    held={
        "block_type": "pre_norm",
        "gated_feed_forward": True,
        "type_vocab_size": 0,
        "position_type": "rotary",
        "head_transform": True,
        "classifier_pooling": ("cls", "mean"),
        **dict.fromkeys(("biases", "local_attention", "position_offset"), family.ANY),
        **dict.fromkeys(("pooler_act", "transform_act"), family.ANY),
    },
)
