"""The loop: resumed to the same bits, stopped by signals, stopped by a loss that is not finite."""

import contextlib
import math
import shutil
import types

import keras
import pytest
import tensorflow as tf

from bert_tf.config import OptimizerConfig, TrainingConfig
from bert_tf.training import trainer as trainer_module
from bert_tf.training.evaluator import note_evaluation
from bert_tf.training.metrics_log import read_metrics
from bert_tf.training.optimizers import build_optimizer
from bert_tf.training.reporting import Progress, write_eval_results
from bert_tf.training.time_budget import FAR_AWAY
from bert_tf.training.trainer import Trainer
from tests.float_bounds import close_to
from tests.training.toy_task import TOY, ToyTask

STEPS = 12
# One layer: most of the time of these tests is tracing.
DROPPING = TOY.from_dict({**TOY.to_dict(), "hidden_dropout_prob": 0.1, "num_hidden_layers": 1})


def make_trainer(path, task=None, schedule=None, budget_of=None, **options):
    """Makes a trainer of STEPS, or of the budget that `budget_of` makes, and restores it."""
    keras.utils.set_random_seed(5)
    task = task or ToyTask(DROPPING)
    optimizer = build_optimizer(OptimizerConfig(learning_rate=1e-2, num_warmup_steps=2), schedule)
    optimizer.build(task.model.trainable_variables)
    options = {"save_checkpoints_steps": 5, "log_steps": 4, "jit_compile": False, **options}
    config = TrainingConfig(
        output_dir=str(path),
        train_batch_size=8,
        eval_batch_size=8,
        max_eval_steps=2,
        gradient_accumulation_steps=1,
        **options,
    )
    num_steps = 0 if budget_of else STEPS
    trainer = Trainer(
        task,
        optimizer,
        tf.distribute.get_strategy(),
        config,
        num_train_steps=num_steps,
        random_seed=5,
        progress=Progress(num_steps, 8, 12, 1e6, 0.0),
        time_budget=budget_of(config) if budget_of else None,
    )
    trainer.restore()
    return trainer


def kill_at(last, trainer):
    """Trains until a step, which is not reported any more; returns the rows of those before."""
    add, rows = trainer.log.add, []

    def die(step, row):
        rows.append(row)
        if step == last:
            raise KeyboardInterrupt
        return add(step, row)

    trainer.log.add = die
    with pytest.raises(KeyboardInterrupt):
        trainer.train()
    return rows


@pytest.fixture(scope="module")
def whole_run(tmp_path_factory):
    path = tmp_path_factory.mktemp("whole")
    make_trainer(path).train()
    return path


def test_lines_are_at_the_logged_steps(whole_run):
    lines = read_metrics(whole_run / "metrics.jsonl")
    assert [line["step"] for line in lines] == [1, 4, 8, 12]
    assert lines[-1]["loss"] == close_to(
        lines[-1]["masked_lm_loss"] + lines[-1]["next_sentence_loss"]
    )
    assert lines[-1]["loss"] < lines[0]["loss"]


def test_a_run_cut_off_anywhere_ends_with_the_same_bits(whole_run, tmp_path):
    """Dies after 7 steps, two beyond the checkpoint at 5, within a line's steps."""
    kill_at(7, make_trainer(tmp_path))
    with (tmp_path / "metrics.jsonl").open("a", encoding="utf8") as file:
        file.write('{"step": 8, "lo')  # A line that the kill cut.
    again = make_trainer(tmp_path)
    assert again.step == 5
    again.train()
    ours, expected = (p / "metrics.jsonl" for p in (tmp_path, whole_run))
    assert ours.read_bytes() == expected.read_bytes()
    name = f"model.ckpt-{STEPS}.data-00000-of-00001"
    assert (tmp_path / name).read_bytes() == (whole_run / name).read_bytes()


@pytest.mark.slow
def test_a_killed_run_resumes_from_a_checkpoint_by_time(whole_run, tmp_path, monkeypatch):
    """It saves every 100 steps, and is killed long before."""
    monkeypatch.setattr(trainer_module, "SECONDS_BETWEEN_SAVES", 0.0)
    monkeypatch.setattr(trainer_module, "WRITING_SHARE", math.inf)
    options = {"save_checkpoints_steps": 100, "iterations_per_loop": 1}
    trainer = make_trainer(tmp_path, **options)
    kill_at(7, trainer)
    assert trainer.directory.steps() == [6]
    monkeypatch.undo()
    again = make_trainer(tmp_path, **options)
    assert again.step == 6
    again.train()
    assert again.directory.steps() == [STEPS]  # As in a run that was not killed.
    for name in ("metrics.jsonl", f"model.ckpt-{STEPS}.data-00000-of-00001"):
        assert (tmp_path / name).read_bytes() == (whole_run / name).read_bytes()


