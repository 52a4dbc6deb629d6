"""Files and checkpoints of a run directory belong together, on every road that reads it."""

import json
import pathlib
import shutil

import numpy as np
import pytest

import bert_tf
from bert_tf.checkpoints.embedding import EmbeddingConfig, write_embedding
from bert_tf.checkpoints.formats import read_checkpoint, write_checkpoint
from bert_tf.checkpoints.run_checkpoints import NAME_START
from bert_tf.checkpoints.run_identity import RECORD, check_files, new_identity
from bert_tf.checkpoints.start import read_start
from bert_tf.checkpoints.tf_bundle import bundle_names, read_bundle
from bert_tf.config import ModelConfig
from tests.fine_tune import fine_tune, write_folder
from tests.programs import run
from tests.slow_variants import slow_where

STEPS = {"num_train_steps": 2, "save_checkpoints_steps": 1}


def flags_of(folder: pathlib.Path, output_dir: pathlib.Path, **changed) -> dict:
    files = {"init_checkpoint": folder / "model", "train_file": folder / "train.csv"}
    return {**STEPS, **files, "do_train": "true", "output_dir": output_dir, **changed}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Holds two runs of the same shape, first and second."""
    folder = write_folder(tmp_path_factory.mktemp("identity"))
    for seed, name in enumerate(("first", "second")):
        given = flags_of(folder, folder / name, random_seed=seed)
        assert fine_tune("run_classifier", **given) == 0
    return folder


@pytest.fixture
def copy(folder, tmp_path):
    return shutil.copytree(folder / "first", tmp_path / "copy")


def exchange_labels(run_dir: pathlib.Path, folder: pathlib.Path) -> str:
    path = run_dir / "labels.txt"
    first, second, *others = path.read_text().splitlines()
    path.write_text("".join(f"{label}\n" for label in (second, first, *others)))
    return "labels.txt"


def delete_labels(run_dir: pathlib.Path, folder: pathlib.Path) -> str:
    (run_dir / "labels.txt").unlink()
    return "labels.txt"


def exchange_words(run_dir: pathlib.Path, folder: pathlib.Path) -> str:
    path = run_dir / "vocab.txt"
    lines = path.read_text().splitlines()
    lines[-1], lines[-2] = lines[-2], lines[-1]
    path.write_text("".join(f"{line}\n" for line in lines))
    return "vocab.txt"


def rename_word(run_dir: pathlib.Path, folder: pathlib.Path) -> str:
    path = run_dir / "vocab.txt"
    path.write_text(path.read_text().replace("\nfilm\n", "\nmovie\n"))
    return "vocab.txt"


def change_activation(run_dir: pathlib.Path, folder: pathlib.Path) -> str:
    path = run_dir / "bert_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "hidden_act": "gelu_exact"}))
    return "bert_config.json"


def change_problem_type(run_dir: pathlib.Path, folder: pathlib.Path) -> str:
    path = run_dir / "run.flags"
    path.write_text(
        path.read_text().replace("--problem_type=single_label", "--problem_type=multi_label")
    )
    return "run.flags"


def copy_checkpoint(run_dir: pathlib.Path, folder: pathlib.Path) -> str:
    for path in (folder / "second").glob("model.ckpt-2.*"):
        shutil.copy(path, run_dir)
    return "model.ckpt-2"


def copy_record(run_dir: pathlib.Path, folder: pathlib.Path) -> str:
    shutil.copy(folder / "second" / RECORD, run_dir)
    return RECORD


TAMPERINGS = (
    exchange_labels,
    delete_labels,
    exchange_words,
    rename_word,
    change_activation,
    change_problem_type,
    copy_checkpoint,
    copy_record,
)


@pytest.mark.parametrize("tamper", slow_where(lambda tamper: tamper is exchange_labels, TAMPERINGS))
def test_what_does_not_belong_to_a_run_is_named_on_each_road(copy, folder, tmp_path, tamper):
    name = tamper(copy, folder)
    resumed = flags_of(folder, copy, random_seed=0, num_train_steps=3)
    resumed["do_eval"], resumed["eval_file"] = "true", folder / "dev.csv"
    evaluated = {**resumed, "do_train": "false"}
    other = flags_of(folder, tmp_path / "other", init_checkpoint=copy)
    roads = [
        lambda: fine_tune("run_classifier", **resumed),
        lambda: fine_tune("run_classifier", **evaluated),
        lambda: fine_tune("run_classifier", **{**evaluated, "init_checkpoint": copy}),
        lambda: fine_tune("run_classifier", **other),
        lambda: read_start(str(copy), {}, ()),
        lambda: bert_tf.load(copy),
        lambda: read_checkpoint(copy / "model.ckpt-2"),
    ]
    if tamper not in (copy_checkpoint, copy_record):  # A tokenizer is read without checkpoints.
        roads.append(lambda: bert_tf.load_tokenizer(copy))
    for road in roads:
        with pytest.raises(ValueError, match=name):
            road()
    assert not (tmp_path / "other").exists()


def test_programs_answer_with_one_line(copy, folder, tmp_path):
    exchange_labels(copy, folder)
    commands = [
        run("convert_checkpoint", input=copy, output=tmp_path / "converted"),
        run("export.saved_model", model_dir=copy, output_dir=tmp_path / "serving"),
        run("run_classifier", **flags_of(folder, copy, random_seed=0)),
    ]
    for done in commands:
        assert done.returncode == 1
        (line,) = [line for line in done.printed.splitlines() if line.startswith("ERROR: ")]
        assert "labels.txt" in line and "Traceback" not in done.printed


def test_labels_are_renamed_in_a_converted_folder(copy, tmp_path):
    write_checkpoint(read_checkpoint(copy), tmp_path / "converted", "bert_tf")
    (tmp_path / "converted/labels.txt").write_text("minus\nplus\nmiddle\n")
    assert read_checkpoint(tmp_path / "converted").labels == ("minus", "plus", "middle")


def test_a_checkpoint_alone_is_checked_against_the_files_beside_it(copy, folder):
    (copy / RECORD).unlink()
    (copy / "run.flags").unlink()
    assert read_checkpoint(copy).labels == read_checkpoint(folder / "first").labels
    exchange_words(copy, folder)
    with pytest.raises(ValueError, match=r"vocab\.txt"):
        read_checkpoint(copy)


@pytest.mark.slow
def test_flags_that_alone_say_that_labels_are_several_must_be_there(folder, tmp_path):
    given = flags_of(folder, tmp_path / "several", problem_type="multi_label")
    assert fine_tune("run_classifier", **given) == 0
    (tmp_path / "several" / RECORD).unlink()
    assert read_checkpoint(tmp_path / "several").problem_type == "multi_label"
    (tmp_path / "several/run.flags").unlink()
    with pytest.raises(ValueError, match=r"run\.flags"):
        bert_tf.load(tmp_path / "several")


@pytest.mark.slow
def test_a_copied_run_goes_on_to_the_same_bits(copy, folder):
    """Whole copies keep their identity; the record may be missing."""
    shutil.copytree(copy, recordless := copy.with_name("recordless"))
    (recordless / RECORD).unlink()
    found = []
    for run_dir in (copy, recordless):
        given = flags_of(folder, run_dir, random_seed=0, num_train_steps=2)
        for path in run_dir.glob("model.ckpt-2.index"):
            path.unlink()
        assert fine_tune("run_classifier", **given) == 0
        found.append(read_bundle(str(run_dir / "model.ckpt-2")))
        assert (run_dir / RECORD).is_file()
        bert_tf.load(run_dir)
    ids = [[name for name in values if name.startswith(NAME_START)] for values in found]
    assert ids[0] == ids[1] and len(ids[0]) == 1
    expected = read_bundle(str(folder / "first/model.ckpt-2"))
    for values in found:
        for name in set(expected) - set(ids[0]):
            np.testing.assert_array_equal(values[name], expected[name], err_msg=name)
    data = [path.read_bytes() for path in copy.glob("model.ckpt-2.data*")]
    assert data == [path.read_bytes() for path in (folder / "first").glob("model.ckpt-2.data*")]


def test_dropout_in_the_configuration_is_no_part_of_the_identity(copy):
    path = copy / "bert_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "hidden_dropout_prob": 0.3}))
    assert bert_tf.load(copy).kind == "classifier"


def test_a_damaged_record_is_named(copy):
    for content in ("{", '{"run_id": "x", "sha256": {}}', '{"run_id": "' + 32 * "a" + '"}'):
        (copy / RECORD).write_text(content)
        with pytest.raises(ValueError, match=RECORD):
            bert_tf.load(copy)


def test_every_checkpoint_holds_the_identity(folder):
    run_id = json.loads((folder / "first" / RECORD).read_text())["run_id"]
    for step in (1, 2):
        assert NAME_START + run_id in bundle_names(str(folder / f"first/model.ckpt-{step}"))


def write_json(path: pathlib.Path, values: dict) -> None:
    path.write_text(json.dumps(values))


def test_each_file_that_gives_weights_their_meaning_is_tied(tmp_path):
    config = ModelConfig(vocab_size=100).to_dict()
    for name in ("bert_config.json", "generator_config.json"):
        write_json(tmp_path / name, config)
    write_embedding(tmp_path, EmbeddingConfig(pooling=("mean",), normalize=True))
    (tmp_path / "tokenizer.json").write_text("{}")
    new_identity(tmp_path).write(tmp_path)
    check_files(tmp_path)
    # Later releases may add fields whose defaults mean the same; training alone uses others.
    without_default = {name: v for name, v in config.items() if name != "rotary_theta"}
    write_json(tmp_path / "bert_config.json", {**without_default, "initializer_range": 0.5})
    check_files(tmp_path)
    changes = {
        "bert_config.json": json.dumps({**config, "layer_norm_eps": 1e-5}),
        "generator_config.json": json.dumps({**config, "num_attention_heads": 6}),
        "embedder.json": json.dumps({"pooling": ["cls"], "normalize": True}),
        "tokenizer.json": "{ }",
        "vocab.txt": "is read before tokenizer.json",
        "labels.txt": "a\nb\n",
    }
    for name, content in changes.items():
        path = tmp_path / name
        before = path.read_text() if path.exists() else None
        path.write_text(content)
        with pytest.raises(ValueError, match=name):
            check_files(tmp_path)
        path.unlink()
        if before is not None:
            with pytest.raises(ValueError, match=name):
                check_files(tmp_path)
            path.write_text(before)
    check_files(tmp_path)
