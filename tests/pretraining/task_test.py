"""The trainer's task and Keras' `fit` have the same loss."""

import pytest

from bert_tf.config import DataConfig, MaskingConfig
from bert_tf.pretraining.masked_words.model import BertPretrainer
from bert_tf.pretraining.objectives.electra import ElectraPretrainer
from bert_tf.pretraining.task import PretrainingTask
from tests.tasks.models_test import CONFIG, make_batch


@pytest.mark.parametrize("make", [BertPretrainer, ElectraPretrainer])
def test_the_trainers_losses_add_up_to_the_loss_of_fit(make) -> None:
    model = make(CONFIG)
    task = PretrainingTask(model, None, None, None, DataConfig(), MaskingConfig())
    batch = make_batch()
    outputs = model(batch, training=False)
    sums = task.loss_and_metric_sums(batch, outputs)
    assert len(task.loss_names) == 2 and set(task.loss_names) < sums.keys()
    assert sums.keys() == set(task.sum_names)
    expected = sum(float(sums[name].mean()) for name in task.loss_names)
    assert float(model.compute_loss(batch, None, outputs)) == pytest.approx(expected, rel=1e-6)
    model.objectives[0].is_learned = False
    expected = float(sums[task.loss_names[1]].mean())
    assert float(model.compute_loss(batch, None, outputs)) == pytest.approx(expected, rel=1e-6)
