"""Gradient-disentangled embedding sharing of generator and discriminator (DeBERTaV3).

  tables of the discriminator = stop_gradient(tables of the generator) + difference

The generator's tables learn from its loss alone, so the two losses do not pull the same vectors in
different directions. The difference, 0 at the start, learns from the discriminator's loss. Each
network has its own LayerNorm of the embeddings.

Reference: He et al. 2023 (DeBERTaV3), section 3.3.
"""

from typing import Any, Unpack

from keras import ops

from bert_tf.checkpoints.electra_networks import DIFFERENCE
from bert_tf.config import ModelConfig
from bert_tf.network.embeddings import BertEmbeddings
from bert_tf.network.positions import Positions
from bert_tf.system.type_names import LayerOptions, Tensor


class EmbeddingDifferences(BertEmbeddings):
    """Embeddings with tables that are the sum of another layer's and of differences.

    Call arguments are those of `BertEmbeddings`.

    Args:
      others: the layer whose tables the differences are added to; its tables get no gradient.
    """

    def __init__(
        self, config: ModelConfig, others: BertEmbeddings, **kwargs: Unpack[LayerOptions]
    ) -> None:
        super().__init__(config, **kwargs)
        # A method, which Keras does not track, so that this layer has only its own weights.
        self.sum_other_tables = others.sum_tables
        if not config.has_position_table:
            self.positions = Positions(config)  # The other layer adds the embeddings of positions.

    def add_weight(self, *, name: str, shape: tuple[int, ...], **_: Any) -> Tensor:
        # Zeros: at first the discriminator has the generator's embeddings.
        return super().add_weight(name=f"{name}{DIFFERENCE}", shape=shape, initializer="zeros")

    def sum_tables(self, *args: Any, **kwargs: Any) -> Tensor:
        # Only the generator's loss moves the generator's tables.
        others = ops.stop_gradient(self.sum_other_tables(*args, **kwargs))
        return super().sum_tables(*args, **kwargs) + others
