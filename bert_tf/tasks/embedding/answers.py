"""The answers of an embedder: vectors of texts, with the prompts of the model."""

import abc

import numpy as np

from bert_tf.config.fine_tuning_defaults import BATCH_SIZE
from bert_tf.system.type_names import TextColumn
from bert_tf.tasks.base.examples.columns import text_column
from bert_tf.text.text_counts import counts_texts


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
        """
        prefix = self.named_prompt(prompt_name) if prompt is None else prompt
        return self.encode_texts(text_column(texts), prefix, batch_size)

    def encode_query(self, texts: TextColumn, *, batch_size: int = BATCH_SIZE) -> np.ndarray:
        """Embeds queries, with the model's prompt for queries if it has one; see `encode`."""
        return self.encode(texts, prompt=self.side_prompt("query"), batch_size=batch_size)

    def encode_document(self, texts: TextColumn, *, batch_size: int = BATCH_SIZE) -> np.ndarray:
        """Embeds documents, with the model's prompt for documents if it has one; see `encode`."""
        return self.encode(texts, prompt=self.side_prompt("document"), batch_size=batch_size)
