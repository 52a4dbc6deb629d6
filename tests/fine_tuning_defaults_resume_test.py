"""A run that chose settings itself goes on by the same command, in every kind of run."""

import pytest

from bert_tf.checkpoints.run_record import recorded
from tests.fine_tune import FLAGS, fine_tune, texts, write_folder, write_table

KINDS = {
    "plain": {},
    "seeds": {"num_seeds": 2},
    "folds": {"folds": 2},
    "few_shot": {"few_shot": "true", "train_file": "few.csv", "pairs_per_example": 2},
}
CHOSEN = ("learning_rate", "max_seq_length", "num_train_epochs")


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_settings_that_were_chosen_are_those_of_the_resumed_run(tmp_path, kind):
    folder = write_folder(tmp_path)
    write_table(folder / "few.csv", texts(12))
    command = {name: value for name, value in FLAGS.items() if name not in CHOSEN}
    command |= {
        "do_train": "true",
        "train_file": "train.csv",
        "init_checkpoint": folder / "model",
        "output_dir": folder / "run",
        "save_checkpoints_steps": 1000,
        **KINDS[kind],
    }
    command["train_file"] = folder / command["train_file"]
    assert fine_tune("run_classifier", **command) == 0
    run = folder / "run"
    weights = {path: path.read_bytes() for path in run.rglob("model.ckpt-*.data-*")}
    records = [path.parent for path in run.rglob("run.flags")]
    assert weights and all(recorded(str(path), "learning_rate") for path in records)
    # A process that was killed at the end of a run left checkpoints and no results.
    for path in run.rglob("*.json"):
        if path.name in ("fold.json", "folds.json", "seeds.json"):
            path.unlink()
    assert fine_tune("run_classifier", **command) == 0
    assert {path: path.read_bytes() for path in run.rglob("model.ckpt-*.data-*")} == weights
