"""Token vectors from files to answers: `build_index` and `search` with late interaction."""

import json
import re
import signal
import subprocess
import sys
from unittest import mock

import numpy as np
import pytest

from bert_tf.metrics.trec import read_run
from bert_tf.search.searcher import TokenSearcher
from bert_tf.search.token_changes import delete_tokens
from bert_tf.search.token_vectors import TokenIndex, TokenOrigin
from bert_tf.tasks.embedding.late_interaction_model import BertLateInteraction
from bert_tf.tasks.embedding.token_pooling import pool_tokens_of_document
from tests.float_bounds import assert_close
from tests.programs import fail, finish, run
from tests.shared_data import golden_file, shared_data
from tests.slow_variants import slow_unless
from tests.tasks.embedding.beir_test import write

pytestmark = pytest.mark.needs(data="fixtures/families/colbert")
QUERIES = {"q1": "who wrote the sea wolf", "q2": "Louis Guilloux", "q3": "the north"}
TEXTS = {
    "d1": "The Sea-Wolf is a novel by Jack London.",
    "d2": "Louis Guilloux wrote about Georges Palante.",
    "d3": "the second of the two cities in the north",
    "d4": "...",  # Only [CLS], [D] and [SEP] score.
    "d5": "Louis Guilloux wrote about Georges Palante.",
}


@pytest.fixture(scope="module")
def model():
    return shared_data("fixtures", "families", "colbert", "st6")


@pytest.fixture
def files(tmp_path):
    """Returns a BEIR folder, and the flags of a build from its documents."""
    corpus = [{"_id": name, "title": "", "text": text} for name, text in TEXTS.items()]
    queries = [{"_id": name, "text": text} for name, text in QUERIES.items()]
    beir = tmp_path / "beir"
    beir.mkdir()
    write(beir, corpus, queries, "q1\td1\t1\nq2\td2\t1\nq3\td3\t1\n")
    return beir, {"input_file": beir / "corpus.jsonl.xz", "output_dir": tmp_path / "texts.tokens"}


def stored(vectors, dtype):
    """Rounds the vectors of a document one by one, float64 [t, D]."""
    if dtype == "float16":
        return vectors.astype(np.float16).astype(np.float64)
    rounded = []
    for vector in vectors.astype(np.float64):
        scale = np.abs(vector).max() / 127
        rounded.append(np.round(vector / scale) * scale)
    return np.array(rounded)


def slow_score(query, document):
    """Returns the MaxSim of a query and a document, token by token."""
    return sum(max(float(token @ other) for other in document) for token in query)


VARIANTS = (("int8", 2, 9), ("", 1, 0), ("float16", 1.5, 0))


@pytest.mark.parametrize(("dtype", "factor", "length"), slow_unless(VARIANTS[0], VARIANTS))
def test_a_search_finds_what_a_slow_twin_finds(tmp_path, model, files, dtype, factor, length):
    beir, given = files
    options = {"dtype": dtype, "max_seq_length": length or "", "pool_factor": factor}
    options = {name: value for name, value in options.items() if value}
    printed = finish(run("build_index", **given, **options, init_checkpoint=model, batch_size=2))
    assert "5/5 texts" in printed and str(given["output_dir"]) in printed
    network = BertLateInteraction.from_pretrained(
        model, **({"max_seq_length": length} if length else {})
    )
    queries = network.encode_queries(list(QUERIES.values()))
    documents = []
    for vectors in network.encode_documents(list(TEXTS.values())):
        pooled = pool_tokens_of_document(vectors, factor)
        documents.append(stored(pooled, dtype or "float16"))
    expected = np.array([[slow_score(one, other) for other in documents] for one in queries])
    file = tmp_path / "run.trec"
    found = run("search", index=given["output_dir"], data_dir=beir, output_file=file)
    assert "ndcg@10 = " in finish(found)
    for name, scores in zip(QUERIES, expected, strict=True):
        ranking = read_run(file)[name]
        # int8 may round a number the other way, one step of 1/127, where both are computed.
        bound = 2e-2 if dtype == "int8" else 1e-4
        assert ranking == pytest.approx(dict(zip(TEXTS, scores, strict=True)), abs=bound)
    index = TokenIndex.load(given["output_dir"])
    scores, rows = index.search(queries, 5)
    found = TokenSearcher(str(given["output_dir"])).search(list(QUERIES.values()), 5)
    assert_close(np.stack([hits.scores for hits in found]), scores)
    np.testing.assert_array_equal(np.stack([hits.rows for hits in found]), rows)
    assert index.ids == [*TEXTS] and index.texts == [*TEXTS.values()]
    # Equal texts are neighbours; a matrix product may round them differently.
    ranks = rows[1].tolist()
    assert abs(ranks.index(1) - ranks.index(4)) == 1


