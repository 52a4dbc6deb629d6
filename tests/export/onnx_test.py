"""The folder of export.onnx: written whole or not at all, checked, smaller when asked."""

import pathlib
import re

import numpy as np
import pytest

import bert_tf
from bert_tf.tasks.base.serving.onnx_model import OnnxModel
from tests.export.made_models import TEXTS, write_model
from tests.export.tflite_test import run_folder
from tests.programs import run

pytestmark = pytest.mark.needs("onnx", "onnxruntime")


def export(tmp_path: pathlib.Path, model: pathlib.Path, **flags):
    return run("export.onnx", model_dir=model, output_dir=tmp_path / "out", **flags)


def size_of_weights(folder: pathlib.Path) -> int:
    import onnx

    stored = onnx.load(folder / "onnx" / "model.onnx")
    return sum(len(weight.raw_data) for weight in stored.graph.initializer)


def test_a_folder_is_written_and_checked(tmp_path):
    model = write_model(tmp_path / "model", "tagger")
    done = export(tmp_path, model)
    assert done.returncode == 0, done.printed
    checked = run("export.check", str(tmp_path / "out"))
    assert checked.returncode == 0, checked.printed
    names = re.findall(r"^(\w+) ", checked.printed, re.MULTILINE)
    assert [name for name in names if name in ("operations", "answers", "source")] == [
        "operations",
        "answers",
        "source",
    ]
    other = write_model(tmp_path / "other", "tagger", hidden_act="relu")
    assert run("export.check", str(tmp_path / "out"), model_dir=other).returncode == 1
    again = export(tmp_path, model)
    assert again.returncode == 1 and "already exists" in again.printed


def test_smaller_weights_need_a_score(tmp_path):
    model = write_model(tmp_path / "model", "classifier")
    done = export(tmp_path, model, quantize="int8")
    assert done.returncode == 1 and "--eval_file" in done.printed and "--no_gate" in done.printed
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_a_model_gets_a_folder_in_its_own(tmp_path):
    classifier = bert_tf.BertClassifier.from_pretrained(write_model(tmp_path / "a", "classifier"))
    classifier.save_pretrained(tmp_path / "hub")
    done = run("export.onnx", model_dir=tmp_path / "hub", output_dir=tmp_path / "hub")
    assert done.returncode == 0, done.printed
    assert (tmp_path / "hub" / "model.safetensors").is_file()
    predictor = bert_tf.load(tmp_path / "hub")
    assert isinstance(predictor._answers._model, OnnxModel)
    expected = classifier.probabilities(TEXTS)
    for row, found in zip(expected, predictor.probabilities(TEXTS), strict=True):
        assert found == pytest.approx(row, abs=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(("form", "share"), [("float16", 0.6), ("int8", 0.5)])
def test_smaller_weights_are_scored(tmp_path, form, share):
    model = run_folder("classifier")
    plain = run("export.onnx", model_dir=model, output_dir=tmp_path / "plain")
    assert plain.returncode == 0, plain.printed
    done = export(tmp_path, model, quantize=form, max_loss=20)
    assert done.returncode == 0, done.printed
    assert re.search(rf"^{form} +[\d.]+ +accuracy +95.00", done.printed, re.MULTILINE)
    assert size_of_weights(tmp_path / "out") < share * size_of_weights(tmp_path / "plain")
    found = OnnxModel(tmp_path / "out" / "onnx" / "model.onnx")(TEXTS)["logits"]
    expected = OnnxModel(tmp_path / "plain" / "onnx" / "model.onnx")(TEXTS)["logits"]
    difference = float(np.abs(found - expected).max() / np.abs(expected).max())
    assert 1e-6 < difference < 0.3
    assert run("export.check", str(tmp_path / "out")).returncode == 0


@pytest.mark.slow
def test_weights_that_lose_too_much_are_not_written(tmp_path, monkeypatch):
    from export.onnx_files import writing

    def lose(model, form):
        from onnx import numpy_helper

        for weight in model.graph.initializer:
            if len(weight.dims) == 2:
                noise = -numpy_helper.to_array(weight)
                weight.CopyFrom(numpy_helper.from_array(noise, weight.name))
        return model

    monkeypatch.setattr(writing, "quantize", lose)
    done = export(tmp_path, run_folder("classifier"), quantize="int8", max_loss=1)
    assert done.returncode == 1 and "--max_loss=1" in done.printed
    assert not (tmp_path / "out").exists()
