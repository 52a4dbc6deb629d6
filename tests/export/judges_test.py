"""The examples that a LiteRT file is scored on, where a run does not have them any more."""

import types

import pytest

from bert_tf.fine_tuning_config import ClassifierConfig
from bert_tf.text.vocab import Vocab
from export.lite.judges import make_judge, recorded_config
from tests.tiny_model import tiny_words


@pytest.mark.parametrize("kind", ["classifier", "tagger", "question_answering"])
@pytest.mark.parametrize(
    ("split", "record", "flags"),
    [
        ("dev", "--eval_file=data/gone.csv", ("--eval_file", "--no_gate")),
        ("train", "--train_file=data/gone.csv", ("--calibration_file",)),
        ("dev", "--task_name=sst-2\n--data_dir=data/gone.csv", ("--eval_file", "--no_gate")),
    ],
)
def test_missing_files_are_named_with_the_flags_that_replace_them(
    tmp_path, kind, split, record, flags
):
    served = types.SimpleNamespace(
        kind=kind, vocab=Vocab(tiny_words()), do_lower_case=True, labels=("a", "b")
    )
    (tmp_path / "run.flags").write_text(f"{record}\n")
    with pytest.raises(ValueError, match=r"data/gone\.csv") as error:
        make_judge(served, str(tmp_path), split)
    assert all(flag in str(error.value) for flag in flags)


@pytest.mark.parametrize("value", [True, False])
def test_a_recorded_flag_is_true_or_false(tmp_path, value):
    (tmp_path / "run.flags").write_text(f"--skip_unlabelled={str(value).lower()}\n")
    assert recorded_config(ClassifierConfig, str(tmp_path)).skip_unlabelled is value
