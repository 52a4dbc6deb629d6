"""bfloat16 on a CPU: chosen where it is fast, and a step compiled in parts computes the same."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf
from absl import logging

from bert_tf.config import TrainingConfig
from bert_tf.network.xla_region import compile_xla_regions
from bert_tf.pretraining.masked_words.model import BertPretrainer
from bert_tf.training import flops, precision
from bert_tf.training.precision import choose_precision, compilation
from tests.training.toy_task import TOY, toy_batch

AUTO = TrainingConfig(precision="auto")
ONE = tf.distribute.get_strategy()


@pytest.mark.slow
def test_parts_compute_what_the_step_computes():
    """In float32, with dropout on: losses, gradients, masks."""
    config = dataclasses.replace(TOY, hidden_dropout_prob=0.3, attention_probs_dropout_prob=0.2)
    keras.utils.set_random_seed(1)
    model = BertPretrainer(config)
    batch = {name: tf.constant(value) for name, value in toy_batch(0, 8).items()}
    variables = [variable.value for variable in model.trainable_variables]

    def step(in_parts: bool):
        @tf.function
        def run():
            with compile_xla_regions(in_parts), tf.GradientTape() as tape:
                outputs = model(batch, training=True, dropout_seed=tf.constant(5))
                losses = model.objective_losses(batch, outputs).values()
                loss = sum(part.mean() for part in losses)
            gradients = tape.gradient(loss, variables)
            return loss, [tf.convert_to_tensor(gradient) for gradient in gradients]

        definition = run.get_concrete_function().graph.as_graph_def()
        nodes = [node for function in definition.library.function for node in function.node_def]
        compiled = any(node.attr["_XlaMustCompile"].b for node in [*definition.node, *nodes])
        assert compiled == in_parts
        return run()

    (loss, gradients), (expected, expected_gradients) = step(True), step(False)
    np.testing.assert_allclose(loss, expected, rtol=1e-6)
    scale = max(np.abs(gradient).max() for gradient in expected_gradients)
    for one, two in zip(gradients, expected_gradients, strict=True):
        np.testing.assert_allclose(one, two, atol=1e-6 * scale)


def test_how_a_step_is_compiled(monkeypatch):
    half = TrainingConfig(precision="mixed_bfloat16")
    monkeypatch.setattr(precision, "has_accelerator", lambda: False)
    assert compilation(TrainingConfig()) == (True, False, "plain")
    assert compilation(half) == (False, True, "plain")
    assert compilation(dataclasses.replace(half, jit_compile=False))[:2] == (False, False)
    monkeypatch.setattr(precision, "has_accelerator", lambda: True)
    assert compilation(half) == (True, False, "plain")
    for given in ({"distribution": "tpu"}, {"use_tpu": True}):
        assert compilation(dataclasses.replace(half, **given)).attention == "by_heads"
    fused = dataclasses.replace(half, attention="fused")
    with pytest.raises(ValueError, match="--attention=fused"):  # There is no GPU.
        compilation(fused)
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: [kind])
    assert compilation(fused).attention == "fused"


@pytest.mark.parametrize(
    ("has_units", "gain", "expected"),
    [(True, 2.0, "mixed_bfloat16"), (True, 0.9, "float32"), (False, 2.0, "float32")],
)
def test_auto_takes_what_is_fast_and_says_so(monkeypatch, has_units, gain, expected):
    said = []
    monkeypatch.setattr(logging, "info", lambda text, *values: said.append(text % values))
    monkeypatch.setattr(precision, "has_bfloat16_units", lambda: has_units)
    monkeypatch.setattr(flops, "measure_products", lambda: {"float32": 2, "bfloat16": 2 * gain})
    assert choose_precision(AUTO, ONE).precision == expected
    assert len(said) == 1 and expected in said[0]


def test_auto_goes_on_with_what_the_run_began_with(tmp_path, monkeypatch):
    monkeypatch.setattr(precision, "find_precision", lambda: pytest.fail("It is recorded."))
    (tmp_path / "run.flags").write_text("--precision=mixed_bfloat16\n")
    training = dataclasses.replace(AUTO, output_dir=str(tmp_path))
    assert choose_precision(training, ONE).precision == "mixed_bfloat16"


@pytest.mark.parametrize("kind", ["bfloat16", "float16"])
def test_units_that_are_missing_are_said(tmp_path, monkeypatch, kind):
    """Also where another machine began the run."""
    said = []
    monkeypatch.setattr(logging, "warning", lambda text, *values: said.append(text % values))
    monkeypatch.setattr(precision, "has_bfloat16_units", lambda: False)
    asked = TrainingConfig(precision=f"mixed_{kind}")
    assert choose_precision(asked, ONE) == asked
    (tmp_path / "run.flags").write_text(f"--precision=mixed_{kind}\n")
    choose_precision(dataclasses.replace(AUTO, output_dir=str(tmp_path)), ONE)
    assert len(said) == 2 and all(f"--precision=mixed_{kind}, " in text for text in said)
    assert ["--precision=auto" in text for text in said] == [True, False]  # It was given.


def test_all_hosts_have_the_precision_of_the_first(monkeypatch):
    monkeypatch.setattr(precision, "find_precision", lambda: pytest.fail("The first host did."))
    monkeypatch.setattr(precision, "is_chief", lambda strategy: False)
    monkeypatch.setattr(precision, "has_bfloat16_units", lambda: True)
    for told, expected in ((1.0, "mixed_bfloat16"), (0.0, "float32")):
        monkeypatch.setattr(precision, "from_chief", lambda strategy, own, told=told: [told])
        assert choose_precision(AUTO, ONE).precision == expected
