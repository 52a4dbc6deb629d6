"""TREC files: written, read again, and the bad lines that people have."""

import pathlib
import re

import pytest

from bert_tf.metrics.trec import read_run, write_run


def test_a_run_comes_back_with_its_scores(tmp_path: pathlib.Path) -> None:
    run = {"q1": {"9": 0.1, "10": 0.1, "b": 1 / 3}, "q2": {"a": -2.5e-8}, "empty": {}}
    path = tmp_path / "a.run"
    write_run(path, run)
    assert path.read_text().splitlines() == [
        "q1 Q0 b 1 0.3333333333333333 bert_tf",
        "q1 Q0 9 2 0.1 bert_tf",
        "q1 Q0 10 3 0.1 bert_tf",
        "q2 Q0 a 1 -2.5e-08 bert_tf",
    ]
    assert read_run(path) == {"q1": run["q1"], "q2": run["q2"]}


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("q Q0 a 1 0.5\n", "a.run line 1 .* 5 fields.*RANK"),
        ("q Q0 a 1 0.5 x\n\nq Q0 a 2 0.4 x\n", "a.run line 3.*'a'.*'q'"),
        ("q Q0 a 1 best x\n", "a.run line 1.*'best'"),
        ("q Q0 a 1 nan x\n", "a.run line 1.*'nan'"),
        ("\n", "a.run .*lines.*RANK"),
    ],
)
def test_bad_lines_are_named(tmp_path: pathlib.Path, text: str, named: str) -> None:
    (tmp_path / "a.run").write_text(text)
    with pytest.raises(ValueError, match=named):
        read_run(tmp_path / "a.run")


@pytest.mark.parametrize("name", ["", "two words", "line\u2028break"])
def test_ids_with_white_space_cannot_be_written(tmp_path: pathlib.Path, name: str) -> None:
    path = tmp_path / "a.run"
    path.write_text("before")
    with pytest.raises(ValueError, match=re.escape(repr(name))):
        write_run(path, {"q": {name: 1.0}})
    assert path.read_text() == "before"
