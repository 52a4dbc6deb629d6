"""Examples of embeddings from tables, and what is wrong with them."""

import gzip
import json
from unittest import mock

import pytest

from bert_tf.config.fine_tuning_config import TableConfig
from bert_tf.tasks.embedding.examples import (
    EmbeddingExample,
    read_beir_examples,
    read_embedding_examples,
)
from bert_tf.tasks.embedding.features import make_scored_examples


def write(path, *rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf8")
    return path


def read(path, *columns):
    return [tuple(e)[:4] for e in read_embedding_examples(str(path), "--train_file", *columns)]


def test_pairs_triplets_lists_and_texts(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("anchor,positive\nq,p\n")
    assert read(path) == [("q", "p", (), ())]
    path.write_text("query,positive,negative_2,negative,negative_10\nq,p,b,a,c\n")
    assert read(path) == [("q", "p", ("a", "b", "c"), ())]
    path = write(
        tmp_path / "b.jsonl",
        {"query": "q", "positives": ["p", "r"], "negatives": ["a"], "other": 3},
        {"query": "s", "positives": ["t"], "negatives": []},
    )
    assert read(path) == [("q", "p", ("a",), ()), ("q", "r", ("a",), ()), ("s", "t", (), ())]
    path = write(tmp_path / "c.jsonl", {"id": "1", "title": "x", "text": "y"})
    assert read(path) == [("y", "y", (), ())]
    assert read(path, "title", "text") == [("x", "y", (), ())]


def test_columns_that_another_file_has(tmp_path):
    """Scored pairs beside a training file with columns of its own."""
    path = tmp_path / "sts-dev.csv"
    path.write_text("main\tMSR\t2012\t1\t2.5\tA plane.\tA jet.\n")
    with pytest.raises(ValueError, match="line 1: .*'title'.* sentence1, sentence2, score"):
        read(path, "title", "text")
    assert read(path, "title", "text", False) == [("A plane.", "A jet.", (), (0.5,))]
    path = write(tmp_path / "c.jsonl", {"query": "q", "title": "x", "text": "y", "positive": "p"})
    assert read(path, "title", "text", False) == [("x", "y", (), ())]


def test_plain_texts_are_told_from_tables(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("\ufeff\nThe first, with a comma.\r\n \nA second\twith a tab\n")
    expected = ["The first, with a comma.", "A second\twith a tab"]
    assert read(path) == [(text, text, (), ()) for text in expected]
    found = read_embedding_examples(str(path), "--train_file")[1].source
    assert found.endswith("a.txt line 4")
    with gzip.open(tmp_path / "b.txt.gz", "wt") as file:
        file.write("one text\n")
    assert read(tmp_path / "b.txt.gz") == [("one text", "one text", (), ())]
    path.write_text("text\none\n")
    assert read(path) == [("one", "one", (), ())]
    path.write_text("title\none\n")
    assert read(path, "title", "title") == [("one", "one", (), ())]
    path.write_text("query\tpositive\nq\tp\n")
    assert read(path) == [("q", "p", (), ())]
    for name in ("c.csv", "d.txt.csv", "e.txt"):
        text = "" if name == "e.txt" else "no columns\n"
        (tmp_path / name).write_text(text + "query\nq\n")
        with pytest.raises(ValueError, match=f"{name} line 2: .*--query_column .*--positive"):
            read(tmp_path / name)


def test_a_table_that_is_called_txt_is_no_text(tmp_path):
    path = tmp_path / "a.txt"
    for sign in ",;|\t":
        path.write_text(f"query{sign}positive\nwho left?{sign}Ada left\n")
        assert [row[:2] for row in read(path)] == [("who left?", "Ada left")]
    path.write_text("Who, me?\nyes\n")
    assert [row[0] for row in read(path)] == ["Who, me?", "yes"]


STS = "main\tMSR\t2012\t1\t{}\tA b.\tC d.\n"


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("sts-dev.csv", STS.format(2.5) + STS.format("") + STS.format(5), 2),
        ("sts-dev.csv", STS.format(2.5) + STS.format(5) + STS.format(-1), 3),
        ("a.csv", "sentence1,sentence2,score\na,b,2.5\nc,d,\ne,f,5\n", 3),
        ("a.csv", "sentence1,sentence2,label\na,b,2.5\nc,d,-1.0\ne,f,5\n", 3),
        (
            "a.jsonl",
            '{"text_a": "a", "text_b": "b", "score": 2.5}\n{"text_a": "c", "text_b": "d"}\n'
            '{"text_a": "e", "text_b": "f", "score": 5}\n',
            2,
        ),
    ],
)
def test_pairs_without_a_score_are_named_or_left_out(tmp_path, name, text, line):
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(ValueError, match=rf"{name} line {line}"):
        read(path)
    skips = TableConfig(skip_unlabelled=True)
    found = read_embedding_examples(str(path), "--train_file", reading=skips)
    scale = 5 if name.startswith("sts") else 1
    assert [example.scores[0] * scale for example in found] == [2.5, 5.0]


def test_cosines_of_minus_one_are_scores(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("sentence1,sentence2,score\na,b,-1\nc,d,1\n")
    assert [row[3] for row in read(path)] == [(-1.0,), (1.0,)]


def test_scores_of_pairs_and_margins(tmp_path):
    path = tmp_path / "a.tsv"
    path.write_text("sentence1\tsentence2\tscore\na\tb\t0.25\n")
    assert read(path) == [("a", "b", (), (0.25,))]
    path = write(
        tmp_path / "b.jsonl",
        {"query": "q", "positive": "p", "negatives": ["a", "b"], "scores": [1, 2.5]},
    )
    assert read(path) == [("q", "p", ("a", "b"), (1.0, 2.5))]
    path = tmp_path / "sts-dev.csv"
    path.write_text('news\tf\t2012\t0001\t2.500\tA "quote.\tB.\textra\n')
    assert read(path) == [('A "quote.', "B.", (), (0.5,))]


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"a": "x", "b": "y"}, ["a, b;", "--query_column"]),
        ({"query": "x", "anchor": "z", "positive": "y"}, ["line 2: query ", "--query_column"]),
        ({"query": "x", "positive": "  "}, ["positive ", "'  '"]),
        ({"query": 3, "positive": "y"}, ["query ", " 3,"]),
        ({"query": ["x", "z"], "positive": "y"}, ["query ", " 2 "]),
        ({"query": [], "positive": "y"}, ["query ", " 0 "]),
        ({"query": "x", "positives": []}, ["line 2 ", " positive;"]),
        ({"query": "x", "positive": "y", "negative": "y"}, ["'y'", "negative", "positive"]),
        ({"query": "x", "positive": "y", "score": "high"}, ["score ", "'high'"]),
        ({"query": "x", "positive": "y", "score": "nan"}, ["score ", "'nan'"]),
        (
            {"query": "x", "positive": "y", "negatives": ["a", "b"], "scores": [1]},
            [": 1 ", " scores,", " 2:"],
        ),
    ],
)
def test_what_is_wrong_names_file_and_line(tmp_path, row, expected):
    good = {"query": "q", "positive": "p"}
    path = write(tmp_path / "bad.jsonl", good, row)
    with pytest.raises(ValueError) as caught:
        read(path)
    for text in ["bad.jsonl line 2", *expected]:
        assert text in str(caught.value)


