"""Paths of the golden files in the repository, and of reference data kept outside it."""

import os
import pathlib

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]


def golden_file(*parts: str) -> pathlib.Path:
    """Returns the path of a golden file or folder; `tests/golden/README.md` says what is there."""
    path = pathlib.Path(ROOT, "tests", "golden", *parts)
    if not path.exists():
        raise FileNotFoundError(f"{path} is missing from the checkout")
    return path


def shared_data(*parts: str) -> pathlib.Path:
    """Returns the path of a corpus, a task or real weights; skips the calling test without it."""
    folder = os.environ.get("BERT_TF_TEST_DATA", ROOT.parent / "shared" / "data")
    path = pathlib.Path(folder, *parts)
    if not path.exists():
        pytest.skip(f"reference data {'/'.join(parts)} not found; set BERT_TF_TEST_DATA")
    return path
