"""Activation and length of pairs that the folder or the run of a cross-encoder states.

A folder of sentence-transformers names the activation that makes a score of the logit; the first of
these that is there counts:

    config_sentence_transformers.json, since 6.0
        "activation_fn": "torch.nn.modules.activation.Sigmoid"
    config.json, since 4.0
        "sentence_transformers": {"activation_fn": "torch.nn.modules.activation.Sigmoid"}
    config.json, before
        "sbert_ce_default_activation_function": "torch.nn.modules.linear.Identity"

Without any it is the sigmoid, CrossEncoder's default for one label. The maximum length of a pair
is max_seq_length of the Transformer, or model_max_length in tokenizer_config.json.
"""

import pathlib

from bert_tf.checkpoints import sentence_modules
from bert_tf.checkpoints.run_record import recorded
from bert_tf.checkpoints.sentence_transformers import CONFIG
from bert_tf.checkpoints.tokenizer_files import model_max_length
from bert_tf.system.files import json_field, read_optional_json

ACTIVATIONS = {
    "torch.nn.modules.activation.Sigmoid": "sigmoid",
    "torch.nn.modules.linear.Identity": "identity",
}
LEGACY_KEY = "sbert_ce_default_activation_function"
MOST_TOKENS = 512


def stated_activation(folder: pathlib.Path) -> str:
    """Returns the activation that a folder or a run states, "" for none; ValueError if unknown."""
    # Binary cross-entropy trains the sigmoid of the logit; the other losses use the logit itself.
    if loss := recorded(str(folder), "ranking_loss"):
        if loss == "bce":
            return "sigmoid"
        return "identity"
    for path in (folder / CONFIG, folder / "config.json"):
        values = read_optional_json(path)
        inner = values
        if path.name != CONFIG:
            inner = json_field(values, "sentence_transformers", dict, path, nullable=True) or {}
        # Before 4.0 the key was in config.json itself.
        key, values = ("activation_fn", inner) if "activation_fn" in inner else (LEGACY_KEY, values)
        name = json_field(values, key, str, path, nullable=True, choices=ACTIVATIONS)
        if name is not None:
            return ACTIVATIONS[name]
    return recorded(str(folder), "activation")


def stated_length(folder: pathlib.Path) -> int:
    """Returns the maximum length of a pair that a folder or a run states, else MOST_TOKENS."""
    if own := recorded(str(folder), "max_seq_length"):
        return int(own)
    if sentence_modules.is_sentence_transformers(folder):
        length = sentence_modules.transformer_length(sentence_modules.read_modules(folder)[0])
    else:
        length = model_max_length(folder)
    if length is None:
        return MOST_TOKENS
    return length
