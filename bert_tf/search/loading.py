"""Loads the search in an index as serving functions, for its export."""

import pathlib
import typing

import numpy as np

from bert_tf.checkpoints.checkpoint import embedding_of
from bert_tf.checkpoints.formats import read_checkpoint
from bert_tf.checkpoints.hub import local_path
from bert_tf.inference.serving_models import load
from bert_tf.search.fingerprint import fingerprint
from bert_tf.search.index import Index
from bert_tf.search.manifest import Manifest, model_of_index
from bert_tf.search.serving import SearchServing, TokenStore, VectorStore
from bert_tf.search.token_vectors import TokenIndex
from bert_tf.system.type_names import Fields
from bert_tf.tasks.embedding.serving import EmbeddingServing, LateInteractionServing
from bert_tf.tasks.reranking.serving import RerankingServing


def load_search(
    model_dir: str,
    max_seq_length: int = 0,
    unpad: bool = True,
    *,
    index: str,
    store: str = "",
    rerank: str = "",
    rerank_k: int = 50,
) -> SearchServing:
    """Makes the serving functions of the search in an index.

    Args:
      model_dir: the model that the index was made with; "": its folder at that time.
      index: directory of `bert_tf.build_index`, or a file of `TokenIndex`, which needs `model_dir`.
      store: form of the vectors, of `VectorStore`; "": that of the index, int8 if it is binary.

    Raises:
      ValueError: if model and index disagree, or there are no texts to rerank.
    """
    if pathlib.Path(index).is_file():
        if not model_dir or store or rerank:
            raise ValueError(
                f"{index} is a file of token vectors without model and texts: give the model of "
                "late interaction, and neither store nor rerank."
            )
        return _load_token_search(model_dir, max_seq_length, unpad, index)
    source = model_of_index(index, model_dir)
    checkpoint = read_checkpoint(local_path(source))
    pooling = Manifest.read(pathlib.Path(index)).pooling
    embedding = embedding_of(checkpoint, pooling, max_seq_length)
    # An index of another model is refused.
    found = Index(index, fingerprint(checkpoint, embedding))
    if rerank and not found.manifest.has_texts:
        raise ValueError(f"{index} stores no texts, which a reranker needs; build it with texts.")
    # The graph computes dot products, which are cosines of vectors of length 1.
    is_unit = embedding.normalize or found.manifest.similarity == "cosine"
    options: Fields = {"normalize": is_unit, "side": "query"}
    if pooling:
        options["pooling"] = pooling
    length = embedding.max_seq_length
    embedder = load(source, "embeddings", length, unpad, "float32", **options)
    form = store or found.manifest.dtype
    return SearchServing(
        typing.cast(EmbeddingServing, embedder),
        VectorStore(found.vectors(np.arange(len(found))), "int8" if form == "binary" else form),
        list(found.ids),
        list(map(found.text, range(len(found)))) if found.manifest.has_texts else (),
        typing.cast(RerankingServing, load(rerank, "reranker", 0, unpad)) if rerank else None,
        rerank_k,
    )


def _load_token_search(
    model_dir: str, max_seq_length: int, unpad: bool, index: str
) -> SearchServing:
    """Makes the serving functions of the search in a file of token vectors."""
    embedder = load(model_dir, "late_interaction", max_seq_length, unpad, side="query")
    embedder = typing.cast(LateInteractionServing, embedder)
    found = TokenIndex.load(index)
    size = embedder.model.dimension
    if found.vectors.shape[1] != size:
        raise ValueError(
            f"{index} has vectors of {found.vectors.shape[1]} numbers and {model_dir} of {size}: "
            "both must come from one model."
        )
    ids = found.ids or list(map(str, range(len(found))))
    return SearchServing(embedder, TokenStore(found, embedder.similarity), ids)
