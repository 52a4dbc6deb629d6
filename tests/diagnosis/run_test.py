"""Findings of runs: each fires on made numbers and is silent on a good run; a real run, too."""

import json
import math
import re

import pytest
from matplotlib.figure import Figure

from bert_tf.diagnosis.run import class_sizes, diagnose_run, main_score
from bert_tf.diagnosis.run_records import read_timed
from bert_tf.training.reporting import Scalars
from tests.programs import SMALL_BERT, finish, pretrain

STEPS, VOCAB = 1000, 1000
LOGGED = (1, *range(10, STEPS + 1, 10))
FLAGS = {
    "learning_rate": 1e-4, "hidden_size": 768, "num_train_steps": STEPS, "num_warmup_steps": 100,
    "clip_norm": 1.0, "train_batch_size": 256,
}  # fmt: skip
MASKED = {"masked_lm_prob": 0.15}
TUNED = {"learning_rate": 3e-5}


def masked_lm_loss(step):
    return 3.0 + (math.log(VOCAB) - 3.0) * math.exp(-step / 300)


def pretraining_lines(**functions):
    """Returns lines of a good run; `functions` give other values of columns by step."""
    columns = {
        "masked_lm_loss": masked_lm_loss,
        "next_sentence_loss": lambda step: 0.3 + (math.log(2) - 0.3) * math.exp(-step / 300),
        "learning_rate": lambda step: 1e-4 * (1 - step / STEPS),
        "gradient_norm": lambda step: 0.5,
        **functions,
    }
    lines = [{"step": s, **{name: value(s) for name, value in columns.items()}} for s in LOGGED]
    return [{**row, "loss": row["masked_lm_loss"] + row["next_sentence_loss"]} for row in lines]


def tuning_lines(loss=lambda step: 0.3 + 0.4 * math.exp(-step / 200)):
    return [{"step": s, "loss": loss(s), "learning_rate": 3e-5} for s in LOGGED]


def diagnose(folder, lines, flags=MASKED, evaluations=(), results=(), report=""):
    """Writes a run directory; returns severity and measured value of each finding, by title."""
    folder.mkdir(exist_ok=True)
    flags = "".join(f"--{name}={value}\n" for name, value in {**FLAGS, **flags}.items())
    results = "".join(f"{name} = {value}\n" for name, value in dict(results).items())
    texts = {"run.flags": flags, "eval_results.txt": results, "report.txt": report}
    for name, rows in (("metrics.jsonl", lines), ("eval_metrics.jsonl", evaluations)):
        texts[name] = "".join(json.dumps(row) + "\n" for row in rows)
    for name, text in texts.items():
        (folder / name).write_text(text, "utf8")
    return by_title(folder)


def by_title(folder):
    findings = diagnose_run(folder).findings
    return {finding.title: (finding.severity.name, finding.measured) for finding in findings}


def severity(found, title):
    return found[title][0] if title in found else None


def test_good_runs_have_no_finding(tmp_path):
    results = {"global_step": STEPS, "masked_lm_loss": 3.1, "unigram_masked_lm_loss": 6.5}
    evaluations = [{"step": s, "masked_lm_loss": 4.0 - s / 1000} for s in (500, STEPS)]
    lines = pretraining_lines()
    assert diagnose(tmp_path / "a", lines, MASKED, evaluations, results) == {}
    assert diagnose(tmp_path / "b", tuning_lines(), TUNED) == {}
    # What a run that was just begun holds is no reason for complaint, either.
    assert diagnose(tmp_path / "c", lines[:1]) == diagnose(tmp_path / "d", [], TUNED) == {}


WIDTH_TITLE = "The learning rate is high for a model of this width"
TUNING_TITLE = "The learning rate is high for fine-tuning"
WARM_UP_TITLE = "Warm-up takes most of the run, or is longer"


@pytest.mark.parametrize(
    ("title", "flags", "expected"),
    [
        (WIDTH_TITLE, {**MASKED, "learning_rate": 2e-3, "hidden_size": 128}, None),  # quickstart's
        (WIDTH_TITLE, {**MASKED, "learning_rate": 2e-3}, "WARNING"),
        (WIDTH_TITLE, {**MASKED, "learning_rate": 2e-2, "optimizer": "adamw"}, "SERIOUS"),
        (WIDTH_TITLE, {**MASKED, "learning_rate": 2e-2, "optimizer": "lamb"}, None),
        (TUNING_TITLE, {"learning_rate": 3e-5, "frozen_layers": -1}, None),
        (TUNING_TITLE, {"learning_rate": 3e-4, "frozen_layers": -1}, "WARNING"),
        (TUNING_TITLE, {"learning_rate": 3e-3}, "SERIOUS"),
        (TUNING_TITLE, {"learning_rate": 3e-3, "frozen_layers": 12}, None),
        (WARM_UP_TITLE, {**MASKED, "num_warmup_steps": 499}, None),
        (WARM_UP_TITLE, {**MASKED, "num_warmup_steps": 500}, "WARNING"),
        (WARM_UP_TITLE, {**MASKED, "num_warmup_steps": 1000}, "SERIOUS"),
    ],
)
def test_rates_and_warm_up(tmp_path, title, flags, expected):
    assert severity(diagnose(tmp_path, [], flags), title) == expected


