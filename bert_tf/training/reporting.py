"""Reports: progress with rate and remaining time, TensorBoard scalars, variables, results."""

import contextlib
import math
import pathlib
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf
import tqdm
from absl import logging

from bert_tf.config import TrainingConfig
from bert_tf.system.files import atomic_write
from bert_tf.training.distribution import worker_of
from bert_tf.training.flops import peak_flops


class Bar:
    """A progress bar with rate and remaining time on a terminal; log lines are printed above it."""

    def __init__(self, step: int) -> None:
        is_shown = sys.stderr.isatty()
        self._bar = tqdm.tqdm(
            initial=step, unit=" steps", dynamic_ncols=True, leave=False, disable=not is_shown
        )
        self._handler = logging.get_absl_handler()
        # Each log line first clears the bar, which is drawn again at the next step.
        self._handler.addFilter(self._make_room)

    def _make_room(self, _: object) -> bool:
        self._bar.clear()
        return True

    def advance(self, step: int, total: int) -> None:
        """Draws the bar at a step; `total` is 0 if unknown."""
        self._bar.total = total or None
        self._bar.update(step - self._bar.n)

    def close(self) -> None:
        self._handler.removeFilter(self._make_room)
        self._bar.close()


class Progress:
    """Logs a line per logged step, and at least one every `PATIENCE_SECONDS`.

    Args:
      total_steps: steps of the whole run; 0 if not known yet.
      batch_size: examples per step.
      tokens: positions per example, including padding.
      flops: floating-point operations per example.
      peak: FLOP/s of all devices together; 0 if unknown.
    """

    PATIENCE_SECONDS = 30.0

    def __init__(
        self, total_steps: int, batch_size: int, tokens: int, flops: float, peak: float
    ) -> None:
        self.total_steps = total_steps
        self.batch_size = batch_size
        self.tokens = tokens
        self.flops = flops
        self.peak = peak
        self.step_seconds = 0.0
        self.compile_seconds = 0.0
        self.calls = 0  # since the compilation
        self._last_line = time.monotonic()
        self._spent: dict[str, float] = {}

    @contextlib.contextmanager
    def timed(self, part: str) -> Iterator[None]:
        """Adds the time of the block to the seconds of `part`; see `spent`."""
        start = time.monotonic()
        try:
            yield
        finally:
            self._spent[part] = self._spent.get(part, 0.0) + time.monotonic() - start

    def spent(self) -> dict[str, float]:
        """Returns the seconds of each part since the last call."""
        spent = self._spent
        self._spent = {}
        return spent

    def add(self, seconds: float, num_steps: int) -> None:
        """Records that a graph call of `num_steps` took `seconds`; the first one compiles."""
        if not self.compile_seconds:
            self.compile_seconds = seconds
            return
        seconds_per_step = seconds / num_steps
        # The mean of about the last ten calls, so that a single slow call matters little. The first
        # call, a single step that waits for its data, is replaced by the second.
        weight = 1.0 / min(10, max(1, self.calls))
        self.step_seconds += weight * (seconds_per_step - self.step_seconds)
        self.calls += 1

    def begin_stage(self, batch_size: int) -> None:
        """Records a new batch size, for which the next call compiles."""
        self.batch_size = batch_size
        self.step_seconds = 0.0
        self.compile_seconds = 0.0
        self.calls = 0

    def rates(self) -> dict[str, float]:
        """Returns examples/s, tokens/s and, if the peak is known, the share of it."""
        if not self.step_seconds:
            return {}
        examples = self.batch_size / self.step_seconds
        rates = {"examples_per_second": examples, "tokens_per_second": examples * self.tokens}
        if self.peak:
            # A peak that was measured while the machine was busy is too low: the steps reach more,
            # which is a better measurement.
            self.peak = max(self.peak, examples * self.flops)
            rates["share_of_peak"] = examples * self.flops / self.peak
        return rates

    def is_due(self) -> bool:
        """Returns whether the last line was logged more than `PATIENCE_SECONDS` ago."""
        return time.monotonic() - self._last_line > self.PATIENCE_SECONDS

    def show(self, step: int, values: dict[str, Any], steps_left: float) -> None:
        """Prints one line; `steps_left` counts remaining steps of the current batch size."""
        self._last_line = time.monotonic()
        # In a run with a budget of minutes the total is known only after some steps.
        parts = [f"step {step}/{self.total_steps}" if self.total_steps else f"step {step}"]
        for key, label in SHOWN.items():
            if key in values:
                parts.append(f"{label} {values[key]:.4g}")
        rates = self.rates()
        if rates:
            parts.append(f"{rates['examples_per_second']:.3g} examples/s")
            parts.append(f"{rates['tokens_per_second']:.4g} tokens/s")
            if "share_of_peak" in rates:
                parts.append(f"{rates['share_of_peak']:.0%} of peak")
            if self.total_steps:
                parts.append(f"{duration(steps_left * self.step_seconds)} left")
        else:
            parts.append(f"first step took {self.compile_seconds:.0f} s, compilation included")
        logging.info("%s", "  ".join(parts))
        sys.stderr.flush()


