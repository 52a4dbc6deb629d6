"""From files to answers as a user goes: an index is built, added to and searched."""

import json
import pathlib
import re
import sys
import types
import typing
from typing import ClassVar

import numpy as np
import pytest

from bert_tf.metrics.trec import read_run
from bert_tf.search.bm25 import Bm25
from bert_tf.search.documents import read_documents
from bert_tf.search.index import Index, build_index
from bert_tf.search.passages import PassageRule
from bert_tf.search.segments import Batch
from bert_tf.tasks.embedding import task as embedding
from tests.programs import fail, finish, run
from tests.search.bulk_stand_in import Stand
from tests.shared_data import golden_file
from tests.tasks.embedding.beir_test import write

TEXTS = {
    "a": "The clock in the tower has no hands.",
    "b": "A boat was tied to the stone house.",
    "c": "Snow fell for three days, and the roads were closed.",
}


def fixture(name: str) -> pathlib.Path:
    return golden_file("families", "sentence_transformers", name)


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
    assert [document.id for document in found] == [f"{name}:{part}" for part in (1, 4, "4.2")]
    assert [len(document.text.split()) for document in found] == [2, 100, 81]
    sentence = " ".join(["word"] * 40) + "."
    (tmp_path / "a.txt").write_text(f"Head.\n{' '.join([sentence.capitalize()] * 6)}\nNext.\n")
    found = list(read_documents(str(tmp_path / "*.txt")))
    assert [document.id for document in found] == [f"{name}:{part}" for part in (1, 2, "2.2")]
    assert [document.text.count(".") for document in found] == [3, 2, 3]
    # A sentence of 60 ideographs and its mark, five of them in a line without any space.
    (tmp_path / "a.txt").write_text(("山" * 60 + "。") * 5 + "\n" + "川" * 250 + "\n")
    found = list(read_documents(str(tmp_path / "*.txt")))
    assert [len(document.text) for document in found] == [61] * 5 + [100, 100, 50]
    assert found[1] == (f"{name}:1.2", "山" * 60 + "。")
    (tmp_path / "a.txt").write_text('{"text": "a"}\n')
    with pytest.raises(ValueError, match=r"a.txt .* \.jsonl"):
        list(read_documents(str(tmp_path / "*.txt")))


def test_tables_of_documents(tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "a.csv").write_text("title,text\nHead,body\n,alone\n")
    path = write_corpus(tmp_path / "b.jsonl", {"x": "text"})
    found = list(read_documents(f"{tmp_path / 'a.csv'},{path}"))
    name = tmp_path / "a.csv"
    assert found == [(f"{name}:1", "Head body"), (f"{name}:2", "alone"), ("x", "text")]
    with pytest.raises(ValueError, match="b.jsonl line 1 .* 'x'"):
        list(read_documents(f"{path},{path}"))
    shouted = tmp_path / "A.CSV"
    shouted.write_text((tmp_path / "a.csv").read_text())
    assert [document.text for document in read_documents(str(shouted))] == ["Head body", "alone"]
    (tmp_path / "c.csv").write_text("body\ntext\n")
    with pytest.raises(ValueError, match="c.csv line 2 .*`text`, .*body"):
        list(read_documents(str(tmp_path / "c.csv")))
    (tmp_path / "c.csv").write_text("title,text\nHead,\n, \n")
    with caplog.at_level("WARNING"):
        found = list(read_documents(str(tmp_path / "c.csv")))
    assert found == [(f"{tmp_path / 'c.csv'}:1", "Head")]
    assert re.search(r"1 rows .*title", caplog.text)


