"""The network of an embedder: an encoder, and the layers that make embeddings of its vectors."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, Self

import keras

from bert_tf.checkpoints.checkpoint import Checkpoint
from bert_tf.checkpoints.embedding import MOST_TOKENS, EmbeddingConfig
from bert_tf.config import ModelConfig
from bert_tf.network.encoder import BertEncoder
from bert_tf.network.pooled_layers import add_layers
from bert_tf.network.pretrained import FromPretrained
from bert_tf.text.kinds import vocab_from_config
from bert_tf.text.tokenization import AnyVocab, Tokenizer, make_tokenizer


class EmbeddingNetwork(FromPretrained, keras.Model):
    """Base class of models with an `EmbeddingConfig`: its layers, vocabulary and checkpoints.

    Args:
      config: shape of the network.
      embedding: the layers after the encoder; None: mean pooling.
      vocab: vocabulary for `encode`; None: `encode` is not available.
      use_pooler: whether the encoder has a pooler, which is kept but not used here.
      recompute: see `BertEncoder`.
      unpad: see `BertEncoder`; None: True with a vocabulary, unless XLA compiles the model.
    """

    default_name = ""
    reads_pooler = False
    has_token_vectors = False  # whether the model has a vector for each token, see `TokenVectors`
    bert: BertEncoder

    def __init__(
        self,
        config: ModelConfig,
        embedding: EmbeddingConfig | None = None,
        vocab: AnyVocab | None = None,
        use_pooler: bool = False,
        recompute: bool = False,
        unpad: bool | None = None,
        name: str = "",
        **kwargs: Any,
    ) -> None:
        super().__init__(name=name or self.default_name, **kwargs)
        self.config = config
        self.vocab = vocab
        self.embedding = embedding or EmbeddingConfig()
        self.embedding.check(config.hidden_size, "embedding")
        if (self.embedding.tokens is not None) != self.has_token_vectors:
            raise ValueError(
                f"{type(self).__name__} cannot hold this model; a model of late interaction, made "
                "by run_retriever --embedding_type=colbert or from_pretrained(..., "
                "token_dimension=128), is a BertLateInteraction; another embedder is not."
            )
        if self.embedding.max_seq_length > config.longest_row:
            raise ValueError(
                f"max_seq_length is {self.embedding.max_seq_length}, but the model has "
                f"{config.longest_row} positions; give that or less."
            )
        self.autocast = False  # See `BertEncoder`.
        self.bert = BertEncoder(config, recompute, use_pooler, bool(unpad), dtype=self.dtype_policy)
        # The names of the weights in checkpoints are cls/embedding/dense_N/...
        with keras.name_scope("cls"), keras.name_scope("embedding"):
            add_layers(self, self.embedding.dense, config.initializer_range)
        self.built = True
        if unpad is None:
            self.bert.leave_out_padding(vocab is not None and not self.jit_compile)

    @property
    def dimension(self) -> int:
        """The size D of an embedding."""
        return self.embedding.dimension(self.config.hidden_size)

    @property
    def max_seq_length(self) -> int:
        """Maximum length of a text."""
        return self.embedding.max_seq_length

    preprocessor = None  # The vocabulary replaces it.

    @classmethod
    def from_checkpoint(
        cls, checkpoint: Checkpoint, allow_missing: Sequence[str] = (), **arguments: Any
    ) -> Self:
        """Creates the model; `embedding`, if given, replaces that of the checkpoint.

        Its fields, such as `pooling`, `normalize` and `max_seq_length`, can be given separately.
        """
        names = {field.name for field in dataclasses.fields(EmbeddingConfig)}
        given = {name: arguments.pop(name) for name in names & set(arguments)}
        if isinstance(given.get("pooling"), str):
            # One pooling may be given as a string; the field is a tuple.
            given["pooling"] = (given["pooling"],)
        default = EmbeddingConfig(max_seq_length=min(MOST_TOKENS, checkpoint.config.longest_row))
        embedding = arguments.pop("embedding", None) or checkpoint.embedding or default
        arguments["embedding"] = dataclasses.replace(embedding, **given)
        return super().from_checkpoint(checkpoint, allow_missing, **arguments)

    @classmethod
    def arguments_for(cls, checkpoint: Checkpoint) -> dict[str, Any]:
        return {"vocab": checkpoint.vocab, "use_pooler": "pooler" in checkpoint.heads}

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "embedding": self.embedding.to_dict(),
            "vocab": None if self.vocab is None else self.vocab.to_config(),
            "use_pooler": self.bert.use_pooler,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        vocab = config["vocab"]
        arguments = {
            "embedding": EmbeddingConfig.from_dict(config["embedding"]),
            "vocab": None if vocab is None else vocab_from_config(vocab),
        }
        return super().from_config({**config, **arguments})

    @functools.cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of `encode`."""
        if self.vocab is None:
            raise ValueError("The model has no vocabulary; make it with vocab=, or call it on ids.")
        return make_tokenizer(self.vocab, self.config.do_lower_case)
