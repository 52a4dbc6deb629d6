"""Version folders: whole or absent, never changed, with what belongs to them."""

import os
import pathlib

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow_serving.apis import prediction_log_pb2

from bert_tf.inference.serving_models import load
from bert_tf.tasks.base.serving.saved_models import find_saved_model, read_card, versions
from bert_tf.tasks.base.serving.saving import version_folders, writing
from bert_tf.tasks.base.serving.saving.warmup import prediction_log
from bert_tf.tasks.base.serving.saving.writing import save
from tests.export.made_models import TEXTS, write_model


@pytest.fixture(scope="module")
def signatures(exported):
    """The signatures of the text model and of the ids model."""
    paths = exported.texts, exported.ids
    return [tf.saved_model.load(str(path)).signatures for path in paths]


@pytest.mark.slow
def test_examples_of_ids_have_any_length(exported, signatures) -> None:
    given = tf.constant(TEXTS), tf.constant(TEXTS[::-1])
    batch = {name: ids.numpy() for name, ids in exported.served.pack(*given).items()}
    rows = []
    for row, size in enumerate(batch["input_mask"].sum(1)):
        features = {}
        for name, column in batch.items():
            ids = tf.train.Int64List(value=column[row, :size])
            features[name] = tf.train.Feature(int64_list=ids)
        example = tf.train.Example(features=tf.train.Features(feature=features))
        rows.append(example.SerializeToString())
    received = signatures[1]["examples"](examples=tf.constant(rows))
    for name, value in exported.served.from_texts(*given).items():
        if value.dtype == tf.string:
            assert (received[name].numpy() == value.numpy()).all()
        else:
            np.testing.assert_allclose(received[name], value, atol=1e-6, err_msg=name)


def test_all_signatures_call_one_graph_of_the_model(exported) -> None:
    for path in (exported.texts, exported.ids):
        saved = saved_model_pb2.SavedModel.FromString((path / "saved_model.pb").read_bytes())
        functions = saved.meta_graphs[0].graph_def.library.function
        kinds = [{node.op for node in function.node_def} for function in functions]
        assert sum("MatMul" in operations for operations in kinds) == 1
        # What a custom gradient leaves: who loads such a function is warned of it.
        assert not any("IdentityN" in operations for operations in kinds)


def test_graphs_have_no_gradients_of_their_own(exported) -> None:
    # Where they have, TensorFlow warns of each when it loads them.
    for folder in (exported.texts, exported.ids):
        assert b"_gradient_op_type" not in (folder / "saved_model.pb").read_bytes()


def test_card_and_vocabulary(exported) -> None:
    served = exported.served
    assert exported.texts.parts[-2:] == ("toy", "3") and exported.ids.parts[-2:] == ("toy_ids", "3")
    for path in (exported.texts, exported.ids):
        card = read_card(path)
        assert card["kind"] == "classifier" and card["labels"] == list(served.labels)
        assert card["inputs"] == ["text", "text_b"] and card["max_seq_length"] == 20
        assert card["source"] == str(exported.source)
        lines = (path / "assets.extra" / "vocab.txt").read_text(encoding="utf8").splitlines()
        assert lines == list(served.vocab.tokens)
    with pytest.raises(ValueError, match="/toy .*assets.extra/bert_tf.json"):
        read_card(exported.texts.parent)


@pytest.mark.slow
def test_warmup_is_what_the_server_reads(exported, signatures) -> None:
    for path, model in zip((exported.texts, exported.ids), signatures, strict=True):
        records = tf.data.TFRecordDataset(str(path / "assets.extra/tf_serving_warmup_requests"))
        for record in records:
            log = prediction_log_pb2.PredictionLog.FromString(record.numpy())
            request = log.predict_log.request
            assert request.model_spec.name == path.parent.name
            inputs = {name: tf.make_ndarray(value) for name, value in request.inputs.items()}
            call = model[request.model_spec.signature_name]
            assert call(**{n: tf.constant(v) for n, v in inputs.items()})["label"].shape == (2,)
    text = tf.constant(["x" * 100_000, ""])
    log = prediction_log_pb2.PredictionLog.FromString(prediction_log("n" * 300, "s", {"t": text}))
    request = log.predict_log.request
    assert (request.model_spec.name, request.model_spec.signature_name) == ("n" * 300, "s")
    assert (tf.make_ndarray(request.inputs["t"]) == text.numpy()).all()


def test_a_version_never_changes(exported) -> None:
    _, served, texts, ids = exported
    with pytest.raises(ValueError, match="/toy/3 .*--version"):
        save(served, texts.parent, 3, "other")
    assert version_folders.next_version(texts.parent) == 4
    (ids.parent / "7").mkdir()
    assert version_folders.next_version(texts.parent) == 8
    with pytest.raises(ValueError, match="/toy_ids/7 .*--version"):
        save(served, texts.parent, 7, "other")
    (ids.parent / "7").rmdir()
    assert [*versions(texts.parent)] == [3]


