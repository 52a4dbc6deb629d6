"""Cross-encoders in sentence-transformers' folders, and in run directories.

A folder is a Hugging Face classifier with one label, and names the activation that makes a score
of the logit; the first of these that is there counts:

    config_sentence_transformers.json, since 6.0
        "activation_fn": "torch.nn.modules.activation.Sigmoid"
    config.json, since 4.0
        "sentence_transformers": {"activation_fn": "torch.nn.modules.activation.Sigmoid"}
    config.json, before
        "sbert_ce_default_activation_function": "torch.nn.modules.linear.Identity"

Without any it is the sigmoid, CrossEncoder's default for one label. The maximum length of a pair
is model_max_length in tokenizer_config.json.
"""

import dataclasses
import pathlib
from collections.abc import Callable
from typing import NamedTuple

from bert_tf.checkpoints.archives import ARCHIVES
from bert_tf.checkpoints.checkpoint import Checkpoint
from bert_tf.checkpoints.formats import read_checkpoint, write_checkpoint
from bert_tf.checkpoints.hub import local_path, record_of
from bert_tf.checkpoints.sentence_transformers import CONFIG
from bert_tf.checkpoints.tokenizer_files import model_max_length
from bert_tf.files import json_field, read_json, read_optional_json, write_json
from bert_tf.run_record import recorded

ACTIVATIONS = {
    "torch.nn.modules.activation.Sigmoid": "sigmoid",
    "torch.nn.modules.linear.Identity": "identity",
}
LEGACY_KEY = "sbert_ce_default_activation_function"
VERSION = "5.0.0"  # of sentence-transformers whose form is written
MOST_TOKENS = 512


class CrossEncoder(NamedTuple):
    """A classifier with one label, and the settings that make it a cross-encoder."""

    checkpoint: Checkpoint
    activation: str  # of the logit: sigmoid or identity
    max_seq_length: int


def read_cross_encoder(path: str | pathlib.Path) -> CrossEncoder:
    """Reads a cross-encoder in any format.

    Raises:
      ValueError: if it cannot be read, has another number of labels, or an unknown activation.
    """
    checkpoint = read_checkpoint(path)
    checkpoint.check()
    check_one_label(checkpoint)
    folder = local_path(path)
    if folder.is_file() and folder.name.endswith(ARCHIVES):
        raise ValueError(
            f"{path}: activation and length of pairs cannot be read from an archive; unpack it."
        )
    folder = record_of(path)
    length = min(stated_length(folder), checkpoint.config.longest_row)
    return CrossEncoder(checkpoint, stated_activation(folder) or "sigmoid", length)


def check_one_label(checkpoint: Checkpoint) -> None:
    """Raises ValueError unless a checkpoint has a classification head with one label."""
    if "classifier" in checkpoint.heads and checkpoint.num_labels == 1:
        return
    has = f"a head of {checkpoint.num_labels} labels" if checkpoint.num_labels else "none"
    raise ValueError(
        f"{checkpoint.source} is not a cross-encoder: expected a classification head with one "
        f"label, received {has}. Train one: python -m bert_tf.run_reranker "
        f"--init_checkpoint={checkpoint.source}"
    )


def stated_activation(folder: pathlib.Path) -> str:
    """Returns the activation that a folder or a run states; "" if it states none.

    Raises:
      ValueError: if the activation is unknown.
    """
    if loss := recorded(str(folder), "ranking_loss"):
        if loss == "bce":
            return "sigmoid"
        return "identity"
    for path in (folder / CONFIG, folder / "config.json"):
        values = read_optional_json(path)
        inner = values
        if path.name != CONFIG:
            inner = json_field(values, "sentence_transformers", dict, path, nullable=True) or {}
        key = "activation_fn" if "activation_fn" in inner else LEGACY_KEY
        name = json_field(inner if key in inner else values, key, str, path, nullable=True)
        if name is not None and name not in ACTIVATIONS:
            raise ValueError(
                f"{path}: {key} is {name!r}; expected one of {', '.join(ACTIVATIONS)}."
            )
        if name is not None:
            return ACTIVATIONS[name]
    return recorded(str(folder), "activation")


def stated_length(folder: pathlib.Path) -> int:
    """Returns the maximum length of a pair that a folder or a run states, else MOST_TOKENS."""
    if own := recorded(str(folder), "max_seq_length"):
        return int(own)
    length = model_max_length(folder)
    if length is None:
        return MOST_TOKENS
    return length


def write_cross_encoder(
    model: CrossEncoder,
    folder: str | pathlib.Path,
    complete: Callable[[pathlib.Path, Checkpoint], None] | None = None,
) -> None:
    """Writes a new folder that sentence-transformers' CrossEncoder loads.

    Args:
      model: the checkpoint and its settings.
      folder: the new folder.
      complete: see `write_checkpoint`.

    Raises:
      ValueError: if the folder exists and is not empty, or Hugging Face has no such model.
    """
    settings = {
        **model.checkpoint.settings,
        "activation": model.activation,
        "max_seq_length": str(model.max_seq_length),
    }
    checkpoint = dataclasses.replace(model.checkpoint, settings=settings)
    activation = next(name for name, own in ACTIVATIONS.items() if own == model.activation)
    both = {"sentence_transformers": {"activation_fn": activation, "version": VERSION}}

    def state_settings(inner: pathlib.Path, written: Checkpoint) -> None:
        for name, values in (
            ("config.json", {**both, LEGACY_KEY: activation}),
            ("tokenizer_config.json", {"model_max_length": model.max_seq_length}),
        ):
            write_json(inner / name, {**read_json(inner / name), **values})
        if complete:
            complete(inner, written)

    write_checkpoint(checkpoint, folder, "huggingface", state_settings)
