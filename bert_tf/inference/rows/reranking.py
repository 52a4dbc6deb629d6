"""Answers of files of rerankers."""

from collections.abc import Sequence

import numpy as np

from bert_tf.inference.rows.answers import RowAnswers, packed_outputs
from bert_tf.tasks.base.serving.row_model import RowModel
from bert_tf.tasks.reranking.answers import RerankerAnswers
from bert_tf.text.packing import pack_pair


class RowReranker(RowAnswers, RerankerAnswers):
    """The answers of a file of a reranker."""

    def __init__(self, model: RowModel) -> None:
        super().__init__(model)
        self.activation = model.card["activation"]

    def pair_logits(
        self, queries: Sequence[str], documents: Sequence[str], batch_size: int
    ) -> np.ndarray:
        encode = self.tokenizer.encode
        packed = []
        for query, document in zip(queries, documents, strict=True):
            pair = (encode(query), encode(document))
            packed.append(pack_pair(self._model.vocab, *pair, self.max_seq_length))
        outputs = packed_outputs(self._model, packed, batch_size)
        return np.array([row["logits"][0] for row in outputs], np.float32)
