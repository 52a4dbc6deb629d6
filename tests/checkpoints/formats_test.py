"""Every form is told by looking, and each round trip is the identity."""

import contextlib
import dataclasses
import json
import pathlib
import random
import shutil
import tarfile
import zipfile

import numpy as np
import pytest

from bert_tf.checkpoints import formats
from bert_tf.checkpoints.checkpoint import head_shapes, without_task_heads
from bert_tf.checkpoints.embedding import DenseStep, EmbeddingConfig
from bert_tf.checkpoints.formats import as_computed, left_out, read_checkpoint, write_checkpoint
from bert_tf.checkpoints.run_record import write_run_record
from bert_tf.inference import serving_models as served
from bert_tf.network.pretrained import assign_checkpoint
from bert_tf.pretraining.masked_words.model import BertPretrainer
from bert_tf.tasks.classification.model import BertClassifier
from bert_tf.training.checkpointing import RunDirectory, model_variables
from bert_tf.training.optimizers import AdamWeightDecay
from tests.checkpoints.made_checkpoint import PURPOSES, assert_same, make_checkpoint
from tests.slow_variants import slow_where

FORMS = ("bert_tf", "google", "huggingface", "keras_hub")


def without_heads(checkpoint, heads):
    gone = {name for head in heads for name in head_shapes(checkpoint.config, head)}
    weights = {name: value for name, value in checkpoint.weights.items() if name not in gone}
    labels = () if "tagger" in heads else checkpoint.labels
    return dataclasses.replace(checkpoint, weights=weights, labels=labels)


@pytest.mark.parametrize("form", [*FORMS[:3], pytest.param("keras_hub", marks=pytest.mark.slow)])
def test_round_trip_is_the_identity(tmp_path, form):
    for seed, purpose in enumerate(PURPOSES):  # each of another shape
        made = make_checkpoint(purpose, seed)
        write_checkpoint(made, tmp_path / purpose, form)
        received = read_checkpoint(tmp_path / purpose)
        received.check()
        assert received.form == form
        assert_same(received, without_heads(made, left_out(made, form)))


@pytest.mark.parametrize("form", [*FORMS[:3], pytest.param("keras_hub", marks=pytest.mark.slow)])
def test_the_kind_of_labels_is_kept(tmp_path, form):
    for kind in ("single_label", "multi_label"):
        made = make_checkpoint("classifier", num_hidden_layers=1)
        write_checkpoint(dataclasses.replace(made, problem_type=kind), tmp_path / kind, form)
        assert read_checkpoint(tmp_path / kind).problem_type == kind
        assert BertClassifier.from_pretrained(tmp_path / kind).problem_type == kind
    write_checkpoint(made, tmp_path / "open", form)
    assert read_checkpoint(tmp_path / "open").problem_type == ""
    assert served.find_kind(read_checkpoint(tmp_path / "multi_label"), "") == "multi_label"
    assert without_task_heads(read_checkpoint(tmp_path / "multi_label")).problem_type == ""


@pytest.mark.parametrize(
    ("flags", "labels", "kind"),
    [
        ("--problem_type=multi_label\n", 3, "multi_label"),
        ("--task_name=mnli\n--problem_type=single_label\n", 3, "single_label"),
        ("--task_name=sts-b\n--problem_type=single_label\n", 1, "regression"),
        ("--ranking_loss=bce\n", 1, ""),
    ],
)
def test_the_kind_of_labels_of_a_run(tmp_path, flags, labels, kind):
    made = make_checkpoint("classifier", num_hidden_layers=1)
    head = {n: v[:labels] for n, v in made.weights.items() if n.startswith("cls/classifier/")}
    made = dataclasses.replace(made, weights={**made.weights, **head}, labels=())
    write_checkpoint(made, tmp_path / "run", "bert_tf")
    (tmp_path / "run" / "run.flags").write_text(flags)
    assert read_checkpoint(tmp_path / "run").problem_type == kind


EMBEDDING = EmbeddingConfig(
    *(("cls", "max"), (), True, 7, {"query": "é: "}, "query", False, "dot", True)
)


@pytest.mark.parametrize("form", FORMS)
def test_how_a_model_embeds_is_kept(tmp_path, monkeypatch, form):
    made = make_checkpoint("encoder", num_hidden_layers=1)
    made = dataclasses.replace(made, embedding=EMBEDDING)
    written = write_checkpoint(made, tmp_path / "model", form)
    assert written.embedding == read_checkpoint(tmp_path / "model").embedding == EMBEDDING

    def forget(checkpoint, folder):
        shutil.copytree(tmp_path / "model", folder, dirs_exist_ok=True)
        (folder / "embedder.json").unlink()

    monkeypatch.setitem(formats.WRITERS, form, forget)
    with pytest.raises(ValueError, match=f"{form}.*'cls'"):
        write_checkpoint(made, tmp_path / "other", form)


