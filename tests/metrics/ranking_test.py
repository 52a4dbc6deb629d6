"""Ranking metrics: worked by hand, then pytrec_eval's values beside ours."""

import json
import math
import pathlib

import pytest

from bert_tf.metrics.ranking import evaluate, evaluate_queries, rank
from tests.float_bounds import close_to
from tests.shared_data import golden_file

# What pytrec_eval calls them.
NAMES = {
    "ndcg_cut_": "ndcg@",
    "P_": "precision@",
    "recall_": "recall@",
    "map_cut_": "map@",
    "recip_rank": "mrr",
    "mrr_": "mrr@",
}


def ours(name: str) -> str:
    for theirs, own in NAMES.items():
        if name.startswith(theirs):
            return own + name.removeprefix(theirs)
    return name


def test_one_query_by_hand() -> None:
    run = {"q": {"a": 3.0, "b": 2.0, "c": 1.0}}
    qrels = {"q": {"b": 2, "c": 1, "d": 1, "a": 0}}
    found = evaluate(
        run, qrels, ["ndcg@3", "mrr@10", "mrr@1", "recall@2", "precision@2", "map@3", "accuracy@1"]
    )
    assert found == pytest.approx(
        {
            "ndcg@3": (2 / math.log2(3) + 1 / 2) / (2 + 1 / math.log2(3) + 1 / 2),
            "mrr@10": 1 / 2,
            "mrr@1": 0,
            "recall@2": 1 / 3,
            "precision@2": 1 / 2,
            "map@3": (1 / 2 + 2 / 3) / 3,
            "accuracy@1": 0,
        }
    )
    assert evaluate(run, qrels, ["map_capped@2"]) == {"map_capped@2": (1 / 2) / 2}


def test_equals_pytrec_eval_on_random_runs() -> None:
    """Ties, ties of float32 alone, empty results, negative grades, ids that are not ASCII.

    Written by pytrec_eval-terrier 0.5.11 from random runs.
    """
    file = pathlib.Path(__file__).with_name("pytrec_eval_runs.json")
    compared = 0
    for case in json.loads(file.read_text(encoding="utf8")):
        measures = [ours(name) for name in next(iter(case["values"].values()))]
        found = evaluate_queries(case["run"], case["qrels"], measures)
        assert found.keys() == case["values"].keys()
        for query, values in case["values"].items():
            theirs = {ours(name): value for name, value in values.items()}
            assert found[query] == close_to(theirs), query
            compared += len(theirs)
    assert compared > 300


def test_equals_the_golden_means() -> None:
    folder = golden_file("families", "sentence_transformers")
    golden = json.loads((folder / "retrieval_metrics.json").read_text(encoding="utf8"))
    run, qrels = golden["run"], golden["qrels"]
    for key, queries in (("in_both", "both"), ("all_queries_of_qrels", "qrels")):
        prefix = "mean_over_" + ("" if key.startswith("all") else "queries_")
        theirs = {ours(name): value for name, value in golden[prefix + key].items()}
        assert evaluate(run, qrels, list(theirs), queries=queries) == pytest.approx(theirs)
    for query, values in golden["per_query"].items():
        assert rank(run[query])[:12] == values["ranking"]


def test_map_of_sentence_transformers_has_its_own_name() -> None:
    folder = golden_file("families", "sentence_transformers")
    golden = json.loads((folder / "retrieval_metrics.json").read_text(encoding="utf8"))
    theirs = golden["sentence_transformers_evaluator_same_ranking"]
    expected = {f"map_capped@{k}": value for k, value in theirs["map@k"].items()}
    expected |= {f"accuracy@{k}": value for k, value in theirs["accuracy@k"].items()}
    expected |= {"ndcg@10": theirs["ndcg@k"]["10"]}
    binary = {
        query: {name: int(grade > 0) for name, grade in grades.items()}
        for query, grades in golden["qrels"].items()
    }
    found = evaluate(golden["run"], binary, list(expected), queries="both")
    assert found == pytest.approx(expected)


def test_equal_scores_go_by_id_or_by_place() -> None:
    scores = {"10": 1.0, "9": 1.0, "b": 1.0 + 1e-12, "a": 2.0}
    assert rank(scores) == ["a", "b", "9", "10"]
    assert rank({"a": 1.0 + 1e-12, "b": 1.0}) == ["b", "a"]  # equal as float32
    assert rank(scores, "given") == ["a", "b", "10", "9"]


def test_a_document_that_is_the_query_can_be_left_out() -> None:
    run, qrels = {"a": {"a": 9.0, "b": 1.0}}, {"a": {"b": 1}}
    assert evaluate(run, qrels, ["mrr@10"]) == {"mrr@10": 0.5}
    assert evaluate(run, qrels, ["mrr@10"], ignore_identical_ids=True) == {"mrr@10": 1.0}


def test_a_query_without_results_counts_as_nothing_found() -> None:
    run, qrels = {"a": {"x": 1.0}, "b": {}}, {"a": {"x": 1}, "b": {"x": 1}, "c": {"x": 1}}
    assert evaluate(run, qrels, ["mrr"]) == {"mrr": pytest.approx(1 / 3)}
    assert evaluate(run, qrels, ["mrr"], queries="both") == {"mrr": 0.5}
    assert evaluate({}, qrels, ["ndcg@10"]) == {"ndcg@10": 0.0}


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"measures": ["ndcg@0"]}, "'ndcg@0'"),
        ({"measures": ["bleu"]}, "'bleu'"),
        ({"qrels": {}}, "qrels"),
        ({"run": {"Q": {"x": 1.0}}}, "'Q'"),
        ({"run": {"q": {"x": math.nan}}}, "'x'.*NaN"),
        ({"ties": "random"}, "'random'"),
        ({"queries": "all"}, "'all'"),
    ],
)
def test_bad_input_is_named(changed: dict, named: str) -> None:
    given = {"run": {"q": {"x": 1.0}}, "qrels": {"q": {"x": 1}}, "measures": ["mrr"]} | changed
    with pytest.raises(ValueError, match=named):
        evaluate(**given)
