"""The groups of configuration of a pre-training run."""

from typing import NamedTuple

from bert_tf.config.data import DataConfig
from bert_tf.config.flag_rules import PRETRAINING_RULES
from bert_tf.config.masking import MaskingConfig
from bert_tf.config.model import ModelConfig
from bert_tf.config.objective import ObjectiveConfig
from bert_tf.config.optimizer import OptimizerConfig
from bert_tf.config.rules import check_rules
from bert_tf.config.training import TrainingConfig


class PretrainingConfigs(NamedTuple):
    """The groups of a pre-training run."""

    model: ModelConfig
    data: DataConfig
    masking: MaskingConfig
    optimizer: OptimizerConfig
    training: TrainingConfig
    objective: ObjectiveConfig

    def check(self) -> None:
        """Raises ValueError for flags that contradict each other."""
        check_rules(PRETRAINING_RULES, self)