@pytest.mark.parametrize(("loss", "expected"), [(6.1, None), (6.3, "WARNING"), (6.5, "SERIOUS")])
def test_unigram_baseline(tmp_path, loss, expected):
    results = {"masked_lm_loss": loss, "unigram_masked_lm_loss": 6.5}
    found = diagnose(tmp_path, pretraining_lines(), results=results)
    assert severity(found, "The model is hardly better than the unigram baseline") == expected


@pytest.mark.parametrize(
    ("loss", "batch", "expected"),
    [(0.66, 256, None), (0.685, 256, "WARNING"), (0.6931, 256, "SERIOUS"), (0.6931, 49, None)],
)
def test_next_sentence_prediction_stuck(tmp_path, loss, batch, expected):
    # 49 x 1,000 steps are less than 50,000 examples: too early to say.
    lines = pretraining_lines(next_sentence_loss=lambda step: loss)
    found = diagnose(tmp_path, lines, {**MASKED, "train_batch_size": batch})
    assert severity(found, "Next sentence prediction is at chance") == expected


def test_spikes_divergence_and_standing_still(tmp_path):
    lines = pretraining_lines(masked_lm_loss=lambda s: masked_lm_loss(s) + 2 * (s == 700))
    found = diagnose(tmp_path, lines)
    assert found == {"Spikes of the loss": ("WARNING", "1 logged steps: 700")}
    lines = pretraining_lines(masked_lm_loss=lambda s: masked_lm_loss(s) + max(0, s - 500) / 250)
    assert diagnose(tmp_path, lines)["The loss goes up"][0] == "SERIOUS"
    flat = {"masked_lm_loss": lambda s: 6.5, "next_sentence_loss": lambda s: 0.5}
    lines = pretraining_lines(**flat, learning_rate=lambda step: 1e-4)
    assert list(diagnose(tmp_path, lines)) == ["The loss stagnates"]
    # Where the rate is all but zero, nothing is expected to move.
    assert diagnose(tmp_path, pretraining_lines(**flat, learning_rate=lambda step: 1e-6)) == {}


ELECTRA = {"masked_lm_prob": 0.15, "discriminator_weight": 50, "max_seq_length": 128}
ELECTRA |= {"max_predictions_per_seq": 20}


def electra_lines(**functions):
    """Lines of a good run of ELECTRA: the discriminator's loss, times 50, is most of the sum."""
    columns = {
        "masked_lm_loss": masked_lm_loss,
        "replaced_tokens_loss": lambda s: 50 * (0.25 + 0.44 * math.exp(-s / 100)),
        "replaced_tokens_share": lambda s: 0.15 * (1 - 0.4 * s / STEPS),
        "learning_rate": lambda s: 1e-4,
        **functions,
    }
    lines = [{"step": s, **{name: value(s) for name, value in columns.items()}} for s in LOGGED]
    names = ("masked_lm_loss", "replaced_tokens_loss")
    return [{**row, "loss": sum(row[name] for name in names)} for row in lines]


def test_electras_towers_are_judged_apart(tmp_path):
    def steady(step):
        return 0.25 + 0.44 * math.exp(-step / 100)

    assert diagnose(tmp_path, electra_lines(), ELECTRA) == {}
    # 0.03 nats of a piece, 1.5 in the sum: noise of a small batch, neither spikes nor divergence.
    noise = electra_lines(
        replaced_tokens_loss=lambda s: 50 * (steady(s) + 0.03 * (s % 70 == 0) + 0.03 * s / STEPS)
    )
    assert diagnose(tmp_path, noise, ELECTRA) == {}
    lines = electra_lines(replaced_tokens_loss=lambda s: 50 * (steady(s) + 0.3 * (s == 700)))
    found = diagnose(tmp_path, lines, ELECTRA)
    assert found == {"Spikes of the loss of the discriminator": ("WARNING", "1 logged steps: 700")}
    rising = electra_lines(replaced_tokens_loss=lambda s: 50 * (steady(s) + max(0, s - 500) / 2000))
    assert list(diagnose(tmp_path, rising, ELECTRA)) == ["The loss of the discriminator goes up"]
    # A generator that goes up is not hidden by what the discriminator gains, 50 times as much.
    lines = electra_lines(masked_lm_loss=lambda s: masked_lm_loss(s) + max(0, s - 500) / 250)
    assert diagnose(tmp_path, lines, ELECTRA)["The loss of the generator goes up"][0] == "SERIOUS"
    flat = diagnose(tmp_path, electra_lines(masked_lm_loss=lambda s: 6.5), ELECTRA)
    assert list(flat) == ["The loss of the generator stagnates"]


