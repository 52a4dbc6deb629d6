"""The training loop: steps, logs, evaluations, checkpoints; can stop and resume at any time."""

import contextlib
import functools
import math
import pathlib
import signal
import time
from collections.abc import Iterator
from typing import Any, NoReturn

import tensorflow as tf
from absl import logging

from bert_tf.config import TrainingConfig
from bert_tf.text.kinds import VOCABULARY_FILES, find_vocabulary
from bert_tf.training import metrics_log
from bert_tf.training.batch_ramp import Stage, batches_left, stage_of
from bert_tf.training.checkpointing import RunDirectory, model_variables
from bert_tf.training.distribution import (
    any_worker,
    check_same_data,
    check_same_step,
    from_chief,
    is_chief,
    worker_of,
)
from bert_tf.training.evaluator import Evaluator, Samples, as_text, note_evaluation
from bert_tf.training.finite_weights import unusable_weight
from bert_tf.training.loss_spikes import LossGuard, LossSpikes
from bert_tf.training.optimizers import AdamWeightDecay
from bert_tf.training.precision import compilation
from bert_tf.training.reporting import Bar, Progress, Scalars
from bert_tf.training.stopping import Stopped, StopRequest
from bert_tf.training.task import Task
from bert_tf.training.time_budget import FAR_AWAY, NoBudget, TimeBudget
from bert_tf.training.train_step import LossScale, TrainStep

LAST_STEPS = 2  # A run does not end with as many skipped steps.
KEPT = ("learning_rate",)  # columns that a step with a skipped update still reports
SECONDS_BETWEEN_SAVES = 120.0  # the most work that a kill may lose
SHARE_BETWEEN_SAVES = 0.1  # the same as a share of a budget of minutes, if that is less
WRITING_SHARE = 0.1  # the largest share of time spent on checkpoints by time
CALL_SECONDS = 5.0  # approximate length of a graph call, so that the run soon reacts to a stop


