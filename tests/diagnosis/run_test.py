"""Findings of runs: each fires on made numbers and is silent on a good run."""

import json
import math
import shutil

import pytest

from bert_tf.config import DataConfig, MaskingConfig
from bert_tf.diagnosis.fine_tuning_run import class_sizes, main_score
from bert_tf.diagnosis.places import diagnose, diagnose_run
from bert_tf.diagnosis.run_files import is_run, read_run
from bert_tf.text.vocab import Vocab
from bert_tf.training.reporting import Scalars
from tests.conftest import tiny_tokens
from tests.diagnosis.made_run import (
    MASKED,
    PEAK,
    STEPS,
    fine_tuning_lines,
    pretraining_lines,
    rate,
    write_run,
)

GOOD_RESULTS = {"global_step": STEPS, "masked_lm_loss": 3.1, "unigram_masked_lm_loss": 6.5}


def pretrain(folder, flags=(), **functions):
    return write_run(folder, pretraining_lines(**functions), flags={**MASKED, **dict(flags)})


def test_good_runs_have_no_finding(tmp_path):
    good = dict(results=GOOD_RESULTS, checkpoints=[900, STEPS], flags=MASKED)
    evaluations = [{"step": s, "masked_lm_loss": 4.0 - s / 1000} for s in (500, STEPS)]
    assert write_run(tmp_path / "a", pretraining_lines(), evaluations=evaluations, **good) == {}
    assert write_run(tmp_path / "b", fine_tuning_lines(), flags={"learning_rate": 3e-5}) == {}
    # What a run that was just begun holds is no reason for complaint, either.
    assert write_run(tmp_path / "c", pretraining_lines()[:1], flags=MASKED) == {}
    assert write_run(tmp_path / "d", []) == {}


@pytest.mark.parametrize(("first", "severity"), [(7.9, None), (8.2, "WARNING"), (5.5, "SERIOUS")])
def test_loss_at_start(tmp_path, first, severity):
    # ln 1000 + ln 2 = 6.908 + 0.693 = 7.601
    lines = pretraining_lines()
    lines[0]["loss"] = first
    finding = write_run(tmp_path, lines, flags=MASKED).get(
        "The first loss is not that of a uniform guess"
    )
    assert (finding.severity.name if finding else None) == severity
    assert not finding or finding.expected == "about 7.60"


@pytest.mark.parametrize(("first", "fires"), [(3.0, False), (7.6, True)])
def test_loss_at_start_of_a_checkpoint(tmp_path, first, fires):
    lines = pretraining_lines()
    lines[0]["loss"] = first
    found = write_run(tmp_path, lines, flags={**MASKED, "init_checkpoint": "bert.zip"})
    title = "The run begins as if its --init_checkpoint knew nothing"
    assert (title in found) == fires
    assert not fires or found[title].severity.name == "SERIOUS"


@pytest.mark.parametrize(("loss", "severity"), [(6.1, None), (6.3, "WARNING"), (6.5, "SERIOUS")])
def test_unigram_baseline(tmp_path, loss, severity):
    results = {**GOOD_RESULTS, "masked_lm_loss": loss}
    found = write_run(tmp_path, pretraining_lines(), flags=MASKED, results=results)
    finding = found.get("The model is hardly better than counting words")
    assert (finding.severity.name if finding else None) == severity


@pytest.mark.parametrize(
    ("loss", "batch", "severity"),
    [(0.66, 256, None), (0.685, 256, "WARNING"), (0.6931, 256, "SERIOUS"), (0.6931, 49, None)],
)
def test_next_sentence_prediction_stuck(tmp_path, loss, batch, severity):
    # 49 x 1,000 steps are less than 50,000 examples: too early to say.
    flags = {"train_batch_size": batch}
    found = pretrain(tmp_path, flags, next_sentence_loss=lambda step: loss)
    finding = found.get("Next sentence prediction is a coin's")
    assert (finding.severity.name if finding else None) == severity


@pytest.mark.parametrize(("warmup", "severity"), [(100, None), (600, "WARNING"), (1000, "SERIOUS")])
def test_long_warmup(tmp_path, warmup, severity):
    found = pretrain(
        tmp_path,
        {"num_warmup_steps": warmup},
        learning_rate=lambda s: PEAK * ((s - 1) / warmup if s <= warmup else 1 - (s - 1) / STEPS),
    )
    assert [f.severity.name for f in found.values()] == ([severity] if severity else [])


