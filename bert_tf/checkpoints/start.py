"""The start of a training run: an adapted checkpoint, or the run's own newest one."""

import contextlib
import dataclasses
import hashlib
import pathlib
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from absl import logging

from bert_tf.checkpoints.adapt import adapt, keep_layers, state_casing
from bert_tf.checkpoints.checkpoint import (
    Checkpoint,
    encoder_shapes,
    head_shapes,
    heads_of,
    listed,
    unnamed,
)
from bert_tf.checkpoints.electra_networks import refuse_discriminator
from bert_tf.checkpoints.families import made_by_tasks
from bert_tf.checkpoints.formats import read_checkpoint
from bert_tf.checkpoints.huggingface import is_huggingface
from bert_tf.checkpoints.keras_hub import is_keras_hub
from bert_tf.checkpoints.run_identity import TRAINING_FIELDS
from bert_tf.checkpoints.tf_bundle import bundle_names
from bert_tf.config import ModelConfig
from bert_tf.text.tokenization import AnyVocab

T = TypeVar("T")

# Fields that may differ from the checkpoint: no weight depends on them, or `adapt` changes it.
FREE_FIELDS = (*TRAINING_FIELDS, "max_position_embeddings")


def read_start(
    init_checkpoint: str,
    given: dict[str, Any],
    heads: Sequence[str],
    *,
    config_file: str = "",
    vocab_file: str = "",
    added_words_file: str = "",
    layers: str = "",
    electra_network: str = "",
    new_head: bool = False,
    allow_missing: Sequence[str] | None = (),
    allow_unexpected: Sequence[str] = (),
) -> Checkpoint:
    """Reads and adapts the checkpoint to start from.

    Args:
      init_checkpoint: in any format; see `read_checkpoint`.
      given: the fields of the model's configuration that the user gave; see `merge`. The pooling
        of a classifier, `classifier_pooling`, may differ if its head is new.
      heads: the heads of the new model, from `HEADS`.
      layers: see `keep_layers`; empty: all.
      electra_network: one of `NETWORKS`; "": the generator for a masked LM, else the discriminator.
      new_head: whether the model gets a new head instead of the checkpoint's.
      allow_missing: prefixes of names of weights that it may lack; None: the program has no such
        flag.
      allow_unexpected: prefixes of names in the files to leave out.

    Raises:
      ValueError: if it cannot be read, lacks weights, or contradicts the given fields.
    """
    electra_network = electra_network or ("generator" if "masked_lm" in heads else "discriminator")
    checkpoint = read_checkpoint(init_checkpoint, config_file, electra_network)
    # Checked before it is changed, so that the message is about the files.
    checkpoint.check(allow_unexpected, allow_missing)
    if layers:
        checkpoint = keep_layers(checkpoint, layers)
    if checkpoint.vocab is None:  # The attached vocabulary determines it.
        given = {name: value for name, value in given.items() if name != "tokenizer"}
    if "classifier_pooling" in given and (new_head or "classifier" not in checkpoint.heads):
        # A new head may pool in another way: no weight depends on it yet.
        chosen = dataclasses.replace(
            checkpoint.config, classifier_pooling=given["classifier_pooling"]
        )
        checkpoint = dataclasses.replace(checkpoint, config=chosen)
    config = merge(checkpoint.config, given, init_checkpoint, checkpoint.stated_casing is None)
    if "do_lower_case" in given:
        checkpoint = state_casing(checkpoint, config.do_lower_case)
    checkpoint = adapt(checkpoint, config.max_position_embeddings, vocab_file, added_words_file)
    for note in checkpoint.notes:
        logging.info("%s: %s", init_checkpoint, note)
    check_heads(checkpoint, heads, allow_missing)
    if checkpoint.vocab is None:
        raise ValueError(f"{init_checkpoint} has no vocabulary; give its own as --vocab_file.")
    # `adapt` kept the checkpoint's values of these fields.
    free = {name: getattr(config, name) for name in FREE_FIELDS}
    config = dataclasses.replace(checkpoint.config, **free)
    return dataclasses.replace(checkpoint, config=config)