def test_time_between_checkpoints_follows_the_budget(tmp_path):
    trainer = make_trainer(tmp_path, ToyTask(DROPPING))
    assert trainer.seconds_between_saves() == 120
    for minutes, seconds in ((2, 12), (60, 120), (0.5, 3)):
        trainer.time_budget = types.SimpleNamespace(budget=60 * minutes, is_limited=True)
        assert trainer.seconds_between_saves() == pytest.approx(seconds)
    trainer.directory.write_seconds = 30.0  # No more than a tenth of the time goes into writing.
    assert trainer.seconds_between_saves() == pytest.approx(300)
    rewinding = make_trainer(tmp_path, ToyTask(DROPPING), on_bad_loss="rewind")
    assert rewinding.seconds_between_saves() == math.inf  # It would rewind to another step.


def test_lines_follow_the_last_step_that_the_clock_decides_on(tmp_path):
    trainer = make_trainer(tmp_path, ToyTask(DROPPING), log_steps=100)
    for last, steps in ((FAR_AWAY, 100), (60, 3), (8000, 100), (7, 1)):
        trainer._set_last_step(last)
        assert (trainer.num_train_steps, trainer.log.log_steps) == (last, steps)


@pytest.mark.slow
def test_loss_that_is_not_finite_stops_and_keeps_the_last_good_checkpoint(tmp_path):
    trainer = make_trainer(tmp_path, ToyTask(DROPPING, nan_from_step=7))
    with pytest.raises(FloatingPointError, match=r"masked_lm_loss.*step 8 .*model.ckpt-5"):
        trainer.train()
    assert trainer.directory.steps() == [5]


@pytest.mark.slow
def test_evaluation_that_a_kill_took_is_made_up_for(tmp_path):
    options = {"eval_steps": 5, "save_checkpoints_steps": 5}
    make_trainer(tmp_path / "whole", **options).train()
    make_trainer(tmp_path / "cut", **options).train()
    evaluations = tmp_path / "cut" / "eval_metrics.jsonl"
    for path in (tmp_path / "cut").glob("model.ckpt-12*"):
        path.unlink()
    first, *others = evaluations.read_text().splitlines()
    assert len(others) == 2
    evaluations.write_text(first + "\n")  # killed after the save at step 10
    make_trainer(tmp_path / "cut", **options).train()
    expected = (tmp_path / "whole" / "eval_metrics.jsonl").read_text()
    assert evaluations.read_text() == expected


@pytest.mark.slow
def test_other_examples_are_refused(whole_run, tmp_path):
    path = tmp_path / "copy"
    shutil.copytree(whole_run, path)
    for file in path.glob("model.ckpt-12*"):
        file.unlink()
    trainer = make_trainer(path)
    trainer.data_fingerprint = "0123456789ab"
    with pytest.raises(ValueError, match="fingerprint .*0123456789ab.*--init_checkpoint="):
        trainer.train()


def test_reading_a_run_changes_nothing_in_it(whole_run, tmp_path):
    path = tmp_path / "copy"
    shutil.copytree(whole_run, path)
    (path / "model.ckpt-13.data-00000-of-00001.tempstate1").write_bytes(b"being written")
    with (path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 13}\n')
    before = {p: p.read_bytes() for p in path.rglob("*") if p.is_file()}
    make_trainer(path).evaluate()
    assert {p: p.read_bytes() for p in path.rglob("*") if p.is_file()} == before


def test_finished_run_does_nothing_more(whole_run):
    trainer = make_trainer(whole_run)
    before = (whole_run / "metrics.jsonl").read_bytes()
    trainer.train()
    assert trainer.step == STEPS
    assert (whole_run / "metrics.jsonl").read_bytes() == before


class CountedTask(ToyTask):
    """Counts the pipelines that are made for evaluations."""

    eval_datasets = 0

    def eval_dataset(self, *sizes):
        self.eval_datasets += 1
        return super().eval_dataset(*sizes)


def test_evaluation_while_training_marks_the_best(tmp_path):
    trainer = make_trainer(tmp_path, CountedTask(DROPPING), eval_steps=6)
    trainer.train()
    lines = read_metrics(tmp_path / "eval_metrics.jsonl")
    assert [line["step"] for line in lines] == [6, 12]
    best = min(lines, key=lambda line: line["loss"])
    assert trainer.directory.best() == {"step": best["step"], "score": -best["loss"]}
    assert trainer.evaluate() == close_to({k: v for k, v in lines[1].items() if k != "step"})
    assert trainer.task.eval_datasets == 1  # Tracing one takes as long as many evaluations.


