"""A layer whose sizes come from the model's configuration."""

from typing import Unpack

import keras

from bert_tf.config import ModelConfig
from bert_tf.system.type_names import Fields, LayerOptions


class ConfiguredLayer(keras.layers.Layer):
    """Keeps the configuration when the layer is saved.

    Args:
      config: shape of the network, or its fields.
    """

    def __init__(self, config: ModelConfig | Fields, **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(**kwargs)
        self.config = ModelConfig.from_dict(config) if isinstance(config, dict) else config

    def get_config(self) -> Fields:
        return {**super().get_config(), "config": self.config.to_dict()}
