"""Embeds both sides of a batch of `ContrastiveDataset`: the queries and their documents."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from bert_tf.network.dropout import mix
from bert_tf.system.type_names import Batch, Tensor
from bert_tf.tasks.embedding.features import SIDES
from bert_tf.text.packing import INPUTS

Compute = Callable[[dict[str, Tensor], Any, str], Tensor]


def embed_sides(
    compute: Compute, batch: Batch, dropout_seed: Tensor | None, joint: bool = False
) -> tuple[tf.Tensor, tf.Tensor]:
    """Embeds queries and documents, float32 [B, D] and [B, M, D]; those of tokens [B, (M), T, D].

    Args:
      compute: function of the inputs of N texts, a dropout seed and their side, query or document,
        that returns float [N, D], or [N, T, D] of tokens.
      batch: see `ContrastiveDataset.batch`.
      dropout_seed: int32 []; None: no dropout.
      joint: whether both sides are embedded in one pass, for which they need the same length.
    """
    if joint:
        batch = _joined(batch)
    vectors = []
    for number, side in enumerate(SIDES[1:] if joint else SIDES):
        inputs = {}
        for name in (*INPUTS, "prompt_lengths"):
            if f"{side}/{name}" not in batch:
                continue
            value = batch[f"{side}/{name}"]
            # [B, M, T] -> [B * M, T]; prompt_lengths have no axis of tokens.
            shape = [-1, tf.shape(value)[-1]] if name in INPUTS else [-1]
            inputs[name] = tf.reshape(value, shape)
        seed = dropout_seed
        if dropout_seed is not None:
            # A different mask for each side: a text on both sides then has two embeddings (SimCSE).
            seed = mix(dropout_seed + number)
            before = batch.get(f"{side}/before")
            if before is not None:
                # Texts and tokens of the batch before this part, so that a batch that is computed
                # in parts gets the same masks as in one pass.
                seed = tf.concat([[seed], before[0]], axis=0)
        vectors.append(tf.cast(compute(inputs, seed, side), tf.float32))
    documents = vectors[-1]
    ids = batch["document/input_word_ids"]
    sizes = [ids.shape[1] or tf.shape(ids)[1]]
    # Those of a text: [D], or [T, D] of its tokens.
    for axis, size in enumerate(documents.shape[1:], 1):
        sizes.append(size or tf.shape(documents)[axis])
    documents = tf.reshape(documents, [-1, *sizes])
    return (documents[:, 0], documents[:, 1:]) if joint else (vectors[0], documents)


def _joined(batch: Batch) -> Batch:
    """Returns a batch in which the documents of each example begin with its query."""
    joined = {}
    for name in (*INPUTS, "prompt_lengths"):
        if f"query/{name}" in batch:
            # The texts of an example follow each other, so that dropout counts example by example.
            texts = [batch[f"query/{name}"][:, None], batch[f"document/{name}"]]
            joined[f"document/{name}"] = tf.concat(texts, axis=1)  # [B, 1 + M, T] or [B, 1 + M]
    if "query/before" in batch:
        joined["document/before"] = batch["query/before"] + batch["document/before"]
    return joined
