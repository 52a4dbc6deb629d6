"""Runs that are stopped or killed at any moment go on to the same numbers, to the bit."""

import random
import re
import signal
import time

import pytest

from bert_tf.system.files import exclusive
from bert_tf.training.metrics_log import read_metrics
from bert_tf.training.stopping import PREEMPTED
from tests.fine_tune import FLAGS, fine_tune, refuse, texts, write_folder, write_table
from tests.programs import finish, start

NUM_STEPS = 300


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_folder(tmp_path_factory.mktemp("resumed"))


def flags_of(folder, output_dir, **changed):
    """Returns flags of a run with dropout, evaluations and checkpoints at odd moments."""
    return {
        **FLAGS,
        "do_train": "true",
        "do_eval": "true",
        "do_predict": "true",
        "num_train_steps": NUM_STEPS,
        "save_checkpoints_steps": 17,
        "eval_steps": 20,
        "log_steps": 7,
        "iterations_per_loop": 3,
        "init_checkpoint": folder / "model",
        "train_file": folder / "train.csv",
        "eval_file": folder / "dev.csv",
        "predict_file": folder / "dev.csv",
        "output_dir": folder / output_dir,
        **changed,
    }


@pytest.fixture(scope="module")
def whole(folder):
    """A run that nothing interrupts; returns its directory."""
    finish(start("run_classifier", **flags_of(folder, "whole")))
    return folder / "whole"


def signal_after(process, log, num_lines, number):
    """Sends a signal once the log has so many lines, a random moment later."""
    end = time.monotonic() + 240
    while not log.exists() or log.read_bytes().count(b"\n") < num_lines:
        assert process.poll() is None and time.monotonic() < end, process.communicate()[0]
        time.sleep(0.01)
    time.sleep(random.uniform(0, 0.05))
    process.send_signal(number)
    printed = process.communicate(timeout=120)[0]
    return process.returncode, printed


@pytest.mark.slow
def test_stopped_then_killed_then_finished(folder, whole):
    command = flags_of(folder, "broken")
    log = folder / "broken/metrics.jsonl"
    process = start("run_classifier", **command)
    status, printed = signal_after(process, log, 4, signal.SIGTERM)
    assert status == PREEMPTED, printed
    assert "resume" in printed
    saved = max(int(path.stem.split("-")[1]) for path in log.parent.glob("model.ckpt-*.index"))
    assert f" step {saved};" in printed
    assert read_metrics(log)[-1]["step"] <= saved < NUM_STEPS

    process = start("run_classifier", **command)
    status, printed = signal_after(process, log, 14, signal.SIGKILL)
    assert status == -signal.SIGKILL
    assert re.search(rf"{folder / 'broken'} .*step {saved}\.", printed)
    assert not (folder / "broken/predictions.tsv").exists()
    # What a save leaves behind that is cut off between its files.
    (folder / "broken/model.ckpt-299.data-00000-of-00001").write_bytes(b"half")

    finish(start("run_classifier", **command))
    names = ["metrics.jsonl", "eval_metrics.jsonl", "eval_results.txt", "test_results.tsv"]
    names += ["report.txt", "worst_errors.tsv", "best_checkpoint.json", "checkpoint"]
    names += [f"model.ckpt-{NUM_STEPS}.data-00000-of-00001"]
    for name in names:
        assert (folder / "broken" / name).read_bytes() == (whole / name).read_bytes(), name
    assert not list((folder / "broken").glob("model.ckpt-299*"))
    assert read_metrics(log)[-1]["step"] == NUM_STEPS // 7 * 7


@pytest.mark.slow
def test_what_does_not_fit_the_run_is_refused(folder):
    short, copy = {"num_train_steps": 4, "save_checkpoints_steps": 3}, folder / "copy"
    assert fine_tune("run_classifier", **flags_of(folder, "copy", **short)) == 0
    before = {path.name: path.read_bytes() for path in copy.iterdir() if path.is_file()}

    def refused(**changed):
        message = refuse("run_classifier", **flags_of(folder, "copy", **short, **changed))
        kept = {path.name: path.read_bytes() for path in copy.iterdir() if path.is_file()}
        kept.pop(".lock", None)  # The test's own.
        assert kept == before
        return message

    message = refused(learning_rate=1e-3, max_seq_length=12)
    assert re.search("--learning_rate .*0.001, .*0.003", message)
    assert re.search("--max_seq_length .*12, .*16", message)
    with exclusive(copy / ".lock"):
        assert f"{copy}" in refused()
    for path in copy.glob("model.ckpt-4.*"):
        del before[path.name]
        path.unlink()
    table, kept = folder / "train.csv", folder / "kept.csv"
    table.rename(kept)
    try:
        write_table(table, [{**row, "text": row["text"] + " film"} for row in texts(48)])
        assert re.search(f"{copy} .*fingerprint .*--vocab_file=", refused())
        write_table(table, [{**row, "label": f"{n % 2}"} for n, row in enumerate(texts(48))])
        message = refused(eval_file=table)
        assert re.search(rf"{copy} .*3 labels \['neg', 'pos', 'so-so'\], .*2 ", message)
    finally:
        kept.rename(table)