@pytest.mark.parametrize(
    ("left", "flags", "expected"),
    [
        (0.5, {}, None),
        (0.65, {}, "WARNING"),
        (0.85, {}, "SERIOUS"),
        # A row of 512 has room for 20 pieces, 3.9 %, of which the 2.2 % are more than half.
        (0.85, {"max_seq_length": 512}, None),
        (0.65, {"masked_lm_prob": 0.05, "masked_lm_prob_to": 0.25}, "WARNING"),
    ],
)
def test_a_generator_that_is_too_good(tmp_path, left, flags, expected):
    lines = electra_lines(replaced_tokens_share=lambda s: 0.15 * (1 - left * s / STEPS / 0.84))
    found = diagnose(tmp_path, lines, {**ELECTRA, **flags})
    title = "The generator is too good"
    assert severity(found, title) == expected
    if expected == "SERIOUS":  # 0.84 is the middle of the last third.
        assert re.match(r"85 % .* 2\.2 %", found[title][1])


def test_events_are_told(tmp_path):
    diagnose(tmp_path, pretraining_lines())
    lines = [json.dumps({"step": step, "event": "skipped"}) + "\n" for step in (7, 9)]
    (tmp_path / "events.jsonl").write_text("".join(lines), "utf8")
    assert [*by_title(tmp_path).values()] == [("WARNING", "2 events")]
    with (tmp_path / "events.jsonl").open("a", encoding="utf8") as file:
        file.write(json.dumps({"step": 1200, "event": "a spike", "done": "stop"}) + "\n")
    ((severity, measured),) = by_title(tmp_path).values()
    assert severity == "SERIOUS" and re.match("3 events; .*1,200", measured)


def test_a_loss_that_moves_with_the_share_of_masks_is_not_judged(tmp_path):
    """The share goes up from 15 to 40 %, and the loss by 1.5 nats."""
    rising = pretraining_lines(masked_lm_loss=lambda s: 2.0 + 1.5 * s / STEPS)
    rows = [{"step": s, "masked_lm_loss": 2.0 + s / STEPS} for s in (250, 500, 750, STEPS)]
    flags = {**MASKED, "masked_lm_prob_end": 0.4}
    assert not diagnose(tmp_path / "moves", rising, flags, evaluations=rows)
    found = diagnose(tmp_path / "stays", rising, MASKED, evaluations=rows)
    assert {"The loss goes up", "Evaluations get worse"} <= found.keys()


def test_overfitting(tmp_path):
    rows = [{"step": s, "masked_lm_loss": 3.5 + abs(s - 500) / 800} for s in (250, 500, 750, STEPS)]
    found = diagnose(tmp_path, pretraining_lines(), evaluations=rows)
    # 0.625 above the best; training at the last steps is 3.15.
    measured = "loss 4.125 at step 1,000, 3.500 at 500"
    assert found["Evaluations get worse"] == ("SERIOUS", measured)
    assert (
        "training 3.1" in found["The model does better on training data than on evaluation data"][1]
    )


def test_speed_is_read_from_the_log(tmp_path):
    diagnose(tmp_path, pretraining_lines())
    scalars = Scalars(str(tmp_path / "train"))
    for step in range(10, 130, 10):
        rate = 100.0 if step < 100 else 60.0
        times = {"step_seconds": 6.0, "input_seconds": 3.0, "share_of_peak": 0.25}
        scalars.write(step, {"examples_per_second": rate, **times})
    found = diagnose_run(tmp_path)
    assert found.facts["of the peak"] == "25 %"
    assert {finding.title: finding.measured for finding in found.findings} == {
        "Steps wait for input": "50 %",
        "Training has become slower": "60 examples/s at the end, 100 before",
    }
    (path,) = (tmp_path / "train").iterdir()
    path.write_bytes(path.read_bytes() + b"\x18\0\0")  # cut off by a kill
    assert len(read_timed(tmp_path / "train")["step_seconds"][0]) == 12


REPORT = """          precision  recall      f1  support
no          0.8404  0.8364  0.8384      80
not at all  0.8430  0.8468  0.8449      120
micro       0.8417  0.8417  0.8417      200
accuracy  0.8417

Confusion matrix
"""


