"""Earlier names of flags and arguments go on working, with one warning that names the new one."""

import pathlib

import numpy as np
import pytest
from absl import flags, logging

from bert_tf.checkpoints.formats import read_checkpoint
from bert_tf.config import TrainingConfig, config_flags, renamed
from bert_tf.config.fine_tuning_config import ClassifierConfig
from bert_tf.tasks.classification.model import BertClassifier
from tests import programs
from tests.export.made_models import write_model


@pytest.fixture(autouse=True)
def warnings(monkeypatch) -> list[str]:
    """The warnings of a test; each name is new to it."""
    renamed.warn_of_earlier_name.cache_clear()
    logged: list[str] = []
    monkeypatch.setattr(logging, "warning", lambda text, *parts: logged.append(text % parts))
    return logged


def test_flags(tmp_path: pathlib.Path, warnings) -> None:
    flagfile = tmp_path / "old.flags"
    flagfile.write_text("--may_miss=cls/\n")
    for given in (["--may_ignore=a,b"], ["--may_ignore", "a,b"], ["-may_ignore=a,b"]):
        with programs.own_flags():
            config_flags.define_flags(TrainingConfig)
            arguments = ["program", f"--flagfile={flagfile}", *given, "--", "--may_miss=word"]
            assert config_flags.parse(arguments) == ["program", "--may_miss=word"]
            training = config_flags.from_flags(TrainingConfig)
            assert (training.allow_missing, training.allow_unexpected) == ("cls/", "a,b")
    assert len(warnings) == 2
    assert sum("--allow_missing" in line for line in warnings) == 1


def test_a_program_without_the_flag_does_not_know_its_earlier_name(capsys) -> None:
    with programs.own_flags():
        flags.DEFINE_string("text", "", "A text.")
        with pytest.raises(SystemExit):
            config_flags.parse(["program", "--may_miss=cls/"])
    assert "may_miss" in capsys.readouterr().err


def test_recorded_runs(tmp_path: pathlib.Path) -> None:
    (tmp_path / "run.flags").write_text("# TrainingConfig\n--may_miss=cls/\n--output_dir=runs/a\n")
    recorded = config_flags.read_flagfile(tmp_path / "run.flags")
    assert recorded == {"allow_missing": "cls/", "output_dir": "runs/a"}


def test_arguments(tmp_path: pathlib.Path, warnings) -> None:
    folder = write_model(tmp_path / "m", "embeddings")
    pooler = ["bert/pooler/"]
    with pytest.raises(ValueError, match="allow_missing"):
        BertClassifier.from_pretrained(folder, num_labels=2)
    for _ in range(2):
        model = BertClassifier.from_pretrained(folder, may_miss=pooler, num_labels=2)
    assert len(warnings) == 1 and "allow_missing" in warnings[0]
    checkpoint = read_checkpoint(folder)
    checkpoint.check(may_miss=pooler, may_ignore=[])
    made = BertClassifier.from_checkpoint(checkpoint, may_miss=pooler, num_labels=2)
    table = made.bert.embeddings.word_embeddings
    np.testing.assert_array_equal(table, model.bert.embeddings.word_embeddings)
    with pytest.raises(ValueError, match="may_miss"):
        BertClassifier.from_pretrained(folder, may_miss=pooler, allow_missing=pooler, num_labels=2)


def test_flags_with_earlier_values(tmp_path: pathlib.Path, warnings) -> None:
    flagfile = tmp_path / "old.flags"
    flagfile.write_text("--label_kind=several\n")
    for given, expected in (
        ([f"--flagfile={flagfile}"], "multi_label"),
        (["--label_kind", "number"], "regression"),
        (["--label_kind=class"], "single_label"),
        (["--problem_type=regression"], "regression"),
    ):
        with programs.own_flags():
            config_flags.define_flags(ClassifierConfig)
            config_flags.parse(["program", *given])
            assert config_flags.from_flags(ClassifierConfig).problem_type == expected
    assert len(warnings) == 1 and "--problem_type" in warnings[0]
    (tmp_path / "run.flags").write_text("--label_kind=several\n--task_name=class\n")
    recorded = config_flags.read_flagfile(tmp_path / "run.flags")
    assert recorded == {"problem_type": "multi_label", "task_name": "class"}


def test_earlier_values_of_arguments_and_files(tmp_path: pathlib.Path, warnings) -> None:
    folder = write_model(tmp_path / "m", "embeddings")
    options = {"labels": ["a", "b"], "allow_missing": ["bert/pooler/"]}
    model = BertClassifier.from_pretrained(folder, label_kind="several", **options)
    assert model.problem_type == "multi_label"
    assert BertClassifier(model.config, 1, label_kind="number").problem_type == "regression"
    assert len(warnings) == 1
    config = model.get_config()
    del config["problem_type"]
    restored = BertClassifier.from_config({**config, "label_kind": "several"})
    assert restored.problem_type == "multi_label"
    assert len(warnings) == 1  # A saved file is read without a warning.
    model.save_pretrained(tmp_path / "saved", "bert_tf")
    stored = tmp_path / "saved" / "problem_type.txt"
    assert stored.read_text() == "multi_label\n"
    stored.unlink()
    (tmp_path / "saved" / "label_kind.txt").write_text("several\n")
    (tmp_path / "saved" / "inputs.flags").unlink(missing_ok=True)
    assert read_checkpoint(tmp_path / "saved").problem_type == "multi_label"