@pytest.mark.parametrize(("factor", "severity"), [(1, None), (0.8, "WARNING"), (10, "SERIOUS")])
def test_rate_that_the_flags_do_not_say(tmp_path, factor, severity):
    found = pretrain(tmp_path, learning_rate=lambda step: factor * rate(step))
    finding = found.get("The learning rate is not what the flags say")
    assert (finding.severity.name if finding else None) == severity
    # The rate at step 101 is that of step 100, the first behind warm-up; logged is step 110.
    if factor == 0.8:
        assert finding.expected == f"{PEAK * (1 - 109 / 1000):.3g} to {PEAK:.3g}"


def test_other_schedules_are_no_finding(tmp_path):
    square = {"learning_rate": lambda s: rate(s) if s <= 100 else PEAK * (1 - (s - 1) / STEPS) ** 2}
    assert pretrain(tmp_path, {"decay_power": 2.0}, **square) == {}
    assert "The learning rate is not what the flags say" in pretrain(tmp_path, **square)

    def cosine(step):
        done = (step - 101) / 899
        return rate(step) if done < 0 else PEAK * 0.5 * (1 + math.cos(math.pi * done))

    assert pretrain(tmp_path, learning_rate=cosine) == {}
    assert pretrain(tmp_path, learning_rate=lambda s: min(rate(min(s, 100)) * 1.0101, PEAK)) == {}


def test_gradients(tmp_path):
    found = pretrain(tmp_path, gradient_norm=lambda step: 1.5)
    assert found["Nearly every gradient is clipped"].measured.startswith("100 % of the logged")
    norms = {300: 4.9, 500: 5.1, 510: 5.1}
    found = pretrain(tmp_path, gradient_norm=lambda step: norms.get(step, 0.5))
    assert found["Spikes of the gradient"].measured == "2 logged steps, the first at 500, up to 5.1"
    assert len(found) == 1


def test_spikes_of_the_loss(tmp_path):
    good = {line["step"]: line["masked_lm_loss"] for line in pretraining_lines()}
    found = pretrain(tmp_path, masked_lm_loss=lambda step: good[step] + 2 * (step == 700))
    assert found["Spikes of the loss"].measured == "1 logged steps, the first at 700"
    assert found["Spikes of the loss"].severity.name == "WARNING" and len(found) == 1


def test_events_are_told(tmp_path):
    write_run(tmp_path, pretraining_lines(), flags=MASKED)
    lines = [json.dumps({"step": step, "event": "skipped"}) + "\n" for step in (7, 9)]
    (tmp_path / "events.jsonl").write_text("".join(lines), "utf8")
    (finding,) = diagnose_run(tmp_path).findings
    assert (finding.measured, finding.details[0]) == ("2 events", "step 7, event skipped")
    assert finding.severity.name == "WARNING"
    with (tmp_path / "events.jsonl").open("a", encoding="utf8") as file:
        file.write(json.dumps({"step": 1200, "event": "a spike", "done": "stop"}) + "\n")
    (finding,) = diagnose_run(tmp_path).findings
    assert finding.measured == "3 events; the last stopped the run at step 1,200"
    assert finding.severity.name == "SERIOUS"


def test_divergence(tmp_path):
    good = {line["step"]: line["masked_lm_loss"] for line in pretraining_lines()}
    found = pretrain(tmp_path, masked_lm_loss=lambda s: good[s] + max(0, s - 500) / 250)
    # Falls to 500, then rises by 2 nats, the last tenth by 1.8 in the mean.
    assert found["The loss goes up"].severity.name == "SERIOUS"


def test_plateau(tmp_path):
    rates = {"learning_rate": lambda step: min(rate(min(step, 100)) * 1.0101, PEAK)}
    flat = {"masked_lm_loss": lambda s: 6.5, "next_sentence_loss": lambda s: 0.5}
    assert "The loss stands still" in pretrain(tmp_path, **rates, **flat)
    # Where the rate is all but zero, nothing is expected to move.
    low = {"learning_rate": lambda step: rate(step) if step < 300 else PEAK / 100}
    assert "The loss stands still" not in pretrain(tmp_path, **low, **flat)


