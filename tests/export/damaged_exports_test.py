"""Exports with flipped bytes or odd metadata: one clear error, or the same answers as before."""

import io
import json
import random
import shutil
import zipfile

import numpy as np
import pytest
import tensorflow as tf

import bert_tf
from bert_tf.tasks.base.serving import lite_model
from bert_tf.tasks.base.serving.lite_model import CHECKSUM_NAME, LiteModel, model_checksum
from bert_tf.tasks.base.serving.metadata import ONNX_OUTPUTS, check_outputs
from bert_tf.tasks.base.serving.saved_models import (
    CHECKSUMS,
    call_signature,
    load_signatures,
    read_card,
)
from tests.conftest import tiny_tokens
from tests.export.toy_model import LABELS, save_toy_export
from tests.programs import fail, finish, run

NUM_FLIPS = 100
CARD = {
    "kind": "classifier",
    "inputs": ["text"],
    "labels": list(LABELS),
    "max_seq_length": 8,
    "do_lower_case": True,
}
# A field of the metadata and values that no export writes.
ODD_FIELDS = [
    ("kind", [7, None, ["classifier"], "tagger", "question_answering"]),
    ("inputs", [[], "text", [7], None, {}, ["text", "text"], ["a", "b", "c", "d"], [["text"]]]),
    ("labels", [None, "ab", [1, 2, 3], list(LABELS)[:2], [*LABELS, "more"], {"a": 1}]),
    ("max_seq_length", [0, -1, "8", 8.5, None, True, 1 << 80, float("nan"), [8]]),
    ("do_lower_case", [1, "yes", None, []]),
    ("vocab_size", ["3", -1, 1 << 70]),
    ("prompt", [7, ["query: "]]),
    ("lower_case_texts", ["no"]),
    ("lists", ["text", [3], ["other"]]),
    ("numbers", [7, {"k": "five"}, {"k": 1 << 90}, ["k"]]),
    ("options", [7, [], {"index": 5}]),
    ("null_score_diff_threshold", ["high", float("inf")]),
]
ODD_CARDS = [{**CARD, name: value} for name, values in ODD_FIELDS for value in values]
ODD_CONTENTS = [
    *(json.dumps(card).encode() for card in ODD_CARDS),
    *(json.dumps({k: v for k, v in CARD.items() if k != name}).encode() for name in CARD),
    *(b"", b"[]", b"null", b"7", b"{", b"\xff\xfe", b'"text"', b"[" * 100_000, b"9" * 5000),
]


def flipped(content: bytes, seed: int, count: int = NUM_FLIPS):
    """Yields the content with one flipped bit, at positions drawn by a seed."""
    chance = random.Random(seed)
    for _ in range(count):
        changed = bytearray(content)
        changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
        yield bytes(changed)


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    """A SavedModel that answers as those of export.saved_model do."""
    folder = tmp_path_factory.mktemp("toy") / "1"
    assert save_toy_export(folder) == CARD
    return folder


@pytest.fixture
def copy(toy, tmp_path):
    return shutil.copytree(toy, tmp_path / "1")


def answer_of(folder):
    signature = load_signatures(folder, read_card(folder))["serving_default"]
    outputs = call_signature(signature, {"text": tf.constant(["a fine film"])})
    return {name: value.numpy().tolist() for name, value in outputs.items()}


@pytest.mark.parametrize("name", ["saved_model.pb", "assets.extra/bert_tf.json", CHECKSUMS])
def test_flipped_bytes_of_a_saved_model_are_found(copy, name) -> None:
    content, right = (copy / name).read_bytes(), answer_of(copy)
    found = 0
    for changed in flipped(content, seed=1):
        (copy / name).write_bytes(changed)
        try:
            assert answer_of(copy) == right
        except ValueError:
            found += 1
    assert found == NUM_FLIPS if name == "saved_model.pb" else found > NUM_FLIPS / 2


def test_flipped_bytes_without_checksums_end_in_a_value_error_if_at_all(copy) -> None:
    """Users delete them who change a file on purpose."""
    (copy / CHECKSUMS).unlink()
    right, path = answer_of(copy), copy / "saved_model.pb"
    found = 0
    for changed in flipped(path.read_bytes(), seed=2, count=30):
        path.write_bytes(changed)
        try:
            assert set(answer_of(copy)) == set(right)
        except ValueError:
            found += 1
    assert found > 10


def test_programs_say_in_one_line_which_file_is_damaged(copy) -> None:
    assert "positive" in finish(run("export.ask", str(copy), text="a fine film"))
    path = copy / "saved_model.pb"
    path.write_bytes(next(flipped(path.read_bytes(), seed=3)))
    for program in ("export.ask", "export.check"):
        printed = fail(run(program, saved_model=str(copy), **TEXT[program]))
        assert str(copy) in printed.splitlines()[-1]
    with pytest.raises(ValueError, match=r"saved_model\.pb"):
        bert_tf.load(copy)


