"""Loads the search in an index as serving functions, for its export."""

import pathlib
import typing
from collections.abc import Sequence

import numpy as np

from bert_tf.checkpoints.checkpoint import embedding_of
from bert_tf.checkpoints.formats import read_checkpoint
from bert_tf.checkpoints.hub import local_path
from bert_tf.inference.serving_models import load
from bert_tf.search.fingerprint import fingerprint
from bert_tf.search.index import Index
from bert_tf.search.manifest import Manifest, check_fingerprint, check_texts, model_of_index
from bert_tf.search.serving import SearchServing, TokenStore, VectorStore
from bert_tf.search.token_vectors import TokenIndex
from bert_tf.system.type_names import Fields
from bert_tf.tasks.embedding.serving import EmbeddingServing, LateInteractionServing
from bert_tf.tasks.reranking.serving import RerankingServing

# The first arguments of `SearchServing`: the embedder, the vectors, the ids and the texts.
Parts = tuple[EmbeddingServing, VectorStore | TokenStore, Sequence[str], Sequence[str]]


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
      index: directory of `bert_tf.build_index`, or a file of `TokenIndex`.
      store: form of the vectors, of `VectorStore`; "": that of the index, int8 if it is binary.

    Raises:
      ValueError: if model and index disagree, or there are no texts to rerank.
    """
    source = model_of_index(index, model_dir)
    if not pathlib.Path(index).expanduser().is_file():
        parts = _vector_search(source, max_seq_length, unpad, index, store)
    elif store:
        raise ValueError(f"{index} is a file of token vectors; leave store={store} out.")
    else:
        parts = _token_search(source, max_seq_length, unpad, index)
    if not rerank:
        return SearchServing(*parts)
    check_texts(index, bool(parts[-1]))
    reranker = typing.cast(RerankingServing, load(rerank, "reranker", 0, unpad))
    return SearchServing(*parts, reranker, rerank_k)


def _vector_search(source: str, max_seq_length: int, unpad: bool, index: str, store: str) -> Parts:
    """Loads an index of one vector for each text, and its model."""
    checkpoint = read_checkpoint(local_path(source))
    pooling = Manifest.read(pathlib.Path(index)).pooling
    embedding = embedding_of(checkpoint, pooling, max_seq_length)
    # An index of another model is refused.
    found = Index(index, fingerprint(checkpoint, embedding))
    # The graph computes dot products, which are cosines of vectors of length 1.
    is_unit = embedding.normalize or found.manifest.similarity == "cosine"
    options: Fields = {"normalize": is_unit, "side": "query"}
    if pooling:
        options["pooling"] = pooling
    length = embedding.max_seq_length
    embedder = load(source, "embeddings", length, unpad, "float32", **options)
    form = store or found.manifest.dtype
    return (
        typing.cast(EmbeddingServing, embedder),
        VectorStore(found.vectors(np.arange(len(found))), "int8" if form == "binary" else form),
        list(found.ids),
        list(map(found.text, range(len(found)))) if found.manifest.has_texts else (),
    )


def _token_search(source: str, max_seq_length: int, unpad: bool, index: str) -> Parts:
    """Loads a file of token vectors, and its model."""
    found = TokenIndex.load(index)
    if found.origin.model:
        checkpoint = read_checkpoint(local_path(source))
        digest = fingerprint(checkpoint, embedding_of(checkpoint))
        check_fingerprint(index, found.origin.model, found.origin.source, digest)
    embedder = load(source, "late_interaction", max_seq_length, unpad, side="query")
    embedder = typing.cast(LateInteractionServing, embedder)
    size = embedder.model.dimension
    if found.vectors.shape[1] != size:
        raise ValueError(
            f"{index} has vectors of {found.vectors.shape[1]} numbers and {source} of {size}: "
            "both must come from one model."
        )
    store = TokenStore(found, embedder.similarity)
    return embedder, store, found.ids, found.texts
