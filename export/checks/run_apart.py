"""Runs SavedModels in other processes: TensorFlow alone, and TensorFlow's C library alone."""

import os
import pathlib
import pickle
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from typing import Any

import numpy as np

from export.checks.op_check import used_ops
from export.checks.stored_model import Request, StoredModel

FRESH_PROCESS, C_LIBRARY = "fresh_process.py", "c_api.py"
INVALID_ARGUMENT = 3  # of TensorFlow's error codes.
# Outputs by name, or an error's code and message.
Answer = dict[str, np.ndarray] | tuple[int, str]
Job = dict[str, Any]


def first_line(message: str) -> str:
    """Returns what a message of TensorFlow says, without where in its functions."""
    lines = re.sub(r"\{\{.*?\}\}\s*", "", message).strip().splitlines()
    return lines[0] if lines else "no message"


def make_job(stored: StoredModel, requests: Sequence[Request]) -> Job:
    """Returns what the other process needs to know, in types that it has."""
    signatures = {
        name: tuple({key: info.tensor for key, info in part.items()} for part in signature)
        for name, signature in stored.signatures.items()
    }
    return {
        "folder": str(stored.folder),
        "ops": sorted(used_ops(stored.meta_graph)),
        "signatures": signatures,
        "requests": [tuple(request) for request in requests],
    }


def run_apart(program: str, jobs: Sequence[Job]) -> list[dict[str, Any]]:
    """Runs jobs in one new process.

    Args:
      program: `FRESH_PROCESS` or `C_LIBRARY`.
      jobs: of `make_job`.

    Returns:
      What `run_job` of the program says, job by job.

    Raises:
      ValueError: if the process fails.
    """
    script = pathlib.Path(__file__).with_name(program)
    with tempfile.TemporaryDirectory() as folder:
        asked, answered = pathlib.Path(folder, "jobs"), pathlib.Path(folder, "answers")
        asked.write_bytes(pickle.dumps(list(jobs)))
        done = subprocess.run(
            [sys.executable, "-P", str(script), str(asked), str(answered)],
            env={"TF_CPP_MIN_LOG_LEVEL": "3", **os.environ},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        if done.returncode or not answered.exists():
            lines = done.stderr.decode(errors="replace").strip().splitlines() or ["no message"]
            raise ValueError(
                f"The process of {program} for {jobs[0]['folder']} ended with status "
                f"{done.returncode}: {lines[-1]}"
            )
        return pickle.loads(answered.read_bytes())
