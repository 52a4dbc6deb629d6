"""Serving functions of embedders of texts or tokens, and of the encoder without a head."""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from bert_tf.checkpoints.embedding import NUM_SPECIAL
from bert_tf.checkpoints.token_vectors import SIDES
from bert_tf.tasks.base.serving.model import Batch, Outputs, Serving

QUERY, DOCUMENT = SIDES


class EmbeddingServing(Serving):
    """Serving functions of a `BertEmbedder`, which return one vector for each text.

    Args:
      prompt: prefix of each text; ids already include it.
      prompt_length: number of first tokens that the pooling skips.
      lower: whether texts are lower-cased before tokenization.
      characters_per_token: see `EmbeddingConfig`.
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
        characters_per_token: int = 0,
        prompts: Mapping[str, str] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(*arguments, **options)
        self.prompt = prompt
        self.prompt_length = prompt_length
        self.lower = lower
        # Special tokens have no characters.
        self.max_characters = characters_per_token * (self.max_seq_length - NUM_SPECIAL)
        self.prompts = prompts or {}

    def card(self) -> dict[str, Any]:
        """Adds the preparation of texts, for programs that tokenize outside the graph."""
        card = {**super().card(), "prompt": self.prompt, "lower_case_texts": self.lower}
        card |= {f"{side}_prompt": prompt for side, prompt in self.prompts.items()}
        if self.max_characters:
            card["max_characters"] = self.max_characters
        return card

    def from_ids(self, batch: Batch) -> Outputs:
        if self.prompt_length:
            size = tf.shape(batch["input_mask"])[0]
            batch = {**batch, "prompt_lengths": tf.fill([size], self.prompt_length)}  # [B]
        return {"embedding": self.call_model(batch)}

    def pack(self, *texts: tf.Tensor) -> Batch:
        (text,) = texts
        text = self.prompt + text if self.prompt else text
        if self.max_characters:
            text = tf.strings.substr(text, 0, self.max_characters, unit="UTF8_CHAR")
        return super().pack(lower_case(text) if self.lower else text)


def lower_case(texts: tf.Tensor) -> tf.Tensor:
    """Returns texts in lower case, string [B], by Unicode 13 of TensorFlow's ICU."""
    # TensorFlow's function drops all after U+0000: a noncharacter replaces it meanwhile.
    stand_in = tf.constant("\U0010ffff")
    lowered = tf.strings.lower(tf.strings.regex_replace(texts, r"\x00", stand_in), "utf-8")
    return tf.strings.regex_replace(lowered, stand_in, tf.constant("\0"))


class LateInteractionServing(EmbeddingServing):
    """Serving functions of a `BertLateInteraction`, for the texts of one side.

    Args:
      arguments, options: see `EmbeddingServing`.
      side: query or document.

    Outputs:
      vectors: float32 [B, T, D], 0 for tokens that do not score.
      scored: int32 [B, T], 1 for tokens that score.
    """

    kind = "late_interaction"

    def __init__(self, *arguments: Any, side: str = DOCUMENT, **options: Any) -> None:
        super().__init__(*arguments, **options)
        if self.lower:
            raise ValueError(
                "The model lower-cases texts between special tokens, which a graph cannot do; use "
                "it by bert_tf.load."
            )
        tokens = self.model.tokens
        if tokens.pool_factor > 1 and side in tokens.pool_sides:
            raise ValueError(
                f"The model pools the vectors of a {side} (pool_factor {tokens.pool_factor}), but "
                "a graph cannot; use it by bert_tf.load, or set 1 in its folder."
            )
        self.side = side
        self.similarity = self.model.similarity
        if side == QUERY:
            self.max_seq_length = self.model.embedding.length(QUERY)

    def card(self) -> dict[str, Any]:
        """Adds the side of the texts, and how vectors are compared."""
        return {**super().card(), "side": self.side, "similarity": self.similarity}

    def from_ids(self, batch: Batch) -> Outputs:
        if self.side == QUERY:
            size = tf.shape(batch["input_mask"])[0]
            batch = {**batch, "is_query": tf.ones([size], tf.int32)}
        vectors = self.call_model(batch)  # [B, T, D]
        scored = tf.reduce_any(vectors != 0.0, axis=-1)
        return {"vectors": vectors, "scored": tf.cast(scored, tf.int32)}


class EncoderServing(Serving):
    """Serves the encoder without a head.

    Outputs:
      sequence_output: float32 [B, T, D].
      pooled_output: float32 [B, D], if the model has a pooler.
      input_word_ids, input_mask: int32 [B, T], the tokens that the vectors belong to.
    """

    kind = "encoder"

    def from_ids(self, batch: Batch) -> Outputs:
        encoded = self.call_model(batch)
        outputs = {"sequence_output": encoded["sequence_output"]}
        if "pooled_output" in encoded:
            outputs["pooled_output"] = encoded["pooled_output"]
        outputs["input_word_ids"] = batch["input_word_ids"]
        outputs["input_mask"] = batch["input_mask"]
        return outputs