def test_dense_layers_of_an_embedding_are_left_out_or_refused(tmp_path):
    made = make_checkpoint("encoder", num_hidden_layers=1)
    dense = (DenseStep(made.config.hidden_size, 3),)
    embedding = EmbeddingConfig(dense=dense, max_seq_length=7)
    weights = {name: np.ones(shape, np.float32) for name, shape in embedding.shapes().items()}
    made = dataclasses.replace(made, weights={**made.weights, **weights}, embedding=embedding)
    assert left_out(made, "huggingface") == ("embedding",)
    written = write_checkpoint(made, tmp_path / "theirs", "huggingface")
    assert written.embedding is None and not (tmp_path / "theirs" / "embedder.json").exists()
    for form in ("google", "keras_hub"):
        with pytest.raises(ValueError, match=f"^{form} .*dense layers"):
            write_checkpoint(made, tmp_path / form, form)


def test_an_unknown_kind_of_labels_is_named(tmp_path):
    write_checkpoint(make_checkpoint("classifier"), tmp_path / "m", "bert_tf")
    (tmp_path / "m" / "problem_type.txt").write_text("many\n")
    with pytest.raises(ValueError, match="problem.type.*'many'"):
        read_checkpoint(tmp_path / "m")


def test_a_run_directory_and_a_checkpoint_in_it(tmp_path):
    made = make_checkpoint("pretrained", 1, vocab_size=80, num_hidden_layers=1)
    model = BertPretrainer(made.config)
    assign_checkpoint(model, made)
    optimizer = AdamWeightDecay(1e-4)
    optimizer.build(model.trainable_variables)
    write_run_record(str(tmp_path), made.vocab, made.config)
    variables = {**model_variables(model), **optimizer.named_variables()}
    RunDirectory(tmp_path, variables).save(7, {})
    for path in ("", "model.ckpt-7", "model.ckpt-7.index"):
        received = read_checkpoint(tmp_path / path)
        assert received.form == "bert_tf"
        assert_same(received, made)


def test_the_runs_of_several_seeds_are_named(tmp_path):
    for seed in ("seed-1", "seed-2"):
        (tmp_path / seed).mkdir()
        (tmp_path / seed / "model.ckpt-7.index").touch()
    with pytest.raises(ValueError, match="/seed-1, .*/seed-2"):
        read_checkpoint(tmp_path)


def archive_of(folder, path, prefix):
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w") as archive:
            for file in folder.rglob("*"):
                archive.write(file, prefix / file.relative_to(folder))
    else:
        with tarfile.open(path, "w:gz") as archive:
            archive.add(folder, str(prefix))


