"""Serving functions for embeddings."""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from bert_tf.serving.graph_tokens import check_utf8
from bert_tf.serving.model import Batch, Outputs, Serving


class EmbeddingServing(Serving):
    """A `BertEmbedder`: one vector for each text.

    Args:
      arguments: of `Serving`.
      prompt: stands before each text; ids already include it.
      prompt_pieces: number of first tokens that the pooling leaves out.
      lower: whether texts are lower-cased before they are tokenized.
      prompts: those of the model for queries and documents, for the metadata.

    Outputs:
      embedding: float32 [B, D].
    """

    kind = "embeddings"

    def __init__(
        self,
        *arguments: Any,
        prompt: str = "",
        prompt_pieces: int = 0,
        lower: bool = False,
        prompts: Mapping[str, str] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(*arguments, **options)
        self.prompt, self.prompt_pieces, self.lower = prompt, prompt_pieces, lower
        self.prompts = prompts or {}

    def card(self) -> dict[str, Any]:
        """Also says what is done to texts first, for programs that tokenize outside the graph."""
        sides = {f"{side}_prompt": prompt for side, prompt in self.prompts.items()}
        return {**super().card(), "prompt": self.prompt, **sides, "lower_case_texts": self.lower}

    def from_ids(self, batch: Batch) -> Outputs:
        if self.prompt_pieces:
            size = tf.shape(batch["input_mask"])[0]
            batch = {**batch, "prompt_pieces": tf.fill([size], self.prompt_pieces)}
        return {"embedding": self.call_model(batch)}

    def pack(self, *texts: tf.Tensor) -> Batch:
        text = check_utf8(*texts)  # Lower-casing would replace what is not UTF-8.
        text = self.prompt + text if self.prompt else text
        return super().pack(tf.strings.lower(text, "utf-8") if self.lower else text)
