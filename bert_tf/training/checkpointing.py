"""The run directory: checkpoints in TensorFlow's format under google-research/bert's names.

    OUTPUT_DIR/
      run.flags  bert_config.json  vocab.txt      what repeats the run
      run.json                                    its id, and digests of the files tied to it
      variables.txt                               what pre-training trains
      model.ckpt-1000.index  .data-00000-of-00001 weights, optimizer slots, step, loop state
      checkpoint                                  names of the newest and of the best checkpoint
      metrics.jsonl  eval_metrics.jsonl           losses; evaluations
      events.jsonl                                losses that were not finite or jumped
      eval_results.txt  curves.png                what a run shows

A checkpoint is an explicit dict of variables by path, written with names as in a TF1 checkpoint
(`bert/embeddings/word_embeddings`, `.../adam_m`, `global_step`), so `tf.train.load_checkpoint`
reads it. Keras objects are not handed to `tf.train.Checkpoint`, which silently leaves out layers
in Python lists. The index file is renamed into place last: a checkpoint without one does not count.

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
from bert_tf.checkpoints.tf_bundle import host_copies, read_bundle, write_bundle
from bert_tf.files import atomic_write, json_field, read_json, write_json
from bert_tf.run_identity import RunIdentity

PREFIX = "model.ckpt"
OWN_FILE = re.compile(rf"{PREFIX}-(\d+)\.((?:index|data-\d+-of-\d+)(?:\.tempstate\d+)?)")
STEP_NAME = "global_step"
LOOP_STATE_NAME = "loop_state"  # JSON: what the loop must know to go on as if never stopped.

TENSORFLOWS_OWN = re.compile(r"\{\{.*?\}\} |\.tempstate\d+| \[Op:\w+\]")  # In its messages.

Values = dict[str, np.ndarray]


def model_variables(model: keras.Model) -> dict[str, Any]:
    """Returns every variable of the model by path, states of seeds among them."""
    start = f"{model.name}/"
    variables = {v.path.removeprefix(start): v.value for v in model.variables}
    if len(variables) != len(model.variables):
        raise ValueError("Two variables of the model have the same path; rename a layer.")
    return variables


class RunDirectory:
    """Checkpoints of one run: saved whole or not at all; keeps the newest few and the best.

    Args:
      path: the run's output_dir, made if missing.
      variables: the contents of a checkpoint by name; see `model_variables`.
      keep: number of newest checkpoints to keep.

    Attributes:
      write_seconds: how long it took to write the last checkpoint; 0 before the first.
    """

    def __init__(self, path: str | pathlib.Path, variables: dict[str, Any], keep: int = 3) -> None:
        self.path = pathlib.Path(path)
        self.variables = variables
        self.keep = keep
        self.write_seconds = 0.0
        self._unreadable: set[int] = set()
        self._by_time: set[int] = set()
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
        steps = {int(found[1]) for found in self._own_files().values() if found[2] == "index"}
        return sorted(steps - self._unreadable)

    def _own_files(self) -> dict[pathlib.Path, re.Match]:
        """Returns the files of checkpoints; copies that somebody made beside them are not ours."""
        found = {path: OWN_FILE.fullmatch(path.name) for path in self.path.glob(f"{PREFIX}-*")}
        return {path: match for path, match in found.items() if match}

    def prefix(self, step: int) -> str:
        """Returns the checkpoint's prefix, as `tf.train.load_checkpoint` takes it."""
        return str(self.path / f"{PREFIX}-{step}")

    def save(self, step: int, loop_state: dict[str, Any]) -> None:
        """Writes the checkpoint of `step` and deletes the oldest ones.

        Raises:
          OSError: if it cannot be written (for example because the disk is full); the partial file
            is deleted and earlier checkpoints stay.
        """
        self.start_save(step, loop_state)
        self.wait()

    def start_save(self, step: int, loop_state: dict[str, Any], by_time: bool = False) -> None:
        """Like `save`, in a thread; first waits for the previous save, and raises its errors.

        Args:
          step, loop_state: see `save`.
          by_time: whether the checkpoint only guards against a kill: it takes no place among the
            newest that are kept, and is deleted once a newer one is there, unless it is the best.
        """
        self.wait()
        if by_time:
            self._by_time.add(step)
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
        writing, self._writing = self._writing, None
        if writing:
            writing.result()

    close = wait

    def has(self, step: int) -> bool:
        """True if the checkpoint of `step` exists or is being written."""
        return (self._writing is not None and self._writing_step == step) or step in self.steps()

    def _write(self, step: int, tensors: dict[str, tf.Tensor]) -> None:
        start = time.monotonic()
        try:
            write_bundle(self.prefix(step), tensors)
            self._flush(step)
            self.write_seconds = time.monotonic() - start
            self._unreadable.discard(step)
            self._write_state(best=None)
        except (tf.errors.OpError, OSError) as error:
            self._delete(step)
            last = f"{PREFIX}-{self.steps()[-1]}" if self.steps() else "none"
            reason = TENSORFLOWS_OWN.sub("", getattr(error, "message", None) or str(error))
            raise OSError(
                f"Checkpoint {self.prefix(step)} could not be written: {reason}. "
                f"The last good checkpoint is {last}; free some space and run the same command "
                f"again."
            ) from error
        self._delete_old()

    def mark_best(self, step: int, score: float) -> None:
        """Records the checkpoint of `step` as the best if its evaluation's score is the highest.

        A score that is not finite is none: without a better one the newest checkpoint counts.
        """
        self.wait()
        best = self.best()
        if not math.isfinite(score):
            return
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
        step, score = json_field(best, "step", int, path), json_field(best, "score", float, path)
        if step is None or score is None:
            raise ValueError(f"{path} holds {best} instead of a step and a score: it is damaged.")
        return {"step": step, "score": score}

    def check_best(self, scores: dict[int, float]) -> None:
        """Rewrites best_checkpoint.json, with a warning, if it contradicts the evaluations.

        Args:
          scores: of all evaluations, by step.
        """
        scores = {
            step: score
            for step, score in scores.items()
            if step in self.steps() and math.isfinite(score)
        }
        expected = max(scores, key=scores.__getitem__) if scores else None
        try:
            best = self.best()
            if expected is None or (best and best == {"step": expected, "score": scores[expected]}):
                return
        except ValueError as error:
            logging.warning("%s Rebuilding it from the evaluations.", error)
        if expected is None:
            (self.path / "best_checkpoint.json").unlink(missing_ok=True)
        else:
            self._write_state(best={"step": expected, "score": scores[expected]})

    def restore_best(self) -> int | None:
        """Assigns the best checkpoint to the variables; returns its step, None without one."""
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
        """Assigns the values of variables; float32 evaluations do not need the loss scale."""
        unused = {name for name in values if name.startswith("loss_scale/")} - set(self.variables)
        kept = {
            name: value
            for name, value in values.items()
            if name not in unused and not name.startswith(NAME_START)
        }
        assign(self.variables, kept, source)

    def _write_state(self, best: dict[str, Any] | None) -> None:
        if best is not None:
            write_json(self.path / "best_checkpoint.json", best)
        steps = self.steps()
        if steps:  # The form that tf.train.latest_checkpoint reads.
            with atomic_write(self.path / "checkpoint") as file:
                file.write(f'model_checkpoint_path: "{PREFIX}-{steps[-1]}"\n')
                file.writelines(
                    f'all_model_checkpoint_paths: "{PREFIX}-{step}"\n' for step in steps
                )

    def _delete_old(self) -> None:
        best = self.best()
        steps = self.steps()
        lasting = [step for step in steps if step not in self._by_time or step == steps[-1]]
        kept = set(lasting[-self.keep :]) | ({best["step"]} if best else set())
        for step in set(steps) - kept:
            self._delete(step)
        self._write_state(best=None)

    def _delete(self, step: int) -> None:
        # The index goes first: without it the rest is a leftover, not a damaged checkpoint.
        (self.path / f"{PREFIX}-{step}.index").unlink(missing_ok=True)
        for path, found in self._own_files().items():
            if int(found[1]) == step:
                path.unlink(missing_ok=True)

    def _flush(self, step: int) -> None:
        """Waits until the checkpoint is on the disk, so that it survives a power cut."""
        for path in [*self.path.glob(f"{PREFIX}-{step}.*"), self.path]:
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def delete_leftovers(self) -> None:
        """Deletes files left by a killed save; only the process that saves may call it."""
        whole = {*self.steps(), *self._unreadable}
        for path, found in self._own_files().items():
            if int(found[1]) not in whole or "tempstate" in found[2]:
                logging.info("Deleted %s, left by an interrupted save.", path)
                path.unlink(missing_ok=True)
        for path in self.path.glob(".*.tmp"):
            path.unlink(missing_ok=True)


def assign(variables: dict[str, Any], values: Values, source: str) -> None:
    """Assigns values to variables by name; every name and shape must agree.

    Raises:
      ValueError: with the names that are missing, unused or of the wrong shape.
    """
    missing = sorted(set(variables) - set(values))
    unused = sorted(set(values) - set(variables))
    shapes = [
        f"{name} {tuple(values[name].shape)} instead of {tuple(variables[name].shape)}"
        for name in sorted(set(variables) & set(values))
        if tuple(values[name].shape) != tuple(variables[name].shape)
    ]
    if missing or unused or shapes:
        raise ValueError(
            f"{source} does not fit the model: missing {missing}, unused {unused}, wrong shapes "
            f"{shapes}. Give the configuration that it was made with."
        )
    for name, variable in variables.items():
        variable.assign(values[name])
