"""An ALBERT from the user's text: pre-trained, resumed, given to transformers."""

import json

import numpy as np
import pytest
import safetensors.numpy

from bert_tf.checkpoints.formats import read_checkpoint, write_checkpoint
from tests.programs import FOUR_STEPS, SMALL_BERT, finish, pretrain

FLAGS = {
    **SMALL_BERT,
    **FOUR_STEPS,
    "hidden_dropout_prob": 0.1,
    "num_hidden_layers": 3,
    "num_layer_groups": 1,
    "embedding_size": 16,
    "sentence_order": "true",
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The directory of a run."""
    folder = tmp_path_factory.mktemp("albert")
    finish(pretrain(folder / "run", **FLAGS))
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
