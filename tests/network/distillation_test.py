"""Losses to a teacher against closed forms and slow twins; what a step learns of one."""

import dataclasses
import functools
import types

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.config import DataConfig, MaskingConfig, ObjectiveConfig, OptimizerConfig
from bert_tf.network import soft_losses
from bert_tf.network.attention import AttentionPattern
from bert_tf.network.encoder import BertEncoder
from bert_tf.pretraining.masked_words.model import BertPretrainer
from bert_tf.pretraining.objectives import distillation as losses
from bert_tf.pretraining.objectives.distillation import (
    Distillation,
    attention_vectors,
    relation_losses,
)
from bert_tf.pretraining.task import PretrainingTask
from bert_tf.training.distribution import distribute
from bert_tf.training.optimizers import build_optimizer
from bert_tf.training.packed_rows import pack_batch
from bert_tf.training.train_step import TrainStep
from tests.float_bounds import assert_close, close_to
from tests.training.toy_task import TOY as ONE_LAYER
from tests.training.toy_task import ToyTask, toy_batch

TOY = dataclasses.replace(ONE_LAYER, num_hidden_layers=2)
ALL = ObjectiveConfig(teacher="a", teacher_weight=2.5, hidden_weight=0.5, relation_weight=1.5)


def draw(*shape, seed=0):
    return np.random.default_rng(seed).normal(0, 2, shape).astype(np.float32)


def shares(scores):
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def with_gradient(function, x):
    x = tf.constant(x)
    with tf.GradientTape() as tape:
        tape.watch(x)
        values = function(x)
        total = tf.reduce_sum(values)
    return values.numpy(), tape.gradient(total, x).numpy()


def plain_gradient(function, x, step=1e-4):
    """Returns the gradient of a sum by differences, in float64."""
    x, gradient = x.astype(np.float64), np.zeros(x.shape)
    for place in np.ndindex(*x.shape):
        moved = [x.copy(), x.copy()]
        for one, sign in zip(moved, (step, -step), strict=True):
            one[place] += sign
        gradient[place] = (function(moved[0]).sum() - function(moved[1]).sum()) / (2 * step)
    return gradient


@pytest.mark.parametrize("temperature", [1.0, 2.0, 7.5])
def test_soft_classes(temperature):
    student, teacher = draw(4, 5), draw(4, 5, seed=1)
    found, slope = with_gradient(
        lambda x: soft_losses.soft_class_losses(x, teacher, temperature), student
    )
    p, q = (shares(x.astype(np.float64) / temperature) for x in (student, teacher))
    expected = temperature**2 * (q * np.log(q / p)).sum(axis=-1)
    assert_close(found, expected)
    # T^2 times the derivative of the cross-entropy, whose inside has a factor 1 / T.
    assert_close(slope, temperature * (p - q))


def test_soft_decisions_and_numbers():
    student, teacher, t = draw(4, 5), draw(4, 5, seed=1), 3.0
    found, slope = with_gradient(lambda x: soft_losses.soft_several_losses(x, teacher, t), student)
    p, q = (1 / (1 + np.exp(-x.astype(np.float64) / t)) for x in (student, teacher))
    divergences = q * np.log(q / p) + (1 - q) * np.log((1 - q) / (1 - p))
    assert_close(found, t * t * divergences.mean(axis=-1))
    assert_close(slope, t * (p - q) / 5)
    numbers = soft_losses.soft_number_losses(student[:, :1], teacher[:, :1], t)
    np.testing.assert_allclose(numbers, (student[:, 0] - teacher[:, 0]) ** 2, rtol=1e-6)


def test_distances_of_vectors():
    student, teacher = draw(2, 3, 6), draw(2, 3, 6, seed=1)
    student[0, 0] = 0.0  # Padding in packed rows.
    found, slope = with_gradient(lambda x: soft_losses.cosine_distances(x, teacher), student)
    for place in np.ndindex(2, 3):
        a, b = student[place], teacher[place]
        norms = np.linalg.norm(a) * np.linalg.norm(b)
        expected = 1 - a @ b / norms if norms else 1.0
        assert found[place] == close_to(expected)
    assert np.isfinite(slope).all()
    squared = soft_losses.squared_distances(student, teacher)
    np.testing.assert_allclose(squared, ((student - teacher) ** 2).sum(axis=-1), rtol=1e-6)


