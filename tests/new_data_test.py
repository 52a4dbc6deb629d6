"""What a run takes over from an earlier one, and runs that have not finished."""

import logging
import shutil

import pytest

import bert_tf
from bert_tf.checkpoints.run_record import recorded
from bert_tf.checkpoints.unfinished import warn_if_unfinished
from tests.fine_tune import log_of, refuse, texts, write_folder
from tests.programs import finish, run


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = write_folder(tmp_path_factory.mktemp("new_data"))
    for name, count in (("old.csv", 24), ("new.csv", 12)):
        lines = ["said^is", *(f"{row['text']}^{row['label']}" for row in texts(count))]
        (path / name).write_text("\n".join(lines) + "\n", encoding="utf8")
    flags = {"text_column": "said", "label_column": "is", "delimiter": "^"}
    finish(run("run_classifier", **flags_of(path, "old", "model", **flags)))
    return path


def flags_of(folder, output, start, **changed):
    return {
        "do_train": "true",
        "train_batch_size": 8,
        "max_seq_length": 16,
        "jit_compile": "false",
        "num_train_steps": 2,
        "init_checkpoint": folder / start,
        "train_file": folder / f"{output}.csv",
        "output_dir": folder / output,
        **changed,
    }


@pytest.mark.slow
def test_a_training_on_new_data_reads_them_as_the_earlier_run(folder, caplog):
    log = log_of(caplog, "run_classifier", **flags_of(folder, "new", "old"))
    assert "--text_column=said --label_column=is --delimiter=^" in log
    assert recorded(str(folder / "new"), "text_column") == "said"
    # A given flag wins, and a new head is for another task.
    given = flags_of(folder, "other", "old", train_file=folder / "new.csv")
    assert "'text'" in refuse("run_classifier", **given, text_column="text")
    assert "'text'" in refuse("run_classifier", **given, new_head="true", delimiter="^")


@pytest.mark.slow
def test_a_mistyped_run_directory_names_the_run(folder):
    given = {"do_predict": "true", "predict_file": folder / "new.csv"}
    message = refuse("run_classifier", **given, output_dir=folder / "olt")
    assert str(folder / "olt") in message and str(folder / "old") in message
    assert "--init_checkpoint" in refuse(
        "run_classifier", **given, output_dir=folder / "elsewhere/x"
    )


@pytest.fixture
def unfinished(folder, tmp_path):
    """The run with the record of one of 37 steps."""
    path = tmp_path / "unfinished"
    shutil.copytree(folder / "old", path)
    record = (path / "run.flags").read_text(encoding="utf8")
    record = record.replace("--num_train_steps=2\n", "--num_train_steps=37\n")
    (path / "run.flags").write_text(record, encoding="utf8")
    return path


def told(caplog):
    messages = [record.getMessage() for record in caplog.records]
    return [text for text in messages if "2 of 37" in text and "run.flags" in text]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_what_uses_an_unfinished_run_says_so_once(unfinished, folder, caplog):
    with caplog.at_level(logging.WARNING, logger="absl"):
        for _ in range(2):
            bert_tf.load(unfinished)
        assert len(told(caplog)) == 1
        caplog.clear()
        bert_tf.load(folder / "old")
    assert not told(caplog)


@pytest.mark.slow
def test_programs_say_it_as_well(unfinished, folder, tmp_path):
    warn_if_unfinished.cache_clear()
    export = {"model_dir": unfinished, "output_dir": tmp_path / "served"}
    convert = {"input": unfinished, "output": tmp_path / "converted", "to": "huggingface"}
    predict = {
        "do_predict": "true",
        "predict_file": folder / "new.csv",
        "delimiter": "^",
        "output_dir": unfinished,
    }
    for program, given in (
        ("export.saved_model", export),
        ("convert_checkpoint", convert),
        ("run_classifier", predict),
    ):
        warn_if_unfinished.cache_clear()
        assert run(program, **given).printed.count("2 of 37") == 1, program


def test_early_stopping_finishes_a_run(unfinished, caplog):
    with (unfinished / "run.flags").open("a", encoding="utf8") as file:
        file.write("--early_stopping_evaluations=2\n")
    (unfinished / "best_checkpoint.json").write_text('{"step": 1}')
    lines = [f'{{"step": {step}}}\n' for step in (1, 2, 3)]
    for number, expected in ((3, 0), (2, 1)):
        (unfinished / "eval_metrics.jsonl").write_text("".join(lines[:number]))
        with caplog.at_level(logging.WARNING, logger="absl"):
            warn_if_unfinished(unfinished)
        assert len(told(caplog)) == expected
        warn_if_unfinished.cache_clear()
