"""A file written atomically is whole or absent, whatever happens while it is written."""

import pathlib
import signal
import subprocess
import sys

import pytest

from bert_tf.files import atomic_write


def test_writes_text_and_bytes_and_makes_folders(tmp_path: pathlib.Path) -> None:
    with atomic_write(tmp_path / "new" / "text") as file:
        file.write("naïve\n")
    with atomic_write(tmp_path / "bytes", "wb") as file:
        file.write(b"\x00\xff")
    assert (tmp_path / "new" / "text").read_bytes() == b"na\xc3\xafve\n"
    assert (tmp_path / "bytes").read_bytes() == b"\x00\xff"


def test_target_is_untouched_until_the_end(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "file"
    path.write_text("old", encoding="utf8")
    with atomic_write(path) as file:
        file.write("new")
        file.flush()
        assert path.read_text(encoding="utf8") == "old"
    assert path.read_text(encoding="utf8") == "new"


def test_failure_keeps_the_old_file_and_leaves_nothing_else(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "file"
    path.write_text("old", encoding="utf8")
    with pytest.raises(RuntimeError, match="interrupted"), atomic_write(path) as file:
        file.write("half")
        raise RuntimeError("interrupted")
    assert path.read_text(encoding="utf8") == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_two_writers_of_one_file_do_not_meet(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "file"
    with atomic_write(path) as first, atomic_write(path) as second:
        first.write("first")
        second.write("second")
    assert path.read_text(encoding="utf8") == "first"  # the last to be finished
    assert list(tmp_path.iterdir()) == [path]


def test_kill_keeps_the_old_file(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "file"
    path.write_text("old", encoding="utf8")
    code = (
        "import os, signal, sys\n"
        "from bert_tf.files import atomic_write\n"
        "with atomic_write(sys.argv[1]) as file:\n"
        "    file.write('half')\n"
        "    file.flush()\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    root = pathlib.Path(__file__).parents[1]
    done = subprocess.run([sys.executable, "-c", code, str(path)], cwd=root)
    assert done.returncode == -signal.SIGKILL
    assert path.read_text(encoding="utf8") == "old"
    # What is left behind is hidden, so that no glob for data finds it.
    assert [left.name.startswith(".") for left in tmp_path.iterdir() if left != path] == [True]
