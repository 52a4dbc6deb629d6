"""Serving functions of embedders."""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from bert_tf.tasks.base.serving.model import Batch, Outputs, Serving


class EmbeddingServing(Serving):
    """Serving functions of a `BertEmbedder`, which return one vector for each text.

    Args:
      arguments: arguments of `Serving`.
      prompt: prefix of each text; ids already include it.
      prompt_length: number of first tokens that the pooling skips.
      lower: whether texts are lower-cased before tokenization.
      prompts: the model's prompts for queries and documents, for the metadata.

    Outputs:
      embedding: float32 [B, D].
    """

    kind = "embeddings"

    def __init__(
        self,
        *arguments: Any,
        prompt: str = "",
        prompt_length: int = 0,
        lower: bool = False,
        prompts: Mapping[str, str] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(*arguments, **options)
        self.prompt = prompt
        self.prompt_length = prompt_length
        self.lower = lower
        self.prompts = prompts or {}

    def card(self) -> dict[str, Any]:
        """Adds the preparation of texts, for programs that tokenize outside the graph."""
        sides = {f"{side}_prompt": prompt for side, prompt in self.prompts.items()}
        return {**super().card(), "prompt": self.prompt, **sides, "lower_case_texts": self.lower}

    def from_ids(self, batch: Batch) -> Outputs:
        if self.prompt_length:
            size = tf.shape(batch["input_mask"])[0]
            batch = {**batch, "prompt_lengths": tf.fill([size], self.prompt_length)}  # [B]
        return {"embedding": self.call_model(batch)}

    def pack(self, *texts: tf.Tensor) -> Batch:
        (text,) = texts
        text = self.prompt + text if self.prompt else text
        return super().pack(tf.strings.lower(text, "utf-8") if self.lower else text)
