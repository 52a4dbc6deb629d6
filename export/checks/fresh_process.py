"""Runs SavedModels in a process that has TensorFlow and nothing of this project.

A program of its own, started by `export.checks.run_apart`: python -P fresh_process.py JOBS ANSWERS.
tensorflow-text is loaded for models that need operations TensorFlow lacks, and for no others.
"""

import pathlib
import pickle
import sys
import time
from typing import Any


def run_job(job: dict[str, Any]) -> dict[str, Any]:
    """Loads one model and runs its requests.

    Args:
      job: `folder` and `requests`, see `export.checks.run_apart.Job`.

    Returns:
      `load_seconds`, `first_seconds` and `answers`; or `error`, if it cannot be loaded.
    """
    import tensorflow as tf

    start = time.perf_counter()
    try:
        model = tf.saved_model.load(job["folder"])
    except Exception as error:  # Whatever it is, the other process says it.
        return {"error": f"{type(error).__name__}: {error}"}
    loaded = time.perf_counter()
    answers: list[Any] = []
    first_seconds = 0.0
    for signature, inputs in job["requests"]:
        tensors = {
            name: tf.constant(value, tf.string if value.dtype == object else value.dtype)
            for name, value in inputs.items()
        }
        try:
            outputs = model.signatures[signature](**tensors)
            answers.append({name: value.numpy() for name, value in outputs.items()})
        except tf.errors.OpError as error:
            answers.append((error.error_code, error.message))
        first_seconds = first_seconds or time.perf_counter() - loaded
    return {"load_seconds": loaded - start, "first_seconds": first_seconds, "answers": answers}


def main(jobs_file: str, answers_file: str) -> None:
    """Reads jobs, runs them in order and writes what came of each."""
    jobs = pickle.loads(pathlib.Path(jobs_file).read_bytes())
    from tensorflow.python.framework import op_def_registry

    # Before tensorflow-text brings its own.
    foreign = [[op for op in job["ops"] if op_def_registry.get(op) is None] for job in jobs]
    results = []
    for job, ops in zip(jobs, foreign, strict=True):
        if ops:
            import tensorflow_text  # noqa: F401  Registers its operations.
        results.append({**run_job(job), "foreign_ops": ops})
    pathlib.Path(answers_file).write_bytes(pickle.dumps(results))


if __name__ == "__main__":
    main(*sys.argv[1:])
