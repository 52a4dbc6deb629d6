"""TensorFlow checkpoints of zihangdai/xlnet, which are only read.

    xlnet_config.json  spiece.model  xlnet_model.ckpt.index  xlnet_model.ckpt.data-00000-of-00001

Weights are translated to the names of Hugging Face's class. Those of the positions are stacked over
the layers, or shared by all layers if `untie_r` is false; bert_tf gives each layer a copy then. A
fine-tuned classifier names its last layer by its task.
"""

import pathlib
import re
from typing import Any

import numpy as np

from bert_tf.checkpoints.checkpoint import Checkpoint, Weights
from bert_tf.checkpoints.families.xlnet import XLNET
from bert_tf.checkpoints.google import with_averages
from bert_tf.checkpoints.huggingface import from_names
from bert_tf.checkpoints.tf_bundle import read_bundle
from bert_tf.checkpoints.wordpiece_layouts import XLNET_CONFIG
from bert_tf.config import TRANSFORMER_XL_BIASES
from bert_tf.system.files import read_json

WORD_TABLE = "model/transformer/word_embedding/lookup_table"
# Tensors that only training needs.
TRAINING_ONLY = re.compile(r"/adam_[mv]$|/Adam(_1)?$|^beta[12]_power$|^global_step$")
# The parts of a name by Hugging Face's parts, in the order of replacement. Its misspelling is
# XLNet's.
PARTS = {
    r"^model/": "",
    r"^transformer/layer_(\d+)/": r"transformer/layer/\1/",
    r"/word_embedding/lookup_table$": "/word_embedding/weight",
    r"/mask_emb/mask_emb$": "/mask_emb",
    r"/LayerNorm/gamma$": "/layer_norm/weight",
    r"/LayerNorm/beta$": "/layer_norm/bias",
    r"/rel_attn/([qkvor])/kernel$": r"/rel_attn/\1",
    r"^sequnece_summary/": "sequence_summary/",
    r"^[^/]+/logit/": "logits_proj/",
}


def is_xlnet(names: list[str]) -> bool:
    """True if the tensors of a checkpoint are those of zihangdai/xlnet."""
    return WORD_TABLE in names


def read_xlnet(prefix: str, config_file: str = "") -> Checkpoint:
    """Reads encoder and heads of a checkpoint by its prefix; see `read_google`."""
    folder = pathlib.Path(prefix).parent
    path = pathlib.Path(config_file) if config_file else folder / XLNET_CONFIG
    if not path.exists():
        raise ValueError(
            f"{prefix}: no {path}; give the {XLNET_CONFIG} of these weights as --bert_config_file."
        )
    values = _as_huggingface(read_json(path))
    config = XLNET.read_config(values, path)
    file_weights: Weights = {}
    for name, value in with_averages(read_bundle(prefix)).items():
        if not TRAINING_ONLY.search(name):
            file_weights |= _renamed(name, value, config.num_hidden_layers)
    return from_names(XLNET, config, values, file_weights, folder, source=prefix, form="google")


def _as_huggingface(values: dict[str, Any]) -> dict[str, Any]:
    """Returns the fields of a Hugging Face configuration.

    GELU is the tanh form in XLNet's program, which calls it only gelu, and no memory has a length.
    """
    act = values.get("ff_activation")
    return {
        "mem_len": 0,
        **values,
        "ff_activation": "gelu_new" if act == "gelu" else act,
        "untie_r": True,  # See `_renamed`.
    }


def _renamed(name: str, value: np.ndarray, num_layers: int) -> Weights:
    """Returns a weight by Hugging Face's names, one for each layer if it is of all layers."""
    value = value.astype(np.float32)
    last = name.rpartition("/")[2]
    if last in (*TRANSFORMER_XL_BIASES, "seg_embed"):
        ndim = 3 if last == "seg_embed" else 2  # Of one layer.
        is_stacked = value.ndim > ndim and len(value) == num_layers
        parts = list(value) if is_stacked else [value] * num_layers
        return {f"transformer.layer.{i}.rel_attn.{last}": part for i, part in enumerate(parts)}
    for part, other in PARTS.items():
        name = re.sub(part, other, name)
    # Dense layers: [inputs, outputs] in TensorFlow, [outputs, inputs] in PyTorch.
    if name.endswith("/kernel"):
        name = name.removesuffix("kernel") + "weight"
        value = value.T
    return {name.replace("/", "."): value}
