"""A tiny pre-trained model with its vocabulary, for the programs that fine-tune one."""

import dataclasses
import pathlib

from bert_tf.checkpoints.formats import write_checkpoint
from bert_tf.text.vocab import Vocab
from tests.checkpoints.made_checkpoint import make_checkpoint
from tests.conftest import LETTERS, SPECIAL_TOKENS


def tiny_words(*words: str) -> tuple[str, ...]:
    """Returns a vocabulary of words, and of letters for all others."""
    letters = [form + letter for form in ("", "##") for letter in LETTERS]
    return tuple(dict.fromkeys([*SPECIAL_TOKENS, *letters, *words]))


def write_tiny_model(folder: pathlib.Path, *words: str, **changes) -> pathlib.Path:
    """Writes a model of a layer x 32 as google-research/bert does; returns its folder.

    The weights are random, as small as those that a training starts from. `changes` are fields of
    the configuration.
    """
    tokens = tiny_words(*words)
    shape = {
        "vocab_size": len(tokens),
        "hidden_size": 32,
        "num_attention_heads": 4,
        "num_hidden_layers": 1,
        "intermediate_size": 64,
        "max_position_embeddings": 64,
        "type_vocab_size": 2,
        "hidden_act": "gelu_tanh",
        "layer_norm_eps": 1e-12,
        "hidden_dropout_prob": 0.1,
        "attention_probs_dropout_prob": 0.1,
        "do_lower_case": True,
    }
    made = make_checkpoint("pretrained", **{**shape, **changes})
    weights = {
        name: value if name.endswith("gamma") else value / 4 for name, value in made.weights.items()
    }
    made = dataclasses.replace(made, vocab=Vocab(tokens), weights=weights)
    write_checkpoint(made, folder, "google")
    return folder
