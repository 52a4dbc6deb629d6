"""A model of an encoder without pooler and a head on it."""

import abc
from typing import Unpack

import keras

from bert_tf.config import ModelConfig
from bert_tf.network.embeddings import BertEmbeddings
from bert_tf.network.encoder import BertEncoder
from bert_tf.network.pretrained import FromPretrained
from bert_tf.system.type_names import LayerOptions


class HeadOnEncoder(FromPretrained, keras.Model):
    """Base class of an encoder without pooler, `bert`, and a head that the subclass makes.

    Args:
      recompute, unpad, embeddings: see `BertEncoder`.
    """

    default_name = ""

    def __init__(
        self,
        config: ModelConfig,
        recompute: bool = False,
        unpad: bool = False,
        embeddings: BertEmbeddings | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**{"name": self.default_name, **kwargs})
        self.config = config
        self.autocast = False  # See `BertEncoder`.
        self.bert = BertEncoder(
            config,
            recompute,
            use_pooler=False,
            unpad=unpad,
            dtype=self.dtype_policy,
            embeddings=embeddings,
        )
        with keras.name_scope("cls"):
            self.build_head()
        self.built = True

    @abc.abstractmethod
    def build_head(self) -> None:
        """Makes and builds the head; the names of its variables begin with cls/."""
