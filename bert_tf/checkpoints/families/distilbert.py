"""DistilBERT: BERT's blocks without types; the head for sentences has a dense layer with ReLU."""

import pathlib
from typing import Any

from bert_tf.checkpoints.families import family
from bert_tf.checkpoints.families.bert import encoder_rows, label_head
from bert_tf.checkpoints.weight_names import Row, dense, norm, scores
from bert_tf.config import ModelConfig

FIELDS = {
    "vocab_size": "vocab_size",
    "hidden_size": "dim",
    "num_hidden_layers": "n_layers",
    "num_attention_heads": "n_heads",
    "intermediate_size": "hidden_dim",
    "hidden_act": "activation",
    "hidden_dropout_prob": "dropout",
    "attention_probs_dropout_prob": "attention_dropout",
    "max_position_embeddings": "max_position_embeddings",
    "initializer_range": "initializer_range",
    "pad_token_id": "pad_token_id",
}
# transformers also accepts these names.
OTHER_NAMES = {
    "hidden_size": "dim",
    "num_attention_heads": "n_heads",
    "num_hidden_layers": "n_layers",
}
# A constant of transformers' code; its config.json has no such field.
EPSILON = 1e-12


def read_config(values: dict[str, Any], path: pathlib.Path) -> ModelConfig:
    """Makes the configuration; `sinusoidal_pos_embds` only describes the initial table."""
    return family.read_fields(
        family.with_aliases(values, path, OTHER_NAMES),
        path,
        FIELDS,
        num_hidden_layers=6,
        hidden_act="gelu_exact",
        layer_norm_eps=EPSILON,
        type_vocab_size=0,
        pooler_act="relu",
    )


def write_config(config: ModelConfig) -> dict[str, Any]:
    return {
        **family.written_fields(config, FIELDS),
        "qa_dropout": config.hidden_dropout_prob,
        "seq_classif_dropout": config.hidden_dropout_prob,
        "sinusoidal_pos_embds": False,
    }


def rows(num_layers: int, purpose: str) -> list[Row]:
    result = encoder_rows(
        "distilbert.",
        num_layers,
        layer="transformer.layer.{}",
        query="attention.q_lin",
        key="attention.k_lin",
        value="attention.v_lin",
        context="attention.out_lin",
        attention_norm="sa_layer_norm",
        intermediate="ffn.lin1",
        output="ffn.lin2",
        output_norm="output_layer_norm",
    )
    # This layer is between the first token and `classifier`, like a pooler with ReLU.
    if purpose in ("classifier", "multiple_choice"):
        result += dense("bert/pooler/dense", "pre_classifier")
    return [
        *result,
        *dense("cls/predictions/transform/dense", "vocab_transform"),
        *norm("cls/predictions/transform", "vocab_layer_norm"),
        Row("cls/predictions/output_bias", "vocab_projector.bias"),
        *scores(label_head(purpose), "classifier"),
        *scores("squad", "qa_outputs"),
    ]


DISTILBERT = family.Family(
    title="DistilBERT",
    model_type="distilbert",
    prefix="distilbert.",
    classes=family.task_classes("DistilBert"),
    read_config=read_config,
    write_config=write_config,
    rows=rows,
    copies={"vocab_projector.weight": "distilbert.embeddings.word_embeddings.weight"},
    held={"type_vocab_size": 0, "layer_norm_eps": EPSILON, "pooler_act": "relu"},
)
