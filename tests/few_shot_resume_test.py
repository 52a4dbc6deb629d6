"""`run_classifier --few_shot`, killed in each of its stages, goes on to the same numbers."""

import signal
import subprocess
import sys

import pytest

from tests.fine_tune import FLAGS, texts, write_folder, write_table
from tests.fine_tuning_resume_test import signal_after
from tests.programs import finish, start
from tests.shared_data import ROOT

# Runs the program, which kills itself when the head is to be fitted.
KILLED = """
import os, signal, sys
from bert_tf.tasks.classification import few_shot_program
few_shot_program.fit_head = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
import runpy
runpy.run_module("bert_tf.run_classifier", run_name="__main__")
"""


def flags_of(folder, output_dir):
    """Returns flags of a run of 240 steps of the domain and 160 of the embedder, with dropout."""
    return {
        **FLAGS,
        "few_shot": "true",
        "do_train": "true",
        "do_predict": "true",
        "pairs_per_example": 8,
        "num_train_epochs": 40,
        "train_batch_size": 12,
        "save_checkpoints_steps": 7,
        "init_checkpoint": folder / "model",
        "train_file": folder / "few.csv",
        "unlabelled_file": folder / "texts.csv",
        "predict_file": folder / "dev.csv",
        "output_dir": folder / output_dir,
    }


@pytest.mark.slow
def test_killed_in_each_stage(tmp_path):
    folder = write_folder(tmp_path)
    write_table(folder / "few.csv", texts(12))
    write_table(folder / "texts.csv", [{"text": row["text"]} for row in texts(72)])
    finish(start("run_classifier", **flags_of(folder, "whole")))

    command = flags_of(folder, "broken")
    broken, whole = folder / "broken", folder / "whole"
    for stage in ("domain", "embedder"):
        process = start("run_classifier", **command)
        status, printed = signal_after(
            process, broken / stage / "metrics.jsonl", 30, signal.SIGKILL
        )
        assert status == -signal.SIGKILL, printed
        assert list((broken / stage).glob("model.ckpt-*.index"))
        assert not (broken / "predictions.tsv").exists()
    arguments = [f"--{name}={value}" for name, value in command.items()]
    done = subprocess.run([sys.executable, "-c", KILLED, *arguments], cwd=ROOT, check=False)
    assert done.returncode == -signal.SIGKILL
    assert not list(broken.glob("model.ckpt-*"))

    finish(start("run_classifier", **command))
    compared = ["predictions.tsv"]
    for stage in (".", "domain", "embedder"):
        (newest,) = sorted((whole / stage).glob("model.ckpt-*.data-00000-of-00001"))[-1:]
        compared.append(f"{stage}/{newest.name}")
    for name in compared:
        assert (broken / name).read_bytes() == (whole / name).read_bytes(), name
