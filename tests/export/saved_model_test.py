"""Flags of `export.saved_model` that do not go together are named before a model is read."""

import pathlib
import re

import pytest

from tests.programs import fail, run


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"model_dir": ""}, "--model_dir"),
        ({"output_dir": ""}, "--output_dir"),
        ({"kind": "search"}, "--kind=search"),
        ({"kind": "search", "model_dir": ""}, "--kind=search"),
        ({"kind": "search", "index": "i", "precision": "bfloat16"}, "--precision"),
        ({"kind": "classifier", "top_k": 3}, "--top_k .*fill_mask.*--kind=classifier"),
        ({"kind": "tagger", "index": "i"}, "--index .*search.*--kind=tagger"),
        ({"model_dir": "", "index": "i"}, "ERROR: i .*manifest.json"),
        ({"kind": "search", "index": "i", "rerank_k": 5}, r"--rerank_k .*--rerank\."),
        (
            {"kind": "classifier", "pooling": ""},
            "ERROR: m .*config.json",
        ),  # As if it were not given.
        ({"version": 3}, "/3 .*--version"),
    ],
)
def test_what_does_not_go_together(tmp_path: pathlib.Path, flags: dict, message: str) -> None:
    (tmp_path / "3").mkdir()
    given = {"model_dir": "m", "output_dir": tmp_path, **flags}
    printed = fail(run("export.saved_model", **given))
    assert re.search(message, printed), printed
