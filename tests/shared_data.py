"""Finds the reference data that are not in the repository; without them a test is skipped."""

import os
import pathlib

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]


def shared_data(*parts: str) -> pathlib.Path:
    """Returns the path of a reference file, or skips the calling test where it is missing."""
    folder = os.environ.get("BERT_TF_TEST_DATA", ROOT.parent / "shared" / "data")
    path = pathlib.Path(folder, *parts)
    if not path.exists():
        pytest.skip(f"reference data {'/'.join(parts)} not found; set BERT_TF_TEST_DATA")
    return path
