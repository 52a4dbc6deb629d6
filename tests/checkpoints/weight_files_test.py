"""Weights in every form that releases of transformers have written."""

import json
import os
import pathlib
import shutil
import subprocess
import sys

import h5py
import numpy as np
import pytest
import safetensors.numpy

from bert_tf.checkpoints import hdf5
from bert_tf.checkpoints.formats import read_checkpoint, write_checkpoint
from bert_tf.checkpoints.tensorflow_names import pytorch_name
from bert_tf.checkpoints.weight_files import read_weight_file
from tests.checkpoints.family_outputs import differences, family_outputs
from tests.checkpoints.made_checkpoint import assert_same, make_checkpoint, rewrite
from tests.hostile_files import refuses
from tests.shared_data import ROOT, golden_file, read_arrays

OLD = golden_file("families", "old_weights")
TENSORFLOW = golden_file("families", "tensorflow_names")
FOLDERS = sorted(path.name for path in OLD.iterdir() if path.is_dir())
FAMILIES = sorted(path.name for path in TENSORFLOW.iterdir())


def test_the_golden_folder_is_complete():
    assert len(FOLDERS) == 8 and len(FAMILIES) == 9


@pytest.mark.parametrize("name", FOLDERS)
def test_all_forms_of_one_model_are_the_same(name):
    received = read_checkpoint(OLD / name)
    received.check()
    assert_same(received, read_checkpoint(OLD / "safetensors"))


def test_weights_of_tensorflow_give_the_golden_outputs():
    golden = read_arrays(OLD / "safetensors" / "golden.npz")
    received, _ = family_outputs(OLD / "tf_h5", golden)
    assert max(differences(received, golden, 0).values()) < 1e-5


@pytest.mark.parametrize("name", FAMILIES)
def test_the_tensorflow_classes_of_a_family(name):
    """Those of transformers itself wrote both files from one model."""
    received = read_checkpoint(TENSORFLOW / name / "tensorflow")
    received.check()
    assert_same(received, read_checkpoint(TENSORFLOW / name / "pytorch"))


@pytest.mark.needs("torch", "tf_keras", "transformers")
def test_models_that_the_tensorflow_classes_write_now(tmp_path):
    """In a process of its own, where Keras 2 is chosen before TensorFlow is loaded."""
    options = {"TF_USE_LEGACY_KERAS": "1", "CUDA_VISIBLE_DEVICES": "", "PYTHONWARNINGS": "ignore"}
    subprocess.run(
        [sys.executable, "-m", "tests.checkpoints.tensorflow_classes", tmp_path],
        env={**os.environ, **options},
        cwd=ROOT,
        check=True,
    )
    folders = sorted(path for path in tmp_path.iterdir())
    assert len(folders) == 10
    for folder in folders:
        expected = read_checkpoint(folder / "pytorch")
        for form in ("tensorflow", "h5"):
            received = read_checkpoint(folder / form)
            received.check()
            if folder.name in ("mpnet_mlm", "mpnet_qa"):
                # These classes of TensorFlow have a pooler, which they do not use.
                for name in ("kernel", "bias"):
                    del received.weights[f"bert/pooler/dense/{name}"]
            assert_same(received, expected)


def write_h5(path: pathlib.Path, weights: dict, layers: bool = True, model: str = "tf_x") -> None:
    """Writes a tf_model.h5: by layers with the model's name, or by bare names as a shard."""
    with h5py.File(path, "w") as file:
        for name, value in weights.items():
            start = f"{name.split('/')[0]}/{model}/" if layers else ""
            file.create_dataset(start + name, data=value)
            if layers and "word_embedding" in name:  # As the head of a masked LM repeats it.
                file.create_dataset(f"mlm___cls/{model}/{name}", data=value)


@pytest.mark.parametrize("name", FAMILIES)
def test_h5_files_with_repeated_embeddings(tmp_path, name):
    folder = TENSORFLOW / name / "tensorflow"
    shutil.copy(folder / "config.json", tmp_path)
    weights = safetensors.numpy.load_file(folder / "model.safetensors")
    write_h5(tmp_path / "tf_model.h5", weights, model="a_name_of_the_users")
    assert_same(read_checkpoint(tmp_path), read_checkpoint(folder))
    assert_same(read_checkpoint(tmp_path / "tf_model.h5"), read_checkpoint(folder))
    with h5py.File(tmp_path / "tf_model.h5", "r+") as file:
        table = next(name for name in weights if "word_embedding" in name)
        file[f"mlm___cls/a_name_of_the_users/{table}"][0, 0] += 1
    with pytest.raises(ValueError, match="word_embedding"):
        read_checkpoint(tmp_path)


@pytest.mark.parametrize("end", ["safetensors", "h5"])
def test_shards_of_tensorflow(tmp_path, end):
    folder = TENSORFLOW / "bert_pretraining" / "tensorflow"
    shutil.copy(folder / "config.json", tmp_path)
    weights = safetensors.numpy.load_file(folder / "model.safetensors")
    start = "model" if end == "safetensors" else "tf_model"
    weight_map = {}
    for number in range(2):
        name = f"{start}-{number + 1:05}-of-00002.{end}"
        part = {key: weights[key] for key in sorted(weights)[number::2]}
        if end == "h5":
            write_h5(tmp_path / name, part, layers=False)
        else:
            safetensors.numpy.save_file(part, tmp_path / name, metadata={"format": "tf"})
        weight_map |= {f"tf_bert_for_pre_training/{key}": name for key in part}
    index = tmp_path / f"{start}.{end}.index.json"
    index.write_text(json.dumps({"weight_map": weight_map}))
    assert_same(read_checkpoint(tmp_path), read_checkpoint(folder))
    index.write_text(json.dumps({"weight_map": {**weight_map, "tf_x/lost/kernel:0": name}}))
    with pytest.raises(ValueError, match="lost/kernel:0"):
        read_checkpoint(tmp_path)


