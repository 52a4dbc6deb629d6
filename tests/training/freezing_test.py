"""Layers that are left as they are: which, and that training does not move them."""

import keras
import pytest
import tensorflow as tf

from bert_tf.config import OptimizerConfig
from bert_tf.corpus.mapping import ALL
from bert_tf.training.layer_rates import freeze
from bert_tf.training.optimizers import build_optimizer
from bert_tf.training.train_step import TrainStep
from tests.training.toy_fine_tuning import LONGEST, toy_task

EMBEDDINGS, LAYER_0, LAYER_1 = "bert/embeddings/", "bert/encoder/layer_0/", "bert/encoder/layer_1/"


@pytest.mark.parametrize(
    ("frozen_layers", "frozen"),
    [
        pytest.param(-1, (), marks=pytest.mark.slow),
        pytest.param(0, (EMBEDDINGS,), marks=pytest.mark.slow),
        pytest.param(1, (EMBEDDINGS, LAYER_0), marks=pytest.mark.slow),
        (2, (EMBEDDINGS, LAYER_0, LAYER_1)),
    ],
)
def test_training_moves_all_but_the_frozen(frozen_layers, frozen):
    keras.utils.set_random_seed(2)
    task = toy_task("classes", [LONGEST], unpad=True)
    paths = {variable.path for variable in task.model.trainable_variables}
    freeze(task.model, frozen_layers)
    free = {variable.path for variable in task.model.trainable_variables}
    assert paths - free == {path for path in paths if path.startswith(frozen)}
    before = {variable.path: variable.numpy() for variable in task.model.weights}
    optimizer = build_optimizer(OptimizerConfig(learning_rate=0.01, num_warmup_steps=0))
    optimizer.build(task.model.trainable_variables)
    step = TrainStep(
        task, optimizer, tf.distribute.get_strategy(), random_seed=1, jit_compile=False
    )
    step(iter(task.train_dataset(4, 0, ALL)), tf.constant(0), tf.constant(2))
    changed = {v.path for v in task.model.weights if (v.numpy() != before[v.path]).any()}
    assert changed == free


def test_more_layers_than_there_are():
    model = toy_task("tags", [LONGEST]).model
    with pytest.raises(ValueError, match="--frozen_layers=3,.*2 layers"):
        freeze(model, 3)
    assert len(model.trainable_variables) == len(model.weights) > 30
