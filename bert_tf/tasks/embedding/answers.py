"""The answers of embedders: vectors of texts, or of their tokens, with the prompts of the model."""

import abc

import numpy as np

from bert_tf.checkpoints.token_vectors import check_pooling
from bert_tf.config.fine_tuning_defaults import BATCH_SIZE
from bert_tf.metrics.maxsim import TokenMatrix, maxsim
from bert_tf.system.type_names import TextColumn
from bert_tf.tasks.base.examples.columns import text_column
from bert_tf.tasks.embedding.token_pooling import pool_tokens_of_document
from bert_tf.text.text_counts import Remedy, counting_texts, counts_texts

# The length of queries belongs to a model of late interaction.
QUERY_REMEDY = Remedy("a model of query_length={}", limit="query_length")


class EmbedderAnswers(abc.ABC):
    """`encode` and its variants, for anything that embeds texts with a prompt."""

    @abc.abstractmethod
    def named_prompt(self, name: str | None) -> str:
        """Returns the prompt of a name; None: the model's default, "" without one.

        Raises:
          ValueError: if the model has no prompt of that name.
        """

    @abc.abstractmethod
    def side_prompt(self, side: str) -> str:
        """Returns the prompt of `query` or `document`."""

    @abc.abstractmethod
    def encode_texts(self, texts: list[str], prompt: str, batch_size: int) -> np.ndarray:
        """Embeds texts, float32 [N, D]; `prompt` precedes each."""

    @counts_texts
    def encode(
        self,
        texts: TextColumn,
        *,
        prompt_name: str | None = None,
        prompt: str | None = None,
        batch_size: int = BATCH_SIZE,
    ) -> np.ndarray:
        """Embeds texts.

        Args:
          texts: N texts; each is truncated to the model's maximum number of tokens.
          prompt_name: name of the prompt before each text; None: the model's default, if any.
          prompt: prefix of each text, instead of a named prompt.
          batch_size: texts per batch; texts of similar length share a batch.

        Returns:
          float32 [N, D].

        Raises:
          ValueError: if the model has no vocabulary or no prompt of that name, or was exported with
            another prompt; `texts` is a single string or contains a value that is not a text; or
            `batch_size` is below 1.
          TypeError: if `prompt` is no text, or `batch_size` no whole number.
        """
        prefix = self.named_prompt(prompt_name) if prompt is None else prompt
        if not isinstance(prefix, str):
            raise TypeError(f"prompt is {prompt!r}, expected a text before each of the texts.")
        return self.encode_texts(text_column(texts), prefix, batch_size)

    def encode_query(self, texts: TextColumn, *, batch_size: int = BATCH_SIZE) -> np.ndarray:
        """Embeds queries, with the model's prompt for queries if it has one; see `encode`."""
        return self.encode(texts, prompt=self.side_prompt("query"), batch_size=batch_size)

    def encode_document(self, texts: TextColumn, *, batch_size: int = BATCH_SIZE) -> np.ndarray:
        """Embeds documents, with the model's prompt for documents if it has one; see `encode`."""
        return self.encode(texts, prompt=self.side_prompt("document"), batch_size=batch_size)


class LateInteractionAnswers(abc.ABC):
    """`encode_queries`, `encode_documents` and `score`, for anything that embeds tokens."""

    @property
    @abc.abstractmethod
    def similarity(self) -> str:
        """How token vectors are compared: maxsim or meanmaxsim."""

    @abc.abstractmethod
    def encode_side(self, texts: list[str], side: str, batch_size: int) -> list[np.ndarray]:
        """Embeds texts as queries or as documents, float32 [tokens that score, D] each."""

    def encode_queries(
        self, texts: TextColumn, *, batch_size: int = BATCH_SIZE
    ) -> list[np.ndarray]:
        """Embeds queries, with the model's prompt and expansion of queries.

        Arguments, result and errors are those of `encode_documents`.
        """
        with counting_texts("encode_queries", self, QUERY_REMEDY):
            return self.encode_side(text_column(texts), "query", batch_size)

    @counts_texts
    def encode_documents(
        self,
        texts: TextColumn,
        pool_factor: float = 1,
        protected_tokens: int = 1,
        *,
        batch_size: int = BATCH_SIZE,
    ) -> list[np.ndarray]:
        """Embeds documents, with the model's prompt of documents, without the skipped tokens.

        Args:
          texts: documents; each is truncated to the model's maximum number of tokens.
          pool_factor: keeps one vector for so many tokens of a document; 1: all.
          protected_tokens: number of first tokens that are not pooled.
          batch_size: texts per batch; texts of similar length share a batch.

        Returns:
          For each text float32 [tokens that score, D], or the pooled vectors.

        Raises:
          ValueError: if `pool_factor` is below 1 or `protected_tokens` below 0; `texts` is a single
            string or contains a value that is not a text; or `batch_size` is below 1.
        """
        check_pooling(pool_factor, protected_tokens)
        vectors = self.encode_side(text_column(texts), "document", batch_size)
        return [pool_tokens_of_document(one, pool_factor, protected_tokens) for one in vectors]

    def score(
        self, queries: TextColumn, documents: TextColumn, *, batch_size: int = BATCH_SIZE
    ) -> np.ndarray:
        """Scores each of Q queries with each of N documents by MaxSim, float32 [Q, N].

        The arguments are those of `encode_documents`.
        """
        query_vectors = self.encode_queries(queries, batch_size=batch_size)
        document_vectors = self.encode_documents(documents, batch_size=batch_size)
        return maxsim(query_vectors, TokenMatrix.of(document_vectors), self.similarity)
