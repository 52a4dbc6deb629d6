"""Runs with a budget of minutes, on a budget that the test moves."""

import shutil

import keras
import numpy as np
import pytest

from bert_tf.config import OptimizerConfig, TrainingConfig
from bert_tf.training import trainer as trainer_module
from bert_tf.training.metrics_log import read_metrics
from bert_tf.training.schedules import ByShare, LinearWarmupLinearDecay, build_schedule
from bert_tf.training.time_budget import TimeBudget
from tests.training import trainer_test
from tests.training.toy_task import ToyTask

OPTIMIZER = OptimizerConfig(
    learning_rate=1e-2, train_minutes=1.0, num_train_steps=0, warmup_proportion=0.2
)


class Hands:
    """A budget that is moved by hand."""

    def __init__(self):
        self.seconds = 1000.0

    def __call__(self):
        return self.seconds


def simulate(seconds_of, minutes=1.0, steps_a_call=3, **training):
    """Runs a time budget without a model; returns it, the rates by step and the seconds it took."""
    hands, schedule = Hands(), build_schedule(OPTIMIZER)
    budget = TimeBudget(minutes, schedule, TrainingConfig(train_batch_size=32, **training), hands)
    rates, step, pace = [], 0, 0.0
    budget.start()
    while step < budget.plan.last_step:
        count = min(steps_a_call if pace else 1, budget.plan.last_step - step)
        rates += [float(schedule(step + index)) for index in range(count)]
        taken = sum(seconds_of(step + index) for index in range(count))
        hands.seconds += taken
        counted = budget.tick(pace * count)
        pace = counted / count if step else 0.0
        step += count
        budget.last_step(step, step, pace, 1.0)
    return budget, np.array(rates), hands.seconds - 1000.0