def merge(
    config: ModelConfig, given: dict[str, Any], source: str, is_casing_free: bool = False
) -> ModelConfig:
    """Returns a checkpoint's configuration with the free fields that the user gave.

    The casing is free if the checkpoint does not state it. Another field that differs from the
    checkpoint's is an error, with `source` as its name.
    """
    names = (*FREE_FIELDS, "do_lower_case") if is_casing_free else FREE_FIELDS
    free = {name: value for name, value in given.items() if name in names}
    wrong = [
        f"--{name}={value}, but the checkpoint has {getattr(config, name)}"
        for name, value in given.items()
        # The size of the vocabulary is checked against the adapted one.
        if name not in (*names, "vocab_size") and value != getattr(config, name)
    ]
    if wrong:
        raise ValueError(
            f"{source}: {'; '.join(wrong)}. The configuration is that of the checkpoint: leave "
            f"these flags out."
        )
    return dataclasses.replace(config, **free)


def check_heads(
    checkpoint: Checkpoint, heads: Sequence[str], allow_missing: Sequence[str] | None
) -> None:
    """Raises ValueError with all weights that the checkpoint lacks and that may not be missing.

    The arguments are those of `read_start`; weights of `made_by_tasks` may be missing.
    """
    names = set(encoder_shapes(checkpoint.config))
    is_pooled = "next_sentence" in heads or checkpoint.config.classifier_pooling == "pooler"
    for head in heads if is_pooled else [head for head in heads if head != "pooler"]:
        names |= set(head_shapes(checkpoint.config, head))
    free = (*(allow_missing or ()), *made_by_tasks(checkpoint.config))
    missing = unnamed(sorted(names - set(checkpoint.weights)), free)
    if missing and "masked_lm" in heads:
        refuse_discriminator(checkpoint)
    if missing and allow_missing is None:
        raise ValueError(
            f"{checkpoint.source} lacks weights of the model:{listed('missing', missing)} give a "
            f"model that has it; the heads of this one are {', '.join(checkpoint.heads) or 'none'}."
        )
    if missing:
        # --allow_missing takes prefixes, such as cls/predictions/.
        starts = sorted({"/".join(name.split("/")[:2]) + "/" for name in missing})
        raise ValueError(
            f"{checkpoint.source} lacks weights of the model:{listed('missing', missing)} to "
            f"initialize these at random, give --allow_missing={','.join(starts)}."
        )


def check_output_dir(output_dir: str) -> None:
    """Raises ValueError if a run would begin in a folder that holds another model."""
    folder = pathlib.Path(output_dir)
    if (folder / "run.flags").exists() or not folder.is_dir():
        return
    has_checkpoint = any(folder.glob("*.index"))
    if has_checkpoint or is_huggingface(folder) or is_keras_hub(folder):
        raise ValueError(
            f"--output_dir={output_dir} holds a model that is not a run; give it as "
            f"--init_checkpoint, and a new folder as --output_dir."
        )


def starts_of_names(text: str) -> tuple[str, ...]:
    """Returns the parts of a comma-separated flag."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


def read_begun(output_dir: str, read: Callable[[str], T]) -> T | None:
    """Returns the result of `read` for the prefix of one of a run's checkpoints, or None.

    The result must be the same for all of them; a run without a readable one has none.
    """
    for index in sorted(pathlib.Path(output_dir).glob("model.ckpt-*.index")):
        # A damaged checkpoint is skipped: all of a run give the same answer.
        with contextlib.suppress(ValueError):
            return read(str(index).removesuffix(".index"))
    return None


def has_pooler(output_dir: str, start: Checkpoint | None) -> bool:
    """True unless the weights that a run resumes or starts from lack the pooler."""
    names = None if start else read_begun(output_dir, bundle_names)
    if names is not None:
        return "pooler" in heads_of(names)
    return start is None or "pooler" in start.heads


def keep_vocabulary(vocab: AnyVocab, folder: str | pathlib.Path) -> pathlib.Path:
    """Writes a checkpoint's vocabulary into a folder, named by its content; returns the path."""
    digest = hashlib.sha256(vocab.content.encode()).hexdigest()[:12]
    path = pathlib.Path(folder, f"vocabulary-{digest}{pathlib.Path(vocab.file_name).suffix}")
    vocab.write(path)  # also over one that is there: it may be damaged
    return path
