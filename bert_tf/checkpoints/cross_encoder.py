"""Cross-encoders in sentence-transformers' folders, and in run directories.

A folder is a Hugging Face classifier with one label, or an encoder with modules that end in a
score, and states the settings that `cross_encoder_settings` reads.
"""

import dataclasses
import pathlib
from collections.abc import Callable
from typing import NamedTuple

from bert_tf.checkpoints.archives import ARCHIVES
from bert_tf.checkpoints.checkpoint import Checkpoint
from bert_tf.checkpoints.cross_encoder_settings import (
    ACTIVATIONS,
    LEGACY_KEY,
    stated_activation,
    stated_length,
)
from bert_tf.checkpoints.formats import read_checkpoint, write_checkpoint
from bert_tf.checkpoints.hub import local_path, record_of
from bert_tf.checkpoints.sentence_transformers import is_modular
from bert_tf.system.files import read_json, write_json

VERSION = "5.0.0"  # of sentence-transformers whose form is written


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


def write_cross_encoder(
    model: CrossEncoder,
    folder: str | pathlib.Path,
    complete: Callable[[pathlib.Path, Checkpoint], None] | None = None,
) -> None:
    """Writes a new folder that sentence-transformers loads; see `write_checkpoint`."""
    settings = {
        **model.checkpoint.settings,
        "activation": model.activation,
        "max_seq_length": str(model.max_seq_length),
    }
    checkpoint = dataclasses.replace(model.checkpoint, settings=settings)
    activation = next(name for name, own in ACTIVATIONS.items() if own == model.activation)
    both = {"sentence_transformers": {"activation_fn": activation, "version": VERSION}}

    def state_settings(inner: pathlib.Path, written: Checkpoint) -> None:
        # Every release of sentence-transformers finds its key: see `cross_encoder_settings`.
        for name, values in (
            ("config.json", {**both, LEGACY_KEY: activation}),
            ("tokenizer_config.json", {"model_max_length": model.max_seq_length}),
        ):
            write_json(inner / name, {**read_json(inner / name), **values})
        if complete:
            complete(inner, written)

    # Hugging Face's classes have a head of their own; modules hold the others.
    form = "sentence_transformers" if is_modular(checkpoint) else "huggingface"
    write_checkpoint(checkpoint, folder, form, state_settings)
