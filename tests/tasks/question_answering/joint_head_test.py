"""The joint head against a slow twin in numpy, and its beam against a search of all spans."""

import dataclasses
import math
import typing

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.checkpoints.checkpoint import Checkpoint
from bert_tf.checkpoints.formats import left_out, write_checkpoint
from bert_tf.checkpoints.tf_bundle import write_bundle
from bert_tf.inference.conversion import outputs_of
from bert_tf.network.pretrained import checkpoint_variables
from bert_tf.tasks.question_answering.joint_head import (
    AnswerableHead,
    JointSpanHead,
    answer_mask,
    joint_losses,
)
from bert_tf.tasks.question_answering.joint_model import BertJointSpanLabeler
from bert_tf.tasks.question_answering.model import BertSpanLabeler
from tests.network.toy_heads import CONFIG, make_batch, with_random_weights

ROWS, LENGTH, WIDTH = 3, 7, CONFIG.hidden_size
BEAM = 4
STARTS, ENDS, IMPOSSIBLE = np.array([4, 0, 3]), np.array([5, 0, 3]), np.array([0, 1, 0])


def gelu(x):
    return x * 0.5 * (1.0 + np.vectorize(math.erf)(x / math.sqrt(2.0)))


def log_softmax(x):
    x = x - x.max()
    return x - math.log(np.exp(x).sum())


class Twin:
    """Row by row and start by start, in float64.

    Args:
      weights: of both heads by their names below cls/, and `sequence` [B, T, D].
      mask: input_mask [B, T].
      types: input_type_ids [B, T].
    """

    def __init__(self, weights, mask, types):
        self.w, self.mask, self.types = weights, mask, types

    def hidden(self, row):
        allowed = [m * t for m, t in zip(self.mask[row], self.types[row], strict=True)]
        allowed[0] += 1
        return np.array([1000.0 * (value - 1) for value in allowed])

    def dense(self, name, x):
        return x @ self.w[f"{name}/kernel"] + self.w[f"{name}/bias"]

    def starts(self, row):
        scores = self.dense("joint_squad/dense", self.w["sequence"][row])[:, 0]
        return scores + self.hidden(row)

    def ends(self, row, start):
        vectors, scores = self.w["sequence"][row], []
        for place in range(LENGTH):
            joined = np.concatenate([vectors[start], vectors[place]])
            scores.append(
                self.dense(
                    "joint_squad/dense_1", gelu(self.dense("joint_squad/qa_hidden", joined))
                )[0]
            )
        return np.array(scores) + self.hidden(row)

    def no_answer(self, row):
        vectors = self.w["sequence"][row]
        shares = np.exp(log_softmax(self.starts(row)))
        joined = np.concatenate(
            [vectors[0], sum(s * v for s, v in zip(shares, vectors, strict=True))]
        )
        return self.dense("answerable/dense_1", gelu(self.dense("answerable/dense", joined)))[0]

    def loss(self, row):
        start = -log_softmax(self.starts(row))[STARTS[row]]
        end = -log_softmax(self.ends(row, STARTS[row]))[ENDS[row]]
        chance = 1.0 / (1.0 + math.exp(-self.no_answer(row)))
        answerable = -math.log(chance if IMPOSSIBLE[row] else 1.0 - chance)
        return (start + end) / 2 + 0.5 * answerable


class Case(typing.NamedTuple):
    heads: tuple
    weights: dict
    mask: np.ndarray
    types: np.ndarray

    @property
    def twin(self):
        return Twin(self.weights, self.mask, self.types)

    def allowed(self):
        batch = {"input_mask": tf.constant(self.mask), "input_type_ids": tf.constant(self.types)}
        return answer_mask(batch)


