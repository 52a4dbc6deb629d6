"""What a program says of errors: one line, with the flag of a missing file."""

import errno
import json
import re

import numpy as np
import pytest
import tensorflow as tf
from absl import flags
from absl.testing import flagsaver

from bert_tf.config import DataConfig, ObjectiveConfig, TeacherConfig, TrainingConfig, config_flags
from bert_tf.config.ranking_config import RetrieverConfig
from bert_tf.corpus.corpus import list_parts
from bert_tf.text.vocab import Vocab
from tests.programs import own_flags

config_flags.define_flags(DataConfig, TrainingConfig, ObjectiveConfig)
config_flags.define_flags(RetrieverConfig, without=TeacherConfig.names())


def said(function, *args) -> str | None:
    """Returns what a program would print of the error that a call raises."""
    with pytest.raises(Exception) as caught:
        function(*args)
    return config_flags.error_line(caught.value)


def fail(error: BaseException) -> None:
    raise error


def test_errors_of_input_and_machine_are_one_line() -> None:
    assert re.search("memory.*256. PiB.*--gradient_accumulation_steps", said(np.zeros, 1 << 55))
    assert "--gradient_accumulation_steps" in said(fail, MemoryError())
    exhausted = tf.errors.ResourceExhaustedError(None, None, "OOM when allocating [9,9]\n\tat x")
    line = said(fail, exhausted)
    assert "OOM when allocating [9,9]" in line and "\n" not in line and "--recompute" in line
    full = (
        OSError(errno.ENOSPC, "No space left on device"),
        tf.errors.ResourceExhaustedError(None, None, "/x; No space left on device"),
    )
    for error in full:
        assert "No space left on device" in said(fail, error)
    cut = OSError("9600 requested and 4064 written")  # NumPy's, of an array
    assert re.search("file.*9600 requested and 4064 written.*space", said(fail, cut))
    assert "nested" in said(json.loads, "[" * 100_000)
    assert said(fail, TypeError("a fault of the program")) is None


def test_a_name_that_is_not_utf8_is_printed() -> None:
    name = "/data/caf\udce9/a.txt"
    for text in (name, f"--x=1\n--input_file={name}\n--y=2\n"):
        line = said(text.encode)
        assert r"'/data/caf\udce9/a.txt'" in line and "UTF-8" in line and "--y" not in line


def test_the_flag_of_a_missing_file_is_named(tmp_path) -> None:
    missing, there = str(tmp_path / "missing.txt"), str(tmp_path / "there.txt")
    (tmp_path / "there.txt").write_text("\xff", encoding="latin1")
    with flagsaver.flagsaver(eval_file=f"{there},{missing}", vocab_file=there):
        assert said(list_parts, missing).endswith(f" (--eval_file={missing})")
        assert said(Vocab.read, missing).endswith(f" (--eval_file={missing})")
        assert "--" not in said(Vocab.read, there)  # is there, and not UTF-8
        assert said(fail, ValueError(f"--eval_file={missing}: none")).count("eval_file") == 1


def test_the_home_folder_of_an_output_dir(monkeypatch) -> None:
    monkeypatch.setenv("HOME", "/home/ada")
    with flagsaver.flagsaver():
        flags.FLAGS(["program", "--output_dir=~/run"])
        assert config_flags.from_flags(TrainingConfig).output_dir == "/home/ada/run"


def test_a_name_with_a_line_break_is_not_recorded() -> None:
    with pytest.raises(ValueError, match="--eval_file="):
        config_flags.flagfile(DataConfig(eval_file="a\n--random_seed=5"))


def test_given_flags_without_effect_are_refused_recorded_ones_are_not() -> None:
    read = config_flags.from_flags
    with flagsaver.flagsaver():
        flags.FLAGS(["program", "--triplet_margin=1"])
        assert re.search(r"triplet_margin=1\.0.*retrieval_loss", said(read, RetrieverConfig))
        flags.FLAGS(["program", "--teacher_weight=2"])
        assert re.search(r"teacher_weight=2\.0.*teacher", said(read, ObjectiveConfig))
        flags.FLAGS(["program", "--retrieval_loss=triplet", "--teacher=runs/teacher"])
        assert read(RetrieverConfig).triplet_margin == 1.0
        assert read(ObjectiveConfig).teacher_weight == 2.0
    with flagsaver.flagsaver():  # As an earlier run recorded it.
        config_flags.set_defaults(triplet_margin=1.0, discriminator_weight=20.0)
        assert read(RetrieverConfig).triplet_margin == 1.0
        assert read(ObjectiveConfig).discriminator_weight == 20.0


def test_flags_that_name_what_is_fetched():
    with own_flags():
        flags.DEFINE_string("eval_file", "", "")
        flags.DEFINE_string("data_dir", "", "")
        flags.DEFINE_string("other", "", "")
        assert config_flags.flags_naming("tfds:glue/sst2:train") == ""  # not parsed
        values = ["--eval_file=a.json,tfds:squad/v1.1:validation", "--data_dir=tfds:glue"]
        flags.FLAGS(["x", *values, "--other=t"])
        assert "--eval_file" in config_flags.flags_naming("tfds:squad/v1.1")
        assert "--data_dir" in config_flags.flags_naming("tfds:glue/sst2:train")
        assert config_flags.flags_naming("tfds:imdb") == ""