def test_evaluations(tmp_path):
    rows = [{"step": s, "masked_lm_loss": 3.5 + abs(s - 500) / 800} for s in (250, 500, 750, STEPS)]
    found = write_run(
        tmp_path,
        pretraining_lines(),
        flags=MASKED,
        evaluations=rows,
        results={**GOOD_RESULTS, "global_step": 500},
        checkpoints=[750, STEPS],
    )
    # 0.625 above the best; training at the last steps is 3.15.
    finding = found["Evaluations get worse"]
    assert finding.measured == "loss 4.125 at step 1,000, 3.500 at 500"
    assert finding.severity.name == "SERIOUS"
    assert "training 3.1" in found["The model knows its training data better than others"].measured
    assert (
        "step 500, the checkpoint of 1,000"
        in found["The evaluation is older than the newest checkpoint"].measured
    )


@pytest.mark.parametrize(("room", "severity"), [(10, None), (2, "WARNING"), (1, "SERIOUS")])
def test_disk(tmp_path, monkeypatch, room, severity):
    usage = shutil._ntuple_diskusage(10**6, 0, room * 1000)  # a checkpoint takes 1,000 bytes
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    lines = pretraining_lines()[:50]
    finding = write_run(tmp_path, lines, flags=MASKED, checkpoints=[400]).get(
        "The disk is nearly full"
    )
    assert (finding.severity.name if finding else None) == severity
    whole = write_run(tmp_path, pretraining_lines(), flags=MASKED, checkpoints=[400, STEPS])
    assert "The disk is nearly full" not in whole  # nothing is to be written any more


def test_checkpoint_without_its_data(tmp_path):
    flags = dict(flags=MASKED, checkpoints=[900, STEPS])
    write_run(tmp_path, pretraining_lines(), **flags)
    (tmp_path / "model.ckpt-900.data-00000-of-00001").unlink()
    # One that is being written, or was when the run ended, has no index yet.
    (tmp_path / "model.ckpt-950.data-00000-of-00001").write_bytes(b"x")
    (finding,) = diagnose_run(tmp_path).findings
    assert finding.title == "Checkpoints without all of their files"
    assert finding.severity.name == "SERIOUS" and "model.ckpt-900" in finding.measured


def test_speed_is_read_from_the_log(tmp_path):
    assert pretrain(tmp_path) == {}
    scalars = Scalars(str(tmp_path / "train"))
    for step in range(10, 60, 10):
        times = {"step_seconds": 6.0, "input_seconds": 3.0, "save_seconds": 4.0}
        scalars.write(step, {"share_of_peak": 0.1, "loss": 1.0, **times})
    found = {finding.title: finding for finding in diagnose_run(tmp_path).findings}
    assert found["The machine is far from its peak"].measured == "10 % of it (median)"
    assert found["Steps wait for input"].measured == "30 % of the time"
    assert found["Saving takes long"].measured == "40 % of the time"
    shutil.rmtree(tmp_path / "train")
    scalars = Scalars(str(tmp_path / "train"))
    scalars.write(10, {"share_of_peak": 0.5, "step_seconds": 9.9, "save_seconds": 0.1})
    (path,) = (tmp_path / "train").iterdir()
    path.write_bytes(path.read_bytes() + b"\x18\0\0")  # cut off by a kill
    assert diagnose_run(tmp_path).findings == []
    assert read_run(tmp_path).timed["share_of_peak"] == [(10, 0.5)]


REPORT = """          precision  recall      f1  support
no          0.8404  0.8364  0.8384      {}
not at all  0.8430  0.8468  0.8449      {}
micro       0.8417  0.8417  0.8417      200
macro       0.8417  0.8416  0.8417      200
weighted    0.8417  0.8417  0.8417      200
accuracy  0.8417

Confusion matrix
"""


def fine_tune(folder, results, sizes=(100, 100), lines=None, **flags):
    return write_run(
        folder,
        fine_tuning_lines() if lines is None else lines,
        flags={"learning_rate": 3e-5, **flags},
        results={f"eval_{name}": value for name, value in results.items()},
        report=REPORT.format(*sizes) if sizes else "",
    )


@pytest.mark.parametrize(
    ("accuracy", "severity"), [(0.8, None), (0.61, "WARNING"), (0.6, "SERIOUS")]
)
def test_accuracy_at_chance(tmp_path, accuracy, severity):
    assert class_sizes(REPORT.format(80, 120)) == {"no": 80, "not at all": 120}
    finding = fine_tune(tmp_path, {"accuracy": accuracy}, (80, 120)).get(
        "No better than always giving the commonest answer"
    )
    assert (finding.severity.name if finding else None) == severity
    assert not finding or "60 % of the examples are of one class" in finding.measured