@pytest.mark.parametrize(("form", "name"), [("google", "a.zip"), ("huggingface", "a.tar.gz")])
def test_archives_are_read_where_they_lie(tmp_path, form, name):
    made = make_checkpoint("encoder with pooler", 2)
    write_checkpoint(made, tmp_path / "written", form)
    archive_of(tmp_path / "written", tmp_path / name, pathlib.PurePath("uncased_L-2"))
    shutil.rmtree(tmp_path / "written")
    received = read_checkpoint(tmp_path / name)
    assert_same(received, made)
    assert received.source == str(tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_damaged_member_of_an_archive(tmp_path):
    write_checkpoint(make_checkpoint("encoder", 2), tmp_path / "written", "google")
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for file in (tmp_path / "written").iterdir():
            archive.write(file, file.name)
    whole = (tmp_path / "a.zip").read_bytes()
    num_read = 0
    for place in range(40, 200, 5):
        damaged = bytearray(whole)
        damaged[place] ^= 0xFF
        (tmp_path / "a.zip").write_bytes(damaged)
        with contextlib.suppress(ValueError):  # Anything else fails the test.
            read_checkpoint(tmp_path / "a.zip")
            num_read += 1
    assert num_read < 32  # Some damage is noticed.


JSON_VALUES = (None, True, 0, -1, 1.5, "x", [], ["x"], {}, {"x": 1}, 10**30)


@pytest.mark.parametrize("form", slow_where(lambda form: form == "keras_hub", FORMS))
def test_any_json_gives_a_checkpoint_or_one_clear_error(tmp_path, form):
    rng, messages = random.Random(form), []
    made = make_checkpoint("classifier", 2, num_hidden_layers=1)
    write_checkpoint(made, tmp_path / "model", form)
    for path in (tmp_path / "model").glob("*.json"):
        values = json.loads(path.read_text())
        places = [(values, key) for key in values]
        inner = [value for value in values.values() if isinstance(value, dict)]
        places += [(value, key) for value in inner for key in list(value)[:12]]
        for place, key in places:
            before = place[key]
            for value in rng.sample(JSON_VALUES, 2):
                place[key] = value
                path.write_text(json.dumps(values))
                try:  # Anything but a ValueError fails the test.
                    read_checkpoint(tmp_path / "model").check()
                except ValueError as error:
                    messages.append(str(error))
            place[key] = before
        path.write_text(json.dumps(values))
    assert len(messages) > 10 and all(message.strip() for message in messages)
    read_checkpoint(tmp_path / "model").check()


def test_damaged_archives_and_other_folders(tmp_path):
    (tmp_path / "a.zip").write_bytes(b"PK\x03\x04 nothing")
    with pytest.raises(ValueError, match="a.zip"):
        read_checkpoint(tmp_path / "a.zip")
    with zipfile.ZipFile(tmp_path / "b.zip", "w") as archive:
        archive.writestr("readme.txt", "x")
    with pytest.raises(ValueError, match="b.zip .*config.json"):
        read_checkpoint(tmp_path / "b.zip")
    with pytest.raises(ValueError, match="/nowhere .*config.json"):
        read_checkpoint(tmp_path / "nowhere")
    (tmp_path / "other").mkdir()
    with pytest.raises(ValueError, match="/other .*config.json"):
        read_checkpoint(tmp_path / "other")
    (tmp_path / "other" / "config.json").write_text("{}")
    (tmp_path / "other" / "tf_model.h5").write_text("")
    with pytest.raises(ValueError, match="tf_model.h5"):
        read_checkpoint(tmp_path / "other")


def test_nothing_is_overwritten_and_nothing_half_written(tmp_path, monkeypatch):
    made = make_checkpoint("encoder", 4)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("mine")
    with pytest.raises(ValueError, match="/full .*folder"):
        write_checkpoint(made, tmp_path / "full", "google")
    (tmp_path / "full" / "empty").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "full" / "empty")
    write_checkpoint(made, tmp_path / "link", "google")
    assert read_checkpoint(tmp_path / "full" / "empty").weights.keys() == made.weights.keys()
    (tmp_path / "link").unlink()

    def fail(checkpoint, folder):
        (folder / "config.json").write_text("{}")
        raise OSError("No space left on device")

    monkeypatch.setitem(formats.WRITERS, "huggingface", fail)
    with pytest.raises(OSError, match="No space"):
        write_checkpoint(made, tmp_path / "new", "huggingface")
    assert [path.name for path in tmp_path.iterdir()] == ["full"]


def test_wrong_shapes_missing_and_unknown_weights_are_named():
    made = make_checkpoint("pretrained", 5)
    weights = dict(made.weights)
    del weights["bert/encoder/layer_0/output/dense/bias"]
    weights["cls/predictions/output_bias"] = np.zeros(3, np.float32)
    broken = dataclasses.replace(made, weights=weights, unused=("bert/adapter/kernel",))
    with pytest.raises(ValueError) as error:
        broken.check()
    size = made.config.vocab_size
    assert "(1): bert/encoder/layer_0/output/dense/bias" in str(error.value)
    shapes = str(error.value).partition("(1): cls/predictions/output_bias ")[2].split(";")[0]
    assert "[3]" in shapes and f"[{size}]" in shapes
    assert "(1): bert/adapter/kernel" in str(error.value)
    unknown = dataclasses.replace(made, unused=("bert/adapter/kernel",))
    unknown.check(allow_unexpected=["bert/adapter/"])
    with pytest.raises(ValueError, match=r"\(1\): bert/adapter/kernel;.*\(--allow_unexpected\)"):
        unknown.check(allow_unexpected=())
    # Of who has no such option.
    with pytest.raises(ValueError, match="convert_checkpoint --allow_unexpected"):
        unknown.check()
    del weights["cls/predictions/output_bias"]
    lacking = dataclasses.replace(made, weights=weights)
    with pytest.raises(ValueError, match=r"\(2\): bert/.*/bias, cls/.*;.*\(--allow_missing\)"):
        lacking.check(allow_missing=())
    with pytest.raises(ValueError, match=r"\(2\): bert/.*/bias, cls/.*;(?!.*--allow_missing)"):
        lacking.check()


def test_other_programs_have_one_gelu_and_one_epsilon():
    config = make_checkpoint("encoder", 6, hidden_act="gelu_exact", layer_norm_eps=1e-5).config
    assert as_computed(config, "huggingface") == config
    for form in ("google", "keras_hub"):
        other = as_computed(config, form)
        assert (other.hidden_act, other.layer_norm_eps) == ("gelu_tanh", 1e-12)
    relu = dataclasses.replace(config, hidden_act="relu")
    assert as_computed(relu, "google").hidden_act == "relu"