@pytest.mark.parametrize(
    ("accuracy", "expected"), [(0.8, None), (0.61, "WARNING"), (0.6, "SERIOUS")]
)
def test_accuracy_of_the_commonest_class(tmp_path, accuracy, expected):
    assert class_sizes(REPORT) == {"no": 80, "not at all": 120}
    results = {"eval_accuracy": accuracy, "eval_file": "dev.tsv"}
    found = diagnose(tmp_path, [], TUNED, results=results, report=REPORT)
    assert severity(found, "No better than the majority class") == expected


@pytest.mark.parametrize(
    ("results", "expected"),
    [
        ({"matthews": 0.4, "accuracy": 0.7}, None),
        ({"matthews": 0.0, "accuracy": 0.7}, "SERIOUS"),
        ({"pearson": math.nan}, "SERIOUS"),
        ({"f1": 8.0, "precision": 9.0, "accuracy": 0.95}, "WARNING"),
        ({"exact_match": 70.0, "f1": 80.0}, None),
        ({"exact_match": 0.5, "f1": 5.0}, "SERIOUS"),
    ],
)
def test_scores_that_say_nothing(tmp_path, results, expected):
    found = diagnose(tmp_path, [], TUNED, results=results)
    assert severity(found, "The answers are almost independent of the input") == expected
    assert main_score({"accuracy": 0.8, "f1": 0.85}) == ("accuracy", 0.8)  # MRPC


def test_loss_that_does_not_move(tmp_path):
    found = diagnose(tmp_path, tuning_lines(loss=lambda step: 0.693), TUNED)
    assert list(found) == ["The training loss has not moved"]


@pytest.mark.parametrize(
    ("scores", "expected"),
    [((0.84, 0.86, 0.85), None), ((0.84, 0.86, 0.79), "WARNING"), ((0.84, None), "SERIOUS")],
)
def test_seeds(tmp_path, scores, expected):
    seeds = {str(number): {"accuracy": score} for number, score in enumerate(scores)}
    (tmp_path / "seeds.json").write_text(json.dumps({"seeds": seeds, "summary": {}}), "utf8")
    assert severity(by_title(tmp_path), "The seeds differ") == expected


@pytest.mark.slow
def test_a_real_run_with_ten_times_its_rate(tmp_path):
    flags = {
        **SMALL_BERT, "num_hidden_layers": 2,
        "cache_dir": tmp_path / "cache",
        "do_train": "true", "train_batch_size": 8, "optimizer": "adamw", "num_train_steps": 4,
        "num_warmup_steps": 1, "log_steps": 1, "jit_compile": "false", "num_workers": 1,
    }  # fmt: skip
    found = {}
    for rate in (0.01, 0.1):
        folder = tmp_path / f"{rate}"
        finish(pretrain(folder, learning_rate=rate, **flags))
        found[rate] = by_title(folder).get(WIDTH_TITLE)
    assert found == {0.01: None, 0.1: ("WARNING", "0.1 x 32 = 3.2")}


def test_a_run_with_a_budget_of_minutes_is_as_long_as_it_was(tmp_path):
    flags = {**MASKED, "train_minutes": 5, "num_train_steps": 0, "num_warmup_steps": 0}
    assert not diagnose(tmp_path / "new", [], {**flags, "warmup_proportion": 0.9})
    folder = tmp_path / "run"
    assert not diagnose(folder, pretraining_lines(), {**flags, "warmup_proportion": 0.1})
    assert diagnose_run(folder).facts["steps"] == "1,000 of 1,000"
    found = diagnose(folder, pretraining_lines(), {**flags, "warmup_proportion": 0.9})
    assert [measured for _, measured in found.values()] == ["900 of 1,000 steps"]


@pytest.mark.parametrize("trace", ["checkpoint", "evaluation", "line"])
def test_a_finished_run_has_all_its_steps(tmp_path, trace):
    """The log may have a line of step 1 alone."""
    folder, lines = tmp_path / "run", [{"step": 1, "loss": 1.0, "learning_rate": 3e-5}]
    last = {"step": 96, "loss": 0.5}
    lines += [last] if trace == "line" else []
    evaluations = [last] if trace == "evaluation" else []
    diagnose(folder, lines, {**TUNED, "num_train_steps": 96}, evaluations)
    if trace == "checkpoint":
        (folder / "model.ckpt-96.index").touch()
    assert diagnose_run(folder).facts["steps"] == "96 of 96"


def test_plots_have_values(tmp_path):
    lines = [{"step": 1, "loss": 1.0, "accuracy": None, "learning_rate": 3e-5}]
    diagnose(tmp_path / "run", lines, TUNED)
    plots = diagnose_run(tmp_path / "run").plots
    assert list(plots) == ["Loss", "Learning rate"]
    axes = Figure().subplots()
    plots["Loss"](axes)
    assert axes.get_lines()[0].get_marker() == "."
