"""Several seeds: mean and spread by hand."""

import json
import logging

import pytest

from bert_tf.training.seeds import summarize, write_summary

RESULTS = {
    7: {"accuracy": 0.5, "loss": 3.0},
    8: {"accuracy": 0.75, "loss": 3.0},
    9: {"accuracy": 1.0, "loss": 3.0},
}


def test_mean_and_sample_deviation_by_hand():
    # Deviations -0.25, 0, 0.25: the root of 2 / 16 / (3 - 1).
    summary = summarize(RESULTS)
    assert summary == {
        "accuracy": {"mean": 0.75, "sd": pytest.approx(0.25), "min": 0.5, "max": 1.0},
        "loss": {"mean": 3.0, "sd": 0.0, "min": 3.0, "max": 3.0},
    }
    alone = summarize({3: {"f1": 0.5}})
    assert alone == {"f1": {"mean": 0.5, "sd": 0.0, "min": 0.5, "max": 0.5}}


def test_file_and_lines(tmp_path, caplog):
    with caplog.at_level(logging.INFO, logger="absl"):
        write_summary(tmp_path, RESULTS)
    written = json.loads((tmp_path / "seeds.json").read_text(encoding="utf8"))
    assert written["seeds"] == {str(seed): values for seed, values in RESULTS.items()}
    assert written["summary"] == summarize(RESULTS)
    title, accuracy, _ = [record.getMessage() for record in caplog.records]
    assert " 3 seeds" in title
    assert accuracy.split() == ["accuracy", "0.7500", "±", "0.2500", "(0.5000", "to", "1.0000)"]


def test_a_metric_that_is_undefined_is_null(tmp_path):
    results = {1: {"spearman": float("nan"), "loss": 1.0}, 2: {"spearman": 0.5, "loss": 1.0}}
    write_summary(tmp_path, results)
    written = json.loads((tmp_path / "seeds.json").read_text(), parse_constant=pytest.fail)
    assert [row["spearman"] for row in written["seeds"].values()] == [None, 0.5]
    assert set(written["summary"]["spearman"].values()) == {None}
    assert written["summary"]["loss"]["mean"] == 1.0


def test_nothing_without_evaluations(tmp_path):
    write_summary(tmp_path, {1: {}, 2: {}})
    write_summary(tmp_path, {})
    assert not list(tmp_path.iterdir())
