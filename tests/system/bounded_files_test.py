"""Files of model folders and archives: only regular ones, and none that fills the memory."""

import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import tracemalloc
import zipfile
from collections.abc import Iterator

import pytest

from bert_tf.checkpoints.cross_encoder import read_cross_encoder
from bert_tf.checkpoints.formats import read_checkpoint, write_checkpoint
from bert_tf.checkpoints.load_tokenizer import load_tokenizer
from bert_tf.inference.loading import load
from bert_tf.system import bounded_files
from bert_tf.system.files import read_json
from bert_tf.tasks.base.serving.saved_models import read_card
from bert_tf.tasks.classification.model import BertClassifier
from bert_tf.text.vocab import Vocab
from tests.checkpoints.made_checkpoint import make_checkpoint
from tests.shared_data import golden_file

MEGABYTE = 1 << 20


@contextlib.contextmanager
def ends_soon() -> Iterator[None]:
    """Fails the test if the block waits for a pipe."""

    def fail(*_) -> None:
        raise AssertionError("it still waits after a minute")

    before = signal.signal(signal.SIGALRM, fail)
    signal.alarm(60)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@contextlib.contextmanager
def little_memory(most: int = 24 * MEGABYTE) -> Iterator[None]:
    """Fails the test if Python allocates more than `most` bytes at once inside the block."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < most
    finally:
        tracemalloc.stop()


def write_model(folder: pathlib.Path, form: str = "huggingface") -> pathlib.Path:
    made = make_checkpoint("classifier", 1, num_hidden_layers=1, do_lower_case=True)
    write_checkpoint(made, folder, form)
    return folder


def make_pipe(path: pathlib.Path) -> None:
    path.unlink(missing_ok=True)
    os.mkfifo(path)


@pytest.mark.parametrize(
    "name", ["config.json", "vocab.txt", "tokenizer.json", "added_tokens.json"]
)
@pytest.mark.parametrize("kind", ["pipe", "device", "folder"])
def test_other_things_than_files_in_a_hugging_face_folder(tmp_path, name, kind):
    folder = write_model(tmp_path / "model")
    (folder / name).unlink(missing_ok=True)
    if kind == "pipe":
        os.mkfifo(folder / name)
    elif kind == "device":
        (folder / name).symlink_to("/dev/zero")
    else:
        (folder / name).mkdir()
    for read in (read_checkpoint, load_tokenizer):
        with ends_soon(), pytest.raises(ValueError, match=name):
            read(folder)
        if name == "config.json":  # A tokenizer alone needs none.
            break


@pytest.mark.parametrize(
    ("form", "name"),
    [
        ("huggingface", "model.safetensors"),
        ("huggingface", "tokenizer_config.json"),
        ("huggingface", "pytorch_model.bin"),
        ("keras_hub", "model.weights.h5"),
        ("bert_tf", "bert_config.json"),
        ("bert_tf", "vocab.txt"),
        ("bert_tf", "labels.txt"),
        ("bert_tf", "bert_model.ckpt.data-00000-of-00001"),
    ],
)
def test_pipes_in_the_folder_of_a_model(tmp_path, form, name):
    folder = write_model(tmp_path / "model", form)
    if name == "pytorch_model.bin":  # Which is read where there are no safetensors.
        (folder / "model.safetensors").unlink()
    make_pipe(folder / name)
    with ends_soon(), pytest.raises(ValueError, match=name):
        read_checkpoint(folder)


def test_pipes_in_a_sentence_transformers_folder(tmp_path):
    source = golden_file("families", "sentence_transformers", "mean_dense_tanh")
    for number, name in enumerate(("1_Pooling/config.json", "2_Dense/config.json")):
        folder = tmp_path / str(number)
        shutil.copytree(source, folder, copy_function=shutil.copyfile)
        make_pipe(folder / name)
        with ends_soon(), pytest.raises(ValueError, match=name):
            read_checkpoint(folder)


def test_links_to_files_are_read_as_in_the_cache_of_the_hub(tmp_path):
    folder = write_model(tmp_path / "model")
    (tmp_path / "links").mkdir()
    for path in folder.iterdir():
        (tmp_path / "links" / path.name).symlink_to(path)
    assert read_checkpoint(tmp_path / "links").config == read_checkpoint(folder).config


@pytest.mark.parametrize(
    "name", ["config.json", "vocab.txt", "tokenizer.json", "added_tokens.json"]
)
def test_huge_files_are_refused_before_they_are_read(tmp_path, name):
    folder = write_model(tmp_path / "model")
    with (folder / name).open("wb") as file:
        file.truncate(3 << 30)  # It takes no room on the disk.
    with little_memory(), pytest.raises(ValueError, match=rf"{name}.* {3 << 30} "):
        read_checkpoint(folder)


def test_a_file_that_states_no_size_is_read_up_to_the_limit(tmp_path):
    assert b"Linux" in bounded_files.read_bytes("/proc/version")
    with pytest.raises(ValueError, match=r"/proc/version.* 3\."):
        bounded_files.read_bytes("/proc/version", most=3)
    (tmp_path / "four").write_bytes(b"1234")
    assert bounded_files.read_bytes(tmp_path / "four", most=4) == b"1234"
    with pytest.raises(ValueError, match=r"four.* 4 .* 3\."):
        bounded_files.read_bytes(tmp_path / "four", most=3)
    with pytest.raises(FileNotFoundError):
        bounded_files.read_bytes(tmp_path / "absent")


def test_json_of_countless_values(tmp_path, monkeypatch):
    path = tmp_path / "config.json"
    monkeypatch.setattr(bounded_files, "MAX_JSON_VALUES", 1000)
    path.write_text(json.dumps({"a": list(range(900))}))
    assert len(read_json(path)["a"]) == 900
    path.write_text(json.dumps({"a": [[]] * 600}))
    with pytest.raises(ValueError, match=str(path)):
        read_json(path)


def test_a_vocabulary_of_countless_lines(tmp_path, monkeypatch):
    monkeypatch.setattr(bounded_files, "MAX_LINES", 70)
    (tmp_path / "vocab.txt").write_text("".join(f"w{i}\n" for i in range(71)))
    with pytest.raises(ValueError, match=r"vocab\.txt.* 71 .* 70\."):
        Vocab.read(tmp_path / "vocab.txt")


def pack(path: pathlib.Path, method: int = zipfile.ZIP_DEFLATED, **members: bytes) -> None:
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, content in members.items():
            archive.writestr(name.replace("__", "."), content)


CARD = json.dumps(
    {
        "form": "bert_tf LiteRT model",
        "kind": "classifier",
        "labels": [],
        "inputs": ["text"],
        "do_lower_case": True,
        "max_seq_length": 8,
    }
).encode()
BOMB = b" " * (100 * MEGABYTE)


@pytest.mark.parametrize(
    ("members", "named"),
    [
        ({"bert_tf__json": BOMB}, "bert_tf.json"),
        ({"bert_tf__json": CARD, "vocab__txt": BOMB}, "vocab.txt"),
        ({"bert_tf__json": CARD, "tokenizer__json": BOMB}, "tokenizer.json"),
        ({"bert_tf__json": b"[1]"}, "bert_tf.json.*object"),
    ],
)
def test_archives_in_litert_files(tmp_path, members, named):
    path = tmp_path / "small.tflite"
    pack(path, **members)
    assert path.stat().st_size < MEGABYTE
    with little_memory(), pytest.raises(ValueError, match=rf"small.tflite.*{named}"):
        load(path)


@pytest.mark.parametrize(
    "name",
    ["config__json", "metadata__json", pytest.param("model__weights__h5", marks=pytest.mark.slow)],
)
def test_members_of_keras_files(tmp_path, name):
    path = tmp_path / "small.keras"
    pack(path, **{name: BOMB})
    with little_memory(40 * MEGABYTE), pytest.raises(ValueError, match="small.keras"):
        load(path)


@pytest.mark.parametrize(
    ("name", "size"), [("vocab_size", 10**9), ("hidden_size", 9 * 10**6), ("num_labels", 10**9)]
)
def test_sizes_in_a_keras_file_that_its_weights_do_not_have(tmp_path, name, size):
    write_model(tmp_path / "model")
    path = tmp_path / "x.keras"
    BertClassifier.from_pretrained(tmp_path / "model").save(path)
    read_checkpoint(path)
    with zipfile.ZipFile(path) as archive:
        members = {member: archive.read(member) for member in archive.namelist()}
    content = members["config.json"]
    members["config.json"] = re.sub(
        rf'"{name}": \d+'.encode(), f'"{name}": {size}'.encode(), content
    )
    assert members["config.json"] != content
    pack(path, **members)
    with little_memory(), pytest.raises(ValueError, match=r"x\.keras.*model\.weights\.h5"):
        read_checkpoint(path)


def test_a_keras_file_whose_weights_have_changed(tmp_path):
    write_model(tmp_path / "model")
    path = tmp_path / "x.keras"
    BertClassifier.from_pretrained(tmp_path / "model").save(path)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"x\.keras"):
        read_checkpoint(path)


def test_methods_of_compression_without_a_limit(tmp_path):
    for method in (zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
        pack(tmp_path / "x.keras", method, config__json=b"{}")
        pack(tmp_path / "x.tflite", method, bert_tf__json=CARD)
        for name in ("x.keras", "x.tflite"):
            with pytest.raises(ValueError, match=name):
                load(tmp_path / name)


def test_a_member_that_is_larger_than_it_says(tmp_path):
    path = tmp_path / "x.tflite"
    pack(path, bert_tf__json=b" " * 5000 + CARD)
    content = path.read_bytes()
    size = (5000 + len(CARD)).to_bytes(4, "little")
    assert content.count(size) >= 2
    path.write_bytes(content.replace(size, (4000).to_bytes(4, "little")))
    with pytest.raises(ValueError, match="x.tflite"):
        load(path)


def test_the_metadata_of_a_saved_model(tmp_path):
    (tmp_path / "assets.extra").mkdir()
    path = tmp_path / "assets.extra" / "bert_tf.json"
    with path.open("wb") as file:
        file.truncate(1 << 30)
    with little_memory(), pytest.raises(ValueError, match="bert_tf.json"):
        read_card(tmp_path)


def test_the_activation_of_a_cross_encoder_in_a_pipe(tmp_path):
    made = make_checkpoint("classifier", 1, num_hidden_layers=1)
    del made.weights["cls/classifier/output_weights"], made.weights["cls/classifier/output_bias"]
    write_checkpoint(made, tmp_path / "model", "huggingface")
    make_pipe(tmp_path / "model" / "config.json")
    with ends_soon(), pytest.raises(ValueError, match="config.json"):
        read_cross_encoder(tmp_path / "model")
