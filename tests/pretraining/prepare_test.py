"""The number of micro-batches that the memory of a device needs."""

import pytest
import tensorflow as tf

from bert_tf.config import (
    DataConfig,
    MaskingConfig,
    ModelConfig,
    ObjectiveConfig,
    OptimizerConfig,
    PretrainingConfigs,
    TrainingConfig,
)
from bert_tf.pretraining.prepare import choose_sizes


@pytest.mark.parametrize(
    ("vocab_size", "objective", "is_split"),
    [
        (100_000, "masked_lm", True),
        (250_000, "masked_lm", False),
        (250_000, "masked_diffusion", False),
        (250_000, "replaced_tokens", True),
    ],
)
def test_only_logits_that_are_kept_take_memory(
    vocab_size, objective, is_split, tmp_path, monkeypatch
):
    monkeypatch.setattr("bert_tf.training.memory.device_bytes", lambda: 8e9)
    shape = {"hidden_size": 64, "num_attention_heads": 4, "intermediate_size": 64}
    configs = PretrainingConfigs(
        ModelConfig(vocab_size=vocab_size, num_hidden_layers=1, **shape),
        DataConfig(max_seq_length=64),
        MaskingConfig(max_predictions_per_seq=20),
        OptimizerConfig(),
        TrainingConfig(
            output_dir=str(tmp_path),
            do_train=True,
            train_batch_size=256,
            gradient_accumulation_steps=0,
        ),
        ObjectiveConfig(objective=objective),
    )
    chosen = choose_sizes(configs, tf.distribute.get_strategy())
    assert (chosen.gradient_accumulation_steps > 1) == is_split