def test_hosts_wait_for_what_an_evaluation_writes(tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(
        trainer_module, "any_worker", lambda _, flag: seen.append(evaluated_steps(tmp_path)) or flag
    )
    trainer = make_trainer(tmp_path, eval_steps=6)
    with_losses(trainer, 2.0, 1.0).train()
    assert seen[-1] == [6, 12]


def test_samples_see_the_weights_that_are_evaluated(tmp_path):
    trainer, inside, seen = make_trainer(tmp_path), [], []

    @contextlib.contextmanager
    def averaged():
        inside.append(True)
        yield
        inside.clear()

    trainer.optimizer = types.SimpleNamespace(averaged_weights=averaged)
    trainer.samples = types.SimpleNamespace(note=lambda step: seen.append((step, *inside)))
    trainer.note_samples()
    assert seen == [(0, True)]


class IdleStep:
    """Counts steps and changes nothing: what the loop does can be seen without training."""

    def __init__(self, columns):
        self.columns = columns

    def __call__(self, iterator, first_step, num_steps):
        return tf.zeros([num_steps, len(self.columns)])


def with_losses(trainer, *losses):
    """Makes the trainer's evaluations have these losses, one after the other."""
    left = list(losses)
    trainer.evaluate = lambda: {"loss": left.pop(0)}
    trainer.train_step = IdleStep(trainer.train_step.columns)
    return trainer


def evaluated_steps(path):
    return [line["step"] for line in read_metrics(path / "eval_metrics.jsonl")]


STOPPING = {"eval_steps": 2, "save_checkpoints_steps": 2, "early_stopping_evaluations": 2}


@pytest.mark.parametrize(
    ("losses", "last"),
    [
        ([3.0, 2.0, 2.5, 2.1, 1.0, 0.5], 8),  # two in a row are no better than the second
        pytest.param(
            [3.0, 2.0, 2.0, 2.0, 1.0, 0.5], 8, marks=pytest.mark.slow
        ),  # as good is no better
        ([3.0, 3.1, 2.9, 3.0, 2.8, 2.9], 12),  # every other one is better
        ([1.0, 2.0, 3.0, 0.5, 0.4, 0.3], 6),
    ],
)
def test_early_stopping_ends_the_run(tmp_path, losses, last):
    trainer = with_losses(make_trainer(tmp_path, **STOPPING), *losses)
    trainer.train()
    steps = list(range(2, last + 1, 2))
    assert trainer.step == last and trainer.is_finished()
    assert evaluated_steps(tmp_path) == steps
    seen = losses[: len(steps)]
    assert trainer.directory.best() == {"step": steps[seen.index(min(seen))], "score": -min(seen)}
    assert trainer.directory.steps()[-1] == last


def test_a_stopped_run_stays_stopped_and_the_best_is_there(tmp_path):
    with_losses(make_trainer(tmp_path, **STOPPING), 3.0, 2.0, 2.5, 2.1).train()
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    again = make_trainer(tmp_path, **STOPPING)
    assert again.step == 8 and again.is_finished()
    again.train()
    assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} == before
    assert again.directory.restore_best() == 4
    # With more patience it goes on from where it stopped.
    patient = make_trainer(tmp_path, **{**STOPPING, "early_stopping_evaluations": 3})
    assert not patient.is_finished()
    with_losses(patient, 2.4, 1.0).train()
    assert evaluated_steps(tmp_path) == [2, 4, 6, 8, 10]


@pytest.mark.slow
def test_a_run_cut_off_stops_at_the_same_evaluation(tmp_path):
    with_losses(make_trainer(tmp_path, **STOPPING), 3.0, 2.0, 2.5, 2.1).train()
    for step in (6, 8):
        for path in tmp_path.glob(f"model.ckpt-{step}.*"):
            path.unlink()
    again = make_trainer(tmp_path, **STOPPING)
    assert again.step == 4 and not again.is_finished()
    with_losses(again, 2.5, 2.1).train()
    assert again.step == 8 and evaluated_steps(tmp_path) == [2, 4, 6, 8]


def test_eval_results_have_googles_form(tmp_path):
    results = {"loss": 2.5, "masked_lm_accuracy": 0.5}
    write_eval_results(tmp_path / "eval_results.txt", 12, results, {"masked_lm_loss": 3.0})
    assert (tmp_path / "eval_results.txt").read_text(encoding="utf8") == (
        "global_step = 12\nloss = 2.5\nmasked_lm_accuracy = 0.5\nunigram_masked_lm_loss = 3.0\n"
    )


def test_an_evaluation_stands_beside_the_best_and_the_baseline(whole_run, tmp_path):
    trainer = make_trainer(tmp_path)
    trainer.task.score = lambda results: -results["loss"]
    for step, loss in ((4, 2.0), (8, 3.0)):
        trainer.step = step
        note_evaluation(tmp_path, step, {"loss": loss})
        text = trainer.comparison({"loss": loss})
        assert text.startswith("; ") and text.endswith(": step 4, loss 2") == (step == 8)
    trainer.baseline = lambda: {"loss": 5.0}
    assert trainer.comparison({"loss": 3.0}).endswith("; baseline: loss 5")
