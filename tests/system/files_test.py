"""Files are whole or absent, locks are held by one and freed by a kill, encodings are named."""

import concurrent.futures
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import pytest

from bert_tf.system.files import (
    atomic_write,
    cache_folder,
    check_writable,
    exclusive,
    new_folder_path,
    output_fault,
    read_json,
    read_lines,
    write_json,
)


def test_writes_text_and_bytes_and_makes_folders(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "new" / "text"
    for text in ("old", "naïve\n"):
        with atomic_write(path) as file:
            file.write(text)
            file.flush()
            # The target is untouched until the end.
            assert text == "old" or path.read_text(encoding="utf8") == "old"
    with atomic_write(tmp_path / "bytes", "wb") as file:
        file.write(b"\x00\xff")
    assert (tmp_path / "new" / "text").read_bytes() == b"na\xc3\xafve\n"
    assert (tmp_path / "bytes").read_bytes() == b"\x00\xff"


@pytest.mark.parametrize("kind", ["device", "pipe", "folder"])
def test_only_files_are_replaced(tmp_path: pathlib.Path, kind: str) -> None:
    path = tmp_path / "path"
    if kind == "device":
        path.symlink_to("/dev/null")
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.mkdir()
    before = path.lstat()
    with pytest.raises(ValueError, match=re.escape(str(path))), atomic_write(path):
        pass
    with pytest.raises(ValueError, match=f"--report_file={path}"):
        check_writable(path, "report_file")
    assert path.lstat() == before and list(tmp_path.iterdir()) == [path]


def test_what_cannot_be_written_is_found_without_a_trace(tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").touch()
    for good in (tmp_path / "file", tmp_path, tmp_path / "new" / "folder"):
        assert output_fault(good) == ""
    for bad in (tmp_path / "file" / "x", tmp_path / ("x" * 300), pathlib.Path("/proc/none/x")):
        assert output_fault(bad)
    assert list(tmp_path.iterdir()) == [tmp_path / "file"]


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


def test_a_folder_can_be_renamed_to_its_place(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "disk").mkdir()
    (tmp_path / "link").symlink_to("disk")
    (tmp_path / "made").mkdir()
    (tmp_path / "made").rename(new_folder_path("~/link"))
    assert new_folder_path("~/link/new") == tmp_path / "disk" / "new"
    monkeypatch.setattr(pathlib.Path, "is_mount", lambda path: path.name == "disk")
    with pytest.raises(ValueError, match="/disk .*mount point"):
        new_folder_path(tmp_path / "link")
    (tmp_path / "disk" / "x").touch()
    with pytest.raises(ValueError, match=r"/disk .*; go on\."):
        new_folder_path(tmp_path / "link", "go on")


KILLED = """
import os, pathlib, signal, sys
from bert_tf.system.files import atomic_write, exclusive
folder = pathlib.Path(sys.argv[1])
with exclusive(folder / "lock"), atomic_write(folder / "file") as file:
    file.write("half")
    file.flush()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_process_leaves_the_old_file_and_holds_no_lock(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "file"
    path.write_text("old", encoding="utf8")
    root = pathlib.Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], cwd=root)
    assert done.returncode == -signal.SIGKILL
    assert path.read_text(encoding="utf8") == "old"
    assert (tmp_path / "lock").exists()
    with exclusive(tmp_path / "lock", "trying"):
        pass
    assert not (tmp_path / "lock").exists()
    # What is left behind is hidden, so that no glob for data finds it.
    assert [left.name.startswith(".") for left in tmp_path.iterdir() if left != path] == [True]


def test_one_at_a_time(tmp_path: pathlib.Path) -> None:
    """Threads: a lock belongs to an open file, so they exclude each other as processes do."""
    running, most = [], []

    def work(number: int) -> None:
        with exclusive(tmp_path / "lock"):
            running.append(number)
            most.append(len(running))
            time.sleep(0.001)
            running.pop()

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(60)))
    assert most == [1] * 60
    assert not list(tmp_path.iterdir())


def test_a_lock_that_another_holds_is_left_alone(tmp_path: pathlib.Path) -> None:
    with exclusive(tmp_path / "new" / "lock", "writing"):
        with pytest.raises(ValueError, match="writing"):
            with exclusive(tmp_path / "new" / "lock", "writing"):
                pass
        assert (tmp_path / "new" / "lock").exists()
    for _ in range(2):  # an error frees it
        with pytest.raises(KeyError), exclusive(tmp_path / "new" / "lock", "writing"):
            raise KeyError
    (tmp_path / "file").write_text("")
    message = rf"{tmp_path}/file .*--cache_dir"
    with pytest.raises(ValueError, match=message):
        with exclusive(tmp_path / "file" / "lock", flag="cache_dir"):
            pass


@pytest.mark.parametrize(
    ("output_dir", "parent"), [("runs/a", "runs"), ("runs/a/", "runs"), ("a", "."), (".", "..")]
)
def test_the_cache_stands_beside_the_run(output_dir: str, parent: str) -> None:
    assert cache_folder(output_dir) == pathlib.Path(parent, "bert_tf_cache")


def test_the_encoding_that_is_suggested(tmp_path: pathlib.Path) -> None:
    for name, text in {"quotes": "\u201cyes\u201d", "accents": "caf\u00e9"}.items():
        (tmp_path / name).write_bytes(f"one\n{text}\n".encode("cp1252"))
        message = rf"{name}, line 2: .*UTF-8.*iconv -f (\w+) -t UTF-8"
        with pytest.raises(ValueError, match=message) as error:
            read_lines(tmp_path / name)
        encoding = re.search("-f (.*?) ", str(error.value))[1]
        assert (tmp_path / name).read_bytes().decode(encoding) == f"one\n{text}\n"


def test_json_holds_names_that_are_not_utf8(tmp_path):
    for values in ({"größe": "文"}, {"file": "caf\udce9.txt"}):
        write_json(tmp_path / "a.json", values)
        assert read_json(tmp_path / "a.json") == values
    write_json(tmp_path / "a.json", {"größe": 1})
    assert "größe" in (tmp_path / "a.json").read_text(encoding="utf8")


def test_the_home_folder_is_found(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "a.json").write_text('{"one": 1}')
    assert read_json("~/a.json") == {"one": 1}
    assert read_lines("~/a.json") == ['{"one": 1}']
