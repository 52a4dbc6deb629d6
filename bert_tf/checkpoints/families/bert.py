"""BERT: post-norm blocks, learned positions, segments, a pre-trained pooler."""

import pathlib
from typing import Any

from bert_tf.checkpoints.families import family
from bert_tf.checkpoints.weight_names import Row, dense, norm, post_norm_rows, scores, table
from bert_tf.config import ModelConfig

# The fields with the same name in the config.json of BERT, RoBERTa and RoFormer.
SAME_NAMES = """
    vocab_size hidden_size num_hidden_layers num_attention_heads intermediate_size hidden_act
    hidden_dropout_prob attention_probs_dropout_prob max_position_embeddings type_vocab_size
    initializer_range layer_norm_eps pad_token_id
""".split()
FIELDS = {name: name for name in SAME_NAMES}
# The parts of a block by their names in the files of BERT; `encoder_rows` takes others.
PARTS = {
    "query": "attention.self.query",
    "key": "attention.self.key",
    "value": "attention.self.value",
    "context": "attention.output.dense",
    "attention_norm": "attention.output.LayerNorm",
    "intermediate": "intermediate.dense",
    "output": "output.dense",
    "output_norm": "output.LayerNorm",
}


def read_config(values: dict[str, Any], path: pathlib.Path) -> ModelConfig:
    family.expect(values, path, position_embedding_type="absolute")
    # transformers' default is "gelu", the exact form; google-research/bert computes the tanh form.
    return family.read_fields(values, path, FIELDS, hidden_act="gelu_exact")


def write_config(config: ModelConfig) -> dict[str, Any]:
    return {**family.written_fields(config, FIELDS), "position_embedding_type": "absolute"}


def rows(num_layers: int, purpose: str) -> list[Row]:
    return [
        *encoder_rows("bert.", num_layers),
        *dense("bert/pooler/dense", "bert.pooler.dense"),
        *masked_lm_rows(),
        *scores("next_sentence", "cls.seq_relationship"),
        *scores(label_head(purpose), "classifier"),
        *scores("squad", "qa_outputs"),
    ]


def label_head(purpose: str) -> str:
    """Returns the head that transformers calls `classifier`, which only the class tells apart."""
    return "tagger" if purpose == "tagger" else "classifier"


def encoder_rows(
    start: str, num_layers: int, layer: str = "encoder.layer.{}", **parts: str
) -> list[Row]:
    """Returns the rows of the tables and of post-norm blocks; `parts` are named as in `PARTS`.

    The names in the files begin with `start`; `layer` has {} for the number of a block.
    """
    result = [
        *table("bert/embeddings/word_embeddings", f"{start}embeddings.word_embeddings"),
        *table("bert/embeddings/token_type_embeddings", f"{start}embeddings.token_type_embeddings"),
        *table("bert/embeddings/position_embeddings", f"{start}embeddings.position_embeddings"),
        *norm("bert/embeddings", f"{start}embeddings.LayerNorm"),
    ]
    names = {**PARTS, **parts}
    for index in range(num_layers):
        result += post_norm_rows(index, f"{start}{layer.format(index)}.", names)
    return result


def masked_lm_rows() -> list[Row]:
    return [
        *dense("cls/predictions/transform/dense", "cls.predictions.transform.dense"),
        *norm("cls/predictions/transform", "cls.predictions.transform.LayerNorm"),
        Row("cls/predictions/output_bias", "cls.predictions.bias"),
    ]


def masked_lm_copies(start: str) -> dict[str, str]:
    """Returns the tied weights of that head: each name with the weight that it copies."""
    return {
        "cls.predictions.decoder.weight": f"{start}embeddings.word_embeddings.weight",
        "cls.predictions.decoder.bias": "cls.predictions.bias",
    }


BERT = family.Family(
    title="BERT",
    model_type="bert",
    prefix="bert.",
    classes={
        **family.task_classes("Bert"),
        "pretrained": "BertForPreTraining",
        "next_sentence": "BertForNextSentencePrediction",
    },
    read_config=read_config,
    write_config=write_config,
    rows=rows,
    copies=masked_lm_copies("bert."),
    pretrains_pooler=True,
)