def plain_relations(vectors, mask, heads):
    """Returns relations [B, A, T, T], piece by piece; 0 at padding."""
    batch, length, width = vectors.shape
    size = width // heads
    made = np.zeros([batch, heads, length, length])
    for b in range(batch):
        real = np.flatnonzero(mask[b])
        for a in range(heads):
            part = vectors[b, :, a * size : (a + 1) * size].astype(np.float64)
            for i in range(length):
                found = np.array([part[i] @ part[j] for j in real]) / np.sqrt(size)
                made[b, a, i, real] = shares(found)
    return made


@pytest.mark.parametrize("heads", [1, 3])
def test_relations_of_different_widths(heads):
    student, teacher = draw(2, 4, 6), draw(2, 4, 9, seed=1)
    mask = np.array([[1, 1, 1, 1], [1, 1, 1, 0]], np.int32)
    theirs = plain_relations(teacher, mask, heads)

    def plain(vectors):
        own = plain_relations(vectors, mask, heads)
        ratio = np.where(theirs > 0, theirs / np.where(own > 0, own, 1.0), 1.0)
        return (theirs * np.log(ratio)).sum(axis=-1).mean(axis=1) * mask  # [B, T]

    found, slope = with_gradient(
        lambda x: relation_losses(x, teacher, mask, heads) * mask.astype(np.float32), student
    )
    assert_close(found, plain(student))
    assert_close(slope, plain_gradient(plain, student))
    same = relation_losses(student, student, mask, heads)
    assert_close(same, np.zeros([2, 4]))


@pytest.mark.parametrize("block", ["post_norm", "pre_norm"])
def test_vectors_are_those_that_attention_uses(block, monkeypatch):
    encoder = BertEncoder(dataclasses.replace(TOY, block_type=block, initializer_range=0.3))
    attend, seen = AttentionPattern.attend, []

    def watched(self, query, key, value, **options):
        seen.append((query, key, value))
        return attend(self, query, key, value, **options)

    monkeypatch.setattr(AttentionPattern, "attend", watched)
    encoded = encoder(toy_batch(0, 4))
    for layer in range(2):
        vectors = attention_vectors(encoder, encoded, layer)
        for found, used in zip(vectors, seen[layer], strict=True):
            assert_close(found, tf.reshape(used, found.shape))


def pair():
    """Returns a student with a teacher of three layers, which is no part of it."""
    wide = dataclasses.replace(
        TOY, num_hidden_layers=3, initializer_range=0.3, hidden_dropout_prob=0.5
    )
    teacher = BertPretrainer(wide, use_next_sentence=False, use_pooler=False)
    model = BertPretrainer(TOY)
    names = [weight.path for weight in model.weights]
    model.objectives = (*model.objectives, Distillation(teacher, TOY, ALL))
    assert [weight.path for weight in model.weights] == names
    return model, teacher


def test_sums_of_a_batch_against_the_parts():
    model, teacher = pair()
    batch = toy_batch(0, 4)
    outputs = model(batch)
    sums = model.objectives[-1].loss_and_metric_sums(batch, outputs)
    taught = teacher.bert(batch)
    weights, mask = batch["masked_lm_weights"], batch["input_mask"].astype(np.float64)

    def mean(values, weights):
        return (np.asarray(values) * weights).sum() / weights.sum()

    own, theirs = (m(batch)["masked_lm_logits"].numpy() / 2.0 for m in (model, teacher))
    p, q = shares(own), shares(theirs)
    soft = 4.0 * (q * np.log(q / p)).sum(axis=-1)
    assert float(sums["soft_labels_loss"].mean()) == close_to(2.5 * mean(soft, weights))
    hidden = [m["sequence_output"].numpy() for m in (model.bert(batch), taught)]
    norms = [np.linalg.norm(x, axis=-1) for x in hidden]
    distances = 1 - (hidden[0] * hidden[1]).sum(axis=-1) / norms[0] / norms[1]
    assert float(sums["hidden_states_loss"].mean()) == pytest.approx(
        0.5 * mean(distances, mask), rel=1e-4
    )
    vectors = [
        attention_vectors(m.bert, m.bert(batch), layer) for m, layer in ((model, 1), (teacher, 2))
    ]
    total = 0.0
    for one, other in zip(*vectors, strict=True):
        r, s = (plain_relations(x.numpy(), batch["input_mask"], 1) for x in (one, other))
        ratio = np.where(s > 0, s / np.where(r > 0, r, 1.0), 1.0)
        total += mean((s * np.log(ratio)).sum(axis=-1).mean(axis=1), mask)
    assert float(sums["relations_loss"].mean()) == pytest.approx(1.5 * total, rel=1e-3)
    found = model.objectives[-1].loss_weights(batch)
    for name, part in sums.items():
        assert float(found[name]) == close_to(float(part.weight)), name


