"""The files for clusters fit the launcher: a faked srun, and the names in the manifest."""

import json
import os
import pathlib
import re
import subprocess

import pytest

from bert_tf.system.hosts import listed_config

FOLDER = pathlib.Path(__file__).resolve().parents[1] / "configs" / "cluster"


@pytest.fixture
def slurm(tmp_path):
    """Runs slurm.sh where srun ends with one status after the other; returns (status, calls)."""

    def run(*statuses):
        log, left = tmp_path / "calls", tmp_path / "left"
        log.write_text("")
        left.write_text("".join(f"{status}\n" for status in statuses))
        scripts = {
            "srun": f'echo "srun $*" >>{log}\nn=$(head -1 {left})\nsed -i 1d {left}\nexit $n\n',
            "scontrol": f'echo "scontrol $*" >>{log}\n',
        }
        for name, text in scripts.items():
            (tmp_path / name).write_text(f"#!/bin/bash\n{text}")
            (tmp_path / name).chmod(0o755)
        done = subprocess.run(
            ["bash", FOLDER / "slurm.sh", "bert_tf.run_pretraining", "--output_dir=a b"],
            env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_JOB_ID": "7"},
            capture_output=True,
            text=True,
        )
        return done.returncode, log.read_text().splitlines()

    return run


CALL = (
    "srun --distribution=block --label python -m bert_tf.launch --slurm -- "
    "bert_tf.run_pretraining --output_dir=a b"
)


@pytest.mark.parametrize(
    ("statuses", "status", "calls"),
    [
        ([0], 0, [CALL]),
        ([1], 1, [CALL]),
        ([69, 137, 0], 0, 3 * [CALL]),
        ([75], 0, [CALL, "scontrol requeue 7"]),
        (9 * [69], 69, 6 * [CALL]),
    ],
)
def test_the_slurm_script_starts_again_after_a_loss(slurm, statuses, status, calls):
    assert slurm(*statuses) == (status, calls)


def test_the_pods_are_those_that_the_launcher_is_told():
    text = (FOLDER / "kubernetes.yaml").read_text(encoding="utf8")
    counts = {int(n) for n in re.findall(r"(?:completions|parallelism): (\d+)", text)}
    hosts = re.search(r"--hosts=(\S+)", text)[1]
    names = {re.search(rf"{key}: (\S+)", text)[1] for key in ("  name", "subdomain", "job-name")}
    assert len(counts) == 1 and names == {"bert-pretraining"}
    for index in range(counts.pop()):
        config = json.loads(listed_config(hosts, -1, {"JOB_COMPLETION_INDEX": str(index)}))
        workers = config["cluster"]["worker"]
        # An indexed Job names its pods JOB-INDEX; the headless service is their domain.
        assert workers[index] == f"bert-pretraining-{index}.bert-pretraining:2222"
    assert len(workers) == index + 1