@pytest.mark.slow
@pytest.mark.parametrize("keep_texts", [True, False])
def test_what_a_search_shows(model, files, keep_texts):
    _, given = files
    finish(run("build_index", **given, init_checkpoint=model, keep_texts=keep_texts))
    search = {"index": given["output_dir"], "query": "the north", "k": 2}
    lines = run("search", **search).stdout.splitlines()
    assert lines[0] == "the north" and re.fullmatch(r"   1  \d+\.\d{4}  d3", lines[1])
    assert (f"      {TEXTS['d3']}" in lines) == keep_texts and len(lines) == 3 + 2 * keep_texts
    again = run("search", **search, rerank=model)
    if keep_texts:
        assert again.stdout.splitlines()[2] == lines[2]
    else:
        assert f"ERROR: {given['output_dir']}" in fail(again)


WRONG_FLAGS = (
    "faiss=flat rescore=int8 dimensions=8 pooling=cls similarity=dot passages=9 language=de "
    "compact=true dtype=binary dtype=float32"
)


def test_flags_without_effect_are_refused_before_tensorflow(tmp_path, model, files):
    _, given = files
    dense = golden_file("families", "sentence_transformers", "mean_normalize")
    index = tmp_path / "index.tokens"
    TokenIndex.of([np.ones([2, 4], np.float32)]).save(index)
    build = {**given, "init_checkpoint": model}
    cases = [
        ("build_index", {**build, "output_dir": index}, str(index)),
        ("build_index", {**build, "output_dir": tmp_path}, str(tmp_path)),
        ("build_index", {**build, "init_checkpoint": dense, "pool_factor": 2}, "--pool_factor"),
        ("build_index", {"output_dir": index, "delete": tmp_path / "x"}, str(tmp_path / "x")),
        ("build_index", {**build, "add": "true"}, str(given["output_dir"])),
        ("build_index", {"output_dir": index, "compact": "true"}, "--compact"),
        ("build_index", {"output_dir": index, "language": "en"}, "--input_file"),
        ("search", {"index": index, "mode": "words"}, "--mode=words"),
        ("search", {"index": index, "faiss": "flat"}, "--faiss=flat"),
        ("search", {"index": index, "max_seq_length": 9}, "--max_seq_length=9"),
    ]
    for flag in WRONG_FLAGS.split():
        name, _, value = flag.partition("=")
        cases.append(("build_index", {**build, name: value}, f"--{name}="))
    for program, values, named in cases:
        with mock.patch.dict(sys.modules, {"tensorflow": None, "keras": None}):
            printed = fail(run(program, **values))
        assert printed.count("\n") == 1 and named in printed, printed
    assert not given["output_dir"].exists()