@pytest.fixture(scope="module")
def case():
    draw = np.random.default_rng(0)
    heads = JointSpanHead(CONFIG, name="joint_squad"), AnswerableHead(CONFIG, name="answerable")
    weights = {"sequence": draw.normal(size=(ROWS, LENGTH, WIDTH)).astype(np.float32)}
    for head in heads:
        head.build()
        for variable in head.weights:
            value = draw.normal(0, 0.2, variable.shape).astype(np.float32)
            variable.assign(value)
            weights[variable.path] = value
    mask = np.array([[1] * 7, [1] * 5 + [0] * 2, [1] * 6 + [0]], np.int32)
    types = np.array(
        [[0, 0, 0, 1, 1, 1, 1], [0, 0, 1, 1, 1, 0, 0], [0, 0, 1, 1, 1, 1, 0]], np.int32
    )
    return Case(
        heads, {name: value.astype(np.float64) for name, value in weights.items()}, mask, types
    )


def test_loss_and_gradients_are_the_twins(case):
    joint, answerable = case.heads
    sequence = tf.constant(case.weights["sequence"], tf.float32)
    variables = [v.value for head in case.heads for v in head.weights]
    with tf.GradientTape() as tape:
        tape.watch(sequence)
        outputs = joint(sequence, case.allowed(), tf.constant(STARTS))
        outputs["no_answer_logit"] = answerable(sequence, outputs["start_logits"])
        places = tf.constant(STARTS), tf.constant(ENDS), tf.constant(IMPOSSIBLE, tf.float32)
        losses = joint_losses(outputs, *places)
        total = tf.reduce_sum(losses)
    np.testing.assert_allclose(losses, [case.twin.loss(row) for row in range(ROWS)], rtol=1e-5)
    names = [v.path for head in case.heads for v in head.weights]
    found = dict(
        zip(["sequence", *names], tape.gradient(total, [sequence, *variables]), strict=True)
    )
    draw, step = np.random.default_rng(1), 1e-6
    for name, gradient in found.items():
        direction = draw.normal(size=gradient.shape)
        sums = []
        for sign in (1, -1):
            moved = {**case.weights, name: case.weights[name] + sign * step * direction}
            twin = Twin(moved, case.mask, case.types)
            sums.append(sum(twin.loss(row) for row in range(ROWS)))
        slope = (sums[0] - sums[1]) / (2 * step)
        assert float(np.sum(gradient * direction)) == pytest.approx(slope, rel=1e-4, abs=1e-5), name


@pytest.mark.parametrize("size", [BEAM, LENGTH + 2])
def test_the_beam_is_the_twins(case, size):
    """Wider than the row it ends in places that do not exist."""
    joint, answerable = case.heads
    sequence = tf.constant(case.weights["sequence"], tf.float32)
    outputs = {k: v.numpy() for k, v in joint(sequence, case.allowed(), beam_size=size).items()}
    assert "end_logits" not in outputs
    no_answer = answerable(sequence, tf.constant(outputs["start_logits"]))
    close = {"rtol": 1e-5, "atol": 1e-5}
    for row in range(ROWS):
        may_be = case.twin.hidden(row) == 0
        starts = np.where(may_be, log_softmax(case.twin.starts(row)), -1e4)
        order = sorted(range(LENGTH), key=lambda place: -starts[place])[:size]
        count = len(order)
        np.testing.assert_array_equal(outputs["start_top_index"][row, :count], order)
        np.testing.assert_allclose(
            outputs["start_top_log_probs"][row, :count], starts[order], **close
        )
        for number, start in enumerate(order):
            ends = log_softmax(case.twin.ends(row, start))
            ends = np.where(may_be & may_be[start], ends, -1e4)
            best = sorted(range(LENGTH), key=lambda place: -ends[place])[:size]
            np.testing.assert_array_equal(outputs["end_top_index"][row, number, :count], best)
            np.testing.assert_allclose(
                outputs["end_top_log_probs"][row, number, :count], ends[best], **close
            )
        assert (outputs["start_top_index"][row, count:] >= LENGTH).all()
        assert (outputs["start_top_log_probs"][row, count:] < -5000).all()
        assert float(no_answer[row]) == pytest.approx(case.twin.no_answer(row), rel=1e-4)


