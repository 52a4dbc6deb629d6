"""Embeds both sides of a batch of `ContrastiveDataset`: the queries and their documents."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from bert_tf.network.dropout import mix
from bert_tf.tasks.embedding.features import SIDES
from bert_tf.text.packing import INPUTS
from bert_tf.type_names import Tensor

Batch = dict[str, tf.Tensor]


def embed_sides(
    compute: Callable[[Batch, Any], tf.Tensor], batch: Batch, dropout_seed: Tensor | None
) -> tuple[tf.Tensor, tf.Tensor]:
    """Embeds the queries and the documents of a batch.

    Args:
      compute: takes the inputs of texts and a dropout seed, returns float [N, D].
      batch: see `ContrastiveDataset.batch`.
      dropout_seed: int32 []; None: no dropout.

    Returns:
      The embeddings of the queries, float32 [B, D], and of the documents, float32 [B, M, D].
    """
    sides = {}
    for number, side in enumerate(SIDES):
        names = [name for name in (*INPUTS, "prompt_pieces") if f"{side}/{name}" in batch]
        inputs = {}
        for name in names:
            value = batch[f"{side}/{name}"]
            # [B, M, T] -> [B * M, T]; prompt_pieces have no axis of tokens.
            shape = [-1, tf.shape(value)[-1]] if name in INPUTS else [-1]
            inputs[name] = tf.reshape(value, shape)
        seed = dropout_seed
        if dropout_seed is not None:
            # Another mask for each side: the same text on both then has two embeddings (SimCSE).
            seed = mix(dropout_seed + number)
            before = batch.get(f"{side}/before")
            if before is not None:
                seed = tf.concat([[seed], before[0]], axis=0)
        sides[side] = tf.cast(compute(inputs, seed), tf.float32)
    queries, documents = sides["query"], sides["document"]
    ids = batch["document/input_word_ids"]
    num_documents = ids.shape[1] or tf.shape(ids)[1]
    return queries, tf.reshape(documents, [-1, num_documents, queries.shape[-1]])
