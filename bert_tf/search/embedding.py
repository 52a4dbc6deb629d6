"""Texts as vectors for an index: a bi-encoder with what it says of pooling, length and prompts."""

import dataclasses
import hashlib
import json
import os
import pathlib
from collections.abc import Sequence

import numpy as np
from absl import logging

from bert_tf.checkpoints.checkpoint import Checkpoint
from bert_tf.checkpoints.embedding import HEAD, MOST_TOKENS, EmbeddingConfig
from bert_tf.checkpoints.formats import read_checkpoint
from bert_tf.search.manifest import Manifest, model_of_index
from bert_tf.tasks.embedding.model import BertEmbedder


class SearchEmbedder:
    """Embeds queries and documents.

    Args:
      path: a checkpoint in any form.
      pooling: see `embedding_of`.
      max_seq_length: see `embedding_of`.
      batch_size: texts computed at once.

    Attributes:
      model: computes the vectors.
      fingerprint: changes with any weight, piece of the vocabulary, or what follows the encoder.
      dimension: of the vectors.

    Raises:
      ValueError: if it cannot be read.
    """

    def __init__(
        self, path: str, pooling: str = "", max_seq_length: int = 0, batch_size: int = 32
    ) -> None:
        checkpoint = read_checkpoint(path)
        checkpoint.check()
        for note in checkpoint.notes:
            logging.info("%s: %s", path, note)
        embedding = embedding_of(checkpoint, pooling, max_seq_length)
        self.model = BertEmbedder.from_checkpoint(checkpoint, embedding=embedding)
        self.fingerprint = fingerprint(checkpoint, embedding)
        self.dimension, self.batch_size = self.model.dimension, batch_size

    def queries(self, texts: Sequence[str]) -> np.ndarray:
        """Returns float32 [Q, D]."""
        return self.model.encode_query(texts, batch_size=self.batch_size)

    def documents(self, texts: Sequence[str]) -> np.ndarray:
        """Returns float32 [N, D]."""
        return self.model.encode_document(texts, batch_size=self.batch_size)


def embedder_of_index(
    folder: str | os.PathLike, model: str = "", max_seq_length: int = 0, batch_size: int = 32
) -> SearchEmbedder:
    """Returns the model that an index was made with; whether it has changed is not compared.

    Args:
      folder: the index.
      model: where that model is now; "": where it was when the index was built.
      max_seq_length: tokens a text is cut to; 0: the model's own.
      batch_size: texts computed at once.

    Raises:
      ValueError: naming the model, if it cannot be read.
    """
    source = model_of_index(folder, model)
    pooling = Manifest.read(pathlib.Path(folder)).pooling
    try:
        return SearchEmbedder(source, pooling, max_seq_length, batch_size)
    except ValueError as error:
        if model:
            raise
        raise ValueError(
            f"{folder} was made with {source!r}, which cannot be read: {error} If the "
            "model is elsewhere now, give it as --init_checkpoint."
        ) from None


def embedding_of(
    checkpoint: Checkpoint, pooling: str = "", max_seq_length: int = 0
) -> EmbeddingConfig:
    """Returns how a model embeds texts.

    Args:
      checkpoint: the model.
      pooling: instead of what the model says; "": that, else the mean.
      max_seq_length: pieces a text is cut to; 0: what the model says, else `MOST_TOKENS`.

    Raises:
      ValueError: if the pooling is not known.
    """
    longest = checkpoint.config.longest_row
    own = checkpoint.embedding or EmbeddingConfig(max_seq_length=min(MOST_TOKENS, longest))
    length = max_seq_length or own.max_seq_length
    return dataclasses.replace(
        own, pooling=(pooling,) if pooling else own.pooling, max_seq_length=length
    )


def fingerprint(checkpoint: Checkpoint, embedding: EmbeddingConfig) -> str:
    """Returns a digest of what decides on vectors: weights, vocabulary, pooling, prompts.

    Heads of other tasks and the pooler do not count, nor does the length that texts are cut to:
    the vectors lie in one space.
    """
    digest = hashlib.sha256()
    for name, value in sorted(checkpoint.weights.items()):
        if name.startswith(("bert/", HEAD)) and not name.startswith("bert/pooler/"):
            digest.update(f"{name} {value.shape}\n".encode())
            digest.update(np.ascontiguousarray(value).tobytes())
    tokens = checkpoint.vocab.tokens if checkpoint.vocab else ()
    act, casing = checkpoint.config.hidden_act, checkpoint.config.do_lower_case
    settings = embedding.to_dict()
    for free in ("max_seq_length", "similarity"):
        del settings[free]
    text = json.dumps([list(tokens), act, casing, settings], sort_keys=True)
    digest.update(text.encode())
    return digest.hexdigest()[:16]


def stated_similarity(name: str) -> str:
    """Returns how a model wants its vectors compared.

    Raises:
      ValueError: if an index knows no such comparison.
    """
    if name not in ("cosine", "dot"):
        raise ValueError(
            f"The model's vectors are compared by {name}, an index compares by cosine or dot; give "
            "--similarity=cosine if that will do."
        )
    return name
