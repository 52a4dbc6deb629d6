"""A conversion that is killed leaves no folder, and the same command then succeeds."""

import pathlib

import pytest

from bert_tf.checkpoints.cross_encoder import CrossEncoder, write_cross_encoder
from bert_tf.checkpoints.formats import write_checkpoint
from bert_tf.inference import model_card
from bert_tf.system import files, temporaries
from bert_tf.system.files import new_folder
from tests.checkpoints.made_checkpoint import make_checkpoint
from tests.programs import run


@pytest.fixture(name="source")
def fixture_source(tmp_path) -> pathlib.Path:
    (tmp_path / "source").mkdir()
    made = make_checkpoint("classifier", 1, num_hidden_layers=1)
    write_checkpoint(made, tmp_path / "source" / "model", "bert_tf")
    return tmp_path / "source" / "model"


def convert(source: pathlib.Path, output: pathlib.Path):
    return run("convert_checkpoint", input=source, output=output, to="huggingface")


def test_what_fails_at_the_end_leaves_nothing(tmp_path, source, monkeypatch):
    def fail(*_):
        raise ValueError("no card")

    (tmp_path / "made").mkdir()
    monkeypatch.setattr(model_card, "write_model_card", fail)
    done = convert(source, tmp_path / "made" / "model")
    assert done.returncode != 0 and "no card" in done.printed
    assert list((tmp_path / "made").iterdir()) == []
    monkeypatch.undo()
    assert convert(source, tmp_path / "made" / "model").returncode == 0
    assert (tmp_path / "made" / "model" / "README.md").exists()
    assert "made/model" not in (tmp_path / "made" / "model" / "README.md").read_text()


def test_an_output_that_exists_is_refused_before_the_model_is_read(tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "x").touch()
    done = convert(tmp_path / "absent", tmp_path / "model")
    assert done.returncode != 0 and str(tmp_path / "model") in done.printed
    assert "absent" not in done.printed


def test_a_cross_encoder_appears_with_its_settings(tmp_path, monkeypatch):
    made = make_checkpoint("classifier", 1, num_hidden_layers=1)
    model = CrossEncoder(made, "identity", 20)

    def fail(*_):
        raise ValueError("disk is full")

    monkeypatch.setattr("bert_tf.checkpoints.cross_encoder.write_json", fail)
    with pytest.raises(ValueError, match="disk is full"):
        write_cross_encoder(model, tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


def test_remains_of_a_killed_process_are_deleted(tmp_path):
    mark = temporaries._host_mark()  # Those of other hosts are left alone.
    for name in (f".model.{mark}1.tmp", f".models.{mark}2.tmp", ".model.3"):
        (tmp_path / name / "model").mkdir(parents=True)
        (tmp_path / name / "model" / "file").write_text("half")
    (tmp_path / ".model.lock").touch()
    with new_folder(tmp_path / "model") as inner:
        (inner / "file").write_text("whole")
        assert not (tmp_path / "model").exists()
    assert (tmp_path / "model" / "file").read_text() == "whole"
    assert {path.name for path in tmp_path.iterdir()} == {
        *("model", f".models.{mark}2.tmp", ".model.3")
    }


def test_two_processes_do_not_write_one_folder(tmp_path):
    with files.exclusive(tmp_path / ".model.lock", "writing"):
        with pytest.raises(ValueError, match="model"), new_folder(tmp_path / "model"):
            pass
    with new_folder(tmp_path / "model"):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
