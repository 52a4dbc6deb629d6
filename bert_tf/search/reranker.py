"""A cross-encoder: one score for a query and a document that it reads together."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from bert_tf.checkpoints.cross_encoder import read_cross_encoder
from bert_tf.examples.columns import read_texts
from bert_tf.tasks.classification.model import BertClassifier
from bert_tf.tasks.embedding.text_model import TextModel
from bert_tf.text.packing import PackedText, pack_pair
from bert_tf.text.tokenization import make_tokenizer


class Reranker(TextModel):
    """Scores pairs of texts, as sentence-transformers' CrossEncoder does.

        reranker = Reranker.from_pretrained("cross-encoder/ms-marco-MiniLM-L6-v2")
        order = reranker.rank("a query", documents)

    Args:
      model: a `BertClassifier` with one label.
      tokenizer: of the model.
      activation: `sigmoid` or `identity`, what `scores` makes of the logits.
      sizes: max_seq_length and batch_size of `TextModel`.
    """

    def __init__(
        self, model: BertClassifier, tokenizer: Any, activation: str = "sigmoid", **sizes: int
    ) -> None:
        def select(logits: Any, _: Any) -> Any:
            return logits[:, 0]

        super().__init__(model, tokenizer, select, **sizes)
        self.activation = activation

    @classmethod
    def from_pretrained(
        cls, path: str, max_seq_length: int = 0, batch_size: int = 32
    ) -> "Reranker":
        """Reads a run of `run_reranker`, a folder of CrossEncoder, or another one-label classifier.

        Args:
          path: the checkpoint.
          max_seq_length: pieces of a pair; 0: what the folder says, else all positions up to 512.
          batch_size: pairs computed at once.

        Raises:
          ValueError: if it cannot be read, or has another number of labels.
        """
        found = read_cross_encoder(path)
        vocab, config = found.checkpoint.vocab, found.checkpoint.config
        if vocab is None:
            raise ValueError(f"{path} has no vocabulary; put its vocab.txt beside the weights.")
        tokenizer = make_tokenizer(vocab, config.do_lower_case)
        model = BertClassifier.from_checkpoint(found.checkpoint, unpad=True)
        length = max_seq_length or found.max_seq_length
        return cls(model, tokenizer, found.activation, max_seq_length=length, batch_size=batch_size)

    def pack(self, text_a: str, text_b: str = "") -> PackedText:
        """Tokenizes a query and a document and cuts them to the length."""
        encode, vocab = self.tokenizer.encode, self.tokenizer.vocab
        return pack_pair(vocab, encode(text_a), encode(text_b), self.max_seq_length)

    def logits(self, pairs: Sequence[tuple[str, str]]) -> np.ndarray:
        """Returns the unnormalised score of each pair (query, document), float32 [N]."""
        return np.array(self.run([self.pack(*pair) for pair in pairs]), np.float32)

    def scores(self, pairs: Sequence[tuple[str, str]]) -> np.ndarray:
        """Returns the score of each pair as CrossEncoder.predict does, float32 [N]."""
        logits = self.logits(pairs)
        return 1 / (1 + np.exp(-logits)) if self.activation == "sigmoid" else logits

    def rank(self, query: str, documents: Sequence[str]) -> np.ndarray:
        """Returns the places of the documents, the best first, int64 [N]; equal ones keep order.

        Raises:
          ValueError: if `documents` is a single string, or holds something else.
        """
        documents = read_texts(documents, "documents") if len(documents) else []
        return np.argsort(-self.logits([(query, text) for text in documents]), kind="stable")