class Trainer(Evaluator):
    """Trains and evaluates a task in a run directory.

    Args:
      strategy: the strategy in whose scope both were created.
      num_train_steps: optimizer steps of the whole run; a time budget replaces it.
      data_fingerprint: changes with the training examples; saved in the checkpoints.
      time_budget: determines the last step, if the run has a time limit.
      samples: notified of the step of each evaluation during training.
    """

    def __init__(
        self,
        task: Task,
        optimizer: AdamWeightDecay,
        strategy: tf.distribute.Strategy,
        config: TrainingConfig,
        *,
        num_train_steps: int,
        random_seed: int,
        progress: Progress,
        data_fingerprint: str = "",
        time_budget: TimeBudget | None = None,
        samples: Samples | None = None,
    ) -> None:
        super().__init__(task, optimizer, strategy, config, samples)
        self.time_budget: TimeBudget | NoBudget = time_budget or NoBudget(num_train_steps)
        self.num_train_steps = self.time_budget.plan.last_step
        self.progress = progress
        self.data_fingerprint = data_fingerprint
        self.is_chief = is_chief(strategy)
        variables = {**model_variables(task.model), **optimizer.named_variables()}
        with strategy.scope():
            loss_scale = LossScale() if config.precision == "mixed_float16" else None
            needs_guard = config.on_bad_loss == "skip" or config.spike_sigmas > 0
            self.guard = LossGuard(config.spike_sigmas) if needs_guard else None
        if loss_scale:
            variables |= loss_scale.variables
        self.directory = RunDirectory(config.output_dir, variables, config.keep_checkpoint_max)
        self.log = metrics_log.MetricsLog(
            self.directory.path / "metrics.jsonl", task.sum_names, task.loss_names, config.log_steps
        )
        self.loss_spikes = LossSpikes(config, self.directory.path, task.loss_names)
        jit_compile, compile_parts, attention = compilation(config)
        self._make_train_step = functools.partial(
            getattr(task, "step_class", TrainStep),
            task,
            optimizer,
            strategy,
            random_seed=random_seed,
            jit_compile=jit_compile,
            compile_parts=compile_parts,
            attention=attention,
            loss_scale=loss_scale,
            guard=self.guard,
        )
        parts = config.gradient_accumulation_steps
        self.train_step = self._make_train_step(accumulation_steps=parts)
        self._evaluation_seconds = 0.0
        self._compiles_evaluation_again = False
        self._loop_state: dict[str, Any] = {}
        self._last_save = time.monotonic()

    def restore(self) -> bool:
        """Restores the newest checkpoint of the run directory; returns whether there was one.

        It changes no files: another process may be training in the directory.
        """
        restored = self.directory.restore()
        if restored is None:
            return False
        self.step, self._loop_state = restored
        self.loss_spikes.restore(self._loop_state.get("bad_steps", {}))
        if self.guard:
            self.guard.restore(self._loop_state.get("guard", {}))
        self.time_budget.restore(self._loop_state.get("clock", {}))
        measured = self._loop_state.get("evaluation_seconds", 0.0)
        evaluated = [line["step"] for line in metrics_log.read_metrics(self.evaluations_path)]
        # A process that resumes compiles the evaluation again, whose time must not count twice.
        is_resumed = not self._evaluation_seconds  # Otherwise this is a rewind.
        had_evaluation = self.step >= min(evaluated, default=math.inf)
        self._compiles_evaluation_again = is_resumed and had_evaluation
        self._evaluation_seconds = self._evaluation_seconds or measured
        if self.time_budget.is_limited:
            self._set_last_step(self.time_budget.plan.last_step)
        logging.info("Restored %s at step %d.", self.config.output_dir, self.step)
        return True

    def train(self) -> None:
        """Trains from the current step to the last.

        Raises:
          ValueError: if the checkpoint was trained on other examples.
          Stopped: after SIGTERM, SIGUSR1 or Ctrl-C, with the state saved.
          FloatingPointError: at a loss that is not finite or jumps, if the policy is to stop or
            there were too many of them, or if the last steps were skipped; nothing after the step
            is saved.
          OSError: if a checkpoint cannot be written.
        """
        if self.is_finished() and not self._evaluation_is_due():
            return
        self._check_resumable()
        if self.is_chief:
            self.directory.delete_leftovers()
            self._restore_files()
        scalars = Scalars(str(self.directory.path / "train")) if self.is_chief else None
        self._last_save = time.monotonic()
        bar = contextlib.closing(Bar(self.step))
        with contextlib.closing(self.directory), bar as shown, StopRequest() as self._stop:
            # A rewind needs a checkpoint to return to, also before the first regular one.
            if self.config.on_bad_loss == "rewind" and not self.directory.steps():
                self.save()
            self.time_budget.start()
            # The run was stopped before the evaluation.
            if self.step and self._evaluation_is_due():
                self._evaluate_and_note(scalars)
            elif self.is_evaluated():
                # The checkpoint was written before the evaluation, whose time it does not include.
                self.time_budget.used += self._evaluation_seconds
            iterator = None
            self.time_budget.start(skips_compilation=self.step > 0)
            while not self.is_finished():
                # A new stage of the batch ramp has batches of another size, hence another dataset.
                if iterator is None or self._next_batch == self._stage.first_batch:
                    iterator = iter(self._train_data())
                if not self._run_call(iterator, scalars):
                    self._rewind()
                    iterator = None
                    continue
                self._plan()
                shown.advance(self.step, self.progress.total_steps)
                # A host that stops alone would leave the others waiting in their next reduction.
                is_stopped = any_worker(self.strategy, bool(self._stop.number))
                at_end = self.step == self.num_train_steps
                if at_end:
                    self._check_last_steps()
                if is_stopped or at_end or self.step % self.config.save_checkpoints_steps == 0:
                    self.save()
                elif self._save_is_due():
                    self.save(by_time=True)
                if is_stopped:
                    raise Stopped(self._stop.number or signal.SIGTERM)
                if self._evaluation_is_due():
                    self._evaluate_and_note(scalars)
                self.time_budget.tick(0.0)
        self._stop = None

    def is_finished(self) -> bool:
        """Returns whether the last step is done or early stopping ends the run."""
        return self.step >= self.num_train_steps or self.is_no_better()

    def seconds_between_saves(self) -> float:
        """Returns the time after which a checkpoint is due at any step.

        It is infinite for a run that rewinds and has no time budget: such a run must return to the
        same checkpoint on fast and slow machines.
        """
        if self.config.on_bad_loss == "rewind" and not self.time_budget.is_limited:
            return math.inf
        seconds = min(SECONDS_BETWEEN_SAVES, SHARE_BETWEEN_SAVES * self.time_budget.budget)
        return max(seconds, self.directory.write_seconds / WRITING_SHARE)

    def _save_is_due(self) -> bool:
        return time.monotonic() - self._last_save >= self.seconds_between_saves()

    def save(self, by_time: bool = False) -> None:
        """Starts writing a checkpoint of the current step, unless it exists already.

        Args:
          by_time: whether it is written only because of the time; see `RunDirectory.start_save`.

        Raises:
          OSError: if the previous checkpoint could not be written.
          FloatingPointError: if a weight is too large or not a number; earlier checkpoints stay.
        """
        self._check_weights()
        if self.is_chief and not self.directory.has(self.step):
            self.log.flush()
            state = {
                "pending": self.log.pending,
                "data_fingerprint": self.data_fingerprint,
                # The lengths of the line files, so that a resumed run cuts off later lines.
                "marks": {path.name: metrics_log.mark_lines(path) for path in self._line_files()},
                "bad_steps": self.loss_spikes.state(),
                "guard": self.guard.state() if self.guard else {},
                "clock": self.time_budget.state(),
                "evaluation_seconds": self._evaluation_seconds_or_guess(),
            }
            with self.progress.timed("save_seconds"):
                self.directory.start_save(self.step, state, by_time)
            self._last_save = time.monotonic()

    def _check_weights(self) -> None:
        """Raises FloatingPointError for a weight that is unusable: such steps may be skipped."""
        if path := unusable_weight(self.task.model.trainable_variables):
            self._fail_unsaved(f"The weight {path} is too large or not a number")

    def _check_last_steps(self) -> None:
        """Raises FloatingPointError if the last steps were skipped for a loss that is not finite.

        One such step may be due to its batch; several in a row are due to the weights.
        """
        count = self.loss_spikes.not_finite_in_a_row
        if count >= LAST_STEPS:
            self._fail_unsaved(f"The losses of the last {count} steps are not finite numbers")

    def _fail_unsaved(self, fault: str) -> NoReturn:
        self.directory.wait()
        raise FloatingPointError(
            f"{fault} after step {self.step}, which is not saved; earlier checkpoints stay. "
            "Lower --learning_rate, or lengthen --num_warmup_steps."
        )

    def _check_resumable(self) -> None:
        check_same_step(self.strategy, self.step)
        check_same_data(self.strategy, self.data_fingerprint)
        before = self._loop_state.get("data_fingerprint", self.data_fingerprint)
        if before != self.data_fingerprint:
            path = self.config.output_dir
            vocab_file = find_vocabulary(path) or f"{path}/{VOCABULARY_FILES[0]}"
            raise ValueError(
                f"{path} was trained on other examples (fingerprint {before}) than those of the "
                f"current input ({self.data_fingerprint}): were input files added, changed or "
                f"removed? Restore them, or give another --output_dir with "
                f"--init_checkpoint={path} and "
                f"--vocab_file={vocab_file} to continue from its weights."
            )

    def _evaluation_is_due(self) -> bool:
        """Returns whether the current step needs an evaluation and has no evaluation yet."""
        is_last = self.step == self.num_train_steps
        if not self.config.eval_steps or (self.step % self.config.eval_steps and not is_last):
            return False
        return not self.is_evaluated()

    def _train_data(self) -> tf.data.Dataset | tf.distribute.DistributedDataset:
        stage = self._stage
        count = stage.micro_batches(self.config, self.strategy.num_replicas_in_sync)
        if self.config.batch_ramp_steps:
            self.train_step = self._make_train_step(accumulation_steps=count)
            self.progress.begin_stage(stage.batch_size)
        size = stage.batch_size
        position = stage.position(self._next_batch)
        return self.distribute(
            lambda *worker: self.task.train_dataset(size, position, *worker),
            num_parts=count,
        )

    @property
    def _next_batch(self) -> int:
        """The number of the next step's batch."""
        return self.step + self.loss_spikes.batches_left_out

    @property
    def _stage(self) -> Stage:
        """The stage of the batch ramp that the next batch belongs to."""
        return stage_of(self.config, self._next_batch)

    def _run_call(self, iterator: Iterator, scalars: Scalars | None) -> bool:
        """Runs and reports the steps of one graph call; returns False if the run must rewind."""
        num_steps = self._steps_of_call()
        start = time.monotonic()
        with self.progress.timed("step_seconds"):
            rows = self.train_step(iterator, tf.constant(self.step), tf.constant(num_steps)).numpy()
        counted = self.time_budget.tick(self.progress.step_seconds * num_steps)
        seconds = counted or time.monotonic() - start
        self.progress.add(seconds, num_steps)
        for values in rows:
            row = dict(zip(self.train_step.columns, values.tolist(), strict=True))
            if fault := self.loss_spikes.find(row):
                action = self.loss_spikes.decide(self.step + 1, row, fault, self.is_chief)
                if action == "stop":
                    self._fail(fault, row)
                if action == "rewind":
                    return False
                # The update was skipped: its losses must not enter the averages of the log.
                row = {name: value if name in KEPT else 0.0 for name, value in row.items()}
            self.step += 1
            if self.is_chief and scalars:
                self._report(row, scalars)
        return True

    def _report(self, row: dict[str, float], scalars: Scalars) -> None:
        line = self.log.add(self.step, row)
        if line:
            self._show(line)
            rates = {**self.progress.rates(), **self.progress.spent()}
            scalars.write(self.step, {**line, **rates})
        elif self.progress.is_due():
            self._show(metrics_log.ratios(row, self.task.sum_names, self.task.loss_names))

    def _show(self, values: dict[str, float]) -> None:
        left = 0.0
        if end := self.progress.total_steps:
            left = batches_left(self.config, self.step, end, self.progress.batch_size)
        self.progress.show(self.step, values, left)

    def _plan(self) -> None:
        """Updates the last step by the time budget.

        All hosts use the chief's seconds, so that they have the same plan and the same rates.
        """
        if not self.time_budget.is_limited:
            return
        # A single step after compiling again is too imprecise to change an existing plan.
        is_rough = self.progress.calls < 2 and self.time_budget.plan.last_step < FAR_AWAY
        self.time_budget.used, step_seconds, evaluation, compilation_seconds = from_chief(
            self.strategy,
            self.time_budget.used,
            0.0 if is_rough else self.progress.step_seconds,
            self._evaluation_seconds_or_guess(),
            self.progress.compile_seconds,
        )
        last = self.time_budget.last_step(
            self.step,
            self._next_batch,
            step_seconds,
            evaluation,
            compilation_seconds,
        )
        self._set_last_step(last)
        self.progress.total_steps = last if last < FAR_AWAY else 0

    def _set_last_step(self, last: int) -> None:
        """Sets the last step and the steps between logged lines."""
        self.num_train_steps = last
        self.log.log_steps = metrics_log.line_interval(self.config.log_steps, last)

    def _evaluation_seconds_or_guess(self) -> float:
        """Returns the seconds of an evaluation; 0 without a time budget or evaluations."""
        if not self.time_budget.is_limited:
            return 0.0
        config = self.config
        progress = self.progress
        if self._evaluation_seconds or not (config.do_eval or config.eval_steps):
            return self._evaluation_seconds
        rows = config.max_eval_steps * config.eval_batch_size
        steps = rows / progress.batch_size
        # No evaluation has been timed: assume half the cost of training, which has a backward pass.
        return 0.5 * progress.compile_seconds + 0.5 * steps * progress.step_seconds

    def _steps_of_call(self) -> int:
        """Returns the number of steps for one call, at most to the next save or evaluation."""
        intervals = filter(None, (self.config.save_checkpoints_steps, self.config.eval_steps))
        # The next multiple of each interval.
        ends = [(self.step // interval + 1) * interval for interval in intervals]
        ends.append(self.num_train_steps)
        most = min(self.config.iterations_per_loop, min(ends) - self.step)
        if end := self._stage.end:
            most = min(most, end - self._next_batch)
        is_alone = worker_of(self.strategy)[1] == 1
        if not self.progress.step_seconds and (is_alone or self.time_budget.is_limited):
            return 1  # All hosts agree, because all made the same number of calls.
        if not is_alone:  # Hosts measure different times, so the number must not depend on them.
            return min(most, self.config.log_steps)
        return max(1, min(most, int(CALL_SECONDS / self.progress.step_seconds)))

    def _fail(self, fault: str, row: dict[str, float]) -> NoReturn:
        self.directory.wait()
        steps = self.directory.steps()
        last = f"model.ckpt-{steps[-1]}" if steps else "none yet"
        attempts = ""
        if self.config.on_bad_loss != "stop":
            attempts = (
                f" --on_bad_loss={self.config.on_bad_loss} did not help "
                f"{self.config.max_bad_losses} times."
            )
        raise FloatingPointError(
            f"{fault} at step {self.step + 1} "
            f"(learning rate {row['learning_rate']:.3g}). Nothing after the last good "
            f"checkpoint ({last}) was saved.{attempts} Lower --learning_rate, lengthen "
            f"--num_warmup_steps, give --on_bad_loss=skip or rewind, or check the data with "
            f"bert_tf.show_examples."
        )

    def _rewind(self) -> None:
        """Returns to the last checkpoint and skips the batches up to the bad step."""
        next_batch = self._next_batch + 1
        used = self.time_budget.used
        self.directory.wait()
        any_worker(self.strategy, False)  # Wait until the chief has written its checkpoint.
        self.restore()
        # Rewinding does not give back time.
        self.time_budget.used = max(used, self.time_budget.used)
        # Steps repeat from the checkpoint, batches do not: those up to the bad one are skipped.
        self.loss_spikes.batches_left_out = next_batch - self.step
        if self.is_chief:
            self._restore_files()

    def _restore_files(self) -> None:
        """Resets the JSON lines files of the run directory to the step of the checkpoint."""
        state = self._loop_state
        metrics, evaluations, events = self._line_files()
        marks = state.get("marks", {})
        self.log.restore(self.step, state.get("pending", {}), marks.get(metrics.name))
        metrics_log.drop_lines(evaluations, self.step, marks.get(evaluations.name))
        metrics_log.is_as_marked(events, self.step, marks.get(events.name))
        lines = metrics_log.read_metrics(evaluations)
        self.directory.check_best({line["step"]: self.task.score(line) for line in lines})

    def _line_files(self) -> tuple[pathlib.Path, pathlib.Path, pathlib.Path]:
        return self.log.path, self.evaluations_path, self.loss_spikes.path

    def _evaluate_and_note(self, scalars: Scalars | None) -> None:
        self.save()  # The checkpoint is written in the background.
        self.time_budget.tick(0.0)
        with self.progress.timed("evaluation_seconds"):
            results = self.evaluate()
        most = self._evaluation_seconds if self._compiles_evaluation_again else math.inf
        self._evaluation_seconds = self.time_budget.tick(0.0, most)
        self._compiles_evaluation_again = False
        self.last_evaluation = self.step, results
        if self.is_chief and scalars is not None:
            self.directory.mark_best(self.step, self.task.score(results))
            note_evaluation(self.directory.path, self.step, results)
            scalars.write(self.step, {f"eval_{name}": value for name, value in results.items()})
            logging.info(
                "evaluation at step %d: %s%s", self.step, as_text(results), self.comparison(results)
            )
            self.note_samples()
        # The other hosts wait, because they read these files to decide on early stopping.
        any_worker(self.strategy, False)
