"""Configuration: frozen dataclasses, which alone define defaults, help texts and ranges.

`config_flags.py` converts each class to command-line flags and back. A field name occurs only once
in all classes, because absl has a single namespace: one name, one meaning. Names and defaults are
those of google-research/bert wherever the meaning is the same.
"""

from bert_tf.config.data import DataConfig
from bert_tf.config.distillation import TeacherConfig
from bert_tf.config.fields import Config, changeable, option
from bert_tf.config.masking import MaskingConfig, with_causal_share
from bert_tf.config.model import (
    TABLE_POSITIONS,
    TRANSFORMER_XL_BIASES,
    UNLIMITED,
    ModelConfig,
)
from bert_tf.config.model_rules import BIAS_POSITIONS, BIASES, DISENTANGLED_POSITIONS
from bert_tf.config.objective import EMBEDDING_SHARINGS, ORDERED_OBJECTIVES, ObjectiveConfig
from bert_tf.config.optimizer import OptimizerConfig
from bert_tf.config.pretraining import PretrainingConfigs
from bert_tf.config.training import TrainingConfig

__all__ = [
    "BIASES",
    "BIAS_POSITIONS",
    "Config",
    "DISENTANGLED_POSITIONS",
    "DataConfig",
    "EMBEDDING_SHARINGS",
    "MaskingConfig",
    "ModelConfig",
    "ORDERED_OBJECTIVES",
    "ObjectiveConfig",
    "OptimizerConfig",
    "PretrainingConfigs",
    "TABLE_POSITIONS",
    "TRANSFORMER_XL_BIASES",
    "TeacherConfig",
    "TrainingConfig",
    "UNLIMITED",
    "changeable",
    "option",
    "with_causal_share",
]
