"""Locks between processes: one at a time, freed by a kill, no file left behind."""

import signal
import subprocess
import sys

import pytest

from bert_tf.data.locks import locked

COUNT = """
import pathlib, sys, time
from bert_tf.data.locks import locked
folder = pathlib.Path(sys.argv[1])
for _ in range(20):
    with locked(folder / "lock", "output_file"):
        number = int((folder / "number").read_text())
        time.sleep(0.001)
        (folder / "number").write_text(str(number + 1))
"""
HOLD = """
import pathlib, sys, time
from bert_tf.data.locks import locked
with locked(pathlib.Path(sys.argv[1]), "output_file"):
    print("held", flush=True)
    time.sleep(60)
"""


def test_one_process_at_a_time(tmp_path):
    (tmp_path / "number").write_text("0")
    command = [sys.executable, "-c", COUNT, str(tmp_path)]
    processes = [subprocess.Popen(command) for _ in range(4)]
    assert [process.wait() for process in processes] == [0] * 4
    assert (tmp_path / "number").read_text() == "80"
    assert [path.name for path in tmp_path.iterdir()] == ["number"]


def test_a_killed_process_holds_nothing(tmp_path):
    command = [sys.executable, "-c", HOLD, str(tmp_path / "lock")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "held\n"
        process.send_signal(signal.SIGKILL)
    assert (tmp_path / "lock").exists()
    with locked(tmp_path / "lock", "output_file"):
        pass
    assert not (tmp_path / "lock").exists()


def test_an_error_frees_the_lock(tmp_path):
    for _ in range(2):
        with pytest.raises(KeyError), locked(tmp_path / "new" / "lock", "output_file"):
            raise KeyError
    assert not list((tmp_path / "new").iterdir())


def test_a_folder_that_cannot_be_written_names_the_flag(tmp_path):
    (tmp_path / "file").write_text("")
    message = "Cannot write in the folder .*/file .*name one .* --cache_dir"
    with pytest.raises(ValueError, match=message), locked(tmp_path / "file" / "lock", "cache_dir"):
        pass
