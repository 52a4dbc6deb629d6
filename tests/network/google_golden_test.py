"""The network, its gradients and ten optimizer steps against google-research/bert's own code.

The golden files hold what modeling.py, optimization.py and run_pretraining.py computed under
TensorFlow's v1 interface, dropout off, on one batch with padding and both segments.
"""

import json
import pathlib

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.pretraining.masked_words.model import BertPretrainer
from bert_tf.training.optimizers import AdamWeightDecay
from bert_tf.training.schedules import LinearWarmupLinearDecay
from tests.float_bounds import OTHER_FRAMEWORK, assert_close
from tests.shared_data import golden_file, read_arrays


@pytest.fixture(name="folder", scope="module")
def fixture_folder() -> pathlib.Path:
    return golden_file("google-tf1-checkpoint")


@pytest.fixture(name="golden", scope="module")
def fixture_golden(folder: pathlib.Path) -> dict[str, np.ndarray]:
    return read_arrays(folder / "golden_forward.npz")


@pytest.fixture(name="batch", scope="module")
def fixture_batch(golden: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {
        "input_word_ids": golden["in_input_ids"],
        "input_mask": golden["in_input_mask"],
        "input_type_ids": golden["in_segment_ids"],
        "masked_lm_positions": golden["in_masked_lm_positions"],
        "masked_lm_ids": golden["in_masked_lm_ids"],
        "masked_lm_weights": golden["in_masked_lm_weights"],
        "next_sentence_labels": golden["in_next_sentence_labels"][:, 0],
        "next_sentence_weights": np.ones(4, np.float32),
    }


# The position in the schedule that each of the ten recorded updates used. TF1's step counter was
# read and incremented within one session.run, in no fixed order, so the original saw its counter
# now before and now after the increment; the record fits this sequence alone.
SCHEDULE_POSITIONS = [1, 2, 2, 3, 5, 6, 7, 8, 9, 10]


def load_model(folder: pathlib.Path) -> BertPretrainer:
    return BertPretrainer.from_pretrained(folder)


def loss_of(
    model: BertPretrainer, batch: dict[str, np.ndarray], *, originals_epsilon: bool = True
) -> tf.Tensor:
    """The original divides the masked loss by the sum of the weights plus 1e-5."""
    losses = model.objective_losses(batch, model(batch))
    total, weight = losses["masked_lm_loss"]
    return total / (weight + 1e-5 * originals_epsilon) + losses["next_sentence_loss"].mean()


def relative_error(received: np.ndarray, expected: np.ndarray) -> float:
    return float(np.abs(received - expected).max() / np.abs(expected).max())


def test_forward_equals_the_original(folder, golden, batch):
    model = load_model(folder)
    encoded, outputs = model.bert(batch), model(batch)
    losses = model.objective_losses(batch, outputs)
    masked_log_probs = tf.nn.log_softmax(outputs["masked_lm_logits"]).numpy().reshape(24, -1)
    next_log_probs = tf.nn.log_softmax(outputs["next_sentence_logits"]).numpy()
    labels, next_labels = batch["masked_lm_ids"].ravel(), batch["next_sentence_labels"]
    received = {
        "out_embedding_output": encoded["encoder_outputs"][0],
        "out_encoder_layer_0": encoded["encoder_outputs"][1],
        "out_encoder_layer_1": encoded["encoder_outputs"][2],
        "out_encoder_layer_2": encoded["encoder_outputs"][3],
        "out_sequence_output": encoded["sequence_output"],
        "out_pooled_output": encoded["pooled_output"],
        "out_masked_lm_log_probs": masked_log_probs,
        "out_masked_lm_example_loss": -masked_log_probs[np.arange(24), labels],
        "out_masked_lm_loss": losses["masked_lm_loss"].mean(),
        "out_next_sentence_log_probs": next_log_probs,
        "out_next_sentence_example_loss": -next_log_probs[np.arange(4), next_labels],
        "out_next_sentence_loss": losses["next_sentence_loss"].mean(),
        "out_loss": loss_of(model, batch),
    }
    assert set(received) == {name for name in golden if name.startswith("out_")}
    errors = {name: relative_error(np.array(x), golden[name]) for name, x in received.items()}
    assert max(errors.values()) < 1e-5, errors


def test_gradients_equal_the_original(folder, batch):
    model = load_model(folder)
    with tf.GradientTape() as tape:
        loss = loss_of(model, batch)
    variables = model.trainable_variables
    gradients = tape.gradient(loss, [variable.value for variable in variables])
    expected = read_arrays(folder / "golden_gradients.npz")
    for variable, gradient in zip(variables, gradients, strict=True):
        gradient = tf.convert_to_tensor(gradient).numpy()
        if variable.path.endswith("key/bias"):
            # The same number is added to all scores of a row: softmax does not change.
            assert np.abs(gradient).max() < 1e-6
        else:
            assert relative_error(gradient, expected[variable.path]) < 1e-4, variable.path


@pytest.mark.parametrize("jit_compile", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_ten_optimizer_steps_equal_the_original(folder, batch, jit_compile):
    recipe = json.loads((folder / "golden_training.json").read_text())
    schedule = LinearWarmupLinearDecay(
        recipe["init_lr"], recipe["num_train_steps"], recipe["num_warmup_steps"]
    )
    model = load_model(folder)
    variables = model.trainable_variables
    positions = tf.constant(SCHEDULE_POSITIONS)
    optimizer = AdamWeightDecay(lambda: schedule(tf.gather(positions, optimizer.iterations.value)))
    optimizer.build(variables)

    @tf.function(jit_compile=jit_compile)
    def step() -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = loss_of(model, batch)
        gradients = tape.gradient(loss, [variable.value for variable in variables])
        optimizer.apply_summed(gradients, variables)
        return loss

    losses = [float(step()) for _ in range(recipe["steps_run"])]
    assert_close(losses, recipe["loss_before_each_step"], OTHER_FRAMEWORK)
    expected = read_arrays(folder / "golden_after_10_steps.npz")
    for variable in variables:
        if variable.path.endswith("key/bias"):
            # True gradient 0: Adam divides rounding noise by its own size, and neither side's
            # noise means anything. Its effect on the outputs is zero, too.
            continue
        # In the norm: an element whose gradient is nearly zero moves by Adam's sign of the noise.
        difference = np.linalg.norm(variable.numpy() - expected[variable.path])
        assert difference < 1e-4 * np.linalg.norm(expected[variable.path]), variable.path
