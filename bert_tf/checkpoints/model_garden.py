"""The TensorFlow Model Garden's TF2 encoder checkpoints, of both its BertEncoder classes.

They are object-based: a name is the path of attributes to the variable. `BertEncoder`, and the
released files, number their layers (layer_with_weights-0 ..); `BertEncoderV2` names them. They are
only read: the Garden's own tf2_bert_encoder_checkpoint_converter.py makes them from Google's form.
"""

import pathlib

import numpy as np

from bert_tf.checkpoints.checkpoint import Checkpoint, Weights, encoder_shapes, table_rows
from bert_tf.checkpoints.google import read_bert_config
from bert_tf.checkpoints.tf_bundle import read_bundle
from bert_tf.checkpoints.tokenizer_files import read_tokenizer
from bert_tf.checkpoints.weight_names import Row, from_file_names, pair, post_norm_rows

SUFFIX = "/.ATTRIBUTES/VARIABLE_VALUE"
TRAINED_POOLER = "next_sentence..pooler_dense"
NUMBERED = "layer_with_weights-3/gamma"
NAMED = "_embedding_norm_layer/gamma"
# The parts of a layer, see `post_norm_rows`.
PARTS = {
    "query": "_attention_layer/_query_dense",
    "key": "_attention_layer/_key_dense",
    "value": "_attention_layer/_value_dense",
    "context": "_attention_layer/_output_dense",
    "attention_norm": "_attention_layer_norm",
    "intermediate": "_intermediate_dense",
    "output": "_output_dense",
    "output_norm": "_output_layer_norm",
}


def is_model_garden(names: list[str]) -> bool:
    """True if the tensors of a checkpoint are those of a Garden encoder."""
    return any(name.endswith((NUMBERED + SUFFIX, NAMED + SUFFIX)) for name in names)


def read_model_garden(prefix: str, config_file: str = "") -> Checkpoint:
    """Reads encoder, pooler and, of a pre-trained model, the MLM head; see `read_google`."""
    folder = pathlib.Path(prefix).parent
    config, stated, _ = read_bert_config(folder, config_file, prefix)
    file_weights: Weights = {}
    for name, value in read_bundle(prefix).items():
        is_weight = name.endswith(SUFFIX) and "optimizer" not in name
        if is_weight and isinstance(value, np.ndarray) and value.dtype.kind == "f":
            file_weights[name.removesuffix(SUFFIX)] = value
    rows = model_garden_rows(list(file_weights), config.num_hidden_layers)
    weights, unused = from_file_names(rows, file_weights, encoder_shapes(config))
    tokenizer = read_tokenizer(folder, table_rows(weights, config), stated)
    notes = tokenizer.notes
    if any(name.endswith(f"{TRAINED_POOLER}/kernel") for name in file_weights):
        own_pooler = ("_pooler_layer", f"layer_with_weights-{config.num_hidden_layers + 4}")
        unused = tuple(n for n in unused if not n.rpartition("/")[0].endswith(own_pooler))
        notes += ("The pooler of the NSP head is used; the encoder's pooler was never trained.",)
    return Checkpoint(
        source=prefix,
        form="model_garden",
        config=tokenizer.applied_to(config, prefix),
        weights=weights,
        vocab=tokenizer.vocab,
        stated_casing=tokenizer.stated,
        unused=unused,
        notes=notes,
    )


def model_garden_rows(names: list[str], num_layers: int) -> list[Row]:
    """Returns the table for a checkpoint with these names, SUFFIX removed."""
    end = next(end for end in (NUMBERED, NAMED) if any(name.endswith(end) for name in names))
    start = next(name for name in names if name.endswith(end)).removesuffix(end)
    if end == NUMBERED:
        # The layers in the order of their creation.
        words, positions, types, norm, *layers, pooler = (
            f"{start}layer_with_weights-{index}" for index in range(num_layers + 5)
        )
    else:
        words = f"{start}_embedding_layer"
        positions = f"{start}_position_embedding_layer"
        types = f"{start}_type_embedding_layer"
        norm = f"{start}_embedding_norm_layer"
        pooler = f"{start}_pooler_layer"
        layers = [f"{start}_transformer_layers/{index}" for index in range(num_layers)]
    # In a pre-trained model: the head's name for the tied table, and the trained pooler.
    outside = start.removesuffix("encoder/").removesuffix("encoder_network/")
    head = f"{outside}masked_lm"
    if f"{outside}{TRAINED_POOLER}/kernel" in names:
        pooler = f"{outside}{TRAINED_POOLER}"
    # The tied table is stored once, under the name of the encoder or of the head.
    words = words + "/embeddings" if words + "/embeddings" in names else f"{head}/embedding_table"
    layer_rows = []
    for index, layer in enumerate(layers):
        layer_rows += post_norm_rows(index, f"{layer}/", PARTS, pair, _norm)
    return [
        Row("bert/embeddings/word_embeddings", words),
        Row("bert/embeddings/position_embeddings", f"{positions}/embeddings"),
        Row("bert/embeddings/token_type_embeddings", f"{types}/embeddings"),
        *_norm("bert/embeddings", norm),
        *layer_rows,
        *pair("bert/pooler/dense", pooler),
        *pair("cls/predictions/transform/dense", f"{head}/dense"),
        *_norm("cls/predictions/transform", f"{head}/layer_norm"),
        Row("cls/predictions/output_bias", f"{head}/output_bias.Sbias"),
    ]


def _norm(name: str, file_name: str) -> list[Row]:
    return pair(f"{name}/LayerNorm", file_name, ("gamma", "beta"))
