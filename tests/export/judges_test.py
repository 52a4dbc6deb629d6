"""The examples that a LiteRT file is scored on, where a run does not have them any more."""

import types

import pytest

from bert_tf.config.fine_tuning_config import ClassifierConfig
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


def write_run(folder, kind, given, **flags):
    """Writes the record of a run; returns a stand-in for its model."""
    lines = [f"--{name}={value}" for name, value in {**given, **flags}.items()]
    (folder / "run.flags").write_text("\n".join(lines) + "\n")
    values = {"kind": kind, "vocab": Vocab(tiny_words()), "do_lower_case": True}
    return types.SimpleNamespace(**values, max_seq_length=16)


def test_rows_that_the_run_skips_are_not_scored(tmp_path):
    file = tmp_path / "dev.csv"
    file.write_text("text;label\na;no\nb;\nc;yes\n")
    given = {"eval_file": file, "text_column": "text", "label_column": "label", "delimiter": ";"}
    served = write_run(tmp_path, "classifier", given, skip_unlabelled="true")
    served.labels = ("no", "yes")
    judge = make_judge(served, str(tmp_path))
    assert len(judge.rows) == 2 and judge.examples.labels.tolist() == [0, 1]
    served = write_run(tmp_path, "classifier", given)
    served.labels = ("no", "yes")
    with pytest.raises(ValueError, match=r"dev\.csv line 3"):
        make_judge(served, str(tmp_path))


def test_sentences_that_the_run_skips_are_not_scored(tmp_path):
    file = tmp_path / "dev.jsonl"
    tagged = '{"tokens": ["a"], "ner_tags": ["X"]}\n'
    file.write_text(tagged + '{"tokens": ["b"], "ner_tags": null}\n' + tagged)
    given = {"eval_file": file}
    served = write_run(tmp_path, "tagger", given, skip_unlabelled="true")
    served.labels = ("O", "X")
    judge = make_judge(served, str(tmp_path))
    assert [sentence.words for sentence in judge.examples.sentences] == [("a",), ("a",)]
    served = write_run(tmp_path, "tagger", given)
    served.labels = ("O", "X")
    with pytest.raises(ValueError, match=r"dev\.jsonl line 2"):
        make_judge(served, str(tmp_path))


@pytest.mark.parametrize("value", [True, False])
def test_a_recorded_flag_is_true_or_false(tmp_path, value):
    (tmp_path / "run.flags").write_text(f"--skip_unlabelled={str(value).lower()}\n")
    assert recorded_config(ClassifierConfig, str(tmp_path)).skip_unlabelled is value
