"""Writes checkpoints in the form in which other programs read them."""

import pathlib
from collections.abc import Callable

from bert_tf.checkpoints.checkpoint import Checkpoint
from bert_tf.checkpoints.cross_encoder import CrossEncoder, write_cross_encoder
from bert_tf.checkpoints.formats import write_checkpoint
from bert_tf.checkpoints.sentence_transformers import is_modular
from bert_tf.checkpoints.static_embeddings import is_static, static_form

WITH_CARD = ("huggingface", "sentence_transformers", "pylate", "stanford")


def form_for_others(checkpoint: Checkpoint) -> str:
    """Returns the form that other libraries read such a model in."""
    if checkpoint.embedding and is_static(checkpoint.config):
        return static_form(checkpoint.embedding)
    has_modules = checkpoint.embedding or is_modular(checkpoint)
    return "sentence_transformers" if has_modules else "huggingface"


def write_for_others(
    checkpoint: Checkpoint,
    path: pathlib.Path,
    form: str,
    complete: Callable[[pathlib.Path, Checkpoint], None] | None,
) -> None:
    """Writes a checkpoint as `write_checkpoint` does, a reranker as a cross-encoder."""
    activation = checkpoint.settings.get("activation")
    if activation and not checkpoint.embedding and form in WITH_CARD:
        length = int(checkpoint.settings.get("max_seq_length", checkpoint.config.longest_row))
        write_cross_encoder(CrossEncoder(checkpoint, activation, length), path, complete)
    else:
        write_checkpoint(checkpoint, path, form, complete)
