"""The benchmark for a GPU runs on a CPU with small shapes, and goes on after a part that fails."""

import json
import math
import subprocess
import sys

import pytest

from tests.docs_test import ROOT

PARTS = ("base, 128", "base, 512, fused", "4 layers, 128, float32", "base, 128, packed rows")
PARTS += ("base, 128, classifier", "base, 128, SavedModel")


@pytest.mark.slow
def test_parts_are_measured_in_order(tmp_path) -> None:
    lines = []
    for part in PARTS:
        command = [sys.executable, "-m", "benchmarks.accelerator_step", "--small", f"--part={part}"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        lines.append(json.loads(done.stdout.splitlines()[-1]) if not done.returncode else None)
    half, fused, whole, packed, classifier, saved = lines
    assert fused is None  # The kernel is for GPUs.
    assert half["ms"] > 0 and half["tokens_s"] > 0 and half["first_s"] > 0
    assert half["losses"] == pytest.approx(whole["losses"], rel=0.01)
    # Two labels, and 30,522 words in addition: the loss of random weights is that of a guess.
    assert classifier["losses"][0] == pytest.approx(math.log(2), rel=0.2)
    assert packed["losses"][0] == pytest.approx(math.log(2 * 30522), rel=0.05)
    assert saved["cpu_ms"] > 0 and saved["difference"] < 1e-5

    file = tmp_path / "gpu.jsonl"
    command = [sys.executable, "-m", "benchmarks.accelerator_step", "--small", "--minutes=0.3"]
    subprocess.run([*command, f"--output={file}"], cwd=ROOT, check=True)
    found = [json.loads(line) for line in file.read_text().splitlines()]
    assert found[0]["part"] == PARTS[0]  # Cut off by the clock, with an error in place of numbers.
    assert "ms" in found[0] or "error" in found[0]
