"""Documents are split into passages of tokens, and embedded in one pass."""

import json
import pathlib

import numpy as np
import pytest

from bert_tf.search.documents import Document
from bert_tf.search.embedding import SearchEmbedder
from bert_tf.search.index import Index, Manifest, delete_from_index
from bert_tf.search.passages import PassageEmbedder, PassageRule, document_of, split
from tests.float_bounds import assert_close
from tests.programs import fail, finish, run
from tests.shared_data import golden_file

LONG = "the cat sat on the mat, and the dog ran to the house near the river. " * 3


@pytest.fixture(scope="module")
def embedder() -> SearchEmbedder:
    return SearchEmbedder(path())


def path() -> str:
    return str(golden_file("families", "sentence_transformers", "mean_normalize"))


@pytest.mark.parametrize("count", [0, 1, 4, 5, 7, 8, 29])
@pytest.mark.parametrize("overlap", [0, 1, 3])
def test_spans_cover_a_text(count: int, overlap: int) -> None:
    random = np.random.default_rng(count)
    for begins in ([True] * count, [False] * count, list(random.random(count) < 0.5)):
        spans = PassageRule(4, overlap).spans(begins)
        assert spans[0][0] == 0 and spans[-1][1] == count
        for (first, end), (start, stop) in zip(spans, spans[1:], strict=False):
            assert first < start <= end < stop and stop - start <= 4
    assert PassageRule(4, 1).spans([True] * 8) == [(0, 4), (3, 7), (6, 8)]
    assert PassageRule(4).spans([True, True, True, False, False, True]) == [(0, 4), (4, 6)]
    assert PassageRule(4).spans([True, True, False, True, False, True]) == [(0, 3), (3, 6)]


def test_passages_are_parts_of_the_text(embedder: SearchEmbedder) -> None:
    tokenizer = embedder.model.tokenizer
    part = split(Document("d", LONG), tokenizer, PassageRule(10))
    assert [passage.id for passage in part.documents] == [
        f"d#{number}" for number in range(1, len(part.documents) + 1)
    ]
    words = [passage.text.split() for passage in part.documents]
    assert sum(words, []) == LONG.split()
    assert all(len(tokenizer.encode(passage.text)) <= 10 for passage in part.documents)
    short = split(Document("d", "the cat"), tokenizer, PassageRule(10))
    assert short.documents == [Document("d", "the cat")]
    assert document_of("a#b#12") == "a#b" and document_of("a#b") == "a#b"


def test_late_chunks_are_means_over_one_pass(embedder: SearchEmbedder) -> None:
    model = embedder.model
    ids = model.tokenizer.encode(LONG)[:24]
    chunks = PassageEmbedder(embedder, PassageRule(10, 2, is_late=True))
    spans = [(0, 10), (8, 18), (16, 24)]
    vectors = chunks.pass_vectors(ids, spans)
    vocab = model.tokenizer.vocab
    row = np.array([[vocab.cls_id, *ids, vocab.sep_id]], np.int32)
    inputs = {
        "input_word_ids": row,
        "input_mask": np.ones_like(row),
        "input_type_ids": np.zeros_like(row),
    }
    tokens = np.asarray(model.bert(inputs)["sequence_output"])[0]
    for vector, (first, end) in zip(vectors, spans, strict=True):
        mean = tokens[1 + first : 1 + end].mean(axis=0)
        assert_close(vector, mean / np.linalg.norm(mean))


def test_texts_beyond_the_model_take_several_passes(embedder: SearchEmbedder) -> None:
    chunks = PassageEmbedder(embedder, PassageRule(10, is_late=True))
    documents = [Document("long", LONG * 3), Document("empty", ""), Document("short", "the cat")]
    passages, vectors, keys = chunks.embed(documents)
    assert keys is None and len(passages) == len(vectors) > 20
    assert {document_of(passage.id) for passage in passages} == {"long", "empty", "short"}
    assert_close(np.linalg.norm(vectors, axis=1), np.ones(len(vectors)))
    part = split(documents[0], embedder.model.tokenizer, PassageRule(10))
    (alone,) = chunks.pass_vectors(part.token_ids[: part.spans[0][1]], part.spans[:1])
    assert np.abs(alone - vectors[0]).max() > 1e-3  # The words that follow matter.


@pytest.mark.slow
def test_the_program_splits_and_deletes(tmp_path: pathlib.Path) -> None:
    rows = [
        {"_id": "a", "text": LONG},
        {"_id": "b", "text": "a dog"},
        {"_id": "c", "text": "A DOG"},
    ]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    given = {"init_checkpoint": path(), "input_file": tmp_path / "a.jsonl"}
    folder = tmp_path / "index"
    finish(run("build_index", **given, output_dir=folder, passages=10, passage_overlap=2))
    index = Index(folder)
    parts = [name for name in index.ids if name.startswith("a#")]
    assert len(parts) == len(index) - 2 > 4
    is_lower_case = index.vector_rows(np.arange(len(index)))[-2:].tolist()
    assert is_lower_case[0] == is_lower_case[1]  # The same to an uncased model.
    (tmp_path / "b.jsonl").write_text(json.dumps({"_id": "a", "text": "the cat"}) + "\n")
    change = {"input_file": tmp_path / "b.jsonl", "output_dir": folder}
    assert "'a'" in fail(run("build_index", **change, add=True))
    assert "--passages" in fail(run("build_index", **change, replace=True, passages=9))
    finish(run("build_index", **change, replace=True))
    assert list(Index(folder).ids) == ["b", "c", "a"]
    delete_from_index(folder, ["c"])
    assert Manifest.read(folder).passages == 10 and len(Index(folder)) == 2


def test_rules_that_contradict(tmp_path: pathlib.Path, embedder: SearchEmbedder) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "a"}\n')
    given = {"init_checkpoint": path(), "input_file": tmp_path / "a.jsonl"}
    given["output_dir"] = tmp_path / "index"
    assert "--passages" in fail(run("build_index", **given, passage_overlap=2))
    assert "--passage_overlap=9" in fail(run("build_index", **given, passages=9, passage_overlap=9))
    with pytest.raises(ValueError, match="--passages=900.*--max_seq_length"):
        PassageEmbedder(embedder, PassageRule(900))
    other = SearchEmbedder(path(), pooling="cls")
    with pytest.raises(ValueError, match="--late_chunking.*--pooling"):
        PassageEmbedder(other, PassageRule(9, is_late=True))
