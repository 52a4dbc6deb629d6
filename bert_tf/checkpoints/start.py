"""What a training run starts from: somebody's checkpoint, adapted, or its own newest one."""

import contextlib
import dataclasses
import hashlib
import pathlib
from collections.abc import Sequence
from typing import Any

from absl import logging

from bert_tf.checkpoints.adapt import adapt
from bert_tf.checkpoints.checkpoint import (
    Checkpoint,
    encoder_shapes,
    head_shapes,
    heads_of,
    listed,
)
from bert_tf.checkpoints.formats import read_checkpoint
from bert_tf.checkpoints.tf_bundle import bundle_names, bundle_prefix
from bert_tf.config import ModelConfig
from bert_tf.text.vocab import Vocab

# What may differ from the checkpoint: no weight depends on it, or `adapt` sees to it.
FREE_FIELDS = (
    "hidden_dropout_prob",
    "attention_probs_dropout_prob",
    "initializer_range",
    "max_position_embeddings",
)


def read_start(
    init_checkpoint: str,
    given: dict[str, Any],
    heads: Sequence[str],
    *,
    config_file: str = "",
    vocab_file: str = "",
    added_words_file: str = "",
    may_miss: Sequence[str] = (),
    may_ignore: Sequence[str] = (),
) -> Checkpoint:
    """Reads and adapts the checkpoint to start from.

    Args:
      init_checkpoint: in any form; see `read_checkpoint`.
      given: the fields of the model's configuration that the user stated; see `merge`.
      heads: what the model will have, of `HEADS`.
      config_file: see `read_checkpoint`.
      vocab_file: see `adapt`.
      added_words_file: see `adapt`.
      may_miss: starts of names of weights that it may lack.
      may_ignore: starts of names in the files that may be left out.

    Raises:
      ValueError: if it cannot be read, lacks something, or contradicts what is given.
    """
    checkpoint = read_checkpoint(init_checkpoint, config_file)
    checkpoint.check(may_ignore)
    config = merge(checkpoint.config, given, init_checkpoint)
    checkpoint = adapt(checkpoint, config.max_position_embeddings, vocab_file, added_words_file)
    for note in checkpoint.notes:
        logging.info("%s: %s", init_checkpoint, note)
    check_heads(checkpoint, heads, may_miss)
    if checkpoint.vocab is None:
        raise ValueError(f"{init_checkpoint} has no vocabulary; give its own as --vocab_file.")
    free = {name: getattr(config, name) for name in FREE_FIELDS}
    config = dataclasses.replace(checkpoint.config, **free)
    return dataclasses.replace(checkpoint, config=config)


def merge(config: ModelConfig, given: dict[str, Any], source: str) -> ModelConfig:
    """Returns a checkpoint's configuration with the free fields that the user gave.

    Raises:
      ValueError: if another field was given and differs from the checkpoint's.
    """
    free = {name: value for name, value in given.items() if name in FREE_FIELDS}
    wrong = [
        f"--{name}={value}, but the checkpoint has {getattr(config, name)}"
        for name, value in given.items()
        # The size of the vocabulary is checked against the adapted one.
        if name not in FREE_FIELDS and name != "vocab_size" and value != getattr(config, name)
    ]
    if wrong:
        raise ValueError(
            f"{source}: {'; '.join(wrong)}. The configuration comes with the weights: leave these "
            f"flags out."
        )
    return dataclasses.replace(config, **free)


def check_heads(checkpoint: Checkpoint, heads: Sequence[str], may_miss: Sequence[str]) -> None:
    """Raises ValueError with all that the checkpoint lacks and that was not named."""
    names = set(encoder_shapes(checkpoint.config))
    for head in heads:
        names |= set(head_shapes(checkpoint.config, head))
    missing = sorted(
        name for name in names - set(checkpoint.weights) if not name.startswith(tuple(may_miss))
    )
    if missing:
        starts = sorted({"/".join(name.split("/")[:2]) + "/" for name in missing})
        raise ValueError(
            f"{checkpoint.source} lacks what the model needs:{listed('missing', missing)} to start "
            f"these at random, give --may_miss={','.join(starts)}."
        )


def starts_of_names(text: str) -> tuple[str, ...]:
    """Returns the parts of a comma-separated flag."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


def has_pooler(output_dir: str, start: Checkpoint | None) -> bool:
    """True unless the weights that a run goes on from, or starts from, lack the pooler."""
    prefix = bundle_prefix(pathlib.Path(output_dir))
    if prefix and not start:
        with contextlib.suppress(ValueError):  # Damaged: an older one is restored instead.
            return "pooler" in heads_of(bundle_names(prefix))
    return start is None or "pooler" in start.heads


def keep_vocabulary(vocab: Vocab, folder: str | pathlib.Path) -> pathlib.Path:
    """Writes a checkpoint's vocabulary into a folder, named by its content; returns the path."""
    digest = hashlib.sha256("\n".join(vocab.tokens).encode()).hexdigest()[:12]
    path = pathlib.Path(folder, f"vocabulary-{digest}.txt")
    if not path.exists():
        vocab.write(path)
    return path
