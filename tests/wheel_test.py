"""The wheel in an empty environment, used from another folder as a user would."""

import os
import pathlib
import shutil
import subprocess
import sys
import venv

import pytest

from tests.conftest import CORPUS
from tests.programs import SMALL_BERT
from tests.shared_data import ROOT


def run(*command: object, cwd: pathlib.Path) -> str:
    arguments = [str(part) for part in command]
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(arguments, cwd=cwd, capture_output=True, text=True, env=clean)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.slow
def test_installed_wheel_trains_and_exports(tmp_path: pathlib.Path) -> None:
    ignored = shutil.ignore_patterns(".*", "runs", "build", "*.egg-info", "__pycache__")
    source = shutil.copytree(ROOT, tmp_path / "source", ignore=ignored)
    run(sys.executable, "-m", "build", "--wheel", "--outdir", tmp_path, source, cwd=tmp_path)
    (wheel,) = tmp_path.glob("*.whl")
    venv.create(tmp_path / "empty", with_pip=True)
    bin_ = tmp_path / "empty" / "bin"
    run(bin_ / "python", "-m", "pip", "install", "--quiet", "--no-compile", wheel, cwd=tmp_path)
    installed = run(bin_ / "python", "-m", "pip", "freeze", cwd=tmp_path).lower()
    assert "pytest==" not in installed and "tensorflow-datasets" not in installed, installed
    (tmp_path / "text.txt").write_text(CORPUS, encoding="utf8")
    small = {**SMALL_BERT, "input_file": "text.txt", "output_dir": "run"}
    small |= {"train_batch_size": 2, "num_train_steps": 2, "num_warmup_steps": 1}
    flags = [f"--{name}={value}" for name, value in small.items()]
    run(bin_ / "bert-tf", "pretrain", "--flagfile=base.flags", *flags, cwd=tmp_path)
    masked = "--text=The [MASK] stood on the river."
    printed = run(bin_ / "bert-tf", "fill-mask", "--output_dir=run", masked, cwd=tmp_path)
    assert "[MASK]" in printed
    run(bin_ / "bert-tf", "export", "--model_dir=run", "--output_dir=served", cwd=tmp_path)
    assert (tmp_path / "served" / "1" / "saved_model.pb").exists()
    typed = "import bert_tf, pathlib; print(pathlib.Path(bert_tf.__file__).with_name('py.typed'))"
    assert "site-packages" in run(bin_ / "python", "-c", typed, cwd=tmp_path)
