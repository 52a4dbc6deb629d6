"""What decides on which of a teacher's kept outputs are taken."""

import types

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.checkpoints.embedding import EmbeddingConfig
from bert_tf.checkpoints.formats import read_checkpoint
from bert_tf.tasks.base.examples.rows import TokenizedDataset
from bert_tf.tasks.base.programs import teacher as teachers
from bert_tf.tasks.question_answering.model import BertSpanLabeler
from bert_tf.tasks.tagging.model import BertTokenClassifier
from bert_tf.text.packing import PackedText
from tests.float_bounds import assert_close
from tests.tiny_model import write_tiny_model


def configs_of(folder):
    folder.mkdir(exist_ok=True)
    training = types.SimpleNamespace(output_dir=str(folder))
    task = types.SimpleNamespace(learn_labels=True, teacher_weight=1.0)
    return types.SimpleNamespace(training=training, task=task)


@pytest.mark.parametrize(
    "model_class", [pytest.param(BertTokenClassifier, marks=pytest.mark.slow), BertSpanLabeler]
)
def test_scores_of_pieces_are_kept_row_by_row(tmp_path, monkeypatch, model_class):
    """Batches take the longest rows first and are padded; what is kept is neither."""
    checkpoint = read_checkpoint(write_tiny_model(tmp_path / "model"))
    heads = {"num_labels": 3} if model_class is BertTokenClassifier else {}
    model = model_class.from_checkpoint(checkpoint, new_head=True, **heads)
    texts = [PackedText([2, *range(5, 5 + n), 3], [0] * (n + 2)) for n in (1, 4, 2)]
    rows = TokenizedDataset(texts)
    strategy = tf.distribute.get_strategy()
    found = teachers.teacher_outputs(model, checkpoint, rows, configs_of(tmp_path / "a"), strategy)
    start = 0
    for index, text in enumerate(texts):
        outputs = model(rows.batch(np.array([index]), 1, len(text.ids)))
        expected = np.stack(list(outputs.values()), -1) if isinstance(outputs, dict) else outputs
        end = start + len(text.ids)
        assert_close(found[start:end], expected[0])
        start = end
    assert found.shape == (start, 3 if heads else 2)
    monkeypatch.setattr(teachers, "_compute", None)  # What was kept is read.
    again = teachers.teacher_outputs(model, checkpoint, rows, configs_of(tmp_path / "b"), strategy)
    np.testing.assert_array_equal(again, found)


def test_outputs_of_another_pooling_are_not_taken(tmp_path, monkeypatch):
    checkpoint = read_checkpoint(write_tiny_model(tmp_path / "model"))
    rows = TokenizedDataset([PackedText([2, 3], [0, 0])], {}, pad_id=0)
    configs = configs_of(tmp_path / "run")
    computed = []
    monkeypatch.setattr(
        teachers, "_compute", lambda model, _: computed.append(model) or np.ones([1, 2])
    )
    for pooling in (("mean",), ("cls",), ("mean",)):
        model = types.SimpleNamespace(embedding=EmbeddingConfig(pooling=pooling))
        teachers.teacher_outputs(model, checkpoint, rows, configs, tf.distribute.get_strategy())
    assert [model.embedding.pooling for model in computed] == [("mean",), ("cls",)]


def test_labels_in_another_order_are_found_and_others_refused():
    teacher = types.SimpleNamespace(labels=("c", "a", "b"), num_labels=3, source="runs/teacher")
    assert teachers.check_labels(teacher, ("a", "b", "c")) == [1, 2, 0]
    unnamed = types.SimpleNamespace(labels=(), num_labels=1, source="runs/teacher")
    assert teachers.check_labels(unnamed, (), "regression", "regression") == [0]
    for labels, kinds in (
        (("a", "b"), ()),
        (("a", "b", "d"), ()),
        (teacher.labels, ("multi_label",)),
    ):
        with pytest.raises(ValueError, match="runs/teacher.*3 labels"):
            teachers.check_labels(teacher, labels, *kinds)


def test_a_damaged_cache_is_computed_again(tmp_path, monkeypatch):
    """One changed byte anywhere, a cut, or a missing checksum: the outputs are those computed."""
    checkpoint = read_checkpoint(write_tiny_model(tmp_path / "model"))
    rows = TokenizedDataset([PackedText([2, 3], [0, 0])], {}, pad_id=0)
    model = types.SimpleNamespace()
    computed = []
    expected = np.array([[0.25, 3.0]], np.float32)
    monkeypatch.setattr(teachers, "_compute", lambda *_: computed.append(1) or expected)

    def ask():
        configs, strategy = configs_of(tmp_path / "run"), tf.distribute.get_strategy()
        return teachers.teacher_outputs(model, checkpoint, rows, configs, strategy)

    ask()
    (path,) = (tmp_path / "bert_tf_cache").glob("teacher-*.npy")
    whole = path.read_bytes()
    assert np.array_equal(ask(), expected) and len(computed) == 1
    damaged = [whole[:i] + bytes([whole[i] ^ 64]) + whole[i + 1 :] for i in (0, 40, len(whole) - 1)]
    for count, content in enumerate([*damaged, whole[:-4], b""], start=2):
        path.write_bytes(content)
        assert np.array_equal(ask(), expected) and len(computed) == count
        assert path.read_bytes() == whole
    (path.parent / f".{path.name}.crc32c").unlink()
    assert np.array_equal(ask(), expected) and len(computed) == 7


def test_outputs_that_are_not_finite_are_named_and_not_kept(tmp_path, monkeypatch):
    checkpoint = read_checkpoint(write_tiny_model(tmp_path / "model"))
    rows = TokenizedDataset([PackedText([2, 3], [0, 0])], {}, pad_id=0)
    monkeypatch.setattr(teachers, "_compute", lambda *_: np.array([[np.nan, 1.0]]))
    strategy = tf.distribute.get_strategy()
    configs = configs_of(tmp_path / "run")
    with pytest.raises(ValueError, match="--teacher"):
        teachers.teacher_outputs(types.SimpleNamespace(), checkpoint, rows, configs, strategy)
    assert not list((tmp_path / "bert_tf_cache").glob("teacher-*"))