@pytest.mark.slow
def test_of_a_steady_machine():
    """20 s of compilation, then 38 s of steps of 0.1 s, 2 s kept back."""
    budget, rates, seconds = simulate(lambda step: 0.1 if step else 20.0)
    assert budget.plan.last_step == len(rates) == pytest.approx(1 + 380, abs=1)
    assert seconds == pytest.approx(58.0, abs=0.15)
    # After the first step that was measured the share goes up evenly, and so the rate.
    share = np.arange(len(rates) - 2) / (len(rates) - 2)
    expected = [LinearWarmupLinearDecay(1e-2, 1000, 200)(1000 * value) for value in share]
    np.testing.assert_allclose(rates[2:], expected, rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(rates[:2], 0.0, atol=1e-7)


def test_a_machine_that_gets_slower_ends_in_time_without_a_jump_of_the_rate():
    budget, rates, seconds = simulate(lambda step: 0.1 if step < 250 else 0.3)
    assert 57.0 < seconds < 58.7
    assert budget.plan.share(len(rates)) == 1.0
    # The schedule's own jump, where warm-up ends, aside; rising takes 0.2 of the way at most.
    falling = np.diff(rates[np.argmax(rates) + 2 :])
    assert (falling <= 0).all() and falling.min() > -1e-2 * 5 / 250


@pytest.mark.slow
def test_a_machine_that_gets_faster_at_the_end_makes_no_steps_without_effect():
    _, rates, seconds = simulate(lambda step: 0.1 if step < 570 else 0.03, steps_a_call=20)
    assert seconds < 59.0
    assert np.flatnonzero(rates == 0).tolist() in ([0], [0, 1])


def test_compiling_for_larger_batches_is_reckoned_with():
    """48 s are left: 38 steps of 0.025 s, 40 of 0.05 s, twice 10 s, and 250 steps of 0.1 s."""
    ramp = TrainingConfig(train_batch_size=32, batch_ramp_start=8, batch_ramp_steps=80)
    budget = TimeBudget(1.0, build_schedule(OPTIMIZER), ramp, Hands())
    budget.used = 10.0
    assert budget.last_step(2, 2, 0.025, 1.0, compilation=10.0) == 80 + 250


def test_a_process_that_slept_goes_on_as_if_it_had_not():
    budget, rates, seconds = simulate(lambda step: 5000.0 if step == 100 else 0.1)
    assert seconds > 5000
    assert budget.used == pytest.approx(58.0, abs=0.4) and len(rates) == pytest.approx(580, abs=5)


def test_compiling_again_after_an_interruption_is_not_counted():
    hands, schedule = Hands(), build_schedule(OPTIMIZER)
    budget = TimeBudget(1.0, schedule, TrainingConfig(train_batch_size=32), hands)
    budget.restore({"used": 30.0, "plan": [2, 0.0, 100]})
    budget.start(skips_compilation=True)
    for seconds, used in ((25.0, 30.0), (2.0, 32.0)):
        hands.seconds += seconds
        assert budget.tick(0.0) == seconds and budget.used == used
    assert float(schedule(51)) == pytest.approx(
        float(LinearWarmupLinearDecay(1e-2, 98, 19.6)(49)), rel=1e-4
    )


def test_updates_that_were_left_out_give_no_negative_rate():
    schedule = build_schedule(OPTIMIZER)
    schedule.set_plan(2, 0.0, 500)  # Of steps; the optimizer counts updates.
    assert float(schedule(0)) == 0.0 < float(schedule(4))


def test_minutes_that_compilation_uses_up():
    with pytest.raises(ValueError, match=r"train_for=1min .*step 1\b.*59 s.* 2\.\d minutes"):
        simulate(lambda step: 0.1 if step else 59.0)


def test_minutes_that_leave_no_step_after_the_first_two():
    """Only the second step tells how long an evaluation takes."""
    schedule = build_schedule(OPTIMIZER)
    budget = TimeBudget(1.0, schedule, TrainingConfig(train_batch_size=32), Hands())
    budget.used = 50.0
    assert budget.last_step(1, 1, 0.0, 4.0) == budget.plan.last_step
    with pytest.raises(ValueError, match=r"train_for=1min .*step 2\b.*50 s.* 2\.\d minutes"):
        budget.last_step(2, 2, 1.0, 8.5)


def make_trainer(path, hands, seconds=0.5, weights_at=None, evaluation=0.0, **options):
    """Makes a trainer whose steps, and evaluations, take so many seconds each by the budget.

    The first evaluation also takes 3 s to compile, if evaluations take time.
    """
    keras.utils.set_random_seed(5)
    task = ToyTask(weights_at=weights_at or {})
    schedule = build_schedule(OPTIMIZER)
    assert isinstance(schedule, ByShare)
    trainer = trainer_test.make_trainer(
        path,
        task,
        schedule,
        lambda config: TimeBudget(1.0, schedule, config, hands),
        save_checkpoints_steps=40,
        **options,
    )
    step, evaluate = trainer.train_step, trainer.evaluate
    compilation = [3.0] if evaluation else []

    def timed(iterator, first, count):
        hands.seconds += seconds * int(count)
        return step(iterator, first, count)

    def timed_evaluation():
        hands.seconds += evaluation + (compilation.pop() if compilation else 0.0)
        return evaluate()

    timed.columns = step.columns
    trainer.train_step, trainer.evaluate = timed, timed_evaluation
    return trainer


@pytest.fixture(scope="module")
def whole_run(tmp_path_factory):
    path = tmp_path_factory.mktemp("clock")
    trainer = make_trainer(path, Hands())
    trainer.train()
    return path, trainer.step


@pytest.mark.slow
def test_a_run_ends_by_the_clock(whole_run):
    path, steps = whole_run
    assert steps == pytest.approx(118, abs=1)  # Of half a second each, one second kept back.
    assert not make_trainer(path, Hands()).num_train_steps - steps  # It is known to be finished.
    rates = [line["learning_rate"] for line in read_metrics(path / "metrics.jsonl")]
    assert 8e-3 < max(rates) < 1e-2 and rates[-1] < 3e-4


@pytest.mark.slow
def test_a_killed_run_goes_on_with_the_same_numbers(whole_run, tmp_path):
    hands = Hands()
    trainer = make_trainer(tmp_path, hands)
    trainer_test.kill_at(57, trainer)
    hands.seconds += 9999.0  # Nobody counts what lies between.
    again = make_trainer(tmp_path, hands)
    assert again.step == 40
    again.train()
    assert again.step == whole_run[1]
    ours, expected = (path / "metrics.jsonl" for path in (tmp_path, whole_run[0]))
    assert ours.read_bytes() == expected.read_bytes()
    shutil.rmtree(tmp_path)


@pytest.mark.slow
def test_a_resumed_run_does_not_plan_by_its_first_step(tmp_path):
    """The first two steps of a process take twice as long as all others."""
    trainer = make_trainer(tmp_path, Hands())
    trainer_test.kill_at(57, trainer)
    again = make_trainer(tmp_path, Hands())
    planned, step, hands = again.time_budget.plan, again.train_step, again.time_budget._now

    def starts_slowly(iterator, first, count):
        hands.seconds += 0.5 if first < 42 else 0.0
        return step(iterator, first, count)

    starts_slowly.columns = step.columns
    again.train_step = starts_slowly
    trainer_test.kill_at(45, again)
    assert again.time_budget.plan == planned


@pytest.mark.slow
def test_evaluations_are_within_the_budget_and_a_killed_run_knows_how_long_they_take(tmp_path):
    """A second each, and 3 s more for the first of a process; one every ten steps of 0.5 s."""
    options = {"evaluation": 1.0, "eval_steps": 10, "do_eval": True}
    hands = Hands()
    whole = make_trainer(tmp_path / "whole", hands, **options)
    whole.train()
    assert 55.0 < hands.seconds - 1000.0 <= 60.0
    trainer = make_trainer(tmp_path / "killed", Hands(), **options)
    trainer_test.kill_at(45, trainer)
    again = make_trainer(tmp_path / "killed", Hands(), **options)
    assert again.step == 40
    again.train()
    for name in ("metrics.jsonl", "eval_metrics.jsonl"):
        ours, expected = (tmp_path / path / name for path in ("killed", "whole"))
        assert ours.read_bytes() == expected.read_bytes()


@pytest.mark.slow
def test_steps_that_are_taken_back_have_used_their_time(tmp_path):
    hands = Hands()
    bad = {"weights_at": {70: float("nan")}, "on_bad_loss": "rewind"}
    trainer = make_trainer(tmp_path, hands, **bad)
    trainer.train()
    assert hands.seconds - 1000.0 < 60.0
    assert trainer.step == pytest.approx(118 - 40, abs=1)  # One call makes steps 41 to 80.


@pytest.mark.slow
def test_all_hosts_have_the_rates_of_the_chief(tmp_path, monkeypatch):
    """A second host whose steps take longer is told the chief's seconds, and goes by them."""
    monkeypatch.setattr(trainer_module, "worker_of", lambda _: (0, 2))  # Calls of equal length.
    told = []

    def tell(_, *numbers):
        told.append(list(numbers))
        return told[-1]

    def hear(_, *numbers):
        heard.append(list(numbers))
        return told[len(heard) - 1]

    heard = []
    rates = []
    for name, seconds, exchange in (("chief", 0.5, tell), ("other", 0.8, hear)):
        monkeypatch.setattr(trainer_module, "from_chief", exchange)
        trainer = make_trainer(tmp_path / name, Hands(), seconds)
        trainer.train()
        lines = read_metrics(tmp_path / name / "metrics.jsonl")
        rates.append([line["learning_rate"] for line in lines])
    assert heard != told and rates[0] == rates[1]
    assert told[0][0] == 0.5 and told[1][0] == 1.0  # One step each, until the speed is known.
