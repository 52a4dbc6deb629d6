"""Flags of `export.saved_model` that do not go together are named before a model is read."""

import pathlib

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
        ({"kind": "classifier", "top_k": 3}, "--top_k applies to fill_mask"),
        ({"kind": "tagger", "index": "i"}, "--index applies to search"),
        ({"model_dir": "", "index": "i"}, "i is not an index"),
        ({"kind": "search", "index": "i", "rerank_k": 5}, "--rerank_k needs --rerank."),
        ({"kind": "classifier", "pooling": ""}, "m does not exist"),  # As if it were not given.
        ({"version": 3}, "3 already exists"),
    ],
)
def test_what_does_not_go_together(tmp_path: pathlib.Path, flags: dict, message: str) -> None:
    (tmp_path / "3").mkdir()
    given = {"model_dir": "m", "output_dir": tmp_path, **flags}
    assert message in fail(run("export.saved_model", **given))
