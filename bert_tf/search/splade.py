"""Encodes texts as sparse vectors, a weight for each token, with a `BertSplade`."""

import pathlib
from collections.abc import Sequence
from typing import Self

import numpy as np

from bert_tf.checkpoints.embedding import MOST_TOKENS
from bert_tf.checkpoints.formats import read_checkpoint
from bert_tf.checkpoints.hub import record_of
from bert_tf.checkpoints.sentence_transformers import splade_length
from bert_tf.metrics.sparse import SparseVectors, sparse_row
from bert_tf.tasks.base.examples.columns import read_texts
from bert_tf.tasks.embedding.splade_model import BertSplade
from bert_tf.tasks.embedding.text_encoder import TextEncoder
from bert_tf.text.text_counts import counts_texts
from bert_tf.text.tokenization import Tokenizer, make_tokenizer


class SparseEncoder(TextEncoder):
    """Encodes texts with a masked LM that was trained as SPLADE.

    By default they are cut to 256 tokens, or to all positions if the model has fewer.

    Raises:
      ValueError: if the model has fewer positions.
    """

    def __init__(
        self, model: BertSplade, tokenizer: Tokenizer, max_seq_length: int = 0, batch_size: int = 16
    ) -> None:
        length = max_seq_length or min(MOST_TOKENS, model.config.longest_row)
        # The model returns the vectors themselves, so there is nothing to select.
        super().__init__(model, tokenizer, lambda weights, _: weights, length, batch_size)
        self.model = model

    @classmethod
    def from_pretrained(cls, path: str | pathlib.Path, **sizes: int) -> Self:
        """Reads a checkpoint with an MLM head, in any form.

        A run records the length of its texts, sentence-transformers their maximum length.

        Raises:
          ValueError: if it cannot be read, has no MLM head or vocabulary, or pools in another way.
        """
        checkpoint = read_checkpoint(path, electra_network=BertSplade.electra_network)
        checkpoint.check()
        if checkpoint.vocab is None:
            raise ValueError(f"{path} has no vocabulary; SPLADE needs one to encode texts.")
        model = BertSplade.from_checkpoint(checkpoint)
        tokenizer = make_tokenizer(checkpoint.vocab, checkpoint.config.do_lower_case)
        stated = splade_length(record_of(checkpoint.source), checkpoint.config.longest_row)
        trained = int(checkpoint.settings.get("max_seq_length", 0))
        sizes.setdefault("max_seq_length", stated or trained)
        return cls(model, tokenizer, **sizes)

    @counts_texts
    def encode(self, texts: Sequence[str]) -> SparseVectors:
        """Returns the vectors of texts, in their order."""
        packed = list(map(self.pack, read_texts(texts) if len(texts) else []))
        return SparseVectors.from_tokens(self.run(packed, sparse_row))

    def explain(
        self, vectors: SparseVectors, index: int, most: int = 10
    ) -> list[tuple[str, float]]:
        """Returns the tokens of the largest weights in a vector, with their weights."""
        token_ids, weights = vectors.row(index)
        order = np.argsort(-weights, kind="stable")[:most]
        return [(self.tokenizer.vocab.tokens[token_ids[i]], float(weights[i])) for i in order]
