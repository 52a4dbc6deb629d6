"""TSDAE: an embedder with a decoder that reconstructs a text from the embedding of a damaged copy.

  damaged text  -> encoder, pooling -> vector [B, D]
  whole text    -> the same layers with causal attention, and after each attention
                   x = LayerNorm(x + dropout(output(value(vector))))
                -> dense, LayerNorm, product with the word embeddings -> the next token [U, V]

The decoder shares the encoder's layers and embeddings. Its other weights (cross-attention, the
head) are used only in training: a run's checkpoints have them under `DECODER`, so that the run
resumes exactly, and readers of checkpoints for other purposes leave them out.

Reference: Wang et al. 2021, "TSDAE: Using Transformer-based Sequential Denoising Auto-Encoder for
Unsupervised Sentence Embedding Learning"; DenoisingAutoEncoderLoss of sentence-transformers.
"""

import functools
from typing import Any

import keras
import tensorflow as tf
from keras import ops

from bert_tf.checkpoints.embedding import DECODER, EmbeddingConfig
from bert_tf.config import ModelConfig
from bert_tf.corpus.mapping import ALL
from bert_tf.network import layout as layouts
from bert_tf.network.attention import AttentionPattern
from bert_tf.network.configured import ConfiguredLayer
from bert_tf.network.dropout import Dropout, mix
from bert_tf.network.heads import MaskedLMHead
from bert_tf.network.layer_norm import layer_norm
from bert_tf.network.layout import PaddedBatch, find_layout
from bert_tf.network.losses import WeightedSum, cross_entropy
from bert_tf.network.positions import dense_layer
from bert_tf.system.type_names import Batch, Shape, Tensor, TextColumn
from bert_tf.tasks.base.examples.columns import read_texts
from bert_tf.tasks.base.models.raw_batches import KerasBatch
from bert_tf.tasks.embedding import tsdae_noise
from bert_tf.tasks.embedding.contrastive_input import ContrastiveInput
from bert_tf.tasks.embedding.features import TextPacker
from bert_tf.tasks.embedding.model import BertEmbedder


class CausalPattern(AttentionPattern):
    """An `AttentionPattern` in which no token attends to a later one."""

    uses_blocks = False  # A block attends to its neighbours on both sides.
    is_plain = False

    def full_bias(self) -> Tensor:
        """Returns the bias of the attention scores, float32 [R, 1 or N, T, T]."""
        positions = ops.arange(self.length, dtype="int32")
        # The key (second axis) is after the query (first axis).
        is_later = ops.expand_dims(positions, 0) > ops.expand_dims(positions, 1)  # [T, T]
        return super().full_bias() + ops.cast(is_later, "float32") * layouts.PADDING_BIAS


class VectorAttention(ConfiguredLayer):
    """Cross-attention from each token to a single vector, as in Hugging Face's BertLayer.

    The softmax over a single score is 1, so that the result is the value of the vector, and neither
    query nor key is needed. Differs from Hugging Face's only in training: there, dropout also sets
    this 1 to 0, for some heads of some tokens.

    Call arguments:
      inputs: float [U, D].
      vectors: float [B, E], one for each text.
      layout: layout of the tokens.
      dropout_seed: int32 [] in training, else None.

    Returns:
      float [U, D].
    """

    def __init__(self, config: ModelConfig, index: int, **kwargs: Any) -> None:
        super().__init__(config, **kwargs)
        # Each dropout needs a salt that no other one has; the encoder uses the preceding numbers.
        salt = 1 + 3 * self.config.num_hidden_layers + index
        rate = self.config.hidden_dropout_prob
        self.dropout = Dropout(rate, salt, dtype=self.dtype_policy)

    def build(self, input_shape: Shape) -> None:
        self.value = self._dense("value")
        self.dense = self._dense("dense")
        self.layer_norm = layer_norm(self.config, self.dtype_policy)
        self.value.build(input_shape)
        with keras.name_scope("output"):
            self.dense.build((None, self.config.hidden_size))
            self.layer_norm.build((None, self.config.hidden_size))

    def _dense(self, name: str) -> keras.layers.Dense:
        config = self.config
        use_bias = config.has_bias("attention")
        return dense_layer(
            self, config.hidden_size, config.initializer_range, name, use_bias=use_bias
        )

    def call(
        self,
        inputs: Tensor,
        vectors: Tensor,
        layout: PaddedBatch,
        dropout_seed: Tensor | None = None,
    ) -> Tensor:
        # Computed once for each text, and then repeated for its tokens.
        context = self.dense(self.value(vectors))  # [B, D]
        context = layout.unpad(ops.repeat(context, layout.length, axis=0))  # [U, D]
        return self.layer_norm(inputs + self.dropout(context, dropout_seed))


