"""Embeds texts: the encoder with pooling and optional dense layers, as a Keras model.

model = BertEmbedder.from_pretrained("all-MiniLM-L6-v2")  # a folder of sentence-transformers
model.fit((queries, positives))
vectors = model.encode(["A text.", "Another one."])  # float32 [N, D]
"""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from bert_tf.config.fine_tuning_defaults import BATCH_SIZE
from bert_tf.network.pooled_layers import apply_layers
from bert_tf.network.pooling import l2_normalize, pool_tokens, pooling_of
from bert_tf.system.type_names import Tensor, Texts
from bert_tf.tasks.base.examples.columns import read_texts
from bert_tf.tasks.embedding.answers import EmbedderAnswers
from bert_tf.tasks.embedding.contrastive_model import ContrastiveModel
from bert_tf.tasks.embedding.packing import pack_text, prompt_length
from bert_tf.text.packing import BATCHES_AT_ONCE, INPUTS, PackedText, by_length, pad_batch


@keras.saving.register_keras_serializable(package="bert_tf")
class BertEmbedder(EmbedderAnswers, ContrastiveModel):
    """The encoder with pooling, dense layers and normalization.

        model.fit((queries, positives))             # pairs
        model.fit((queries, positives, negatives))  # triplets
        model.fit((firsts, seconds), scores)        # scored pairs

    `save` and `keras.models.load_model` preserve vocabulary and prompts.

    Args:
      arguments, options: see `EmbeddingNetwork`.

    Call arguments:
      inputs: texts, or a dict with the encoder's inputs and optionally `prompt_lengths` int32 [B],
        the number of first tokens of each row that the pooling skips; other keys are ignored. A
        batch of `ContrastiveDataset` has these keys with the prefixes query/ and document/.
      training, dropout_seed: see `BertEncoder`.

    Returns:
      float32 [B, D], where D is `dimension`; for a batch of `ContrastiveDataset` float32
      [B, 1 + M, D], each query followed by its M documents.

    Reference: Reimers and Gurevych 2019, "Sentence-BERT".
    """

    default_name = "bert_embedder"

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._compute: Any = None

    def call(
        self, inputs: dict[str, Any], training: bool = False, dropout_seed: Tensor | None = None
    ) -> Any:
        if "query/input_word_ids" in inputs:
            # The texts of each side pass through this method again.
            queries, documents = self.embed_batch(inputs, training, dropout_seed)
            return ops.concatenate([queries[:, None], documents], axis=1)  # [B, 1 + M, D]
        encoded = self.bert(inputs, training=training, dropout_seed=dropout_seed)
        prompt_lengths = inputs.get("prompt_lengths")
        mask = inputs["input_mask"]
        for token_id in self.embedding.skipped_tokens:
            is_other = ops.not_equal(inputs["input_word_ids"], token_id)
            mask = mask * ops.cast(is_other, mask.dtype)
        return self.pool(encoded["sequence_output"], mask, prompt_lengths)

    def embed_side(
        self, inputs: dict[str, Any], training: bool, dropout_seed: Tensor | None, side: str
    ) -> Tensor:
        return self.call(inputs, training, dropout_seed)

    def inputs_of(self, x: object) -> dict[str, Any]:
        """Returns the inputs for texts, with the model's default prompt."""
        prompt = self.embedding.prompt(None)
        rows = [self.pack(text, prompt) for text in read_texts(x)]
        skipped = prompt_length(self.tokenizer, self.embedding, prompt)
        batch = pad_batch(rows, self.tokenizer.vocab.pad_id)
        return {**batch, "prompt_lengths": np.full([len(rows)], skipped, np.int32)}

    def pool(self, sequence: Tensor, mask: Tensor, prompt_lengths: Tensor | None = None) -> Any:
        """Computes embeddings from the encoder's outputs.

        Args:
          sequence: float [B, T, H], the outputs of the last layer.
          mask: int [B, T], 0 for padding.
          prompt_lengths: see the call arguments.

        Returns:
          float32 [B, D].
        """
        if prompt_lengths is not None:
            # The encoder attends to the prompt, but the pooling skips it.
            positions = ops.arange(ops.shape(mask)[1], dtype="int32")  # [T]
            mask = mask * ops.cast(positions >= prompt_lengths[:, None], mask.dtype)
        # Several poolings are concatenated, [B, H] each.
        parts = []
        for name in self.embedding.pooling:
            pooling = pooling_of(name, self.config.pooled_token)
            parts.append(pool_tokens(sequence, mask, pooling))
        vectors = parts[0] if len(parts) == 1 else ops.concatenate(parts, axis=-1)
        vectors = apply_layers(self, self.embedding.dense, vectors)
        return l2_normalize(vectors) if self.embedding.normalize else vectors

    def named_prompt(self, name: str | None) -> str:
        return self.embedding.prompt(name)

    def side_prompt(self, side: str) -> str:
        return self.embedding.side_prompt(side)

    def encode_texts(self, texts: Sequence[str], prompt: str, batch_size: int) -> np.ndarray:
        rows = [self.pack(text, prompt) for text in texts]
        skipped = prompt_length(self.tokenizer, self.embedding, prompt)
        return self.encode_rows(rows, skipped, batch_size)

    def predict_texts(self, texts: Texts, batch_size: int) -> np.ndarray:
        return self.encode(texts, batch_size=batch_size)

    def encode_rows(
        self, rows: Sequence[PackedText], skipped: int = 0, batch_size: int = BATCH_SIZE
    ) -> np.ndarray:
        """Embeds packed texts, float32 [N, D].

        Args:
          skipped: number of first tokens of each row that the pooling skips.
        """
        vectors = np.zeros([len(rows), self.dimension], np.float32)
        embed = self._embed_function()

        def compute(chosen: list[int]) -> list[int]:
            batch = pad_batch([rows[index] for index in chosen], self.tokenizer.vocab.pad_id)
            prompt_lengths = np.full([len(chosen)], skipped, np.int32)
            inputs = {**batch, "prompt_lengths": prompt_lengths}
            # Written in place: a list of vectors would need the memory twice.
            vectors[chosen] = embed(inputs).numpy()
            return chosen

        by_length([len(row.ids) for row in rows], batch_size, compute, BATCHES_AT_ONCE)
        return vectors

    def pack(self, text: str, prompt: str = "") -> PackedText:
        """Tokenizes a prompt and a text, and truncates them to the maximum length."""
        return pack_text(self.tokenizer, self.embedding, text, prompt)

    def _embed_function(self) -> Any:
        """Returns the model as a single graph for batches of all shapes."""
        if self._compute is None:
            signature = {name: tf.TensorSpec([None, None], tf.int32) for name in INPUTS}
            signature["prompt_lengths"] = tf.TensorSpec([None], tf.int32)
            self._compute = tf.function(
                lambda batch: self(batch, training=False),
                input_signature=[signature],
                autograph=False,
            )
        return self._compute
