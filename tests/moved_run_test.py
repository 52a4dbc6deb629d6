"""Runs that move between strategies through checkpoints give the numbers of one device."""

import json
import pathlib
import shutil

import numpy as np
import pytest

from bert_tf.training.metrics_log import read_metrics
from tests.conftest import CORPUS
from tests.fine_tune import FLAGS, read_results, read_tsv, write_folder
from tests.float_bounds import assert_close
from tests.programs import SMALL_BERT, finish, start

STEPS = 12
EVERY = {"save_checkpoints_steps": 3, "keep_checkpoint_max": 9, "log_steps": 1}
# What the run is continued on, three steps each.
MOVES = (
    {},
    {"distribution": "mirrored", "num_devices": 2, "gradient_accumulation_steps": 2},
    {"local_workers": 2},
    {"gradient_accumulation_steps": 4},
)
PRETRAINING = {
    "do_train": "true",
    **SMALL_BERT,
    "train_batch_size": 8,
    "num_train_steps": STEPS,
    "num_warmup_steps": 4,
    "learning_rate": 1e-3,
    "do_eval": "true",
    "eval_batch_size": 8,
    "max_eval_steps": 2,
    "jit_compile": "false",
    "num_workers": 1,
    **EVERY,
}


def run(program, **flags):
    """Runs a program, through the launcher if it has `local_workers`."""
    workers = flags.pop("local_workers", 0)
    if workers:
        given = [f"--{name}={value}" for name, value in flags.items()]
        launcher = ("launch", f"--local_workers={workers}", "--", f"bert_tf.{program}")
        finish(start(*launcher, *given))
    else:
        finish(start(program, **flags))


def keep_until(folder, step):
    """Deletes the checkpoints after `step`: the run goes on from there."""
    for path in folder.glob("model.ckpt-*.index"):
        if int(path.stem.split("-")[1]) > step:
            path.unlink()


def losses(folder):
    lines = read_metrics(pathlib.Path(folder, "metrics.jsonl"))
    assert [line["step"] for line in lines] == list(range(1, STEPS + 1))
    return np.array([line["loss"] for line in lines])


@pytest.mark.slow
@pytest.mark.parametrize("program", ["run_pretraining", "run_classifier"])
def test_a_moved_run_has_the_losses_of_one_that_stayed(program, tmp_path):
    if program == "run_pretraining":
        corpus = tmp_path / "corpus.txt"
        corpus.write_text(CORPUS + "\n", encoding="utf8")
        flags = {**PRETRAINING, "input_file": corpus}
    else:
        write_folder(tmp_path)
        config = tmp_path / "model" / "bert_config.json"
        values = json.loads(config.read_text(encoding="utf8"))
        dropout = {name: 0.0 for name in values if name.endswith("dropout_prob")}
        config.write_text(json.dumps(values | dropout), encoding="utf8")
        files = {"init_checkpoint": tmp_path / "model", "train_file": tmp_path / "train.csv"}
        files |= {"eval_file": tmp_path / "dev.csv", "predict_file": tmp_path / "dev.csv"}
        flags = {**FLAGS, **EVERY, **files, "do_train": "true", "num_train_steps": STEPS}
        flags |= {"learning_rate": 1e-3, "do_eval": "true", "do_predict": "true"}
        flags["eval_batch_size"] = 4
    stayed, moved = tmp_path / "stayed", tmp_path / "moved"
    run(program, **flags, output_dir=stayed)
    shutil.copytree(stayed, moved)
    for place, changes in enumerate(MOVES[1:], start=1):
        keep_until(moved, 3 * place)
        run(program, **{**flags, **changes}, output_dir=moved)
        assert read_results(moved) == pytest.approx(read_results(stayed), rel=1e-3)
        if program == "run_classifier":
            assert len(read_tsv(moved / "predictions.tsv")) == 25
    assert_close(losses(moved), losses(stayed))
    assert losses(moved).tolist() != losses(stayed).tolist()  # It was moved.
