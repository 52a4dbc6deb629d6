"""Filters the output of TensorFlow's libraries while they load, as it hides a program's lines.

They write directly to standard error before they read TF_CPP_MIN_LOG_LEVEL. This module applies
that level to them as well; 0 shows everything. Output after the import is not changed.
"""

import contextlib
import os
import pathlib
import re
import sys
import tempfile
import types
from collections.abc import Iterator

from bert_tf.system.around_import import around_import

_LEVELS_THAT_HIDE = ("1", "2", "3")
_LEVELS = {"I": 0, "W": 1, "E": 2}
_LINE = re.compile(rb"([IWE])\d{4} \d\d:\d\d:\d\d")
_ANNOUNCEMENT = b"WARNING: All log messages before absl::InitializeLog()"
# Two libraries that both register CUDA's plugins; the first is used.
_TWICE = re.compile(rb"Unable to register cu\w+ \w+: Attempting to register")
# oneDNN has no kernels of a type for this processor, so that TensorFlow's own are used.
_SLOWER_ONEDNN = re.compile(rb"oneDNN supports .* only on platforms with")
_NO_DRIVER = b"failed call to cuInit"


def hide_startup_lines() -> None:
    """Filters the output of the first import of TensorFlow in this process."""
    around_import("tensorflow", _quietly)


def has_gpu() -> bool:
    """Returns whether there is an NVIDIA GPU, by the device files of Linux or of WSL."""
    return any(pathlib.Path("/dev").glob("nvidia[0-9]*")) or pathlib.Path("/dev/dxg").exists()


def is_shown(line: bytes, level: int, has_gpu: bool) -> bool:
    """Returns whether a line of TensorFlow's libraries is shown at a level above 0."""
    if line.startswith(_ANNOUNCEMENT) or _TWICE.search(line):
        return False
    if _SLOWER_ONEDNN.search(line):
        return False
    if _NO_DRIVER in line and not has_gpu:
        return False
    match = _LINE.match(line)
    return not match or _LEVELS[match[1].decode()] >= level


@contextlib.contextmanager
def _quietly(tensorflow: types.ModuleType) -> Iterator[None]:
    """Filters the output of the import, and of the search for a driver that follows."""
    with hidden_lines():
        yield
        if os.environ.get("TF_CPP_MIN_LOG_LEVEL", "0") in _LEVELS_THAT_HIDE:
            tensorflow.config.list_physical_devices()  # Here it looks for a driver.


@contextlib.contextmanager
def hidden_lines() -> Iterator[None]:
    """Holds back the output to standard error, then prints the lines that are shown."""
    level = os.environ.get("TF_CPP_MIN_LOG_LEVEL", "0")
    if level not in _LEVELS_THAT_HIDE:
        yield
        return
    sys.stderr.flush()
    with tempfile.TemporaryFile() as held:
        # File descriptor 2 and not sys.stderr, because C++ writes directly to it.
        terminal = os.dup(2)
        os.dup2(held.fileno(), 2)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(terminal, 2)
            os.close(terminal)
            held.seek(0)
            for line in held:
                if is_shown(line, int(level), has_gpu()):
                    os.write(2, line)