def test_files_of_another_model_and_damaged_ones_are_refused(tmp_path, model):
    file = tmp_path / "texts.tokens"
    vectors = [np.ones([2, 16], np.float32)]
    origins = (("", ""), (str(model), "m0"), (str(tmp_path / "moved"), ""))
    for origin, named in zip(origins, ("--init_checkpoint", "m0", "moved"), strict=True):
        parts = [TokenIndex.of(vectors, ids=[name], origin=TokenOrigin(*origin)) for name in "ab"]
        TokenIndex.joined(parts).save(file)
        assert named in fail(run("search", index=file, query="a"))
        assert named in fail(run("export.saved_model", index=file, output_dir=tmp_path / "m"))
    content = file.read_bytes()
    for damaged in (content[: len(content) // 2], content.replace(b'"texts"', b'"words"')):
        file.write_bytes(damaged)
        assert str(file) in fail(run("search", index=file, query="a"))


def lines_of(path, *rows):
    """Writes documents into a file of JSON Lines, and returns its path."""
    path.write_text("".join(json.dumps({"_id": name, "text": text}) + "\n" for name, text in rows))
    return path


def tokens_of(path):
    """Returns the text and the vectors of each document of a file, and the origin."""
    index = TokenIndex.load(path)
    vectors = index.vectors.astype(np.float32) * index.scales[:, None]
    documents = np.split(vectors, index.starts[1:-1])
    return dict(zip(index.ids, zip(index.texts, documents, strict=True), strict=True)), index.origin


def test_a_file_after_changes_is_one_built_at_once(tmp_path, model):
    rows = list(TEXTS.items())
    old = lines_of(tmp_path / "old.jsonl", *rows[:2], ("d3", "another text"))
    changed = lines_of(tmp_path / "changed.jsonl", rows[2], rows[4])
    settings = {"dtype": "int8", "pool_factor": 2, "max_seq_length": 9, "init_checkpoint": model}
    file = tmp_path / "a.tokens"
    finish(run("build_index", input_file=old, output_dir=file, **settings))
    change = {"output_dir": file}
    before = file.read_bytes()
    wrong = [
        ({"add": "true", "input_file": changed}, "'d3'"),
        ({"add": "true", "input_file": changed, "dtype": "float16"}, "--dtype"),
        ({"replace": "true", "input_file": changed, "pool_factor": 1}, "--pool_factor"),
        ({"replace": "true", "input_file": changed, "max_seq_length": 8}, "--max_seq_length=8"),
        ({"replace": "true", "input_file": changed, "keep_texts": "false"}, "texts"),
        ({"delete": lines_of(tmp_path / "ids", ("d9", ""))}, "d9"),
    ]
    (tmp_path / "all").write_text("d1\nd2\nd3\n")
    wrong.append(({"delete": tmp_path / "all"}, "3"))
    for values, named in wrong:
        printed = fail(run("build_index", **change, **values))
        assert printed.count("\n") == 1 and named in printed, printed
    other = shared_data("fixtures", "families", "colbert", "stanford")
    again = {**change, "replace": "true", "input_file": changed}
    assert str(file) in fail(run("build_index", **again, init_checkpoint=other))
    assert file.read_bytes() == before
    assert "replaced 1 documents, added 1" in finish(run("build_index", **again))
    more = lines_of(tmp_path / "more.jsonl", rows[3])
    finish(run("build_index", **change, add="true", input_file=more))
    (tmp_path / "ids").write_text("d2\n")
    finish(run("build_index", **change, delete=tmp_path / "ids"))
    once = lines_of(tmp_path / "once.jsonl", rows[0], *rows[2:])
    finish(run("build_index", input_file=once, output_dir=tmp_path / "b.tokens", **settings))
    (found, origin), (expected, expected_origin) = map(tokens_of, (file, tmp_path / "b.tokens"))
    assert sorted(found) == sorted(expected) and origin == expected_origin
    for name, (text, vectors) in expected.items():
        assert found[name][0] == text
        # Another batch may round a number the other way, by a step.
        np.testing.assert_allclose(found[name][1], vectors, atol=1.01 / 127)
    assert not list(tmp_path.glob(".*"))


KILLED = """
import os, signal, sys
import numpy as np
from bert_tf.search.token_changes import delete_tokens
save = np.savez
def stop(file, **arrays):
    save(file, **arrays)
    file.truncate(200)
    os.kill(os.getpid(), signal.SIGKILL)
np.savez = stop
delete_tokens(sys.argv[1], ["a"])
"""


@pytest.mark.slow
def test_a_kill_leaves_the_old_file(tmp_path):
    file = tmp_path / "x.tokens"
    TokenIndex.of([np.ones([2, 4], np.float32)] * 2, ids=["a", "b"]).save(file)
    before = file.read_bytes()
    killed = subprocess.run([sys.executable, "-c", KILLED, file], check=False)
    assert killed.returncode == -signal.SIGKILL and file.read_bytes() == before
    assert delete_tokens(file, ["a"]).ids == TokenIndex.load(file).ids == ["b"]
    assert [path.name for path in tmp_path.iterdir()] == ["x.tokens"]


def test_nothing_remains_of_a_build_that_fails(tmp_path, model, files, monkeypatch):
    given = files[1]

    def broken(file, **_):
        file.write(b"half")
        raise OSError("The disk is full.")

    monkeypatch.setattr(np, "savez", broken)
    assert "full" in fail(run("build_index", **given, init_checkpoint=model))
    assert [path.name for path in tmp_path.iterdir()] == ["beir"]


@pytest.mark.parametrize("number", [np.nan, np.inf, 1e6])
def test_numbers_that_cannot_be_stored(number):
    with pytest.raises(ValueError, match="65504"):
        TokenIndex.of([np.full([2, 4], number, np.float32)])