def test_versions_are_those_that_a_server_reads(tmp_path) -> None:
    for name in ("3", "0007", "٨", "+9", "tmp", "9" * 19, "1" * 25):
        (tmp_path / "toy" / name).mkdir(parents=True)
    (tmp_path / "toy" / "8").touch()
    (tmp_path / "toy" / "0007" / "saved_model.pb").touch()
    assert [*versions(tmp_path / "toy")] == [3, 7]
    assert find_saved_model(tmp_path / "toy") == tmp_path / "toy" / "0007"
    assert version_folders.next_version(tmp_path / "toy") == 9
    with pytest.raises(ValueError, match="9223372036854775808"):
        version_folders.check_new(tmp_path / "toy", 1 << 63)


@pytest.mark.parametrize("name", ["toy", "toy_ids", "toy/1", "toy_ids/1"])
@pytest.mark.parametrize("kind", ["file", "link"])
def test_what_is_in_the_way_of_a_version_is_named(tmp_path, name, kind) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    if kind == "file":
        path.touch()
    else:
        path.symlink_to(tmp_path / "nowhere")
    with pytest.raises(ValueError, match=f"{path} "):
        version_folders.check_new(tmp_path / "toy", 1)


def test_nothing_is_left_of_a_full_disk(exported, tmp_path, monkeypatch) -> None:
    folder = tmp_path / "serving" / "toy"
    seen = []

    def full(path, *_) -> None:
        visible = [p for p in folder.parent.rglob("*") if not is_hidden(p, folder.parent)]
        seen.append([p.name for p in visible])
        if "_ids" not in str(path):
            raise tf.errors.ResourceExhaustedError(None, None, "No space left on device")

    monkeypatch.setattr(writing, "write_warmup", full)
    with pytest.raises(OSError, match="toy/1.*space left"):
        save(exported.served, folder, 1, "x")
    assert seen == [[], []]  # While both were written a server saw nothing.
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    assert [*versions(folder)] == []


@pytest.mark.slow
def test_all_of_a_version_is_on_the_disk_before_it_appears(exported, tmp_path, monkeypatch) -> None:
    flushed, at_rename = set(), []
    fsync, rename = os.fsync, pathlib.Path.rename

    def noted(descriptor: int) -> None:
        flushed.add(os.fstat(descriptor).st_ino)
        fsync(descriptor)

    def renamed(path: pathlib.Path, target: pathlib.Path) -> pathlib.Path:
        inodes = {found.stat().st_ino for found in [path, *path.rglob("*")]}
        at_rename.append((len(inodes) > 5, inodes - flushed))
        return rename(path, target)

    monkeypatch.setattr(os, "fsync", noted)
    monkeypatch.setattr(pathlib.Path, "rename", renamed)
    save(exported.served, tmp_path / "toy", 1, "x")
    assert at_rename == [(True, set())] * 2


def test_a_version_is_written_on_the_disk_of_its_model(tmp_path, monkeypatch) -> None:
    toy = tmp_path / "disk" / "toy"
    toy.mkdir(parents=True)
    (tmp_path / "link").symlink_to(toy)
    with version_folders.hidden_folder(tmp_path / "link" / "1") as hidden:
        assert hidden.parent == toy.parent and hidden.is_dir()
    monkeypatch.setattr(pathlib.Path, "is_mount", lambda path: path == toy)
    with version_folders.hidden_folder(toy / "1") as hidden:
        assert hidden.parent == toy and hidden.is_dir() and not versions(toy)
    assert not any(toy.iterdir())


def is_hidden(path: pathlib.Path, root: pathlib.Path) -> bool:
    return any(part.startswith(".") for part in path.relative_to(root).parts)


def test_a_run_without_a_checkpoint_is_refused(tmp_path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "run.flags").write_text("--output_dir=run\n")
    with pytest.raises(ValueError, match="/run .*checkpoint; .*--flagfile="):
        load(str(folder))


def test_what_cannot_be_served(tmp_path) -> None:
    folder = str(write_model(tmp_path / "m", "tagger"))
    with pytest.raises(ValueError, match="classifier head.* tagger, embeddings, encoder"):
        load(folder, "classifier")
    with pytest.raises(ValueError, match="kind .*'parser'; .*reranker, classifier"):
        load(folder, "parser")
    with pytest.raises(ValueError, match="max_seq_length .*49.*48 positions"):
        load(folder, max_seq_length=49)
    run = {"max_query_length": "64"}
    squad = str(write_model(tmp_path / "q", "question_answering", run))
    with pytest.raises(ValueError, match="max_seq_length .*48: .*max_query_length, 64, .*68"):
        load(squad)
    lines = pathlib.Path(folder, "vocab.txt").read_text(encoding="utf8").splitlines()
    lines[20] = lines[21]
    pathlib.Path(folder, "vocab.txt").write_text("\n".join(lines) + "\n", encoding="utf8")
    with pytest.raises(ValueError, match="vocab.txt"):
        load(folder)
