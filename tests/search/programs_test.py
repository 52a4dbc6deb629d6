"""From files to answers as a user goes: an index is built, added to and searched."""

import json
import pathlib

import numpy as np
import pytest

from bert_tf.search.documents import read_documents
from bert_tf.search.embedding import SearchEmbedder
from bert_tf.search.index import Index
from bert_tf.search.trec import read_run
from bert_tf.tasks import embedding
from tests.programs import run
from tests.shared_data import shared_data
from tests.tasks.beir_test import write

TEXTS = {
    "a": "The clock in the tower has no hands.",
    "b": "A boat was tied to the stone house.",
    "c": "Snow fell for three days, and the roads were closed.",
}


def fixture(name: str) -> pathlib.Path:
    return shared_data("fixtures", "families", "sentence_transformers", name)


def write_corpus(path: pathlib.Path, texts: dict[str, str]) -> pathlib.Path:
    path.write_text("".join(json.dumps({"_id": k, "text": v}) + "\n" for k, v in texts.items()))
    return path


def test_passages_of_text_files(tmp_path: pathlib.Path) -> None:
    long = " ".join(["word"] * 90)
    (tmp_path / "a.txt").write_text(f"One\nline.\n\n\nTwo.\n\n{long}\n\nLast\none.\n")
    found = list(read_documents(str(tmp_path / "*.txt")))
    name = tmp_path / "a.txt"
    assert found[0] == (f"{name}:1", f"One line. Two. {long} Last one.")
    (tmp_path / "b.txt").write_text("one two three four five six seven eight nine ten\n" * 25)
    found = list(read_documents(str(tmp_path / "b.txt")))
    assert [len(document.text.split()) for document in found] == [100, 100, 50]
    assert [document.id for document in found] == [f"{tmp_path / 'b.txt'}:{n}" for n in (1, 11, 21)]
    (tmp_path / "b.txt").unlink()
    (tmp_path / "a.txt").write_text(f"One\nline.\n\n{long} {long}\n\nLast.\n")
    found = list(read_documents(str(tmp_path / "*.txt")))
    assert [document.id for document in found] == [f"{name}:{line}" for line in (1, 4, 6)]


def test_tables_of_documents(tmp_path: pathlib.Path) -> None:
    (tmp_path / "a.csv").write_text("title,text\nHead,body\n,alone\n")
    path = write_corpus(tmp_path / "b.jsonl", {"x": "text"})
    found = list(read_documents(f"{tmp_path / 'a.csv'},{path}"))
    name = tmp_path / "a.csv"
    assert found == [(f"{name}:1", "Head body"), (f"{name}:2", "alone"), ("x", "text")]
    with pytest.raises(ValueError, match="b.jsonl line 1 has the id 'x' of .* again"):
        list(read_documents(f"{path},{path}"))
    shouted = tmp_path / "A.CSV"
    shouted.write_text((tmp_path / "a.csv").read_text())
    assert [document.text for document in read_documents(str(shouted))] == ["Head body", "alone"]
    (tmp_path / "c.csv").write_text("body\ntext\n")
    with pytest.raises(ValueError, match="c.csv line 2 has no `text`, but body"):
        list(read_documents(str(tmp_path / "c.csv")))


def test_flags_that_are_missing(tmp_path: pathlib.Path) -> None:
    for program, values, named in (
        ("build_index", {}, "--output_dir"),
        ("build_index", {"output_dir": tmp_path / "x"}, "--input_file"),
        ("build_index", {"output_dir": tmp_path, "input_file": "x"}, "--init_checkpoint"),
        ("search", {}, "--index"),
        ("search", {"index": tmp_path}, "is no index"),
        ("search", {"index": tmp_path, "output_file": "x"}, "--output_file needs --data_dir"),
        ("search", {"index": tmp_path, "rerank_k": 5}, "--rerank_k needs --rerank"),
        ("search", {"index": tmp_path, "fusion": "ranks"}, "--fusion needs --mode=hybrid"),
        ("search", {"index": tmp_path, "faiss": "flat", "mode": "words"}, "--faiss searches vec"),
        (
            "build_index",
            {"output_dir": tmp_path, "input_file": "x", "init_checkpoint": "m", "add": "true"}
            | {"dtype": "int8"},
            "--dtype is fixed by the index with --add",
        ),
    ):
        done = run(program, **values)
        assert done.returncode == 1 and named in done.printed, done.printed
        assert done.printed.count("\n") == 1 and done.printed.startswith("ERROR: ")


