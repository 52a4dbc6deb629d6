"""A few faults at random moments; `python -m benchmarks.reliability` meets hundreds."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

from benchmarks.reliability import Wrong, check_error

ROOT = pathlib.Path(__file__).resolve().parents[1]


@pytest.mark.slow
def test_a_few_faults_are_survived(tmp_path):
    faults = "kill -9,SIGTERM,flipped byte in a checkpoint,damaged records,damaged state file"
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.reliability", f"--only={faults}"],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (last,) = re.findall(r"^\| all .*", done.stdout, re.M)
    times, equal, errors, wrong = map(int, re.findall(r"\d+", last))
    assert times == equal + errors == 5 and wrong == 0


def test_only_one_clear_line_is_a_clear_error():
    line = "ERROR: a.tfrecord is empty; write it again."
    assert check_error(f"12:00:00 step 1\n{line}\n", 1) == line
    for printed, status in [
        (f"{line}\n", 99),
        ("12:00:00 step 1\n", 1),
        (f"{line}\n{line}\n", 1),
        (f"Traceback (most recent call last):\n{line}\n", 1),
    ]:
        with pytest.raises(Wrong):
            check_error(printed, status)
