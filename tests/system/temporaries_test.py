"""Temporaries: deleted after a kill by the next writer, never while their writer lives."""

import os
import pathlib
import signal

import pytest

from bert_tf.system.files import atomic_write
from bert_tf.system.temporaries import temporary
from bert_tf.tasks.base.serving.saving.version_folders import hidden_folder


def killed(write, path: pathlib.Path) -> pathlib.Path:
    """Kills a process that writes a path; returns the temporary that it leaves."""
    before = set(path.parent.iterdir())
    reader, writer = os.pipe()
    pid = os.fork()
    if not pid:  # The child: only system calls, and no return to the tests.
        try:
            with write(path):
                os.write(writer, b"x")
                signal.pause()
        finally:
            os._exit(1)
    os.read(reader, 1)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    os.close(reader)
    os.close(writer)
    (left,) = set(path.parent.iterdir()) - before
    return left


def folder(path: pathlib.Path):
    return temporary(path, is_folder=True)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("write", [atomic_write, temporary, folder])
def test_the_next_writer_deletes_what_a_killed_one_left(tmp_path, write):
    left = killed(write, tmp_path / "x")
    with write(tmp_path / "y"):
        assert left.exists()  # of another path
    with write(tmp_path / "x"):
        assert not left.exists()


@pytest.mark.parametrize("write", [atomic_write, temporary, folder])
def test_a_temporary_in_use_stays(tmp_path, write):
    with write(tmp_path / "x"):
        (first,) = tmp_path.iterdir()
        with write(tmp_path / "x"):
            assert first.exists()
            assert len(list(tmp_path.glob(".x.*.tmp"))) == 2
    assert not list(tmp_path.glob(".x.*"))


def test_temporaries_of_other_hosts_stay(tmp_path):
    other = tmp_path / f".x.{'0' * 32}.tmp"
    other.touch()
    with atomic_write(tmp_path / "x"):
        pass
    assert other.exists()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_versions_of_exports(tmp_path):
    def write(path: pathlib.Path):
        return hidden_folder(path.parent / "run" / "1")

    left = killed(write, tmp_path / "x")
    with hidden_folder(tmp_path / "run" / "1") as hidden:
        assert not left.exists() and hidden.is_dir()
    assert not list(tmp_path.glob(".run*"))