@pytest.mark.slow
@pytest.mark.parametrize("model", ["mean_normalize", "cls", "mean_dense_tanh"])
def test_embeddings_are_those_of_sentence_transformers(model: str) -> None:
    golden = np.load(fixture(model) / "golden.npz")
    found = SearchEmbedder(str(fixture(model))).documents(golden["in_sentences"].tolist())
    np.testing.assert_allclose(found, golden["out_embeddings"], atol=1e-5)


@pytest.mark.slow
def test_built_added_to_and_searched(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, index = fixture("mean_normalize"), tmp_path / "index"
    first = write_corpus(tmp_path / "first.jsonl", {"a": TEXTS["a"]})
    monkeypatch.chdir(model.parent)  # The searches below are in another folder.
    given = {"init_checkpoint": model.name, "output_dir": index}
    done = run("build_index", input_file=first, **given)
    assert done.returncode == 0 and "1 documents" in done.printed, done.printed
    done = run("build_index", input_file=first, **given)
    assert done.returncode == 1 and "exists already; give --add" in done.printed
    monkeypatch.chdir(tmp_path)
    given["init_checkpoint"] = model
    rest = write_corpus(tmp_path / "rest.jsonl", {key: TEXTS[key] for key in "bc"})
    done = run("build_index", "--add", input_file=rest, **given)
    assert done.returncode == 0 and Index(index).ids == ["a", "b", "c"], done.printed

    done = run("search", index=index, query=TEXTS["b"], k=2)
    lines = done.stdout.splitlines()
    assert lines[:3] == [TEXTS["b"], "   1  1.0000  b", f"      {TEXTS['b']}"], done.printed
    done = run("search", index=index, query="x")
    assert done.returncode == 0 and "   3  " in done.stdout, done.printed  # Ten, if there were.
    done = run("search", index=index, query="x", k=4)
    assert "ERROR: k is 4, but" in done.printed and "has 3 documents" in done.printed
    done = run("search", index=index, query="x", init_checkpoint=fixture("cls"))
    assert done.returncode == 1 and "made by another model" in done.printed
    done = run(
        "build_index", "--add", input_file=rest, **{**given, "init_checkpoint": fixture("cls")}
    )
    assert done.returncode == 1 and "made by another model" in done.printed

    folder = tmp_path / "beir"
    folder.mkdir()
    corpus = [{"_id": key, "text": text} for key, text in TEXTS.items()]
    write(folder, corpus, [{"_id": "q", "text": TEXTS["c"]}], "q\tc\t1\n")
    options = {"index": index, "data_dir": folder, "output_file": tmp_path / "a.run"}
    done = run("search", rerank=fixture("cross_encoder"), **options)
    assert done.returncode == 0 and "recall@100 = 1.0000" in done.stdout, done.printed
    assert read_run(tmp_path / "a.run")["q"].keys() == {"a", "b", "c"}
    done = run("search", **options)
    assert "mrr@10 = 1.0000" in done.stdout
    monkeypatch.setattr(embedding, "DEPTH", 2)  # The query itself, and two more.
    own = tmp_path / "own"
    own.mkdir()
    write(own, corpus, [{"_id": "a", "text": TEXTS["a"]}], "a\tb\t1\na\tc\t1\n")
    options = {"index": index, "data_dir": own, "output_file": tmp_path / "own.run"}
    done = run("search", "--ignore_identical_ids", **options)
    assert "recall@100 = 1.0000" in done.stdout, done.printed
    assert read_run(tmp_path / "own.run")["a"].keys() == {"b", "c"}
