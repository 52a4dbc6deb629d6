"""Reads the reranker of a search: a cross-encoder, or a model of late interaction."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from bert_tf.checkpoints.cross_encoder import read_cross_encoder
from bert_tf.checkpoints.hub import local_path
from bert_tf.checkpoints.late_interaction import is_late_interaction
from bert_tf.tasks.base.models.preprocessing import make_preprocessor
from bert_tf.tasks.embedding.late_interaction_model import BertLateInteraction
from bert_tf.tasks.reranking.model import BertReranker


class PairScorer(Protocol):
    """A model that scores pairs of a query and a document."""

    def pair_logits(
        self, queries: Sequence[str], documents: Sequence[str], batch_size: int
    ) -> np.ndarray:
        """Returns the score of each pair, float32 [N]."""


def read_reranker(path: str) -> PairScorer:
    """Reads a run of `run_reranker`, a folder of CrossEncoder, or another one-label classifier.

    A model of late interaction scores pairs as well.

    Raises:
      ValueError: if it cannot be read, or has another number of labels.
    """
    if is_late_interaction(local_path(path)):
        return BertLateInteraction.from_pretrained(path)
    found = read_cross_encoder(path)
    if found.checkpoint.vocab is None:
        raise ValueError(
            f"{path} has no vocabulary; put its vocab.txt into the folder of the weights."
        )
    preprocessor = make_preprocessor(found.checkpoint, found.max_seq_length)
    return BertReranker.from_checkpoint(
        found.checkpoint, activation=found.activation, preprocessor=preprocessor
    )
