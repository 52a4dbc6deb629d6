"""The run directory: checkpoints in TensorFlow's format under google-research/bert's names.

    OUTPUT_DIR/
      run.flags  bert_config.json  vocab.txt      the settings that reproduce the run
      run.json                                    the run's id, and digests of its files
      variables.txt                               the trained variables of pre-training
      model.ckpt-1000.index  .data-00000-of-00001 weights, optimizer slots, step, loop state
      checkpoint                                  names of the checkpoints; those written by time
      metrics.jsonl  eval_metrics.jsonl           losses; evaluations
      events.jsonl                                losses that were not finite or jumped
      eval_results.txt  curves.png                results

A checkpoint is an explicit dict of variables by path, written with names as in a TF1 checkpoint
(`bert/embeddings/word_embeddings`, `.../adam_m`, `global_step`), so `tf.train.load_checkpoint`
reads it. Keras objects are not passed to `tf.train.Checkpoint`, which silently leaves out layers in
Python lists. The index file gets its name last: a checkpoint without one is incomplete.

Training continues while a checkpoint is written: `start_save` copies the current values to host
memory, which takes as much memory as weights and optimizer slots until `wait`.
"""

import concurrent.futures
import functools
import json
import math
import os
import pathlib
import re
import time
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf.checkpoints.run_checkpoints import NAME_START, identity_tensors
from bert_tf.checkpoints.run_identity import RunIdentity
from bert_tf.checkpoints.tf_bundle import host_copies, read_bundle, write_bundle
from bert_tf.system.files import atomic_write, json_field, read_json, write_json

PREFIX = "model.ckpt"
CHECKPOINT_FILE = re.compile(rf"{PREFIX}-(\d+)\.((?:index|data-\d+-of-\d+)(?:\.tempstate\d+)?)")
STATE_FILE = "checkpoint"
BY_TIME = "# by_time: "  # precedes the steps of checkpoints by time in the state file
_BY_TIME_LINE = re.compile(BY_TIME + "([0-9]{1,18}(?: [0-9]{1,18})*)")
STEP_NAME = "global_step"
LOOP_STATE_NAME = "loop_state"  # JSON: the state from which the loop resumes exactly.

# Internal names in TensorFlow's error messages.
TENSORFLOW_NAMES = re.compile(r"\{\{.*?\}\} |\.tempstate\d+| \[Op:\w+\]")

Values = dict[str, np.ndarray]


def model_variables(model: keras.Model) -> dict[str, Any]:
    """Returns all variables of the model by path, including the states of seeds."""
    start = f"{model.name}/"
    variables = {v.path.removeprefix(start): v.value for v in model.variables}
    if len(variables) != len(model.variables):
        raise ValueError("Two variables of the model have the same path; rename a layer.")
    return variables