@pytest.mark.parametrize("value", ["Infinity", "[1]", '{"a": 1}', "true"])
def test_an_id_that_is_no_name(tmp_path: pathlib.Path, value: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(f'{{"_id": "x", "text": "a"}}\n{{"_id": {value}, "text": "b"}}\n')
    with pytest.raises(ValueError, match="a.jsonl line 2"):
        list(read_documents(str(path)))
    for missing in ("null", "NaN"):
        path.write_text(f'{{"_id": 7, "text": "a"}}\n{{"_id": {missing}, "text": "b"}}\n')
        assert [one.id for one in read_documents(str(path))] == ["7", f"{path}:2"]


def test_flags_that_are_missing(tmp_path: pathlib.Path) -> None:
    for program, values, named in (
        ("build_index", {}, "--output_dir"),
        ("build_index", {"output_dir": tmp_path / "x"}, "--input_file"),
        ("build_index", {"output_dir": tmp_path, "input_file": "x"}, "--init_checkpoint"),
        ("search", {}, "--index"),
        ("search", {"index": tmp_path}, "manifest.json"),
        ("search", {"index": tmp_path, "output_file": "x"}, "--output_file .*--data_dir"),
        (
            "search",
            {"index": tmp_path, "data_dir": "d", "output_file": tmp_path},
            f"--output_file={tmp_path} ",
        ),
        ("search", {"index": tmp_path, "rerank_k": 5}, "--rerank_k .*--rerank"),
        ("search", {"index": tmp_path, "fusion": "ranks"}, "--fusion .*--mode=hybrid"),
        *(
            (
                "search",
                {"index": tmp_path, "mode": "words", **given},
                f"--{[*given][0]} .*--mode=vectors",
            )
            for given in ({"faiss": "flat"}, {"init_checkpoint": "m"}, {"max_seq_length": 9})
        ),
        *(
            (
                "build_index",
                {"output_dir": tmp_path, "faiss": "flat", name: value},
                f"--{name} .*--input_file",
            )
            for name, value in (("dtype", "int8"), ("add", "true"), ("keep_texts", "false"))
        ),
        (
            "build_index",
            {"output_dir": tmp_path, "input_file": "x", "init_checkpoint": "m", "add": "true"}
            | {"dtype": "int8"},
            "--dtype",
        ),
    ):
        done = run(program, **values)
        assert done.returncode == 1 and re.search(named, done.printed), done.printed
        assert done.printed.count("\n") == 1 and done.printed.startswith("ERROR: ")


class Embedder(Stand):
    """Stands for a model of 32 pieces."""

    lengths: ClassVar[list[int]] = []

    def __init__(self, path: str, pooling: str, length: int, batch_size: int) -> None:
        super().__init__()
        self.lengths.append(length)
        embedding = types.SimpleNamespace(max_seq_length=length or 32, similarity="cosine")
        config = types.SimpleNamespace(longest_row=512)
        self.model = types.SimpleNamespace(embedding=embedding, config=config)


def test_what_is_wrong_is_found_before_the_model_is_read(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "faiss", types.ModuleType("faiss"))
    path = write_corpus(tmp_path / "a.jsonl", TEXTS)
    given = {"init_checkpoint": "none", "input_file": path}
    new, old = {"output_dir": tmp_path / "new"}, {"output_dir": tmp_path / "old", "add": "true"}
    batch = Batch(["x", "a"], np.ones([2, 3]), ["x", "a"])
    build_index(tmp_path / "old", [batch], model="m", max_seq_length=12)
    assert re.search("/old .*'a'", fail(run("build_index", **given, **old)))
    found = fail(run("build_index", **given, **old, max_seq_length=9))
    assert re.search("--max_seq_length=9, .*/old .*12 ", found)
    found = fail(run("build_index", **given, **new, faiss="ivf_pq"))
    assert re.search(r"ivf_pq .*256 .*3", found)
    monkeypatch.setitem(sys.modules, "faiss", None)
    found = fail(run("build_index", **given, **new, faiss="flat"))
    assert "pip install '.[faiss]'" in found
    path.write_text(path.read_text() * 2)
    assert re.search("line 4 .*'a' .*line 1", fail(run("build_index", **given, **new)))
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a.jsonl", "old"]


def test_an_index_in_a_home_folder_that_no_shell_has_expanded(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bert_tf.search.embedding.SearchEmbedder", Embedder)
    monkeypatch.setattr(Embedder, "lengths", [])
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    given = {"init_checkpoint": "m", "output_dir": "~/index"}
    write_corpus(tmp_path / "a.jsonl", {"a": "a"})
    write_corpus(tmp_path / "b.jsonl", {"b": "b b"})
    finish(run("build_index", **given, input_file="~/a.jsonl", max_seq_length=12))
    # What is added is cut as what is there.
    finish(run("build_index", "--add", **given, input_file="~/b.jsonl"))
    assert Embedder.lengths == [12, 12] and Index("~/index").manifest.max_seq_length == 12
    assert Index(tmp_path / "index").ids == ["a", "b"]
    assert not (tmp_path / "~").exists()


def test_an_index_knows_the_model_of_what_is_added(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths: list[str] = []

    class Reader(Embedder):
        def __init__(self, path: str, *arguments: typing.Any) -> None:
            paths.append(path)
            super().__init__(path, *arguments)

    monkeypatch.setattr("bert_tf.search.embedding.SearchEmbedder", Reader)
    files = [write_corpus(tmp_path / f"{name}.jsonl", {name: name * 2}) for name in "abc"]
    given = {"output_dir": tmp_path / "index"}
    finish(run("build_index", **given, input_file=files[0], init_checkpoint=tmp_path / "model"))
    finish(run("build_index", "--add", **given, input_file=files[1]))
    assert paths == [str(tmp_path / "model")] * 2 and Index(given["output_dir"]).ids == ["a", "b"]
    monkeypatch.setattr(Reader, "fingerprint", "changed")
    printed = fail(run("build_index", "--add", **given, input_file=files[2]))
    assert "changed" in printed and str(tmp_path / "model") in printed

    def missing(path: str, *_: typing.Any) -> None:
        raise ValueError(f"{path} does not exist.")

    monkeypatch.setattr("bert_tf.search.embedding.SearchEmbedder", missing)
    printed = fail(run("build_index", "--add", **given, input_file=files[2]))
    assert str(tmp_path / "model") in printed and "--init_checkpoint" in printed
    build_index(tmp_path / "none", [Batch(["a"], np.ones([1, 4]), ["a"])], model="m")
    printed = fail(run("build_index", "--add", output_dir=tmp_path / "none", input_file=files[1]))
    assert "--init_checkpoint" in printed
    assert Index(given["output_dir"]).ids == ["a", "b"]


def test_the_build_says_what_int8_finds(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bert_tf.search.embedding.SearchEmbedder", Embedder)
    path = write_corpus(tmp_path / "a.jsonl", TEXTS)
    given = {"init_checkpoint": "m", "input_file": path}
    done = run("build_index", **given, output_dir=tmp_path / "a", dtype="int8")
    assert re.search(r" int8 .*1\.0000", finish(done))
    assert " int8 " not in finish(run("build_index", **given, output_dir=tmp_path / "b"))


@pytest.mark.needs("bm25s", "Stemmer")
def test_a_query_of_words_that_no_document_has(tmp_path: pathlib.Path) -> None:
    batch = Batch(list(TEXTS), np.ones([3, 2]), list(TEXTS.values()))
    build_index(tmp_path / "index", [batch], model="m")
    done = run("search", index=tmp_path / "index", query="zebra", mode="words")
    assert len(done.stdout.splitlines()) == 2 and done.stdout.startswith("zebra\n      No ")


@pytest.mark.needs("bm25s", "Stemmer")
def test_measures_are_shown_where_a_run_file_cannot_hold_the_ids(tmp_path: pathlib.Path) -> None:
    names = ["a b", "c"]
    texts = ["the owl eats mice", "the bee"]
    build_index(tmp_path / "index", [Batch(names, np.ones([2, 2]), texts)], model="m")
    corpus = [{"_id": key, "text": text} for key, text in zip(names, texts, strict=True)]
    (tmp_path / "beir").mkdir()
    write(tmp_path / "beir", corpus, [{"_id": "q", "text": "owl"}], "q\ta b\t1\n")
    options = {"index": tmp_path / "index", "data_dir": tmp_path / "beir", "mode": "words"}
    done = run("search", **options, output_file=tmp_path / "a.run")
    assert done.returncode == 1 and "ndcg@10 = 1.0000" in done.stdout, done.printed
    assert "'a b'" in done.printed and not (tmp_path / "a.run").exists()


@pytest.mark.needs("bm25s", "Stemmer")
def test_a_document_is_scored_by_its_best_passage(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    passages = {
        "a#1": "The owl is in the barn, and the bee is not.",
        "a#2": "An owl saw the owl.",
        "a#3": "Nothing of this.",
        "b": "The owl eats mice.",
        "c#1": "Snow fell on the roads.",
        "c#2": "One more owl, and then a bee, a fox, a hen and the rest of them.",
    }
    batch = Batch(list(passages), np.ones([6, 2]), list(passages.values()))
    build_index(tmp_path / "index", [batch], model="m", passages=PassageRule(12))
    corpus = [{"_id": name, "text": "any"} for name in "abc"]
    (tmp_path / "beir").mkdir()
    write(tmp_path / "beir", corpus, [{"_id": "q", "text": "owl"}], "q\tb\t1\n")
    monkeypatch.setattr(embedding, "DEPTH", 3)  # Less than the passages that match.
    options = {"index": tmp_path / "index", "data_dir": tmp_path / "beir", "mode": "words"}
    done = run("search", **options, output_file=tmp_path / "a.run")
    scores, rows = Bm25(list(passages.values())).search(["owl"], 6)
    best: dict[str, float] = {}
    for row, score in zip(rows[0], scores[0], strict=True):
        name = list(passages)[row].split("#")[0]
        best[name] = max(best.get(name, 0.0), float(score))
    expected = {name: score for name, score in best.items() if score > 0}
    found = read_run(tmp_path / "a.run")["q"]
    assert found.keys() == expected.keys() == {*"abc"}
    assert found == pytest.approx(expected, abs=1e-4)
    assert max(found, key=lambda name: found[name]) == "a"  # by its second passage
    assert "mrr@10 = 0.5000" in finish(done)


def test_what_is_left_when_the_end_fails(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bert_tf.search.embedding.SearchEmbedder", Embedder)
    monkeypatch.setattr("bert_tf.search.faiss_index.check_faiss", lambda *_: None)
    path = write_corpus(tmp_path / "a.jsonl", TEXTS)
    given = {"init_checkpoint": "m", "output_dir": tmp_path / "index", "input_file": path}

    def broken(*_: object) -> None:
        raise RuntimeError("FAISS has no memory.")

    monkeypatch.setattr("bert_tf.search.faiss_index.build_faiss", broken)
    found = fail(run("build_index", **given, faiss="flat"))
    assert "FAISS has no memory." in found
    assert Index(tmp_path / "index").ids == ["a", "b", "c"]

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Embedder, "documents", interrupted)
    done = run("build_index", **{**given, "output_dir": tmp_path / "other"})
    assert done.returncode == 130 and not (tmp_path / "other").exists()
    assert done.printed.splitlines()[-1].startswith("Interrupted")


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
    assert done.returncode == 1 and re.search(f"{index} .*--add", done.printed)
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
    assert re.search("ERROR: k .*4; .*1 .*3", done.printed)

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
