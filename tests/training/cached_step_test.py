"""Steps whose loss is of the whole batch: the same gradient, however the batch is cut."""

import dataclasses
import functools

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.checkpoints.embedding import DenseStep, EmbeddingConfig
from bert_tf.config import OptimizerConfig
from bert_tf.tasks.base.examples.contrastive_batches import ContrastiveDataset
from bert_tf.tasks.base.examples.rows import TokenizedDataset
from bert_tf.tasks.embedding.losses import cosent, in_batch_negatives, matryoshka, same_label
from bert_tf.tasks.embedding.model import BertEmbedder
from bert_tf.tasks.embedding.task import EmbeddingTask
from bert_tf.training.cached_step import CachedStep
from bert_tf.training.optimizers import build_optimizer
from bert_tf.training.train_step import step_seed
from tests.training.toy_fine_tuning import LONGEST, TINY, toy_texts
from tests.training.train_step_test import parallel_iterations

CONFIG = dataclasses.replace(
    TINY, num_hidden_layers=1, hidden_dropout_prob=0.2, attention_probs_dropout_prob=0.1
)
EMBEDDING = EmbeddingConfig(dense=(DenseStep(16, 8),), max_seq_length=LONGEST)
SEED = 7
LOSSES = {
    "in_batch": in_batch_negatives,
    "symmetric": functools.partial(in_batch_negatives, symmetric=True),
    "matryoshka": matryoshka(in_batch_negatives, [8, 3], [1.0, 0.5]),
    "cosent": cosent,
    "same_label": same_label,
}


@pytest.fixture(scope="module")
def mirrored():
    return tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])


def toy_groups(loss):
    """Returns 12 examples of 36 texts with up to 2 negatives, or as many pairs with scores."""
    texts = toy_texts(60)
    has_scores = loss in ("cosent", "same_label")
    draw = np.random.default_rng(3)
    negatives = [[] if has_scores else [24 + 3 * i, 25 + 3 * i][: 1 + i % 2] for i in range(12)]
    scores = [(float(value),) for value in draw.uniform(size=12)] if has_scores else ()
    if loss == "same_label":
        label_sets = np.eye(3)[draw.integers(3, size=[12, 2])].reshape(12, 6)
        scores = [tuple(row) for row in label_sets.tolist()]
    places = np.arange(12)
    return ContrastiveDataset(
        TokenizedDataset(texts),
        np.arange(60),
        places,
        12 + places,
        negatives,
        scores,
        2 - 2 * has_scores,
        True,
        one_length=loss == "same_label",
    )


def toy_task(loss):
    keras.utils.set_random_seed(2)
    model = BertEmbedder(CONFIG, EMBEDDING, unpad=True)
    groups = toy_groups(loss)
    return EmbeddingTask(
        model, groups, None, [LONGEST], 0, loss=LOSSES[loss], is_ranking=not groups.scores
    )


def batch_of(task):
    """Returns a batch of 8 of which 2 only fill."""
    examples, epoch = task.train_rows.choose(0, 6, 0)
    batch = task.train_rows.batch(examples, epoch, 8, (LONGEST, LONGEST))
    return {name: tf.constant(value) for name, value in batch.items()}


def make_step(task, strategy, count):
    optimizer = build_optimizer(OptimizerConfig("adamw", num_warmup_steps=0))
    optimizer.build(task.model.trainable_variables)
    return CachedStep(
        task,
        optimizer,
        strategy,
        random_seed=SEED,
        accumulation_steps=count,
        jit_compile=False,
    )


def gradients_of_one_batch(task, batch):
    """Returns loss and gradients of one tape around the whole batch."""
    variables = [variable.value for variable in task.model.trainable_variables]
    with tf.GradientTape() as tape:
        embeddings = task.embed(batch, step_seed(SEED, tf.constant(4), tf.constant(0)))
        loss = task.batch_sums(embeddings, batch)["loss"].mean()
    return float(loss), [tf.convert_to_tensor(g) for g in tape.gradient(loss, variables)]


def assert_close(received, expected):
    largest = max(float(tf.reduce_max(tf.abs(value))) for value in expected)
    for one, other in zip(received, expected, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5 * largest)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("loss", "counts", "unpad"),
    [
        ("in_batch", (1, 2, 4), True),
        ("in_batch", (2, 4), False),
        ("symmetric", (4,), True),
        ("matryoshka", (2,), True),
        ("cosent", (4,), True),
        ("same_label", (2,), True),
        ("same_label", (4,), False),
    ],
)
def test_gradients_are_those_of_one_batch_with_dropout(loss, counts, unpad):
    task = toy_task(loss)
    task.model.bert.leave_out_padding(unpad)
    batch = batch_of(task)
    value, expected = gradients_of_one_batch(task, batch)
    for count in counts:
        step = make_step(task, tf.distribute.get_strategy(), count)
        arguments = (batch, {}, tf.constant(4), tf.constant(0))
        gradients, sums = tf.function(step._gradients, autograph=False)(*arguments)
        loops = parallel_iterations(step._gradients, *arguments)
        assert loops == [1] * (2 if count > 1 else 0)
        number = len(task.sum_names)
        assert float(sums[0] / sums[number]) == pytest.approx(value, rel=1e-6)
        assert_close(gradients, expected)
        assert max(float(tf.reduce_max(tf.abs(g))) for g in gradients) > 1e-3


@pytest.mark.slow
def test_two_devices_are_one(mirrored):
    """With dropout: two devices of one part each draw the masks of one device."""
    task = toy_task("in_batch")
    batch = batch_of(task)
    value, expected = gradients_of_one_batch(task, batch)
    with mirrored.scope():
        task = toy_task("in_batch")
        step = make_step(task, mirrored, 1)
    halves = {name: tf.reshape(v, [2, 4, *v.shape[1:]]) for name, v in batch.items()}

    @tf.function(autograph=False)
    def run():
        def replica():
            number = tf.distribute.get_replica_context().replica_id_in_sync_group
            own = {name: v[tf.cast(number, tf.int32)] for name, v in halves.items()}
            return step._reduced_gradients(own, tf.constant(4))

        return mirrored.run(replica)

    gradients, sums = run()
    sums = mirrored.experimental_local_results(sums)[0]
    assert float(sums[0] / sums[2]) == pytest.approx(value, rel=1e-5)
    gradients = [mirrored.experimental_local_results(g)[0] for g in gradients]
    assert_close(gradients, expected)