def test_files_that_do_not_go_together(tmp_path):
    path = write(
        tmp_path / "bad.jsonl",
        {"query": "a", "positive": "b", "score": 1},
        {"query": "q", "positive": "p"},
    )
    with pytest.raises(ValueError, match="bad.jsonl line 2 .*score"):
        read(path)
    path = write(tmp_path / "one.jsonl", {"query": "a", "positive": "b"})
    with pytest.raises(ValueError, match="one.jsonl line 1: .*'title'.* query, positive"):
        read(path, "title")


def test_beir_folder(tmp_path):
    documents = [{"_id": "d1", "title": "T", "text": "one"}, {"_id": "d2", "text": "two"}]
    write(tmp_path / "corpus.jsonl", *documents)
    write(tmp_path / "queries.jsonl", {"_id": "q", "text": "who"})
    (tmp_path / "qrels").mkdir()
    lines = "query-id\tcorpus-id\tscore\nq\td1\t1\nq\td2\t0\n"
    (tmp_path / "qrels" / "train.tsv").write_text(lines)
    found = [tuple(e)[:4] for e in read_beir_examples(str(tmp_path), "train")]
    assert found == [("who", "T one", ("two",), ())]


def test_equal_scores_have_no_correlation():
    for count in (1, 2):
        examples = [
            EmbeddingExample("a", "b", (), (0.5,), f"dev.csv line {n}") for n in range(count)
        ]
        with pytest.raises(ValueError, match=f"dev.csv line 0: .* {count} .*score 0.5"):
            make_scored_examples(mock.Mock(), examples)


def test_lists_in_cells_and_rows_without_a_score(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("query,positive,negatives\nq,['p'],\"['n', 'm']\"\n")
    assert read(path) == [("q", "['p']", ("n", "m"), ())]  # One text may look like a list.
    path.write_text("query;pos\nq;['p', 'r']\n")
    assert [row[1] for row in read(path)] == ["p", "r"]
    path.write_text("query,positive,score\na,b,0.5\na,c,\na,d,high\n")
    with pytest.raises(ValueError, match="2 of 3 .*a.csv line 3.*a.csv line 4"):
        read(path)
    path.write_text("query,positive,score\na,b,0.5\na,c,\n")
    reading = TableConfig(skip_unlabelled=True)
    found = read_embedding_examples(str(path), "--train_file", reading=reading)
    assert [example.positive for example in found] == ["b"]
