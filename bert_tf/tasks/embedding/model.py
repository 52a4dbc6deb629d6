"""Embeds texts: the encoder, pooling and further layers as a Keras model.

model = BertEmbedder.from_pretrained("all-MiniLM-L6-v2")  # a folder of sentence-transformers
vectors = model.encode(["A text.", "Another one."])  # float32 [N, D]
"""

import dataclasses
import functools
from collections.abc import Iterator, Sequence
from typing import Any, Self

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from bert_tf.checkpoints.checkpoint import Checkpoint
from bert_tf.checkpoints.embedding import MOST_TOKENS, EmbeddingConfig
from bert_tf.config import ModelConfig
from bert_tf.examples.columns import read_texts
from bert_tf.network.activations import activation
from bert_tf.network.encoder import BertEncoder
from bert_tf.network.pooling import l2_normalize, pool_tokens
from bert_tf.network.positions import initializer
from bert_tf.network.pretrained import FromPretrained
from bert_tf.renamed import accepts_earlier_names
from bert_tf.text.kinds import to_config, vocab_from_config
from bert_tf.text.packing import INPUTS, PackedText, pack, pad_batch
from bert_tf.text.tokenization import AnyVocab, Tokenizer, make_tokenizer


@keras.saving.register_keras_serializable(package="bert_tf")
class BertEmbedder(FromPretrained, keras.Model):
    """The encoder with pooling, dense layers and normalization.

    `save` and `keras.models.load_model` keep vocabulary and prompts, too.

    Args:
      config: shape of the network.
      embedding: the layers on top of the encoder; None: the mean of the pieces.
      vocab: vocabulary for `encode`; None: `encode` is not available.
      use_pooler: whether the encoder has a pooler, which is not used here but is kept.
      recompute: see `BertEncoder`.
      unpad: see `BertEncoder`; None: yes with a vocabulary, unless XLA compiles the model.

    Call arguments:
      inputs: texts, or a dict with the encoder's inputs, and optionally `prompt_pieces` int32 [B],
        the number of first pieces of each row to exclude from the pooling; other keys are ignored.
      training: see `BertEncoder`.
      dropout_seed: see `BertEncoder`.

    Returns:
      float32 [B, D], D = `dimension`.

    Reference: Reimers and Gurevych 2019, "Sentence-BERT".
    """

    reads_pooler = False

    def __init__(
        self,
        config: ModelConfig,
        embedding: EmbeddingConfig | None = None,
        vocab: AnyVocab | None = None,
        use_pooler: bool = False,
        recompute: bool = False,
        unpad: bool | None = None,
        name: str = "bert_embedder",
        **kwargs: Any,
    ) -> None:
        super().__init__(name=name, **kwargs)
        self.config, self.vocab = config, vocab
        self.embedding = embedding or EmbeddingConfig()
        self.embedding.check(config.hidden_size, "embedding")
        if self.embedding.max_seq_length > config.longest_row:
            raise ValueError(
                f"max_seq_length is {self.embedding.max_seq_length}, but the model has "
                f"{config.longest_row} positions; give that or less."
            )
        self.autocast = False  # See `BertEncoder`.
        self.bert = BertEncoder(config, recompute, use_pooler, bool(unpad), dtype=self.dtype_policy)
        with keras.name_scope("cls"), keras.name_scope("embedding"):
            for index, step in enumerate(self.embedding.dense):
                is_sigmoid = step.activation == "sigmoid"
                layer = keras.layers.Dense(
                    step.out_features,
                    activation=ops.sigmoid if is_sigmoid else activation(step.activation),
                    use_bias=step.use_bias,
                    kernel_initializer=initializer(config.initializer_range),
                    name=f"dense_{index}",
                    dtype="float32",
                )
                layer.build((None, step.in_features))
                setattr(self, f"dense_{index}", layer)
        self.built = True
        if unpad is None:
            self.bert.leave_out_padding(vocab is not None and not self.jit_compile)
        self._compute: Any = None

    @property
    def dimension(self) -> int:
        """D, the size of an embedding."""
        return self.embedding.dimension(self.config.hidden_size)

    def call(self, inputs: dict[str, Any], training: bool = False, dropout_seed: Any = None) -> Any:
        encoded = self.bert(inputs, training=training, dropout_seed=dropout_seed)
        return self.embed_pieces(
            encoded["sequence_output"], inputs["input_mask"], inputs.get("prompt_pieces")
        )

    def inputs_of(self, x: Any) -> dict[str, Any]:
        """Returns the inputs for texts, with the model's default prompt."""
        prompt = self.embedding.prompt(None)
        rows = [self.pack(text, prompt) for text in read_texts(x)]
        skipped = prompt_pieces(self.tokenizer, self.embedding, prompt)
        batch = pad_batch(rows, self.tokenizer.vocab.pad_id)
        return {**batch, "prompt_pieces": np.full([len(rows)], skipped, np.int32)}

    def embed_pieces(self, sequence: Any, mask: Any, prompt_pieces: Any = None) -> Any:
        """Returns the embeddings of float [B, T, D] by the encoder; see the call arguments."""
        if prompt_pieces is not None:
            places = ops.arange(ops.shape(mask)[1], dtype="int32")
            mask = mask * ops.cast(places >= prompt_pieces[:, None], mask.dtype)
        parts = [pool_tokens(sequence, mask, name) for name in self.embedding.pooling]
        vectors = parts[0] if len(parts) == 1 else ops.concatenate(parts, axis=-1)
        for index in range(len(self.embedding.dense)):
            vectors = getattr(self, f"dense_{index}")(vectors)
        return l2_normalize(vectors) if self.embedding.normalize else vectors

    def encode(
        self,
        texts: Sequence[str],
        *,
        prompt_name: str | None = None,
        prompt: str | None = None,
        batch_size: int = 32,
    ) -> np.ndarray:
        """Embeds texts.

        Args:
          texts: N texts; each is cut to `embedding.max_seq_length` pieces.
          prompt_name: name of the prompt before each text; None: the model's default, if any.
          prompt: prefix of each text, instead of a named prompt.
          batch_size: texts per batch; texts of similar length share a batch.

        Returns:
          float32 [N, D].

        Raises:
          ValueError: if the model has no vocabulary, no prompt with that name, `texts` is a
            single string, or holds something else, which is named with its index, or `batch_size`
            is below 1.
        """
        if batch_size < 1:
            raise ValueError(f"batch_size is {batch_size}, expected 1 or more.")
        if isinstance(texts, Iterator):
            texts = list(texts)
        if isinstance(texts, str) or len(texts):
            texts = read_texts(texts)
        before = self.embedding.prompt(prompt_name) if prompt is None else prompt
        rows = [self.pack(text, before) for text in texts]
        skipped = prompt_pieces(self.tokenizer, self.embedding, before)
        order = np.argsort([-len(row.ids) for row in rows], kind="stable")
        vectors = np.zeros([len(rows), self.dimension], np.float32)
        for start in range(0, len(rows), batch_size):
            chosen = order[start : start + batch_size]
            batch = pad_batch([rows[index] for index in chosen], self.tokenizer.vocab.pad_id)
            pieces = np.full([len(chosen)], skipped, np.int32)
            vectors[chosen] = self._computed()({**batch, "prompt_pieces": pieces}).numpy()
        return vectors

    def encode_query(self, texts: Sequence[str], **options: Any) -> np.ndarray:
        """Embeds queries, with the prompt `query` if there is one; see `encode`."""
        return self.encode(texts, prompt=self.embedding.side_prompt("query"), **options)

    def encode_document(self, texts: Sequence[str], **options: Any) -> np.ndarray:
        """Embeds documents, with the prompt of documents if there is one; see `encode`."""
        return self.encode(texts, prompt=self.embedding.side_prompt("document"), **options)

    def pack(self, text: str, prompt: str = "") -> PackedText:
        """Tokenizes a text after a prompt and cuts it to the length."""
        return pack_text(self.tokenizer, self.embedding, text, prompt)

    @classmethod
    @accepts_earlier_names
    def from_checkpoint(
        cls, checkpoint: Checkpoint, allow_missing: Sequence[str] = (), **arguments: Any
    ) -> Self:
        """Makes the model; `embedding`, if given, replaces the checkpoint's own.

        Single fields can also be given: `pooling`, `normalize`, `max_seq_length`.
        """
        names = {field.name for field in dataclasses.fields(EmbeddingConfig)}
        given = {name: arguments.pop(name) for name in names & set(arguments)}
        if isinstance(given.get("pooling"), str):
            given["pooling"] = (given["pooling"],)
        default = EmbeddingConfig(max_seq_length=min(MOST_TOKENS, checkpoint.config.longest_row))
        own = arguments.pop("embedding", None) or checkpoint.embedding or default
        arguments["embedding"] = dataclasses.replace(own, **given)
        return super().from_checkpoint(checkpoint, allow_missing, **arguments)

    @classmethod
    def arguments_for(cls, checkpoint: Checkpoint) -> dict[str, Any]:
        return {"vocab": checkpoint.vocab, "use_pooler": "pooler" in checkpoint.heads}

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "embedding": self.embedding.to_dict(),
            "vocab": None if self.vocab is None else to_config(self.vocab),
            "use_pooler": self.bert.use_pooler,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        vocab = config["vocab"]
        made = {
            "embedding": EmbeddingConfig.from_dict(config["embedding"]),
            "vocab": None if vocab is None else vocab_from_config(vocab),
        }
        return super().from_config({**config, **made})

    @functools.cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of `encode`."""
        if self.vocab is None:
            raise ValueError("The model has no vocabulary; make it with vocab=, or call it on ids.")
        return make_tokenizer(self.vocab, self.config.do_lower_case)

    def _computed(self) -> Any:
        """Returns the model as one graph for batches of all shapes."""
        if self._compute is None:
            shape = {name: tf.TensorSpec([None, None], tf.int32) for name in INPUTS}
            shape["prompt_pieces"] = tf.TensorSpec([None], tf.int32)
            self._compute = tf.function(
                lambda batch: self(batch, training=False), input_signature=[shape], autograph=False
            )
        return self._compute


def pack_text(
    tokenizer: Tokenizer, embedding: EmbeddingConfig, text: str, prompt: str
) -> PackedText:
    """Tokenizes a text behind a prompt and cuts it to the length of the embedding."""
    text = prompt + text
    pieces = tokenizer.encode(text.lower() if embedding.lower_case_texts else text)
    return pack(tokenizer.vocab, pieces, [], embedding.max_seq_length)


def prompt_pieces(tokenizer: Tokenizer, embedding: EmbeddingConfig, prompt: str) -> int:
    """Returns how many first pieces of a row do not count in the pooling."""
    if embedding.include_prompt or not prompt:
        return 0
    prompt = prompt.lower() if embedding.lower_case_texts else prompt
    return 1 + len(tokenizer.encode(prompt))  # [CLS] among them.
