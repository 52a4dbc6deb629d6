"""What decides on which of a teacher's kept outputs are taken."""

import types

import numpy as np
import tensorflow as tf

from bert_tf.checkpoints.embedding import EmbeddingConfig
from bert_tf.checkpoints.formats import read_checkpoint
from bert_tf.data.rows import Rows
from bert_tf.fine_tuning import teacher as teachers
from bert_tf.text.packing import PackedText
from tests.tiny_model import write_tiny_model


def test_outputs_of_another_pooling_are_not_taken(tmp_path, monkeypatch):
    checkpoint = read_checkpoint(write_tiny_model(tmp_path / "model"))
    rows = Rows([PackedText([2, 3], [0, 0])], {}, pad_id=0)
    training = types.SimpleNamespace(output_dir=str(tmp_path / "run"))
    task = types.SimpleNamespace(learn_labels=True, teacher_weight=1.0)
    configs = types.SimpleNamespace(training=training, task=task)
    computed = []
    monkeypatch.setattr(
        teachers, "_compute", lambda model, _: computed.append(model) or np.ones([1, 2])
    )
    (tmp_path / "run").mkdir()
    for pooling in (("mean",), ("cls",), ("mean",)):
        model = types.SimpleNamespace(embedding=EmbeddingConfig(pooling=pooling))
        teachers.teacher_outputs(model, checkpoint, rows, configs, tf.distribute.get_strategy())
    assert [model.embedding.pooling for model in computed] == [("mean",), ("cls",)]
