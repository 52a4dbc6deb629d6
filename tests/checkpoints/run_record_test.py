"""What a run directory records: paths that hold everywhere, and what an earlier run left."""

import logging

import pytest

from bert_tf.checkpoints.run_record import check_same_run, recorded, write_run_record
from bert_tf.config import DataConfig, ModelConfig, TrainingConfig
from bert_tf.config.config_flags import read_flagfile
from bert_tf.text.vocab import Vocab
from tests.programs import own_flags
from tests.tiny_model import tiny_words

VOCAB = Vocab(tiny_words("film"))


@pytest.fixture
def work(tmp_path, monkeypatch):
    """The current folder of a training, with its input."""
    (tmp_path / "work/texts").mkdir(parents=True)
    for name in ("a.txt", "b.txt", "dev.txt"):
        (tmp_path / "work/texts" / name).touch()
    monkeypatch.chdir(tmp_path / "work")
    with own_flags():
        yield tmp_path / "work"


def record(output_dir, **data):
    configs = DataConfig(**data), TrainingConfig(output_dir=str(output_dir), do_train=True)
    write_run_record(str(output_dir), VOCAB, ModelConfig(vocab_size=len(VOCAB)), *configs)
    return configs


def test_recorded_paths_hold_in_every_folder(work, tmp_path, monkeypatch):
    given = {
        "input_file": "texts/*.txt, texts/dev.txt",
        "eval_file": "texts/dev.txt",
        "vocab_file": "gone.txt",
    }
    configs = record("run", **given)
    check_same_run("run", *configs)  # The relative spelling names the same files.
    values = read_flagfile(work / "run/run.flags")
    assert values["input_file"] == f"{work}/texts/*.txt,{work}/texts/dev.txt"
    assert values["output_dir"] == f"{work}/run"
    assert values["cache_dir"] == "" and values["vocab_file"] == "gone.txt"
    monkeypatch.chdir(tmp_path)
    assert recorded("work/run", "eval_file") == f"{work}/texts/dev.txt"


@pytest.mark.parametrize("name", ["tfds:imdb_reviews", "hf://org/name", "keras_hub://bert_tiny"])
def test_names_that_are_no_paths_are_recorded_as_given(work, name):
    record("run", input_file=name)
    assert recorded("run", "input_file") == name


def test_an_earlier_run_without_a_checkpoint_is_reported(work, caplog):
    def warnings():
        return [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]

    record(work / "run")
    assert not warnings()
    record(work / "run")
    (line,) = warnings()
    assert str(work / "run") in line
    (work / "run/model.ckpt-5.index").touch()
    record(work / "run")
    assert len(warnings()) == 1
