"""An ALBERT from the user's text: pre-trained, resumed, given to transformers, exported."""

import json
import shutil

import numpy as np
import pytest
import safetensors.numpy
import tensorflow as tf

from bert_tf.checkpoints.formats import read_checkpoint, write_checkpoint
from bert_tf.inference.serving_models import load
from bert_tf.tasks.base.serving.lite_model import LiteModel
from export.lite import accuracy_gate
from export.lite.conversion import convert
from tests.conftest import CORPUS
from tests.export.made_models import TEXTS, write_model
from tests.export.tflite_test import random_batch
from tests.float_bounds import assert_close
from tests.programs import SMALL_BERT, finish, run

FLAGS = {
    **SMALL_BERT,
    "hidden_dropout_prob": 0.1,
    "num_hidden_layers": 3,
    "num_layer_groups": 1,
    "embedding_size": 16,
    "sentence_order": "true",
    "do_train": "true",
    "train_batch_size": 8,
    "learning_rate": 1e-3,
    "num_warmup_steps": 1,
    "num_train_steps": 4,
    "save_checkpoints_steps": 2,
    "log_steps": 1,
    "num_workers": 1,
    "jit_compile": "false",
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The directory of a run."""
    folder = tmp_path_factory.mktemp("albert")
    (folder / "corpus.txt").write_text(CORPUS + "\n", encoding="utf8")
    paths = {"input_file": folder / "corpus.txt", "output_dir": folder / "run"}
    finish(run("run_pretraining", **FLAGS, **paths))
    return folder / "run"


@pytest.mark.slow
def test_a_run_holds_each_weight_once_and_is_an_albert(trained, tmp_path):
    checkpoint = read_checkpoint(trained)
    checkpoint.check()
    assert checkpoint.config.num_layer_groups == 1 and checkpoint.config.num_hidden_layers == 3
    assert len([name for name in checkpoint.weights if "/query/kernel" in name]) == 1
    written = write_checkpoint(checkpoint, tmp_path / "albert", "huggingface")
    values = json.loads((tmp_path / "albert/config.json").read_text())
    assert values["model_type"] == "albert"
    assert values["architectures"] == ["AlbertForPreTraining"]
    assert (values["num_hidden_groups"], values["embedding_size"]) == (1, 16)
    tensors = safetensors.numpy.load_file(tmp_path / "albert/model.safetensors")
    assert len(tensors) == len(checkpoint.weights)
    for name, value in checkpoint.weights.items():
        np.testing.assert_array_equal(written.weights[name], value)


@pytest.mark.slow
def test_it_is_resumed_bit_for_bit(trained, tmp_path):
    shutil.copytree(trained, tmp_path / "run")
    for path in (tmp_path / "run").glob("model.ckpt-4*"):
        path.unlink()
    (tmp_path / "run/metrics.jsonl").unlink()
    flags = {"flagfile": trained / "run.flags", "output_dir": tmp_path / "run"}
    finish(run("run_pretraining", **flags))
    resumed, expected = read_checkpoint(tmp_path / "run"), read_checkpoint(trained)
    for name, value in expected.weights.items():
        np.testing.assert_array_equal(resumed.weights[name], value, err_msg=name)


@pytest.fixture(scope="module")
def classifier(tmp_path_factory):
    """A folder with a classifier."""
    shape = {"num_hidden_layers": 3, "num_layer_groups": 1, "embedding_size": 16}
    return write_model(tmp_path_factory.mktemp("albert") / "model", "classifier", **shape)


@pytest.mark.slow
def test_exports_have_the_same_answers(classifier, tmp_path):
    served = load(str(classifier), "classifier", unpad=False)
    (column,) = served.texts
    expected = served.from_texts(tf.constant(TEXTS))
    flags = {"model_dir": classifier, "output_dir": tmp_path / "saved", "kind": "classifier"}
    finish(run("export.saved_model", **flags))
    exported = tf.saved_model.load(str(tmp_path / "saved/1")).signatures["serving_default"]
    received = exported(**{column: tf.constant(TEXTS)})
    assert_close(received["probabilities"], expected["probabilities"])


@pytest.mark.slow
def test_lite_rt_has_the_same_answers(classifier, tmp_path):
    served = load(str(classifier), "classifier", unpad=False)
    batch = random_batch(served, 7, 16)
    path = tmp_path / "model.tflite"
    path.write_bytes(convert(served, "none", [batch]))
    received = LiteModel(path).from_ids(batch)
    expected = accuracy_gate.reference(served)(batch)
    assert_close(received["probabilities"], expected["probabilities"])
