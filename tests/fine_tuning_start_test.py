"""What fine-tuning starts with: the optimizer, and a run of several seeds."""

import contextlib
import re
import shutil
from unittest import mock

import pytest
from absl import flags
from absl.testing import flagsaver

import bert_tf
from bert_tf.checkpoints.run_record import recorded
from bert_tf.config import DataConfig, ModelConfig, OptimizerConfig, TrainingConfig
from bert_tf.config.fine_tuning_config import ClassifierConfig, FineTuningConfig
from bert_tf.tasks.base.programs.defaults import with_sizes
from bert_tf.tasks.base.programs.program import Configs, read_configs
from bert_tf.training.metrics_log import read_metrics
from tests.fine_tune import FLAGS, fine_tune, refuse, write_folder
from tests.float_bounds import assert_close
from tests.programs import own_flags

NO_FLAGS = "--nodo_eval"  # With an argument, those that all runs of the tests share do not count.
GOOGLE = "--flagfile=configs/google_fine_tuning.flags"
# Of the version whose default was Google's optimizer.
GOOGLE_LOSSES = [1.0866337, 1.1098523, 1.1163530, 1.0840256, 1.1714151]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_folder(tmp_path_factory.mktemp("start"), num_hidden_layers=2)


@pytest.fixture(scope="module")
def google(folder):
    """Flags and arguments of a run as Google's."""
    values = {
        **{name: value for name, value in FLAGS.items() if name != "optimizer"},
        "do_train": "true",
        "init_checkpoint": folder / "model",
        "train_file": folder / "train.csv",
        "num_train_steps": 5,
        "warmup_proportion": 0.2,
        "output_dir": folder / "google",
    }
    assert fine_tune("run_classifier", GOOGLE, NO_FLAGS, **values) == 0
    return values


def test_googles_flagfile_gives_the_losses_it_always_gave(google):
    losses = [line["loss"] for line in read_metrics(google["output_dir"] / "metrics.jsonl")]
    assert_close(losses, GOOGLE_LOSSES)


def test_a_run_goes_on_with_the_optimizer_that_it_began_with(google, folder):
    shutil.copytree(google["output_dir"], folder / "again")
    assert fine_tune("run_classifier", NO_FLAGS, **{**google, "output_dir": folder / "again"}) == 0
    assert recorded(str(folder / "again"), "optimizer") == "adam_weight_decay"


def test_several_seeds_go_on_with_the_optimizer_of_the_first(google, folder):
    path = folder / "seeds" / "seed-12345"
    path.mkdir(parents=True)
    shutil.copy(google["output_dir"] / "run.flags", path)
    with flagsaver.flagsaver():
        flags.FLAGS(["", "--do_train", "--num_seeds=2", f"--output_dir={path.parent}"])
        assert read_configs(ClassifierConfig).optimizer.optimizer == "adam_weight_decay"


def test_a_folder_of_several_seeds_names_its_runs(google, folder):
    for seed in (12345, 12346):
        shutil.copytree(google["output_dir"], folder / f"five/seed-{seed}")
    (folder / "five/seed-12347").mkdir()  # Stopped before its first checkpoint.
    given = {"do_predict": "true", "predict_file": folder / "train.csv"}
    runs = f" {folder / 'five/seed-12345'}, {folder / 'five/seed-12346'}."
    assert refuse("run_classifier", output_dir=folder / "five", **given).endswith(runs)
    with pytest.raises(ValueError, match=re.escape(runs)):
        bert_tf.load(folder / "five")


@pytest.mark.parametrize("do_predict", [False, True])
def test_batches_that_nobody_asked_for_may_be_of_any_size(do_predict):
    configs = Configs(
        ModelConfig(),
        DataConfig(),
        OptimizerConfig(),
        TrainingConfig(do_train=False, eval_batch_size=7),
        FineTuningConfig(predict_batch_size=7, do_predict=do_predict),
        None,
    )
    refused = pytest.raises(ValueError, match="--predict_batch_size=7.*2")
    with own_flags(), refused if do_predict else contextlib.nullcontext():
        with_sizes(configs, 0, mock.Mock(num_replicas_in_sync=2))
