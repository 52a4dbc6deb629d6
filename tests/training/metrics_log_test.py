"""Lines of a run: added up, dropped beyond a checkpoint, and named when they are damaged."""

import json
import math
import random
import re

import pytest

from bert_tf.training.metrics_log import (
    MetricsLog,
    drop_lines,
    line_interval,
    mark_lines,
    read_metrics,
)

LINES = [{"step": step, "loss": step / 8} for step in (1, 4, 8, 12)]


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in LINES))
    return path


def test_a_line_holds_the_ratios_of_the_sums_since_the_last(tmp_path):
    log = MetricsLog(tmp_path / "metrics.jsonl", ("a", "b"), ("a",), 2)
    row = {"b_total": 0.0, "b_weight": 0.0, "learning_rate": 0.5, "gradient_norm": 2.0}
    for step, (total, weight) in enumerate([(3.0, 1.0), (4.0, 2.0), (1.0, 2.0), (5.0, 2.0)], 1):
        log.add(step, {**row, "a_total": total, "a_weight": weight})
    rest = {"learning_rate": 0.5, "gradient_norm": 2.0}
    assert read_metrics(log.path) == [
        {"step": 1, "loss": 3.0, "a": 3.0, **rest},
        {"step": 2, "loss": 2.0, "a": 2.0, **rest},
        {"step": 4, "loss": 1.5, "a": 1.5, **rest},
    ]


def test_what_is_not_finite_is_null_in_the_file_and_nan_again(tmp_path):
    log = MetricsLog(tmp_path / "metrics.jsonl", ("a",), ("a",), 1)
    row = {"a_total": math.inf, "a_weight": 1.0, "learning_rate": 0.5, "gradient_norm": math.nan}
    log.add(1, row)
    written = '{"step": 1, "loss": null, "a": null, "learning_rate": 0.5, "gradient_norm": null}\n'
    assert log.path.read_text() == written
    (line,) = read_metrics(log.path)
    assert line["learning_rate"] == 0.5 and math.isnan(line["gradient_norm"])
    log.path.write_text(written + written.replace("1", "2", 1))
    drop_lines(log.path, 1)
    assert log.path.read_text() == written


def test_lines_beyond_a_checkpoint_are_dropped(path):
    mark = mark_lines(path)
    with path.open("a") as file:
        file.write('{"step": 13}\n{"step": 14}\n{"step": 1')
    drop_lines(path, 13, mark)
    assert read_metrics(path) == [*LINES, {"step": 13}]
    drop_lines(path, 8)
    assert read_metrics(path) == LINES[:3]
    assert not path.with_name("metrics.jsonl.damaged").exists()


def test_a_line_damaged_in_the_middle_takes_no_other_with_it(path, caplog):
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b'{"step": 4,', b'{"st\xffp": 4,'))
    assert read_metrics(path) == [LINES[0], *LINES[2:]]
    drop_lines(path, 12)
    assert read_metrics(path) == [LINES[0], *LINES[2:]]
    assert re.search(r"metrics\.jsonl\.damaged; 3 .*4 ", caplog.text)
    assert b"\xff" in path.with_name("metrics.jsonl.damaged").read_bytes()


def test_every_damage_to_marked_lines_is_noticed(path, caplog):
    whole, mark, source = path.read_bytes(), mark_lines(path), random.Random(0)
    for case in range(100):
        damaged = bytearray(whole)
        damaged[source.randrange(len(whole))] ^= source.randrange(1, 256)
        caplog.clear()
        path.write_bytes(damaged if case % 2 else whole[: source.randrange(len(whole))])
        drop_lines(path, 12, mark)
        assert "metrics.jsonl.damaged" in caplog.text
    path.unlink()
    caplog.clear()
    drop_lines(path, 12, mark)
    assert "metrics.jsonl.damaged" in caplog.text


def test_a_file_as_it_was_is_not_touched(path, caplog):
    before = path.stat().st_mtime_ns
    drop_lines(path, 12, mark_lines(path))
    drop_lines(path, 12)
    assert path.stat().st_mtime_ns == before and not caplog.text


@pytest.mark.parametrize(
    ("log_steps", "num_train_steps", "expected"),
    [(100, 96, 4), (100, 2000, 100), (100, 1999, 99), (100, 5, 1), (1, 96, 1), (7, 10000, 7)],
)
def test_a_short_run_has_twenty_lines(log_steps, num_train_steps, expected):
    assert line_interval(log_steps, num_train_steps) == expected
    assert num_train_steps // expected >= min(20, num_train_steps)