def test_names_of_pytorch_stay():
    name = "bert.encoder.layer.0.output.dense.weight"
    assert pytorch_name(name) == name
    assert pytorch_name("tf_m/mlm___cls/predictions/bias:0") == "cls.predictions.bias"
    name = "tfmp_net_for_masked_lm/mpnet/encoder/layer_._3/attention/attn/q/kernel:0"
    assert pytorch_name(name) == "mpnet.encoder.layer.3.attention.attn.q.weight"
    name = "tfmp_net_model/mpnet/encoder/relative_attention_bias/embeddings:0"
    assert pytorch_name(name) == "mpnet.encoder.relative_attention_bias.weight"


def test_the_bias_that_alberts_tensorflow_class_computes_with(tmp_path):
    folder = TENSORFLOW / "albert_pre" / "tensorflow"
    shutil.copytree(folder, tmp_path / "model")
    path = tmp_path / "model" / "model.safetensors"
    weights = safetensors.numpy.load_file(path)
    weights["predictions/bias:0"] = np.zeros_like(weights["predictions/bias:0"])
    safetensors.numpy.save_file(weights, path, metadata={"format": "tf"})
    assert_same(read_checkpoint(tmp_path / "model"), read_checkpoint(folder))


# Damaged files.


@pytest.mark.parametrize("kept", [0, 100, 50_000, 104_000])
def test_truncated_h5(tmp_path, kept):
    shutil.copytree(OLD / "tf_h5", tmp_path / "model")
    path = tmp_path / "model" / "tf_model.h5"
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(ValueError, match=r"tf_model\.h5") as error:
        read_checkpoint(tmp_path / "model")
    assert "\n" not in str(error.value)


def nest(file: h5py.File) -> None:
    for _ in range(2000):
        file = file.create_group("g")


def widen(file: h5py.File) -> None:
    for index in range(hdf5.MAX_OBJECTS + 1):
        file.create_group(str(index))


@pytest.mark.parametrize("change", [nest, pytest.param(widen, marks=pytest.mark.slow)])
def test_h5_of_many_groups(tmp_path, change):
    with h5py.File(tmp_path / "tf_model.h5", "w") as file:
        change(file)
    with refuses() as caught:
        read_weight_file(tmp_path / "tf_model.h5")
    assert "tf_model.h5" in str(caught.value)


def test_safetensors_of_many_names(tmp_path):
    header = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
    content = json.dumps(dict.fromkeys(map(str, range(100_000)), header)).encode()
    path = tmp_path / "model.safetensors"
    path.write_bytes(len(content).to_bytes(8, "little") + content)
    shutil.copy(OLD / "safetensors" / "config.json", tmp_path)
    with refuses(seconds=0.5) as caught:
        read_checkpoint(tmp_path)
    assert "model.safetensors" in str(caught.value)


def test_h5_with_fewer_weights(tmp_path):
    folder = TENSORFLOW / "distil_cls" / "tensorflow"
    shutil.copy(folder / "config.json", tmp_path)
    weights = safetensors.numpy.load_file(folder / "model.safetensors")
    del weights["distilbert/transformer/layer_._1/ffn/lin2/kernel:0"]
    write_h5(tmp_path / "tf_model.h5", weights)
    with pytest.raises(ValueError, match="layer_1/output/dense/kernel"):
        read_checkpoint(tmp_path).check()


# Wrappers around the model.


def rename(folder: pathlib.Path, change) -> None:
    rewrite(folder, lambda weights: {change(name): value for name, value in weights.items()})


@pytest.mark.parametrize(
    "prefix", ["module.", "_orig_mod.", "base_model.model.", "module._orig_mod."]
)
def test_prefixes_of_all_names_are_dropped_with_a_note(tmp_path, prefix):
    made = make_checkpoint("pretrained", 3)
    write_checkpoint(made, tmp_path / "model", "huggingface")
    assert not any(prefix in note for note in read_checkpoint(tmp_path / "model").notes)
    rename(tmp_path / "model", lambda name: prefix + name)
    received = read_checkpoint(tmp_path / "model")
    assert_same(received, made)
    assert any(prefix in note for note in received.notes)


def test_a_prefix_of_some_names_is_not_dropped(tmp_path):
    write_checkpoint(make_checkpoint("pretrained", 3), tmp_path / "model", "huggingface")
    # This prefix comes first in the file.
    rename(tmp_path / "model", lambda name: name if "pooler" in name else f"_orig_mod.{name}")
    with pytest.raises(ValueError, match=r"_orig_mod\.bert"):
        read_checkpoint(tmp_path / "model").check()


def test_an_unknown_prefix_is_one_line(tmp_path):
    write_checkpoint(make_checkpoint("pretrained", 3), tmp_path / "model", "huggingface")
    rename(tmp_path / "model", lambda name: f"student.{name}")
    with pytest.raises(ValueError, match=r"student\.bert") as error:
        read_checkpoint(tmp_path / "model")
    assert "\n" not in str(error.value)
