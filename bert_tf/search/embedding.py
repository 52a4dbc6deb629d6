"""Embeds texts for an index, by a bi-encoder with its recorded pooling, length and prompts."""

import os
import pathlib
from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from absl import logging

from bert_tf.checkpoints.checkpoint import embedding_of
from bert_tf.checkpoints.formats import read_checkpoint
from bert_tf.search.fingerprint import fingerprint
from bert_tf.search.manifest import Manifest, check_fingerprint, model_of_index
from bert_tf.search.token_vectors import TokenOrigin
from bert_tf.tasks.base.examples.known_texts import key_of
from bert_tf.tasks.embedding.late_interaction_model import BertLateInteraction
from bert_tf.tasks.embedding.model import BertEmbedder
from bert_tf.tasks.embedding.network import EmbeddingNetwork
from bert_tf.tasks.embedding.packing import prompt_length
from bert_tf.text.packing import PackedText

Network = TypeVar("Network", bound=EmbeddingNetwork)


class SearchEmbedder:
    """Embeds queries and documents.

    Attributes:
      fingerprint: changes with the model; see `bert_tf.search.fingerprint`.

    Raises:
      ValueError: if it cannot be read.
    """

    def __init__(
        self, path: str, pooling: str = "", max_seq_length: int = 0, batch_size: int = 32
    ) -> None:
        self.model, self.fingerprint = read_embedder(BertEmbedder, path, pooling, max_seq_length)
        self.batch_size = batch_size

    def queries(self, texts: Sequence[str]) -> np.ndarray:
        """Returns float32 [Q, D]."""
        return self.model.encode_query(texts, batch_size=self.batch_size)

    def documents(self, texts: Sequence[str]) -> tuple[np.ndarray, list[int]]:
        """Embeds texts, those that are the same to the model once.

        Returns:
          float32 [N, D], and a key of the tokens of each text; equal keys have equal vectors.
        """
        model = self.model
        prompt = model.embedding.side_prompt("document")
        rows = [model.pack(text, prompt) for text in texts]
        keys = [key_of(np.array(row.ids, np.int32)) for row in rows]
        first_rows: dict[int, PackedText] = {}
        for key, row in zip(keys, rows, strict=True):
            first_rows.setdefault(key, row)
        skipped = prompt_length(model.tokenizer, model.embedding, prompt)
        vectors = model.encode_rows(list(first_rows.values()), skipped, self.batch_size)
        indices = {key: index for index, key in enumerate(first_rows)}
        return vectors[[indices[key] for key in keys]], keys


def read_embedder(
    model_class: type[Network], path: str, pooling: str = "", max_seq_length: int = 0
) -> tuple[Network, str]:
    """Reads the model of an index; returns it with its fingerprint. See `embedding_of`."""
    checkpoint = read_checkpoint(path)
    checkpoint.check()
    for note in checkpoint.notes:
        logging.info("%s: %s", path, note)
    embedding = embedding_of(checkpoint, pooling, max_seq_length)
    model = model_class.from_checkpoint(checkpoint, embedding=embedding)
    return model, fingerprint(checkpoint, embedding)


def embedder_of_index(
    folder: str | os.PathLike, model: str = "", max_seq_length: int = 0, batch_size: int = 32
) -> SearchEmbedder:
    """Returns the model that an index was built with, without checking whether it has changed.

    `model` is its current path; "": its path when the index was built. The other arguments are
    those of `SearchEmbedder`.
    """
    source = model_of_index(folder, model)
    pooling = Manifest.read(pathlib.Path(folder)).pooling
    try:
        return SearchEmbedder(source, pooling, max_seq_length, batch_size)
    except ValueError as error:
        # The user named this model, so advice about a moved one would mislead.
        if model:
            raise
        raise ValueError(
            f"{folder} was built with {source!r}, which cannot be read: {error} If the model has "
            "moved, give its path as --init_checkpoint."
        ) from None


def embedder_of_tokens(
    path: str, origin: TokenOrigin, model: str = "", max_seq_length: int = 0
) -> tuple[BertLateInteraction, str]:
    """Reads the model of a file of token vectors, with its fingerprint.

    `model` is its path, by default that of the origin.

    Raises:
      ValueError: if it cannot be read, or is another model than that of the origin.
    """
    source = model_of_index(path, model or origin.source)
    embedder, found = read_embedder(BertLateInteraction, source, "", max_seq_length)
    if origin.model:
        check_fingerprint(path, origin.model, origin.source, found)
    return embedder, found


def stated_similarity(name: str) -> str:
    """Returns a model's similarity; raises ValueError if an index does not support it."""
    if name not in ("cosine", "dot"):
        raise ValueError(
            f"The model compares vectors by {name}, but an index supports cosine and dot; give "
            "--similarity=cosine to compare by cosine."
        )
    return name
