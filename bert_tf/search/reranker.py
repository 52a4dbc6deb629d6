"""Reads the cross-encoder of a search: one score for a query and a document read together."""

from bert_tf.checkpoints.cross_encoder import read_cross_encoder
from bert_tf.tasks.base.models.preprocessing import make_preprocessor
from bert_tf.tasks.reranking.model import BertReranker


def read_reranker(path: str) -> BertReranker:
    """Reads a run of `run_reranker`, a folder of CrossEncoder, or another one-label classifier.

    Raises:
      ValueError: if it cannot be read, or has another number of labels.
    """
    found = read_cross_encoder(path)
    if found.checkpoint.vocab is None:
        raise ValueError(
            f"{path} has no vocabulary; put its vocab.txt into the folder of the weights."
        )
    preprocessor = make_preprocessor(found.checkpoint, found.max_seq_length)
    return BertReranker.from_checkpoint(
        found.checkpoint, activation=found.activation, preprocessor=preprocessor
    )
