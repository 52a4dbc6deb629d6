"""Makes a static embedder of an encoder, as Model2Vec does.

Each token of the vocabulary goes through the encoder alone, as [CLS] token [SEP]; the mean of its
outputs is the token's vector. Then the vectors are projected to fewer numbers by PCA, and weighted
by how rare their token is.

Reference: model2vec 0.10.0; Arora et al. 2017 for the weights (SIF).
"""

import pathlib
import re
import time

import numpy as np
from absl import logging

from bert_tf.checkpoints.checkpoint import Checkpoint
from bert_tf.checkpoints.static_embeddings import (
    MODEL2VEC_LENGTH,
    is_static,
    model2vec_settings,
    static_checkpoint,
)
from bert_tf.checkpoints.static_tokenizer import tokenizer_content, tokenizer_of, without_tokens
from bert_tf.tasks.embedding.text_encoder import TextEncoder, pooled
from bert_tf.text.packing import add_special_tokens

# Rows that no text uses: of BERT's vocabularies, and those that bert_tf names.
UNUSED = re.compile(r"\[unused\d+\]|\[row\d+\]")


def distill(
    teacher: Checkpoint, dimension: int = 256, sif_coefficient: float = 1e-4, batch_size: int = 256
) -> Checkpoint:
    """Makes a static embedder of an encoder; the arguments are flags of `distill_static`.

    Raises:
      ValueError: if the teacher has no vocabulary or no layers, or fewer numbers than `dimension`.
    """
    vocab = teacher.vocab
    if vocab is None:
        raise ValueError(f"{teacher.source} has no vocabulary; copy it to the weights' folder.")
    if is_static(teacher.config):
        raise ValueError(f"{teacher.source} is a static embedder already; give an encoder.")
    content = tokenizer_content(vocab, teacher.config.do_lower_case)
    removed = {token for token in vocab.tokens if UNUSED.fullmatch(token)}
    removed |= {vocab.cls, vocab.sep, vocab.mask}
    tokens = without_tokens(content, removed)
    if dimension > min(teacher.config.hidden_size, len(tokens) - 1):
        raise ValueError(
            f"dimension is {dimension}, but {teacher.source} has {teacher.config.hidden_size} "
            f"numbers for each of {len(tokens)} tokens; give fewer."
        )
    start = time.monotonic()
    rows = [add_special_tokens(vocab, [token]) for token in tokens]
    select = pooled("mean", normalize=False)
    encoder = TextEncoder.from_checkpoint(teacher, select, len(rows[0].ids), batch_size)
    table = np.stack(encoder.run(rows, np.copy))  # [V, D]
    if dimension:
        table = project(table, dimension)
    if sif_coefficient:
        table = table * sif_weights(len(table), sif_coefficient)[:, None]
    logging.info("%d tokens in %.0f s.", len(table), time.monotonic() - start)
    tokenizer = tokenizer_of(content, pathlib.Path(teacher.source))
    embedding = model2vec_settings(tokenizer, content, MODEL2VEC_LENGTH, normalize=True)
    return static_checkpoint(table.astype(np.float32), tokenizer, embedding, teacher.source)


def project(vectors: np.ndarray, dimension: int) -> np.ndarray:
    """Returns the principal components of vectors [N, D], float64 [N, dimension].

    Vectors are centred, not scaled. The sign of each component makes its largest absolute value
    positive.
    """
    centred = vectors.astype(np.float64)
    centred -= centred.mean(axis=0)
    _, directions = np.linalg.eigh(centred.T @ centred)  # ascending
    scores = centred @ directions[:, ::-1][:, :dimension]
    largest = np.abs(scores).argmax(axis=0)
    return scores * np.sign(scores[largest, np.arange(dimension)])


def sif_weights(size: int, coefficient: float) -> np.ndarray:
    """Returns a weight for each of `size` tokens, the most frequent first, float64 [size].

    Frequencies follow Zipf's law, with ranks from 2 as in Model2Vec.
    """
    inverse_ranks = 1 / np.arange(2, size + 2)
    frequencies = inverse_ranks / inverse_ranks.sum()
    return coefficient / (coefficient + frequencies)
