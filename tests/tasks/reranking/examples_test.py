"""Files of queries with documents: every form, BEIR with a run, and what is wrong with them."""

import json
import pathlib

import pytest

from bert_tf.config.fine_tuning_config import TableConfig
from bert_tf.tasks.reranking.examples import read_beir_ranking, read_ranking
from tests.tasks.embedding.beir_test import write


def read(path: pathlib.Path, *rows: dict, **options: bool) -> list:
    file = path / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return read_ranking(str(file), **options)


def test_all_forms_say_the_same(tmp_path: pathlib.Path) -> None:
    forms = [
        [{"query": "q", "positive": "a", "negatives": ["b", "c"]}],
        [{"query": "q", "positives": ["a"], "negative_1": "b", "negative_2": "c"}],
        [{"query": "q", "documents": ["a", "b", "c"], "labels": [1, 0, 0]}],
        [{"query": "q", "document": name, "label": int(name == "a")} for name in "abc"],
    ]
    for rows in forms:
        (found,) = read(tmp_path, *rows)
        assert found.query == "q" and found.documents == ("a", "b", "c")
        assert found.labels == (1, 0, 0) and found.scores == ()
        assert found.grades == {"1": 1.0} and found.query_id == "1"


def test_pairs_of_a_table_are_put_together(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "pairs.csv"
    path.write_text("query,document,label\nq,a,0.5\nr,b,1\nq,c,0\n")
    found = read_ranking(str(path))
    assert [example.documents for example in found] == [("a", "c"), ("b",)]
    assert found[0].labels == (0.5, 0)


def test_scores_of_a_teacher(tmp_path: pathlib.Path) -> None:
    (found,) = read(
        tmp_path, {"query": "q", "positive": "a", "negative": ["b"], "scores": [3, -1.5]}
    )
    assert found.scores == (3, -1.5) and found.labels == (1, 0)


def test_numbered_negatives_stand_in_the_order_of_their_numbers(tmp_path: pathlib.Path) -> None:
    columns = {f"negative_{n}": f"n{n}" for n in (10, 2, 1)}
    (found,) = read(tmp_path, {"query": "q", "positive": "a", **columns, "scores": [9, 1, 2, 10]})
    assert found.documents == ("a", "n1", "n2", "n10") and found.scores == (9, 1, 2, 10)


@pytest.mark.parametrize(
    ("row", "named"),
    [
        (
            {"query": "q", "positive": "a", "negatives": ["b", "a"]},
            "line 1: 'a' .*positive .*negative",
        ),
        ({"query": "q", "positive": " "}, "line 1: positive .*' '"),
        ({"positive": "a"}, "line 1: query .*None"),
        ({"query": "q", "text": "a"}, "line 1 .*query, text; .*label"),
        ({"query": "q", "document": "a"}, "line 1: label .*None"),
        ({"query": "q", "document": "a", "label": "high"}, "line 1: label .*'high'"),
        ({"query": "q", "document": "a", "label": True}, "line 1: label .*True"),
        ({"query": "q", "documents": ["a"], "labels": [1, 0]}, "line 1: 1 .* 2 labels"),
        ({"query": "q", "positive": "a", "scores": [1, 2]}, "line 1: 1 .* 2 scores"),
    ],
)
def test_bad_rows_are_named(tmp_path: pathlib.Path, row: dict, named: str) -> None:
    with pytest.raises(ValueError, match=f"rows.jsonl.*{named}"):
        read(tmp_path, row)


def test_rows_to_predict_need_no_labels(tmp_path: pathlib.Path) -> None:
    (found,) = read(tmp_path, {"query": "q", "documents": ["a", "b"]}, must_label=False)
    assert found.documents == ("a", "b") and not found.grades
    with pytest.raises(ValueError, match="rows.jsonl line 1: labels .*None"):
        read(tmp_path, {"query": "q", "documents": ["a", "b"]})


def test_beir_with_a_run(tmp_path: pathlib.Path) -> None:
    write(tmp_path)
    run = {"q2": {"d2": 1.0, "d3": 5.0}, "other": {}}
    (found,) = read_beir_ranking(str(tmp_path), "test", run, 2, adds_relevant=False)
    assert found.document_ids == ("d3", "d2") and found.labels == (0, 0)
    assert found.grades == {"d1": 2} and found.query == "Second?"
    (found,) = read_beir_ranking(str(tmp_path), "test", run, 2, adds_relevant=True)
    assert found.document_ids == ("d1", "d3") and found.labels == (2, 0)
    with pytest.raises(ValueError, match=f"document 'x' .*query 'q2'.*{tmp_path}"):
        read_beir_ranking(str(tmp_path), "test", {"q2": {"x": 1.0}}, 2, adds_relevant=False)
    with pytest.raises(ValueError, match=rf"\['q1'\].* test .*{tmp_path}"):
        read_beir_ranking(str(tmp_path), "test", {"q1": {"d1": 1.0}}, 2, adds_relevant=False)


def test_lists_in_cells_and_rows_without_a_label(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(
        "query;positives;negatives;scores\nq;['a', 'b'];['c'];[3, 2, 1]\nr;['a'];[];\n",
        encoding="utf8",
    )
    first, second = read_ranking(str(path))
    assert (first.documents, first.labels) == (("a", "b", "c"), (1.0, 1.0, 0.0))
    assert first.scores == (3.0, 2.0, 1.0) and second.documents == ("a",)
    path.write_text("query,document,label\nq,a,1\nq,b,\nq,c,x\nq,d,y\n", encoding="utf8")
    with pytest.raises(ValueError, match=f"3 of 4 .*{path} line 3.*{path} line 5"):
        read_ranking(str(path))
    path.write_text("query,document,label\nq,a,1\nq,b,\n", encoding="utf8")
    (example,) = read_ranking(str(path), reading=TableConfig(skip_unlabelled=True))
    assert example.documents == ("a",)