def test_training_has_no_beam_and_needs_starts():
    model = BertJointSpanLabeler(CONFIG, answerable=False)
    batch = make_batch(2, 6, holes=False)
    starts = {"start_positions": np.array([1, 2], np.int32)}
    assert set(model({**batch, **starts}, training=True)) == {"start_logits", "end_logits"}
    with pytest.raises(ValueError, match=r"start_positions .*int32 \[B\]"):
        model(batch, training=True)


def theirs(weights, task="squad"):
    """Returns weights under the names of google-research/electra."""
    layers = {"answerable/dense_1": "dense_3", "answerable/dense": "dense_2"}
    layers |= {f"joint_squad/{name}": name for name in ("dense_1", "dense", "qa_hidden")}
    found = {}
    for name, value in weights.items():
        name = name.replace("bert/", "electra/", 1)
        for ours, other in layers.items():
            name = name.replace(f"cls/{ours}/", f"task_specific/{task}/{other}/")
        found[name] = tf.constant(value)
    return found


def test_the_originals_fine_tuned_checkpoint_is_read(tmp_path):
    shape = {"hidden_size": 64, "num_attention_heads": 1, "hidden_act": "gelu_exact"}
    config = dataclasses.replace(CONFIG, pooler_act="gelu_exact", **shape)
    model = with_random_weights(BertJointSpanLabeler(config))
    weights = {name: v.numpy() for name, v in checkpoint_variables(model).items()}
    names = theirs(weights)
    names["task_specific/squad/qa_hidden/kernel/adam_m"] = tf.zeros([1])
    write_bundle(str(tmp_path / "model.ckpt-9"), names)
    assert "task_specific/squad/dense_3/bias" in names
    again = BertSpanLabeler.from_pretrained(tmp_path / "model.ckpt-9")
    batch = make_batch(4, 9)
    expected = model(batch)
    for name, value in again(batch).items():
        np.testing.assert_allclose(value, expected[name], rtol=1e-4, atol=1e-4, err_msg=name)
    write_bundle(str(tmp_path / "two"), names | theirs(weights, "squadv1"))
    with pytest.raises(ValueError, match=r"/two .*\(20\): task_specific/squad/dense/bias"):
        BertSpanLabeler.from_pretrained(tmp_path / "two")


def test_formats_that_hold_the_head(tmp_path, tiny_vocab):
    config = dataclasses.replace(CONFIG, vocab_size=len(tiny_vocab))
    model = with_random_weights(BertJointSpanLabeler(config))
    weights = {name: v.numpy() for name, v in checkpoint_variables(model).items()}
    made = Checkpoint("made", "bert_tf", config, weights, tiny_vocab)
    made.check()
    theirs = write_checkpoint(made, tmp_path / "google", "google")
    assert theirs.heads == ("joint_squad", "answerable")
    assert left_out(made, "huggingface") == ("joint_squad", "answerable")
    assert "joint_squad" not in write_checkpoint(made, tmp_path / "theirs", "huggingface").heads
    own = write_checkpoint(made, tmp_path / "own", "bert_tf")
    assert own.heads == ("joint_squad", "answerable")
    assert outputs_of(made, config, config).keys() >= {"start_top_log_probs", "no_answer_logit"}


def test_what_is_asked_in_python_is_said_clearly():
    model = BertJointSpanLabeler(CONFIG, reading={"beam_size": 5})
    assert model.reading.beam_size == 5
    assert model(make_batch(2, 9, holes=False))["start_top_index"].shape == (2, 5)
    with pytest.raises(ValueError, match=r"answer .*\['beam_size'\].*'n_best_size'"):
        model.answer(["Who?"], ["Ada."], beam_size=3)
    labels = {"start_logits": np.zeros(2), "end_logits": np.zeros(2)}
    with pytest.raises(ValueError, match=r"labels .*no_answer_logit.* int32 \[B\]"):
        model.task_loss({}, labels, {}, None)
