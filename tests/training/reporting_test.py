"""What a person sees: rates, time left, the table of weights."""

import io
import logging
import re
import time

import keras
import pytest
import tensorflow as tf

from bert_tf.config import TrainingConfig
from bert_tf.training import reporting
from bert_tf.training.reporting import (
    Bar,
    Progress,
    duration,
    strategy_peak,
    write_parameter_table,
)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.4, "0 s"),
        (59.6, "1 min 0 s"),
        (75, "1 min 15 s"),
        (7260, "2 h 1 min"),
        (86400 * 2 + 7 * 3600, "2 d 7 h"),
    ],
)
def test_duration(seconds, text):
    assert duration(seconds) == text


def test_rates_leave_the_compilation_out():
    progress = Progress(total_steps=100, batch_size=8, tokens=16, flops=1e6, peak=1e8)
    progress.add(seconds=30.0, num_steps=1)
    assert progress.rates() == {}
    progress.add(seconds=2.0, num_steps=4)
    assert progress.rates() == {
        "examples_per_second": 16.0,
        "tokens_per_second": 256.0,
        "share_of_peak": 0.16,
    }
    for _ in range(10):
        progress.add(seconds=2.0, num_steps=4)
    progress.add(seconds=1.0, num_steps=1)  # slower: moves the mean by a tenth
    assert progress.step_seconds == pytest.approx(0.55)


def test_the_first_step_counts_only_until_there_is_a_second():
    progress = Progress(total_steps=100, batch_size=8, tokens=16, flops=1e6, peak=1e8)
    for batch_size in (8, 16):  # Also after compiling for another size.
        progress.begin_stage(batch_size)
        for seconds, mean in ((30.0, 0.0), (9.0, 9.0), (1.0, 1.0), (2.0, 1.5), (6.0, 3.0)):
            progress.add(seconds, num_steps=1)
            assert progress.step_seconds == pytest.approx(mean)


def test_seconds_of_each_part_since_the_last_line(monkeypatch):
    times = iter([0.0, 10.0, 11.5, 20.0, 20.25, 30.0, 32.0])
    monkeypatch.setattr(reporting.time, "monotonic", lambda: next(times))
    progress = Progress(total_steps=100, batch_size=8, tokens=16, flops=1e6, peak=0.0)
    for part in ("step_seconds", "save_seconds", "step_seconds"):
        with progress.timed(part):
            pass
    assert progress.spent() == {"step_seconds": 3.5, "save_seconds": 0.25}
    assert progress.spent() == {}


def test_line_has_losses_rate_and_time_left(caplog):
    progress = Progress(total_steps=100, batch_size=8, tokens=16, flops=1e6, peak=0.0)
    progress.add(30.0, 1)
    with caplog.at_level(logging.INFO, logger="absl"):
        progress.show(1, {"loss": 7.5}, 99)
        progress.add(2.0, 1)
        progress.show(40, {"loss": 7.25, "next_sentence_accuracy": 0.5}, 60)
    first, second = [record.getMessage() for record in caplog.records]
    assert re.fullmatch("step 1/100  loss 7.5  .* 30 s, .*", first)
    assert second == (
        "step 40/100  loss 7.25  nsp acc 0.5  4 examples/s  64 tokens/s  2 min 0 s left"
    )


def test_table_counts_and_marks_the_decayed(tmp_path):
    layer = keras.layers.Dense(3, name="dense")
    layer.build((None, 4))
    write_parameter_table(tmp_path, layer.trainable_variables, lambda path: "bias" not in path)
    title, kernel, bias = (tmp_path / "variables.txt").read_text().splitlines()
    assert title.split()[0] == "15"
    assert kernel.split() == ["dense/kernel", "(4,", "3)", "float32", "decayed"]
    assert bias.split() == ["dense/bias", "(3,)", "float32"]


@pytest.mark.parametrize(("given", "expected"), [(5e12, (5e12, 1e13)), (0.0, (3e9, 3e9))])
def test_peak_of_all_devices(monkeypatch, given, expected):
    """A peak that is given is one device's; a measured CPU serves all devices made of it."""
    monkeypatch.setattr(reporting, "peak_flops", lambda precision: (3e9, "measured"))
    monkeypatch.setattr(reporting.tf.config, "list_physical_devices", lambda kind: [])
    training = TrainingConfig(peak_flops=given)
    strategies = tf.distribute.get_strategy(), tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    assert tuple(strategy_peak(training, strategy) for strategy in strategies) == expected


class Terminal(io.StringIO):
    def __init__(self, is_terminal):
        super().__init__()
        self.is_terminal = is_terminal

    def isatty(self):
        return self.is_terminal


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_bar_on_a_terminal_alone(monkeypatch, is_terminal):
    stream = Terminal(is_terminal)
    monkeypatch.setattr("sys.stderr", stream)
    bar = Bar(20)
    for step in (30, 50):
        time.sleep(0.11)  # It is drawn ten times a second at most.
        bar.advance(step, 200)
    bar.close()
    assert ("50/200" in stream.getvalue()) == is_terminal
    assert is_terminal or not stream.getvalue()


def test_no_share_of_the_peak_is_above_one():
    progress = Progress(10, batch_size=4, tokens=8, flops=1e9, peak=1e9)
    progress.add(1.0, 1)
    progress.add(1.0, 1)  # 4 examples of 1e9 in a second: four times the measured peak
    assert progress.rates()["share_of_peak"] == 1.0
    progress.add(9.0, 1)
    progress.add(9.0, 1)
    # The second call replaces the first: 9 s a step; the highest rate was 4e9.
    assert progress.rates()["share_of_peak"] == pytest.approx(1 / 9)


@pytest.mark.parametrize("seconds", [-3.0, -0.2, float("nan"), float("inf")])
def test_no_time_left_is_negative(seconds):
    assert "-" not in duration(seconds) and "nan" not in duration(seconds)
