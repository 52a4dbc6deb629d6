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
    compute: Compute,
    batch: Batch,
    dropout_seed: Tensor | None,
    joint: bool = False,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Embeds the queries and the documents of a batch.

    Args:
      compute: function of the inputs of N texts, a dropout seed and their side, query or document,
        that returns float [N, D], or [N, T, D] of tokens.
      batch: see `ContrastiveDataset.batch`.
      dropout_seed: int32 []; None: no dropout.
      joint: whether both sides are embedded in one pass, for which they need the same length.

    Returns:
      The embeddings of the queries, float32 [B, D], and of the documents, float32 [B, M, D]; those
      of tokens have an axis T before the last.
    """
    if joint:
        return _embed_jointly(compute, batch, dropout_seed)
    sides = {}
    for number, side in enumerate(SIDES):
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
        sides[side] = tf.cast(compute(inputs, seed, side), tf.float32)
    queries, documents = sides["query"], sides["document"]
    ids = batch["document/input_word_ids"]
    sizes = [ids.shape[1] or tf.shape(ids)[1]]
    # Those of a text: [D], or [T, D] of its tokens.
    for axis, size in enumerate(documents.shape[1:], 1):
        sizes.append(size or tf.shape(documents)[axis])
    return queries, tf.reshape(documents, [-1, *sizes])


def _embed_jointly(
    compute: Compute, batch: Batch, dropout_seed: Tensor | None
) -> tuple[tf.Tensor, tf.Tensor]:
    """Embeds the texts of both sides in one pass; see `embed_sides`."""
    inputs = {}
    for name in (*INPUTS, "prompt_lengths"):
        if f"query/{name}" not in batch:
            continue
        query = batch[f"query/{name}"]
        documents = batch[f"document/{name}"]
        # The texts of an example follow each other, so that dropout counts example by example.
        texts = tf.concat([query[:, None], documents], axis=1)  # [B, 1 + M, T] or [B, 1 + M]
        shape = [-1, tf.shape(texts)[-1]] if name in INPUTS else [-1]
        inputs[name] = tf.reshape(texts, shape)  # [B * (1 + M), T] or [B * (1 + M)]
    seed = dropout_seed
    if dropout_seed is not None:
        seed = mix(dropout_seed)
        if "query/before" in batch:
            before = batch["query/before"][0] + batch["document/before"][0]
            seed = tf.concat([[seed], before], axis=0)
    vectors = tf.cast(compute(inputs, seed, ""), tf.float32)
    ids = batch["document/input_word_ids"]
    num_documents = ids.shape[1] or tf.shape(ids)[1]
    vectors = tf.reshape(vectors, [-1, 1 + num_documents, vectors.shape[-1]])
    return vectors[:, 0], vectors[:, 1:]
