"""The recipes of large batches as a user runs them, with a small model: two phases, averages."""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.training.metrics_log import read_metrics
from tests.float_bounds import assert_close
from tests.programs import finish, pretrain
from tests.shared_data import ROOT

pytestmark = pytest.mark.slow
SMALL = {
    "vocab_size": 200,
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "max_seq_length": 32,
    "max_predictions_per_seq": 5,
    "eval_steps": 0,
    "eval_batch_size": 8,
    "max_eval_steps": 2,
    "log_steps": 1,
    "num_workers": 1,
    "jit_compile": "false",
}
AVERAGE = "/ExponentialMovingAverage"


def train(name, folder, **changed):
    """Runs a flagfile with a small model; returns the lines of its log."""
    recipe = f"--flagfile={ROOT}/configs/{name}.flags"
    finish(pretrain(folder / name, recipe, **{**SMALL, **changed}))
    return read_metrics(folder / name / "metrics.jsonl")


def read(folder, name, step):
    """Returns the tensors of a checkpoint."""
    reader = tf.train.load_checkpoint(str(folder / name / f"model.ckpt-{step}"))
    return {key: reader.get_tensor(key) for key in reader.get_variable_to_shape_map()}


@pytest.fixture(scope="module")
def first_phase(tmp_path_factory):
    """NVIDIA's first phase with averages of the weights, evaluated at its end."""
    folder = tmp_path_factory.mktemp("large")
    lines = train(
        "large_lamb_phase1_128",
        folder,
        num_train_steps=6,
        num_warmup_steps=2,
        train_batch_size=16,
        gradient_accumulation_steps=2,
        ema_decay=0.5,
    )
    return folder, lines


def test_the_rate_is_nvidias(first_phase):
    _, lines = first_phase
    expected = [0.0, 3e-3, *(6e-3 * (1 - step / 6) ** 0.5 for step in (2, 3, 4, 5))]
    assert_close([line["learning_rate"] for line in lines], expected)


@pytest.mark.slow
def test_the_second_phase_starts_from_the_averages_with_a_new_optimizer(first_phase):
    """The first step of its warm-up has the rate 0: its weights are those it starts from."""
    folder, _ = first_phase
    start_from = folder / "large_lamb_phase1_128"
    (line,) = train(
        "large_lamb_phase2_512",
        folder,
        num_train_steps=1,
        num_warmup_steps=1,
        train_batch_size=8,
        gradient_accumulation_steps=2,
        init_checkpoint=start_from,
        vocab_file=start_from / "vocab.txt",
    )
    assert line["learning_rate"] == 0.0
    before = read(folder, "large_lamb_phase1_128", 6)
    after = read(folder, "large_lamb_phase2_512", 1)
    averaged = [name for name in before if name.endswith(AVERAGE)]
    assert len(averaged) > 20 and after["optimizer/iterations"] == 1
    for name in averaged:
        weight = name.removesuffix(AVERAGE)
        np.testing.assert_array_equal(after[weight], before[name])
    kernel = "bert/encoder/layer_0/output/dense/kernel"
    assert np.abs(before[kernel] - before[kernel + AVERAGE]).max() > 1e-5