def strategy_peak(training: TrainingConfig, strategy: tf.distribute.Strategy) -> float:
    """Returns the FLOP/s of all devices together; 0 if unknown."""
    peak = training.peak_flops
    source = "--training_options=peak_flops"
    devices = strategy.num_replicas_in_sync
    if not peak and not isinstance(strategy, tf.distribute.TPUStrategy):
        peak, source = peak_flops(training.precision)
        if not tf.config.list_physical_devices("GPU"):
            devices = worker_of(strategy)[1]  # The logical devices of a host share its CPU.
    if peak:
        logging.info("Peak of one device: %.4g FLOP/s (%s).", peak, source)
    return peak * devices


SHOWN = {
    "loss": "loss",
    "accuracy": "accuracy",
    "masked_lm_loss": "mlm",
    "masked_lm_accuracy": "mlm acc",
    "next_sentence_loss": "nsp",
    "next_sentence_accuracy": "nsp acc",
    "sentence_order_loss": "sop",
    "sentence_order_accuracy": "sop acc",
    "replaced_tokens_loss": "rtd",
    "replaced_tokens_recall": "found",
}


def duration(seconds: float) -> str:
    """Formats a time span with its two largest units.

    >>> duration(75), duration(7260), duration(200000)
    ('1 min 15 s', '2 h 1 min', '2 d 7 h')
    """
    if not math.isfinite(seconds):
        return "unknown time"
    total = max(0, round(seconds))  # More steps than planned leave no negative time.
    parts = [
        ("d", total // 86400),
        ("h", total // 3600 % 24),
        ("min", total // 60 % 60),
        ("s", total % 60),
    ]
    # Leading units of 0 are dropped.
    while len(parts) > 1 and not parts[0][1]:
        parts.pop(0)
    return " ".join(f"{count} {unit}" for unit, count in parts[:2])


class Scalars:
    """TensorBoard scalars in the run directory."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._writer = tf.summary.create_file_writer(path)

    def write(self, step: int, values: dict[str, Any]) -> None:
        """Writes each value under its name.

        Raises:
          OSError: if they cannot be written, for example because the disk is full.
        """
        try:
            with self._writer.as_default(step=step):
                for name, value in values.items():
                    tf.summary.scalar(name, value)
            self._writer.flush()
        except tf.errors.OpError as error:
            reason = " ".join(error.message.split())
            raise OSError(
                f"Scalars of step {step} could not be written to {self._path}: {reason}. Free some "
                f"space and run the same command again."
            ) from None


def write_parameter_table(
    folder: pathlib.Path, variables: Sequence[Any], is_decayed: Callable[[str], bool]
) -> None:
    """Writes the variables to variables.txt (path, shape, dtype, weight decay); logs their size."""
    rows = []
    count = 0
    for variable in variables:
        count += int(tf.size(variable.value))
        decay = "decayed" if is_decayed(variable.path) else ""
        shape = str(tuple(variable.shape))
        rows.append(f"  {variable.path:<64} {shape:<16} {variable.dtype} {decay}\n")
    path = folder / "variables.txt"
    title = f"{count:,} trainable parameters"
    with atomic_write(path) as file:
        file.writelines([f"{title}\n", *rows])
    logging.info("%s: %s", title, path)


def write_eval_results(
    path: pathlib.Path, step: int, results: dict[str, float], baseline: dict[str, float]
) -> None:
    """Writes google-research/bert's eval_results.txt, `key = value` lines sorted by key.

    Differs from the original: the unigram baseline's values are added, as `unigram_*`.
    """
    values: dict[str, float] = {"global_step": step, **results}
    values |= {f"unigram_{name}": value for name, value in baseline.items()}
    with atomic_write(path) as file:
        file.writelines(f"{key} = {values[key]}\n" for key in sorted(values))
