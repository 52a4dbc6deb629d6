"""Paths of the golden files in the repository, and of reference data kept outside it."""

import importlib.util
import os
import pathlib
import shutil
from collections.abc import Sequence

import numpy as np
import pytest

from tests.golden.archives import SUFFIX, unpacked

ROOT = pathlib.Path(__file__).resolve().parents[1]


def golden_file(*parts: str) -> pathlib.Path:
    """Returns the path of a golden file or folder; `tests/golden/README.md` says what is there."""
    golden = ROOT / "tests" / "golden"
    path = golden.joinpath(*parts)
    for count, name in enumerate(parts):
        archive = golden.joinpath(*parts[:count], f"{name}{SUFFIX}")
        if archive.exists():
            path = unpacked(archive).joinpath(*parts[count + 1 :])
    if not path.exists():
        raise FileNotFoundError(f"{path} is missing from the checkout")
    return path


def read_arrays(path: pathlib.Path) -> dict[str, np.ndarray]:
    """Returns the arrays of an .npz file, which is closed."""
    with np.load(path) as file:
        return dict(file)


def shared_data(*parts: str) -> pathlib.Path:
    """Returns the path of a corpus, a task or real weights; skips the calling test without it."""
    path = _shared_path(*parts)
    if not path.exists():
        pytest.skip(f"reference data {'/'.join(parts)} not found; set BERT_TF_TEST_DATA")
    return path


def _shared_path(*parts: str) -> pathlib.Path:
    folder = os.environ.get("BERT_TF_TEST_DATA", ROOT.parent / "shared" / "data")
    return pathlib.Path(folder, *parts)


def missing(
    *packages: str, data: str = "", variable: str = "", programs: Sequence[str] = ()
) -> str:
    """Returns what is missing of a test's needs, the arguments of `pytest.mark.needs`; "": nothing.

    Args:
      packages: modules that are imported.
      data: a folder below the reference data.
      variable: of the environment.
      programs: of which one is enough.
    """
    lacking = [name for name in packages if not _is_installed(name)]
    if lacking:
        return f"{', '.join(lacking)} not installed"
    if data and not _shared_path(data).exists():
        return f"reference data {data} not found; set BERT_TF_TEST_DATA"
    if variable and not os.environ.get(variable):
        return f"{variable} is not set"
    if programs and not any(map(shutil.which, programs)):
        return f"none of {', '.join(programs)} is on the PATH"
    return ""


def _is_installed(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:  # Of the package that it is in.
        return False


def skip_together(items: list[pytest.Item]) -> list[pytest.Item]:
    """Leaves one skipped test for all those of a file that need the same; returns the others.

    A run without torch then says in one line how many tests it would add.
    """
    first: dict[tuple[pathlib.Path, str], pytest.Item] = {}
    others: dict[tuple[pathlib.Path, str], list[pytest.Item]] = {}
    for item in items:
        marks = item.iter_markers("needs")
        reasons = (missing(*mark.args, **mark.kwargs) for mark in marks)
        if reason := next(filter(None, reasons), ""):
            key = (item.path, reason)
            if key in first:
                others[key].append(item)
            else:
                first[key] = item
                others[key] = []
    for key, item in first.items():
        count = len(others[key]) + 1
        item.add_marker(pytest.mark.skip(reason=f"{key[1]}: {count} tests of {key[0].name}"))
    left_out = {id(item) for group in others.values() for item in group}
    removed = [item for item in items if id(item) in left_out]
    items[:] = [item for item in items if id(item) not in left_out]
    return removed