@pytest.mark.parametrize(
    ("results", "severity"),
    [
        ({"matthews": 0.4, "accuracy": 0.7}, None),
        ({"matthews": 0.0, "accuracy": 0.7}, "SERIOUS"),
        ({"pearson": float("nan")}, "SERIOUS"),
        ({"f1": 8.0, "precision": 9.0, "accuracy": 0.95}, "WARNING"),
        ({"exact_match": 70.0, "f1": 80.0}, None),
        ({"exact_match": 0.5, "f1": 5.0}, "SERIOUS"),
    ],
)
def test_scores_that_say_nothing(tmp_path, results, severity):
    finding = fine_tune(tmp_path, results, None).get("The answers say next to nothing")
    assert (finding.severity.name if finding else None) == severity


def test_main_score():
    assert main_score({"accuracy": 0.8, "f1": 0.85}) == ("accuracy", 0.8)  # MRPC
    assert main_score({"loss": 1.0})[0] == ""


@pytest.mark.parametrize(("largest", "severity"), [(150, None), (170, "WARNING"), (198, "SERIOUS")])
def test_imbalance(tmp_path, largest, severity):
    finding = fine_tune(tmp_path, {"accuracy": 1.0}, (200 - largest, largest)).get(
        "One class is most of the examples"
    )
    assert (finding.severity.name if finding else None) == severity


def test_loss_that_does_not_move(tmp_path):
    found = fine_tune(tmp_path, {}, lines=fine_tuning_lines(loss=lambda step: 0.693))
    assert found["The training loss has not moved"].severity.name == "SERIOUS"
    assert len(found) == 1


@pytest.mark.parametrize(
    ("rate_flag", "frozen", "severity"),
    [(3e-5, -1, None), (3e-4, -1, "WARNING"), (3e-3, -1, "SERIOUS"), (3e-3, 12, None)],
)
def test_rate_of_fine_tuning(tmp_path, rate_flag, frozen, severity):
    lines = fine_tuning_lines(learning_rate=lambda step: rate(step, rate_flag))
    found = fine_tune(tmp_path, {}, lines=lines, learning_rate=rate_flag, frozen_layers=frozen)
    finding = found.get("The learning rate is high for fine-tuning")
    assert (finding.severity.name if finding else None) == severity


@pytest.mark.parametrize(("long", "severity"), [(0, None), (20, "WARNING"), (50, "SERIOUS")])
def test_texts_that_are_cut(tmp_path, long, severity):
    # [CLS] the river [SEP] are 4 pieces, with the second text and its [SEP] 6 or 9.
    rows = [f"the river,{'the mill the mill' if n < long else 'mill'}" for n in range(100)]
    (tmp_path / "train.csv").write_text("a,b\n" + "\n".join(rows) + "\n", "utf8")
    Vocab(tuple(tiny_tokens())).write(tmp_path / "vocab.txt")
    flags = {"label_kind": "class", "text_column": "a", "text_b_column": "b", "max_seq_length": 8}
    flags |= {"train_file": tmp_path / "train.csv", "do_lower_case": "true"}
    finding = fine_tune(tmp_path, {}, **flags).get("Training texts are cut")
    assert (finding.severity.name if finding else None) == severity
    (tmp_path / "train.csv").unlink()
    assert "Training texts are cut" not in fine_tune(tmp_path, {}, **flags)


@pytest.mark.parametrize(
    ("scores", "titles"),
    [
        ((0.84, 0.86, 0.85), []),
        ((0.84, 0.86, 0.53), ["The seeds differ"]),
        ((0.53, 0.53), ["All seeds give the same score"]),
    ],
)
def test_seeds(tmp_path, scores, titles):
    seeds = {str(number): {"accuracy": score} for number, score in enumerate(scores)}
    (tmp_path / "seeds.json").write_text(json.dumps({"seeds": seeds, "summary": {}}), "utf8")
    assert is_run(tmp_path)
    findings = diagnose_run(tmp_path).findings
    assert [finding.title for finding in findings] == titles
    write_run(tmp_path / "seed-0", fine_tuning_lines(loss=lambda step: 0.693))
    places = diagnose(str(tmp_path), DataConfig(), MaskingConfig(), True)
    assert [place.place for place in places] == [str(tmp_path), str(tmp_path / "seed-0")]
    assert "The training loss has not moved" in [f.title for f in places[1].findings]
    if "The seeds differ" in titles:
        assert findings[0].severity.name == "SERIOUS"  # 0.33 apart
        assert findings[0].details == ("seed 0: 0.8400", "seed 1: 0.8600", "seed 2: 0.5300")