@pytest.mark.parametrize("change", [{"num_parts": 4}, {"is_packed": True}, {"jit_compile": True}])
@pytest.mark.slow
def test_a_step_is_the_same_however_it_is_computed(change):
    expected, found = train(), train(**change)
    for name in ("soft_labels_loss", "hidden_states_loss", "relations_loss"):
        assert len(set(expected[0][name])) == 3
        np.testing.assert_allclose(found[0][name], expected[0][name], rtol=2e-4)
    assert expected[0]["masked_lm_loss"][0] > 0  # Reported, but not learned.
    for one, other in zip(found[1], expected[1], strict=True):
        np.testing.assert_allclose(one, other, atol=2e-4)


def train(num_parts=1, is_packed=False, jit_compile=False):
    """Returns the ratios of three steps from the teacher alone, and the weights after them."""
    keras.utils.set_random_seed(3)
    strategy = tf.distribute.get_strategy()
    task = ToyTask(TOY)
    model, _ = pair()
    for objective in model.objectives[:-1]:
        objective.is_learned = False
    PretrainingTask.__init__(task, model, None, None, None, DataConfig(), MaskingConfig())
    assert task.loss_names == ("soft_labels_loss", "hidden_states_loss", "relations_loss")
    optimizer = build_optimizer(OptimizerConfig(learning_rate=1e-3, num_warmup_steps=0))
    optimizer.build(model.trainable_variables)
    step = TrainStep(
        *(task, optimizer, strategy),
        random_seed=1,
        accumulation_steps=num_parts,
        jit_compile=jit_compile,
    )
    pack = functools.partial(pack_batch, num_parts=num_parts) if is_packed else None
    data = distribute(strategy, lambda shard: task.train_dataset(16, 0, shard), pack)
    rows = step(iter(data), tf.constant(0), tf.constant(3)).numpy()
    columns = dict(zip(step.columns, rows.T, strict=True))
    names = task.sum_names
    ratios = {name: columns[f"{name}_total"] / columns[f"{name}_weight"] for name in names}
    return ratios, [variable.numpy() for variable in model.trainable_variables]


@pytest.mark.parametrize(
    ("config", "width", "message"),
    [
        (
            {"hidden_weight": 1.0},
            32,
            "hidden_weight: .*teacher .*32 .*student .*16; .*relation_weight",
        ),
        ({"relation_weight": 1.0, "relation_heads": 3}, 16, "3 relation heads.*relation_heads"),
        ({"relation_weight": 1.0, "teacher_layer": 4}, 16, "teacher_layer=4, .*teacher .*3 layers"),
    ],
)
def test_what_does_not_go_together(config, width, message):
    shape = dataclasses.replace(TOY, hidden_size=width, num_hidden_layers=3)
    teacher = types.SimpleNamespace(config=shape)
    with pytest.raises(ValueError, match=message):
        Distillation(teacher, TOY, ObjectiveConfig(teacher="a", **config))


def test_bytes_kept_beside_the_student():
    """5 scores of 40 pieces, and 3 relations of 2 heads and 12 x 12 pieces, of both models."""
    config = dataclasses.replace(ALL, relation_heads=2)
    assert losses.kept_bytes(config, TOY, 12, 5) == 4 * (2 * 5 * 40 + 2 * 3 * 2 * 144)
    none = dataclasses.replace(config, relation_weight=0.0, relation_heads=0)
    assert losses.kept_bytes(none, TOY, 12, 5) == 4 * 2 * 5 * 40


@pytest.mark.parametrize(
    "values",
    [
        {"learn_labels": False},
        {"relation_weight": 1.0},
        {"teacher": "a", "teacher_weight": 0.0},
        {"teacher": "a", "distillation_temperature": 0.0},
    ],
)
def test_flags_that_leave_nothing_to_learn(values):
    with pytest.raises(ValueError, match=r"teacher|temperature"):
        ObjectiveConfig(**values)