TEXT = {"export.ask": {"text": "a"}, "export.check": {}}


@pytest.mark.parametrize("content", ODD_CONTENTS)
def test_odd_metadata_of_a_saved_model_are_refused(copy, content) -> None:
    (copy / CHECKSUMS).unlink()
    (copy / "assets.extra/bert_tf.json").write_bytes(content)
    with pytest.raises(ValueError, match=r"bert_tf\.json"):
        answer_of(copy)


class MadeInterpreter:
    """Computes two outputs of three classes, without LiteRT."""

    def get_signature_runner(self, name):
        assert name == "serving_default"
        return self

    def get_output_details(self):
        return {"probabilities": {"shape_signature": np.array([-1, 3])}}

    def __call__(self, **batch):
        ids = batch["input_word_ids"].sum(1, keepdims=True)
        return {"probabilities": np.concatenate([ids, -ids, 0 * ids], 1).astype(np.float32)}


def write_lite_file(path, card, checksum=True):
    """Writes a file as export.tflite does, around bytes that are no model."""
    model = b"TFL3 the model" * 20
    buffer = io.BytesIO(model)
    with zipfile.ZipFile(buffer, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("bert_tf.json", card)
        archive.writestr("vocab.txt", "\n".join(tiny_tokens()) + "\n")
        if checksum:
            archive.writestr(CHECKSUM_NAME, model_checksum(model))
    path.write_bytes(buffer.getvalue())
    return path


@pytest.fixture
def made_interpreter(monkeypatch):
    monkeypatch.setattr(lite_model, "_load_interpreter", lambda *_: MadeInterpreter())


def lite_answer(path):
    predictor = bert_tf.load(path)
    return predictor.classify(["the river", "a boat"]), predictor.labels


def test_flipped_bytes_of_a_lite_file_are_found(made_interpreter, tmp_path) -> None:
    path = write_lite_file(tmp_path / "model.tflite", json.dumps(CARD))
    content, right = path.read_bytes(), lite_answer(path)
    found = 0
    for changed in flipped(content, seed=4, count=3 * NUM_FLIPS):
        path.write_bytes(changed)
        try:
            assert lite_answer(path) == right
        except ValueError as error:
            assert "model.tflite" in str(error)
            found += 1
    assert found > NUM_FLIPS
    for count in range(0, len(content), 97):  # Cut off.
        path.write_bytes(content[:count])
        with pytest.raises(ValueError, match=r"model\.tflite"):
            lite_answer(path)


def test_a_lite_file_without_a_checksum_is_refused(made_interpreter, tmp_path) -> None:
    path = write_lite_file(tmp_path / "odd.tflite", json.dumps(CARD), checksum=False)
    with pytest.raises(ValueError, match=r"odd\.tflite"):
        lite_answer(path)


def test_a_model_that_the_interpreter_refuses_is_named(tmp_path) -> None:
    path = write_lite_file(tmp_path / "model.tflite", json.dumps(CARD))
    with pytest.raises(ValueError, match=r"model\.tflite") as caught:
        lite_answer(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("labels", [LABELS[:2], [*LABELS, "more"]])
def test_labels_of_another_onnx_model_are_refused(labels) -> None:
    shapes = {"logits": [-1, 3]}
    check_outputs(CARD, shapes, ONNX_OUTPUTS, "model.onnx")
    with pytest.raises(ValueError, match=r"model\.onnx.*labels"):
        check_outputs({**CARD, "labels": list(labels)}, shapes, ONNX_OUTPUTS, "model.onnx")


@pytest.mark.parametrize("content", ODD_CONTENTS)
def test_odd_metadata_of_a_lite_file_are_refused(made_interpreter, tmp_path, content) -> None:
    path = write_lite_file(tmp_path / "odd.tflite", content)
    with pytest.raises(ValueError, match=r"odd\.tflite"):
        lite_answer(path)


def test_a_lite_file_says_so_if_it_cannot_compute_a_batch(
    made_interpreter, monkeypatch, tmp_path
) -> None:
    def fail_to_gather(self, **_):
        raise RuntimeError("gather index out of bounds")

    monkeypatch.setattr(MadeInterpreter, "__call__", fail_to_gather)
    path = write_lite_file(tmp_path / "model.tflite", json.dumps(CARD))
    with pytest.raises(ValueError, match=r"model\.tflite.*out of bounds"):
        LiteModel(path)(["the river"])
