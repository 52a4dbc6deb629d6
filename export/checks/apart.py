"""Runs SavedModels in another process: with only TensorFlow, or only its C library.

The process is this file as a program, with nothing of the project but `c_api.py` beside it:

    python apart.py tensorflow|c_library JOBS ANSWERS
"""

import importlib
import os
import pathlib
import pickle
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any

TENSORFLOW, C_LIBRARY = "tensorflow", "c_library"


def run_apart(runtime: str, jobs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Runs models in one new process.

    Args:
      runtime: `TENSORFLOW` or `C_LIBRARY`.
      jobs: of each model `folder`; `ops`, names of operations; `signatures`, by name the tensors of
        inputs and of outputs by name; `requests`, each a signature's name and inputs, NumPy arrays.

    Returns:
      Of each job `answers`, each a dict of arrays, or an error's code and message;
      `load_seconds`, `first_seconds`; `foreign_ops`, which TensorFlow itself lacks; or `error`, if
      the model cannot be loaded.

    Raises:
      ValueError: if the process fails.
    """
    with tempfile.TemporaryDirectory() as folder:
        asked, answered = pathlib.Path(folder, "jobs"), pathlib.Path(folder, "answers")
        asked.write_bytes(pickle.dumps(list(jobs)))
        done = subprocess.run(
            [sys.executable, __file__, runtime, str(asked), str(answered)],
            env={"TF_CPP_MIN_LOG_LEVEL": "3", **os.environ},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        if done.returncode or not answered.exists():
            lines = done.stderr.decode(errors="replace").strip().splitlines() or ["no message"]
            raise ValueError(
                f"The process ({runtime}) for {jobs[0]['folder']} ended with status "
                f"{done.returncode}: {lines[-1]}"
            )
        return pickle.loads(answered.read_bytes())


class _Tensorflow:
    """As `c_api.Library`; tensorflow-text comes with the first model that needs more operations."""

    def __init__(self) -> None:
        import tensorflow as tf

        self._tf = tf

    def foreign_ops(self, ops: Sequence[str]) -> list[str]:
        registry = importlib.import_module("tensorflow.python.framework.op_def_registry")
        return [op for op in ops if registry.get(op) is None]

    def load(self, job: dict[str, Any], foreign_ops: Sequence[str]) -> Callable:
        tf = self._tf
        if foreign_ops:
            importlib.import_module("tensorflow_text")
        model = tf.saved_model.load(job["folder"])

        def call(signature: str, inputs: dict[str, Any]) -> Any:
            tensors = {
                name: tf.constant(value, tf.string if value.dtype == object else value.dtype)
                for name, value in inputs.items()
            }
            try:
                outputs = model.signatures[signature](**tensors)
                return {name: value.numpy() for name, value in outputs.items()}
            except tf.errors.OpError as error:
                return error.error_code, error.message

        return call


def _run(library: Any, job: dict[str, Any], foreign_ops: list[str]) -> dict[str, Any]:
    start = time.perf_counter()
    try:
        call = library.load(job, foreign_ops)
    except Exception as error:  # Whatever it is, the other process says it.
        return {"error": f"{type(error).__name__}: {error}", "foreign_ops": foreign_ops}
    times = [time.perf_counter()]
    answers = []
    for request in job["requests"]:
        answers.append(call(*request))
        times.append(time.perf_counter())
    return {
        "answers": answers,
        "load_seconds": times[0] - start,
        "first_seconds": times[:2][-1] - times[0],
        "foreign_ops": foreign_ops,
    }


def main(runtime: str, jobs_file: str, answers_file: str) -> None:
    """Reads jobs, runs them in order and writes what came of each."""
    library = _Tensorflow() if runtime == TENSORFLOW else importlib.import_module("c_api").Library()
    jobs = pickle.loads(pathlib.Path(jobs_file).read_bytes())
    foreign = [library.foreign_ops(job["ops"]) for job in jobs]  # Before tensorflow-text comes.
    results = [_run(library, job, ops) for job, ops in zip(jobs, foreign, strict=True)]
    if runtime == C_LIBRARY and "tensorflow" in sys.modules:
        raise RuntimeError("TensorFlow's Python was loaded.")
    pathlib.Path(answers_file).write_bytes(pickle.dumps(results))


if __name__ == "__main__":
    main(*sys.argv[1:])
