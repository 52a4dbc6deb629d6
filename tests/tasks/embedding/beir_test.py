"""BEIR folders: read whole, and each contradiction between their files named."""

import json
import lzma
import pathlib

import pytest

from bert_tf.tasks.embedding.beir import read_beir
from tests.shared_data import shared_data

CORPUS = [
    {"_id": "d1", "title": "A title", "text": "and a text."},
    {"_id": "d2", "title": "", "text": "Text alone."},
    {"_id": "d3", "text": "No title.", "metadata": {}},
]
QUERIES = [{"_id": "q1", "text": " First? "}, {"_id": "q2", "text": "Second?"}]
QRELS = "query-id\tcorpus-id\tscore\nq2\td1\t2\nq2\td3\t0\n"


def write(folder: pathlib.Path, corpus: list = CORPUS, queries: list = QUERIES, qrels: str = QRELS):
    def lines(rows: list) -> str:
        return "".join(json.dumps(row) + "\n" for row in rows)

    (folder / "corpus.jsonl.xz").write_bytes(lzma.compress(lines(corpus).encode()))
    (folder / "queries.jsonl").write_text(lines(queries))
    (folder / "qrels").mkdir()
    (folder / "qrels" / "test.tsv").write_text(qrels)


def test_reads_documents_judged_queries_and_grades(tmp_path: pathlib.Path) -> None:
    write(tmp_path)
    found = read_beir(tmp_path, "test")
    assert found.documents == {"d1": "A title and a text.", "d2": "Text alone.", "d3": "No title."}
    assert found.queries == {"q2": "Second?"}
    assert found.qrels == {"q2": {"d1": 2, "d3": 0}}


def test_a_header_may_be_missing(tmp_path: pathlib.Path) -> None:
    write(tmp_path, qrels="q1\td1\t1\n")
    assert read_beir(tmp_path, "test").qrels == {"q1": {"d1": 1}}


def test_judgments_may_be_compressed(tmp_path: pathlib.Path) -> None:
    write(tmp_path)
    path = tmp_path / "qrels" / "test.tsv"
    path.with_name("dev.tsv.xz").write_bytes(lzma.compress(path.read_bytes()))
    assert read_beir(tmp_path, "dev") == read_beir(tmp_path, "test")
    with pytest.raises(ValueError, match=r"train.tsv .* \['dev', 'test'\]"):
        read_beir(tmp_path, "train")


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"qrels": QRELS + "q9\td1\t1\n"}, "test.tsv line 4 .*query 'q9'.* queries.jsonl"),
        ({"qrels": QRELS + "q1\td9\t1\n"}, "test.tsv line 4 .*document 'd9'.* corpus.jsonl"),
        ({"qrels": "query-id\tcorpus-id\tscore\n"}, "test.tsv .*judgment.* query-id"),
        ({"qrels": QRELS + "q2\td1\t1\n"}, "test.tsv line 4 .*document 'd1' .*query 'q2'"),
        ({"qrels": QRELS + "q1\td1\t0\n"}, "test.tsv line 4: query 'q1' .*score .*0"),
        ({"qrels": QRELS + "q1\td1\tyes\n"}, "test.tsv line 4: .*score .*'yes'"),
        ({"qrels": QRELS + "q1 d1 1\n"}, "test.tsv line 4 .*1 .*query-id, corpus-id, score"),
        ({"corpus": [*CORPUS, CORPUS[0]]}, "xz line 4 .*_id 'd1' .*xz line 1"),
        ({"corpus": [{"_id": "d1", "text": 3}]}, "line 1: text .*3"),
        ({"corpus": [{"_id": "d1", "body": "x"}]}, "line 1 .*title .*text"),
        ({"corpus": [{"id": "d1", "text": "x"}]}, "line 1: _id .*None"),
        ({"queries": [{"_id": "q1", "text": " "}]}, "queries.jsonl line 1: query 'q1' .*text"),
    ],
)
def test_contradictions_are_named(tmp_path: pathlib.Path, changed: dict, named: str) -> None:
    write(tmp_path, **changed)
    with pytest.raises(ValueError, match=named):
        read_beir(tmp_path, "test")


def test_a_missing_file_or_split_is_named(tmp_path: pathlib.Path) -> None:
    with pytest.raises(ValueError, match=f"{tmp_path} .*corpus.jsonl.* queries.jsonl"):
        read_beir(tmp_path, "test")
    write(tmp_path)
    with pytest.raises(ValueError, match=r"train.tsv .*\['test'\]"):
        read_beir(tmp_path, "train")


def test_scifact_has_its_published_counts() -> None:
    found = read_beir(shared_data("retrieval", "scifact"), "test")
    assert (len(found.documents), len(found.queries)) == (5183, 300)
    assert sum(map(len, found.qrels.values())) == 339
