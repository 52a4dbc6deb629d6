"""A cross-encoder for search: one score for a query and a document that it reads together."""

from collections.abc import Sequence

import numpy as np

from bert_tf.checkpoints.cross_encoder import read_cross_encoder
from bert_tf.tasks.base.models.with_preprocessor import make_preprocessor
from bert_tf.tasks.reranking.answers import activate, read_candidates
from bert_tf.tasks.reranking.model import BertReranker
from bert_tf.text.packing import PackedText
from bert_tf.text.text_counts import counts_texts


class Reranker:
    """A `BertReranker` with arrays as answers.

        reranker = Reranker.from_pretrained("cross-encoder/ms-marco-MiniLM-L6-v2")
        order = reranker.rank("a query", documents)

    Args:
      model: a model with its preprocessor.
      batch_size: pairs per batch.

    Attributes:
      activation: `sigmoid` or `identity`, which `scores` applies to the logits.
      max_seq_length: maximum length of a pair.
    """

    def __init__(self, model: BertReranker, batch_size: int = 32) -> None:
        self.model = model
        self.batch_size = batch_size
        self.activation = model.activation
        self.max_seq_length = model.max_seq_length

    @classmethod
    def from_pretrained(
        cls, path: str, max_seq_length: int = 0, batch_size: int = 32
    ) -> "Reranker":
        """Reads a run of `run_reranker`, a folder of CrossEncoder, or another one-label classifier.

        Args:
          path: the checkpoint.
          max_seq_length: maximum length of a pair; 0: as the folder states, else 512 or all
            positions.
          batch_size: pairs per batch.

        Raises:
          ValueError: if it cannot be read, or has another number of labels.
        """
        found = read_cross_encoder(path)
        if found.checkpoint.vocab is None:
            raise ValueError(
                f"{path} has no vocabulary; put its vocab.txt into the folder of the weights."
            )
        model = BertReranker.from_checkpoint(
            found.checkpoint,
            activation=found.activation,
            preprocessor=make_preprocessor(
                found.checkpoint, max_seq_length or found.max_seq_length
            ),
        )
        return cls(model, batch_size)

    def pack(self, text_a: str, text_b: str = "") -> PackedText:
        """Tokenizes a query and a document and cuts them to the maximum length."""
        return self.model.pack(text_a, text_b)

    @counts_texts
    def logits(self, pairs: Sequence[tuple[str, str]]) -> np.ndarray:
        """Returns the unnormalised score of each pair (query, document), float32 [N]."""
        queries = [query for query, _ in pairs]
        documents = [document for _, document in pairs]
        return self.model.pair_logits(queries, documents, self.batch_size)

    def scores(self, pairs: Sequence[tuple[str, str]]) -> np.ndarray:
        """Returns the score of each pair as CrossEncoder.predict does, float32 [N]."""
        return activate(self.logits(pairs), self.activation)

    def rank(self, query: str, documents: Sequence[str]) -> np.ndarray:
        """Returns the indices of the documents, the best first, int64 [N]; equal ones keep order.

        Raises:
          ValueError: if `documents` is a single string, or holds something else.
        """
        texts = read_candidates(query, documents)
        return np.argsort(-self.logits([(query, text) for text in texts]), kind="stable")
