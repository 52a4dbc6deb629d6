"""The Model Garden's TF2 encoders, laid out here as its classes do.

The names are those that `tf.train.list_variables` showed of checkpoints which official.nlp 2.20's
BertEncoder, BertEncoderV2 and BertPretrainerV2 wrote.
"""

import json

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.checkpoints.formats import read_checkpoint
from tests.checkpoints.made_checkpoint import assert_same, make_checkpoint


def place(root: tf.Module, path: str, value: np.ndarray) -> None:
    """Puts a variable at the end of a way of attributes."""
    *way, last = path.split("/")
    for name in way:
        if not hasattr(root, name):
            setattr(root, name, tf.Module())
        root = getattr(root, name)
    setattr(root, last.replace("|", "/"), tf.Variable(value))  # In the file, the / is .S


def layer_paths(config) -> dict[str, tuple[str, tuple[int, ...] | None]]:
    """Returns, by the end of our name, the Garden's and its shape where that differs."""
    heads, size = config.num_attention_heads, config.hidden_size
    kernel, bias = (size, heads, size // heads), (heads, size // heads)
    paths = {}
    for part in ("query", "key", "value"):
        start = f"_attention_layer/_{part}_dense"
        paths[f"attention/self/{part}/kernel"] = (f"{start}/kernel", kernel)
        paths[f"attention/self/{part}/bias"] = (f"{start}/bias", bias)
    output = "_attention_layer/_output_dense"
    paths["attention/output/dense/kernel"] = (f"{output}/kernel", (heads, size // heads, size))
    paths["attention/output/dense/bias"] = (f"{output}/bias", None)
    for ours, theirs in (("intermediate", "_intermediate"), ("output", "_output")):
        for end in ("kernel", "bias"):
            paths[f"{ours}/dense/{end}"] = (f"{theirs}_dense/{end}", None)
    for ours, theirs in (("attention/output", "_attention"), ("output", "_output")):
        for end in ("gamma", "beta"):
            paths[f"{ours}/LayerNorm/{end}"] = (f"{theirs}_layer_norm/{end}", None)
    return paths


def lay_out(made, numbered: bool) -> dict[str, np.ndarray]:
    """Returns the weights of encoder and pooler by the Garden's way of attributes."""
    outside = ["word_embeddings", "position_embeddings", "token_type_embeddings"]
    count = made.config.num_hidden_layers
    if numbered:
        names = [f"layer_with_weights-{i}" for i in range(count + 5)]
        (*tables, norm), layers, pooler = names[:4], names[4:-1], names[-1]
    else:
        parts = ("embedding", "position_embedding", "type_embedding", "embedding_norm", "pooler")
        *tables, norm, pooler = (f"_{part}_layer" for part in parts)
        layers = [f"_transformer_layers/{i}" for i in range(count)]
    values = {
        f"{table}/embeddings": made.weights[f"bert/embeddings/{name}"]
        for table, name in zip(tables, outside, strict=True)
    }
    for end in ("gamma", "beta"):
        values[f"{norm}/{end}"] = made.weights[f"bert/embeddings/LayerNorm/{end}"]
    for i, layer in enumerate(layers):
        for ours, (theirs, shape) in layer_paths(made.config).items():
            value = made.weights[f"bert/encoder/layer_{i}/{ours}"]
            values[f"{layer}/{theirs}"] = value.reshape(shape or value.shape)
    for end in ("kernel", "bias"):
        values[f"{pooler}/{end}"] = made.weights[f"bert/pooler/dense/{end}"]
    return values


def save(made, folder, values) -> None:
    root = tf.Module()
    for path, value in values.items():
        place(root, path, value)
    items = {name: getattr(root, name) for name in {path.split("/")[0] for path in values}}
    tf.train.Checkpoint(**items).write(str(folder / "bert_model.ckpt"))
    (folder / "bert_config.json").write_text(
        json.dumps({**made.config.to_dict(), "hidden_act": "gelu"})
    )
    made.vocab.write(folder / "vocab.txt")


@pytest.mark.parametrize("numbered", [True, False])
@pytest.mark.parametrize("start", ["encoder", "model/encoder_network", "model"])
def test_encoders_are_read(tmp_path, numbered, start):
    made = make_checkpoint("encoder with pooler", len(start), hidden_act="gelu_tanh")
    values = {f"{start}/{path}": value for path, value in lay_out(made, numbered).items()}
    save(made, tmp_path, values)
    received = read_checkpoint(tmp_path)
    received.check()
    assert received.form == "model_garden"
    assert_same(received, made)


def test_of_a_pretrained_model_head_and_trained_pooler_are_taken(tmp_path):
    made = make_checkpoint("pretrained", 2, hidden_act="gelu_tanh")
    values = {f"encoder/{path}": value for path, value in lay_out(made, True).items()}
    values["masked_lm/embedding_table"] = values.pop("encoder/layer_with_weights-0/embeddings")
    pooler = f"encoder/layer_with_weights-{made.config.num_hidden_layers + 4}"
    values["next_sentence.pooler_dense/kernel"] = values[f"{pooler}/kernel"]
    values["next_sentence.pooler_dense/bias"] = values[f"{pooler}/bias"]
    values[f"{pooler}/kernel"] = values[f"{pooler}/kernel"] + 1  # never trained
    head = {
        "masked_lm/dense/kernel": "transform/dense/kernel",
        "masked_lm/dense/bias": "transform/dense/bias",
        "masked_lm/layer_norm/gamma": "transform/LayerNorm/gamma",
        "masked_lm/layer_norm/beta": "transform/LayerNorm/beta",
        "masked_lm/output_bias|bias": "output_bias",
    }
    for path, name in head.items():
        values[path] = made.weights[f"cls/predictions/{name}"]
    save(made, tmp_path, values)
    received = read_checkpoint(tmp_path)
    assert received.heads == ("pooler", "masked_lm")
    assert not received.unused and "never trained" in received.notes[-1]
    for name, value in received.weights.items():
        np.testing.assert_array_equal(value, made.weights[name], err_msg=name)
    received.check()
