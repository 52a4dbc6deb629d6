"""Hard negatives, beside a plain search for them."""

import json
import re
from unittest import mock

import numpy as np
import pytest

from bert_tf.search.mining import Collection, Rules, mine
from bert_tf.tasks.embedding.examples import read_embedding_examples
from bert_tf.tasks.embedding.model import BertEmbedder
from tests.programs import fail, run
from tests.tasks.embedding.beir_test import write
from tests.tiny_model import write_tiny_model

ANIMALS = ("cat", "dog", "cow", "owl", "bee", "ant", "fox", "hen")
FOODS = ("grass", "mice", "honey")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    words = ("the", "what", "does", "eat", "eats", *ANIMALS, *FOODS)
    return write_tiny_model(tmp_path_factory.mktemp("mine") / "model", *words)


def collection():
    documents = [f"the {animal} eats {food}" for animal in ANIMALS for food in FOODS]
    queries = [f"what does the {animal} eat" for animal in ANIMALS]
    return Collection(documents, queries, [[3 * i, 3 * i + 1] for i in range(len(ANIMALS))])


def lines_of(model, tmp_path, rules, **options):
    mine(str(model), str(tmp_path / "mined.jsonl"), collection(), rules, **options)
    return [json.loads(line) for line in (tmp_path / "mined.jsonl").read_text().splitlines()]


def cosines(model):
    embedder, given = BertEmbedder.from_pretrained(model), collection()
    vectors = [embedder.encode(texts) for texts in (given.queries, given.documents)]
    unit = [v / np.linalg.norm(v, axis=1, keepdims=True) for v in vectors]
    return unit[0] @ unit[1].T


@pytest.mark.slow
def test_negatives_are_the_nearest_within_ranks_and_margins(model, tmp_path):
    rules = Rules(num_negatives=3, range_min=1, range_max=8, relative_margin=0.001)
    lines, scores, given = lines_of(model, tmp_path, rules), cosines(model), collection()
    assert [line["query"] for line in lines] == given.queries
    for query, line in enumerate(lines):
        positives = given.positives[query]
        assert line["positives"] == [given.documents[place] for place in positives]
        ranked = [p for p in np.argsort(-scores[query], kind="stable") if p not in positives]
        limit = min(scores[query][positives]) * 0.999
        expected = [p for p in ranked[1:8] if scores[query][p] <= limit][:3]
        assert line["negatives"] == [given.documents[place] for place in expected]
    # What is written can be trained on.
    examples = read_embedding_examples(str(tmp_path / "mined.jsonl"), "--train_file")
    assert len(examples) == 16


@pytest.mark.slow
def test_a_rerankers_scores_decide(model, tmp_path):
    class Longest:
        def pair_logits(self, queries, documents, batch_size):
            return np.array(list(map(len, documents)), np.float32)

    made = Longest()
    with mock.patch("bert_tf.search.mining.read_reranker", lambda *_, **__: made):
        rules = Rules(num_negatives=2, range_max=24)
        lines = lines_of(model, tmp_path, rules, reranker="some", write_margins=True)
    assert len(lines) == 16
    for line in lines:
        lengths = [len(text) for text in line["negatives"]]
        assert lengths == sorted(lengths, reverse=True)
        assert line["scores"] == [len(line["positive"]) - length for length in lengths]
    assert not any(text.endswith("mice") for text in lines[0]["negatives"])


def test_negatives_are_texts_and_differ(model, tmp_path):
    """A corpus may hold documents without text, and a text twice."""
    corpus = ["the owl eats mice", "", "the bee", "the bee", "the owl eats mice", "the fox"]
    corpus = [{"_id": str(place), "text": text} for place, text in enumerate(corpus)]
    queries = [{"_id": name, "text": name} for name in ("the owl", "the fox")]
    write(tmp_path, corpus, queries, "the owl\t0\t1\nthe owl\t1\t1\nthe fox\t1\t1\n")
    found = Collection.read(str(tmp_path), "test", "", ("", ""))
    assert found.queries == ["the owl"] and found.positives == [[0]]
    mine(str(model), str(tmp_path / "mined.jsonl"), found, Rules())
    line = json.loads((tmp_path / "mined.jsonl").read_text())
    assert sorted(line["negatives"]) == ["the bee", "the fox"]


def test_a_reranker_that_cannot_be_read_ends_before_texts_are_embedded(model, tmp_path):
    with (
        mock.patch.object(BertEmbedder, "encode_document", side_effect=AssertionError),
        pytest.raises(ValueError, match="cross-encoder.*run_reranker"),
    ):
        lines_of(model, tmp_path, Rules(), reranker=str(model))


def test_rules():
    ranked, scores = [5, 3, 8, 1], {5: 0.9, 3: 0.8, 8: 0.5, 1: 0.2}

    def choose(**fields):
        return (
            Rules(num_negatives=3, range_max=9)._replace(**fields).choose(0, ranked, scores, 0.85)
        )

    assert choose() == [5, 3, 8]
    assert choose(absolute_margin=0.1) == [8, 1]
    assert choose(relative_margin=0.05) == [3, 8, 1]
    assert choose(range_min=2) == [8, 1]
    assert choose(range_max=1) == [5]
    assert choose(min_score=0.3, max_score=0.8) == [3, 8]
    drawn = choose(num_negatives=2, is_random=True, seed=3)
    assert drawn == choose(num_negatives=2, is_random=True, seed=3) and len(drawn) == 2
    several = {tuple(choose(num_negatives=2, is_random=True, seed=seed)) for seed in range(20)}
    assert len(several) == 6
    negative = {5: -3.0, 3: -2.1}
    rules = Rules(relative_margin=0.1)
    assert rules.choose(0, [5, 3], negative, -2.0) == [5]  # at most -2.2


def refuse(**values):
    return fail(run("mine_negatives", **values))


def test_what_is_wrong_is_said_before_a_model_is_read(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    good = {"init_checkpoint": "m", "output_file": tmp_path / "o", "data_dir": "d"}
    assert "--output_file " in refuse(**{**good, "output_file": ""})
    assert re.search("--data_dir.*--train_file", refuse(**{**good, "data_dir": ""}))
    assert re.search("--range_max=5 .*--range_min=5", refuse(**good, range_min=5, range_max=5))
    (tmp_path / "o").write_text("")
    assert f"--output_file {tmp_path}/o " in refuse(**good)
    assert "--output_file ~/o " in refuse(**{**good, "output_file": "~/o"})
    within = {**good, "output_file": tmp_path / "o" / "mined.jsonl"}
    assert re.search(r"mined\.jsonl.*\(Not a directory\);", refuse(**within))


def test_what_the_model_cannot_tell_from_a_positive_is_no_negative(model, tmp_path):
    documents = [
        "the cat eats mice",
        "The  CAT eats mice",
        "the dog eats mice",
        "THE DOG EATS MICE",
    ]
    given = Collection(documents, ["what does the cat eat"], [[0]])
    mine(str(model), str(tmp_path / "mined.jsonl"), given, Rules())
    (line,) = (tmp_path / "mined.jsonl").read_text().splitlines()
    # One of the two spellings of the other document.
    (negative,) = json.loads(line)["negatives"]
    assert negative.lower() == "the dog eats mice"