class DenoisingInput(ContrastiveInput):
    """The raw input of a `BertDenoiser`."""

    def training_data(
        self,
        examples: tsdae_noise.DenoisingExamples,  # type: ignore[override]
        batch_size: int,
        seed: int | None,
        first_epoch: int = 0,
    ) -> tuple[tf.data.Dataset, int]:
        """Returns an endless dataset of damaged and whole texts, and its batches an epoch."""
        texts = examples.rows
        steps = max(1, len(texts) // batch_size)
        buckets = self.buckets(texts.whole)
        data = tsdae_noise.damaged_batches(
            texts, batch_size, first_epoch * steps, seed or 0, buckets, ALL
        )
        return data.map(self.model.keras_batch), steps


class BertDenoiser(BertEmbedder):
    """A `BertEmbedder` with a decoder for training; arguments are those of `BertEmbedder`.

    Call arguments:
      inputs: inputs of `BertEmbedder` for the damaged texts, and the encoder's inputs for the whole
        texts with the prefix `WHOLE`, int32 [B, T]; without whole texts the model is an embedder.
      training, dropout_seed: see `BertEncoder`.

    Returns:
      See `reconstruct`; without whole texts the embeddings, float32 [B, E].

    Raises:
      ValueError: if the blocks are pre-norm, for which there is no reference.
    """

    raw_input_class = DenoisingInput

    def __init__(
        self,
        config: ModelConfig,
        embedding: EmbeddingConfig | None = None,
        *,
        name: str = "bert_denoiser",
        **kwargs: Any,
    ) -> None:
        check_blocks(config)
        super().__init__(config, embedding, name=name, **kwargs)
        with keras.name_scope(DECODER.rstrip("/")):
            for index in range(config.num_hidden_layers):
                # Not named layer_0: learning rates of the encoder's layers depend on that name.
                cross = VectorAttention(
                    config, index, name=f"cross_{index}", dtype=self.dtype_policy
                )
                cross.build((None, self.dimension))
                setattr(self, f"cross_{index}", cross)
            self.predictions = MaskedLMHead(config, name="predictions", dtype=self.dtype_policy)
            self.predictions.build()

    def call(
        self, inputs: dict[str, Tensor], training: bool = False, dropout_seed: Tensor | None = None
    ) -> Tensor | dict[str, Tensor]:
        dropout_seed = self.bert.draw_dropout_seed(training, dropout_seed)
        vectors = super().call(inputs, training=training, dropout_seed=dropout_seed)
        if f"{tsdae_noise.WHOLE}input_word_ids" not in inputs:
            return vectors
        whole = {name: inputs[tsdae_noise.WHOLE + name] for name in tsdae_noise.INPUTS}
        # Another seed, because the decoder passes through the same layers as the encoder.
        seed = None if dropout_seed is None else mix(dropout_seed + 1)
        return self.reconstruct(vectors, whole, training, seed)

    # Training in Python -------------------------------------------------------------------------

    def read_examples(  # type: ignore[override]
        self, x: TextColumn, y: None = None, weights: None = None
    ) -> tsdae_noise.DenoisingExamples:
        """Reads texts, each of which needs a word."""
        if y is not None or weights is not None:
            raise ValueError("BertDenoiser learns from texts alone; leave labels and weights out.")
        texts = read_texts(x)
        for index, text in enumerate(texts):
            if not text.strip():
                raise ValueError(f"Text {index} is {text!r}; expected a text with a word.")
        packer = TextPacker(self.tokenizer, self.embedding)
        return tsdae_noise.make_denoising_examples(packer, texts, self._settings.deletion_rate)

    def keras_batch(self, batch: Batch) -> KerasBatch:
        """Returns a batch as Keras takes it; the labels are those of `reconstruct`."""
        return dict(batch), batch[f"{tsdae_noise.WHOLE}input_word_ids"], None

    def task_loss(self, x: Batch, y: Tensor, outputs: Batch, weights: Tensor | None) -> WeightedSum:
        """Returns the cross-entropy of the tokens of a batch."""
        return cross_entropy(outputs["logits"], outputs["labels"], outputs["weights"])

    def reconstruct(
        self,
        vectors: Tensor,
        whole: Batch,
        training: bool = False,
        dropout_seed: Tensor | None = None,
    ) -> dict[str, Tensor]:
        """Predicts each token of texts from the preceding tokens and the text's vector.

        Args:
          vectors: float [B, E], E = `dimension`.
          whole: the encoder's inputs, int32 [B, T], padded on the right.
          training: see `BertEncoder`.
          dropout_seed: int32 [] in training, else None.

        Returns:
          dict: `logits` float32 [U, V]; `labels` int32 [U], the ids of the next tokens; `weights`
          int32 [U], 0 for padding. U is the number of positions 0 .. T-2 of all texts, or, if the
          encoder unpads, of those that have a next token.
        """
        ids = whole["input_word_ids"]
        mask = whole["input_mask"]
        # The decoder reads all tokens except the last, and predicts all except the first.
        read = {"input_word_ids": ids[:, :-1], "input_type_ids": whole["input_type_ids"][:, :-1]}
        # By the mask of the next tokens: the last token of a text predicts nothing.
        layout = find_layout({"input_mask": mask[:, 1:]}, self.bert.unpad)
        labels = layout.unpad(ops.reshape(ids[:, 1:], (-1,)))  # [U]
        weights = layout.unpad(ops.reshape(mask[:, 1:], (-1,)))  # [U]
        config = self.config
        # Layers with a window and layers without share one pattern each.
        kinds = set(map(config.is_local, range(config.num_hidden_layers)))
        patterns = {is_local: CausalPattern(layout, config, is_local) for is_local in kinds}
        hidden = self.bert.embed(read, dropout_seed, layout)  # [U, D]
        shared_terms = self.bert.shared_terms(layout)
        others = (vectors,) if shared_terms is None else (vectors, shared_terms)
        for index in range(config.num_hidden_layers):
            pattern = patterns[config.is_local(index)]
            run_layer = functools.partial(self._run_layer, index, pattern, dropout_seed)
            if self.bert.recompute and training:
                run_layer = keras.remat(run_layer)
            hidden = run_layer(hidden, *others)
        table = self.bert.embeddings.word_embeddings
        return {
            "logits": self.predictions.score(hidden, table),
            "labels": labels,
            "weights": weights,
        }

    def _run_layer(
        self,
        index: int,
        pattern: AttentionPattern,
        dropout_seed: Tensor | None,
        hidden: Tensor,
        vectors: Tensor,
        shared_terms: Tensor | None = None,
    ) -> Tensor:
        """Runs a layer of the encoder, with cross-attention between its two sublayers."""
        layer = self.bert.encoder_layers[index]
        cross = getattr(self, f"cross_{index}")
        dropout_seed = self.bert.layer_dropout_seed(index, dropout_seed)
        hidden = layer.attend(hidden, pattern, dropout_seed, shared_terms)
        hidden = cross(hidden, vectors, layout=pattern.layout, dropout_seed=dropout_seed)
        return layer.transform(hidden, dropout_seed)


def check_blocks(config: ModelConfig) -> None:
    """Raises ValueError if a decoder cannot share a network's blocks."""
    if config.block_type != "post_norm":
        raise ValueError(
            f"block_type is {config.block_type}, but the loss denoising supports only post_norm, "
            "the blocks of BERT: start from another model, or use another loss."
        )