class RunDirectory:
    """Checkpoints of one run, saved atomically; the newest few and the best are kept.

    Args:
      path: the run's output_dir, created if missing.
      variables: the contents of a checkpoint by name; see `model_variables`.
      keep: number of newest checkpoints to keep.

    Attributes:
      write_seconds: seconds that the last checkpoint took to write; 0 before the first.
    """

    def __init__(self, path: str | pathlib.Path, variables: dict[str, Any], keep: int = 3) -> None:
        self.path = pathlib.Path(path)
        self.variables = variables
        self.keep = keep
        self.write_seconds = 0.0
        self._unreadable: set[int] = set()
        self._by_time = self._read_by_time()
        self._writer = concurrent.futures.ThreadPoolExecutor(1, "checkpoint")
        self._writing: concurrent.futures.Future | None = None
        self._writing_step = -1
        self.path.mkdir(parents=True, exist_ok=True)

    @functools.cached_property
    def identity(self) -> RunIdentity | None:
        """The recorded identity of the run, read when its first checkpoint is saved."""
        return RunIdentity.read(self.path)

    def steps(self) -> list[int]:
        """Returns the steps of the complete checkpoints, ascending."""
        steps = set()
        for match in self._checkpoint_files().values():
            if match[2] == "index":
                steps.add(int(match[1]))
        return sorted(steps - self._unreadable)

    def _checkpoint_files(self) -> dict[pathlib.Path, re.Match]:
        """Returns the files of checkpoints with their matches; other names are ignored."""
        files = {}
        for path in self.path.glob(f"{PREFIX}-*"):
            if match := CHECKPOINT_FILE.fullmatch(path.name):
                files[path] = match
        return files

    def prefix(self, step: int) -> str:
        """Returns the checkpoint's prefix for `tf.train.load_checkpoint`."""
        return str(self.path / f"{PREFIX}-{step}")

    def save(self, step: int, loop_state: dict[str, Any]) -> None:
        """Writes the checkpoint of `step` and deletes the oldest ones.

        Raises:
          OSError: if it cannot be written, for example because the disk is full; the partial file
            is deleted and earlier checkpoints are kept.
        """
        self.start_save(step, loop_state)
        self.wait()

    def start_save(self, step: int, loop_state: dict[str, Any], by_time: bool = False) -> None:
        """Like `save`, but in a thread; waits for the previous save first, and raises its errors.

        Args:
          by_time: whether the checkpoint only protects against a kill. It does not count among the
            newest to keep, and is deleted when a newer one exists, unless it is the best.
        """
        self.wait()
        if by_time:
            self._by_time.add(step)
        else:
            self._by_time.discard(step)
        # Copies: the next step changes the variables while the thread writes.
        tensors = host_copies(self.variables)
        tensors[STEP_NAME] = tf.constant(step, tf.int64)
        tensors[LOOP_STATE_NAME] = tf.constant(json.dumps(loop_state))
        if self.identity:
            tensors |= identity_tensors(self.identity)
        self._writing = self._writer.submit(self._write, step, tensors)
        self._writing_step = step

    def wait(self) -> None:
        """Waits until the last save is done.

        Raises:
          OSError: as `save`.
        """
        writing = self._writing
        # Forgotten first, so that its error is raised only once.
        self._writing = None
        if writing:
            writing.result()

    close = wait

    def has(self, step: int) -> bool:
        """Returns whether the checkpoint of `step` exists or is being written."""
        return (self._writing is not None and self._writing_step == step) or step in self.steps()

    def _write(self, step: int, tensors: dict[str, tf.Tensor]) -> None:
        start = time.monotonic()
        try:
            write_bundle(self.prefix(step), tensors)
            self._flush(step)
            self.write_seconds = time.monotonic() - start
            # A damaged checkpoint of this step has been replaced.
            self._unreadable.discard(step)
            self._write_state(best=None)
        except (tf.errors.OpError, OSError) as error:
            # A partial file would take the space that the next try needs.
            self._delete(step)
            last = f"{PREFIX}-{self.steps()[-1]}" if self.steps() else "none"
            reason = TENSORFLOW_NAMES.sub("", getattr(error, "message", None) or str(error))
            raise OSError(
                f"Checkpoint {self.prefix(step)} could not be written: {reason}. "
                f"The last good checkpoint is {last}; free some space and run the same command "
                f"again."
            ) from error
        self._delete_old()

    def mark_best(self, step: int, score: float) -> None:
        """Records the checkpoint of `step` as the best if its evaluation's score is the highest.

        A score that is not finite is ignored.
        """
        self.wait()
        best = self.best()
        if not math.isfinite(score):
            return
        # A best checkpoint that was deleted by hand no longer counts.
        if best is None or score > best["score"] or best["step"] not in self.steps():
            self._write_state(best={"step": step, "score": score})
            self._delete_old()

    def best(self) -> dict[str, Any] | None:
        """Returns {"step", "score"} of the checkpoint with the highest score.

        Raises:
          ValueError: if best_checkpoint.json is damaged.
        """
        path = self.path / "best_checkpoint.json"
        if not path.exists():
            return None
        best = read_json(path)
        step = json_field(best, "step", int, path)
        score = json_field(best, "score", float, path)
        if step is None or score is None:
            raise ValueError(f"{path} is damaged: it has {best} instead of a step and a score.")
        return {"step": step, "score": score}

    def check_best(self, scores: dict[int, float]) -> None:
        """Rewrites best_checkpoint.json, with a warning, if it contradicts the evaluations.

        Args:
          scores: the scores of all evaluations, by step.
        """
        saved_steps = self.steps()
        expected: dict[str, Any] | None = None
        for step, score in scores.items():
            if step in saved_steps and math.isfinite(score):
                if expected is None or score > expected["score"]:
                    expected = {"step": step, "score": score}
        try:
            best = self.best()
            if expected is None or best == expected:
                return
        except ValueError as error:
            logging.warning("%s Rebuilding it from the evaluations.", error)
        if expected is None:
            (self.path / "best_checkpoint.json").unlink(missing_ok=True)
        else:
            self._write_state(best=expected)

    def restore_best(self) -> int | None:
        """Assigns the best checkpoint to the variables; returns its step, or None without one."""
        best = self.best()
        if best is None or best["step"] not in self.steps():
            return None
        values = read_bundle(self.prefix(best["step"]))
        step = int(values.pop(STEP_NAME))
        values.pop(LOOP_STATE_NAME)
        self._assign(values, source=self.prefix(step))
        return step

    def restore(self) -> tuple[int, dict[str, Any]] | None:
        """Assigns the newest checkpoint that can be read to the variables.

        Returns:
          (step, loop state), or None if there is no checkpoint.

        Raises:
          ValueError: if its variables differ from the run's in name or shape, or if there are
            checkpoints and none can be read.
        """
        self.wait()
        # From the newest on: a damaged checkpoint costs only the steps since the one before.
        for step in reversed(self.steps()):
            try:
                values = read_bundle(self.prefix(step))
            except ValueError as error:
                self._unreadable.add(step)
                if not self.steps():
                    raise ValueError(
                        f"{error}. No other checkpoint of this run can be read: restore one from a "
                        f"backup, or delete {self.prefix(step)}.* to start again."
                    ) from error
                logging.warning("%s. Using the previous checkpoint.", error)
                continue
            step = int(values.pop(STEP_NAME))
            loop_state = json.loads(values.pop(LOOP_STATE_NAME).item())
            self._assign(values, source=self.prefix(step))
            return step, loop_state
        return None

    def _assign(self, values: Values, source: str) -> None:
        """Assigns the values of variables, without identity and unused loss scale."""
        assigned = {}
        for name, value in values.items():
            # An evaluation in float32 has no loss scale.
            is_unused = name.startswith("loss_scale/") and name not in self.variables
            if not is_unused and not name.startswith(NAME_START):
                assigned[name] = value
        assign(self.variables, assigned, source)

    def _write_state(self, best: dict[str, Any] | None) -> None:
        if best is not None:
            write_json(self.path / "best_checkpoint.json", best)
        steps = self.steps()
        if steps:  # The format that tf.train.latest_checkpoint reads.
            with atomic_write(self.path / STATE_FILE) as file:
                file.write(f'model_checkpoint_path: "{PREFIX}-{steps[-1]}"\n')
                file.writelines(
                    f'all_model_checkpoint_paths: "{PREFIX}-{step}"\n' for step in steps
                )
                # A comment, which TensorFlow ignores.
                by_time = " ".join(str(step) for step in steps if step in self._by_time)
                if by_time:
                    file.write(f"{BY_TIME}{by_time}\n")

    def _read_by_time(self) -> set[int]:
        """Returns the steps of the checkpoints that an earlier process wrote by time.

        Without a record, all checkpoints count as regular ones.
        """
        path = self.path / STATE_FILE
        if not path.is_file():
            return set()
        for line in path.read_text(encoding="utf8", errors="replace").splitlines():
            if match := _BY_TIME_LINE.fullmatch(line):
                return set(map(int, match[1].split()))
        return set()

    def _delete_old(self) -> None:
        best = self.best()
        steps = self.steps()
        # The newest counts even if it was written by time.
        lasting = [step for step in steps if step not in self._by_time or step == steps[-1]]
        # Checkpoints by time do not push out the regular ones.
        kept = set(lasting[-self.keep :])
        if best:
            kept.add(best["step"])
        for step in set(steps) - kept:
            self._delete(step)
        self._write_state(best=None)

    def _delete(self, step: int) -> None:
        # The index goes first: without it the rest is a leftover, not a damaged checkpoint.
        (self.path / f"{PREFIX}-{step}.index").unlink(missing_ok=True)
        for path, match in self._checkpoint_files().items():
            if int(match[1]) == step:
                path.unlink(missing_ok=True)

    def _flush(self, step: int) -> None:
        """Waits until the checkpoint is on the disk, so that it survives a power cut."""
        # The folder comes last: it has the names of the files.
        for path in [*self.path.glob(f"{PREFIX}-{step}.*"), self.path]:
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def delete_leftovers(self) -> None:
        """Deletes files left by a killed save; only the process that saves may call it."""
        # Checkpoints that could not be read are not leftovers: they stay for the user to examine.
        complete = {*self.steps(), *self._unreadable}
        for path, match in self._checkpoint_files().items():
            if int(match[1]) not in complete or "tempstate" in match[2]:
                logging.info("Deleted %s, left by an interrupted save.", path)
                path.unlink(missing_ok=True)
        for path in self.path.glob(".*.tmp"):
            path.unlink(missing_ok=True)


def assign(variables: dict[str, Any], values: Values, source: str) -> None:
    """Assigns values to variables by name; all names and shapes must match.

    Raises:
      ValueError: with the names that are missing, unused or of the wrong shape.
    """
    missing = sorted(set(variables) - set(values))
    unused = sorted(set(values) - set(variables))
    shapes = []
    for name in sorted(set(variables) & set(values)):
        shape = tuple(values[name].shape)
        expected = tuple(variables[name].shape)
        if shape != expected:
            shapes.append(f"{name} {shape} instead of {expected}")
    if missing or unused or shapes:
        raise ValueError(
            f"{source} does not fit the model: missing {missing}, unused {unused}, wrong shapes "
            f"{shapes}. Give the configuration that it was trained with."
        )
    for name, variable in variables.items():
        variable.assign(values[name])


def read_fingerprint(prefix: str) -> str:
    """Returns the fingerprint of the training examples in a checkpoint; "" if not recorded.

    Raises:
      ValueError: if it is not a readable checkpoint of a run.
    """
    state = read_bundle(prefix, LOOP_STATE_NAME)[LOOP_STATE_NAME]
    return str(json.loads(state.item()).get("data_fingerprint", ""))
