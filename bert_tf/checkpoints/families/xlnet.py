"""XLNet: post-norm blocks, relative positions and segments, a query stream, the last token pooled.

Its attention has no biases but those of the positions. `untie_r` says how XLNet's own checkpoints
store these; every layer of a Hugging Face folder has its own.
"""

import dataclasses
import pathlib
from typing import Any

from bert_tf.checkpoints.families import family
from bert_tf.checkpoints.weight_names import Row, dense, norm, scores, table
from bert_tf.config import TRANSFORMER_XL_BIASES, ModelConfig
from bert_tf.system.files import json_field

FIELDS = {
    "vocab_size": "vocab_size",
    "hidden_size": "d_model",
    "num_hidden_layers": "n_layer",
    "num_attention_heads": "n_head",
    "intermediate_size": "d_inner",
    "hidden_act": "ff_activation",
    "hidden_dropout_prob": "dropout",
    "attention_probs_dropout_prob": "dropout",
    "initializer_range": "initializer_range",
    "layer_norm_eps": "layer_norm_eps",
    "pad_token_id": "pad_token_id",
}
# transformers also accepts these names.
OTHER_NAMES = {
    "n_token": "vocab_size",
    "hidden_size": "d_model",
    "num_hidden_layers": "n_layer",
    "num_attention_heads": "n_head",
}
STRUCTURE: dict[str, Any] = {
    "position_type": "transformer_xl",
    "type_vocab_size": 0,
    "embedding_norm": False,
    "query_vector": True,
    "pooled_token": "last",
    "masked_lm_transform": False,
    "biases": "feed_forward,norm,head,output",
}
# Fields of which only one value is supported. The first two decide what tokens attend to, the third
# reverses half of a batch.
ONLY: dict[str, Any] = {"attn_type": "bi", "same_length": False, "bi_data": False, "untie_r": True}


def read_config(values: dict[str, Any], path: pathlib.Path) -> ModelConfig:
    values = family.with_aliases(values, path, OTHER_NAMES)
    family.expect(values, path, **ONLY, summary_type="last", summary_proj_to_labels=False)
    if "XLNetForQuestionAnswering" in family.architectures(values, path):
        raise ValueError(
            f"{path}: XLNetForQuestionAnswering has a head that searches ends for each start; "
            "bert_tf has no such head. Use XLNetForQuestionAnsweringSimple, or the encoder with a "
            "new head."
        )
    config = family.read_fields(
        values,
        path,
        FIELDS,
        **STRUCTURE,
        vocab_size=32000,
        hidden_size=1024,
        num_hidden_layers=24,
        num_attention_heads=16,
        intermediate_size=4096,
        hidden_act="gelu_exact",
        pad_token_id=5,
        # -1 in the files means no limit, here 0.
        clamp_distance=max(json_field(values, "clamp_len", int, path) or 0, 0),
        memory_length=_length(values, "mem_len", 512, path),
        memory_reuse=_length(values, "reuse_len", 0, path),
        do_lower_case=False,
    )
    head_size = json_field(values, "d_head", int, path)
    if head_size not in (None, config.head_size):
        raise ValueError(
            f"{path}: d_head is {head_size}, expected d_model / n_head = {config.head_size}."
        )
    return dataclasses.replace(config, **_pooling(values, path))


def _length(values: dict[str, Any], key: str, default: int, path: pathlib.Path) -> int:
    """Returns a number of tokens of memories; 0 for null."""
    if key in values:
        default = 0  # of null
    return json_field(values, key, int, path, nullable=True, least=0, default=default)


def _pooling(values: dict[str, Any], path: pathlib.Path) -> dict[str, Any]:
    """Returns the fields of the pooler; the last token alone without projection and activation."""
    act = "linear"
    # Null means no activation.
    if values.get("summary_activation", "tanh"):
        act = family.read_activation(values, path, "summary_activation", "tanh")
    if json_field(values, "summary_use_proj", bool, path) is not False:
        return {"classifier_pooling": "pooler", "pooler_act": act}
    if act != "linear":
        raise ValueError(
            f"{path}: summary_use_proj is false, but summary_activation is {act!r}; bert_tf has no "
            "activation without the projection before it."
        )
    return {"classifier_pooling": "cls"}


def write_config(config: ModelConfig) -> dict[str, Any]:
    is_pooled = config.classifier_pooling == "pooler"
    act = family.written_activation(config.pooler_act) if is_pooled else None
    return {
        **family.written_fields(config, FIELDS),
        "dropout": config.hidden_dropout_prob,
        "d_head": config.head_size,
        **ONLY,
        "clamp_len": config.clamp_distance or -1,
        "mem_len": config.memory_length or None,
        "reuse_len": config.memory_reuse or None,
        "summary_type": "last",
        "summary_use_proj": is_pooled,
        "summary_activation": None if act == "linear" else act,
        "summary_last_dropout": config.hidden_dropout_prob,
    }


def rows(num_layers: int, purpose: str) -> list[Row]:
    result = [
        *table("bert/embeddings/word_embeddings", "transformer.word_embedding"),
        Row("bert/query_vector", "transformer.mask_emb"),
    ]
    for index in range(num_layers):
        layer = f"bert/encoder/layer_{index}"
        attention = f"{layer}/attention/self"
        file_layer = f"transformer.layer.{index}"
        file_attention = f"{file_layer}.rel_attn"
        for part, letter in (("query", "q"), ("key", "k"), ("value", "v"), ("r", "r")):
            # The files have [D, N, H], one matrix for each head.
            name = f"{attention}/{part}/kernel"
            result.append(Row(name, f"{file_attention}.{letter}", has_heads=True))
        # [N * H, D] here; the files have its transpose with the heads split, [D, N, H].
        output = f"{layer}/attention/output/dense/kernel"
        result.append(Row(output, f"{file_attention}.o", is_transposed=True, has_heads=True))
        for name in (*TRANSFORMER_XL_BIASES, "seg_embed"):
            result.append(Row(f"{attention}/{name}", f"{file_attention}.{name}"))
        result += norm(f"{layer}/attention/output", f"{file_attention}.layer_norm")
        result += dense(f"{layer}/intermediate/dense", f"{file_layer}.ff.layer_1")
        result += dense(f"{layer}/output/dense", f"{file_layer}.ff.layer_2")
        result += norm(f"{layer}/output", f"{file_layer}.ff.layer_norm")
    if purpose in ("classifier", "multiple_choice"):
        result += dense("bert/pooler/dense", "sequence_summary.summary")
        result += scores("classifier", "logits_proj")
    if purpose == "tagger":
        result += scores("tagger", "classifier")
    return [
        *result,
        Row("cls/predictions/output_bias", "lm_loss.bias"),
        *scores("squad", "qa_outputs"),
    ]


XLNET = family.Family(
    title="XLNet",
    model_type="xlnet",
    prefix="transformer.",
    classes={
        **family.task_classes("XLNet"),
        "masked_lm": "XLNetLMHeadModel",
        "squad": "XLNetForQuestionAnsweringSimple",
    },
    read_config=read_config,
    write_config=write_config,
    rows=rows,
    copies={"lm_loss.weight": "transformer.word_embedding.weight"},
    held={
        **STRUCTURE,
        "classifier_pooling": ("pooler", "cls"),
        **dict.fromkeys(("position_offset", "pooler_act", "transform_act"), family.ANY),
    },
)
