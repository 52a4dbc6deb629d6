"""Examines a run directory of pre-training or fine-tuning, finished or not.

It reads metrics.jsonl, eval_metrics.jsonl, events.jsonl, eval_results.txt, report.txt, seeds.json,
run.flags and TensorBoard's files in train/.
"""

import math
import pathlib
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from bert_tf.diagnosis import thresholds
from bert_tf.diagnosis.findings import Diagnosis, percent
from bert_tf.diagnosis.run_records import Curve, Run, read_timed
from bert_tf.system.files import read_json
from bert_tf.training.curves import plot_line
from bert_tf.training.metrics_log import read_metrics

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WINDOW = 20  # number of preceding lines that a logged line is compared with
MIN_LINES = 8  # Fewer points are too few to judge a trend.
LN_2 = math.log(2.0)
# The main metric of a run is the first of these in its results. Exact match is in percent.
SCORES = ("matthews", "pearson", "micro_f1", "exact_match", "exact", "accuracy", "f1")
MEANS = ("micro", "macro", "weighted")
_SUPPORT = re.compile(r"^(.+?) +[\d.]+ +[\d.]+ +[\d.]+ +(\d+)$", re.MULTILINE)


def is_run(path: pathlib.Path) -> bool:
    """Returns whether a folder is a run directory, of one or several seeds."""
    return any((path / name).is_file() for name in ("run.flags", "metrics.jsonl", "seeds.json"))


def diagnose_run(folder: pathlib.Path) -> Diagnosis:
    """Examines a run directory."""
    run = Run(folder)
    kind = "pre-training run" if run.is_pretraining else "fine-tuning run"
    diagnosis = Diagnosis(str(folder), kind)
    if run.last_step:
        diagnosis.facts["steps"] = f"{run.last_step:,} of {run.num_train_steps:,.0f}"
    hidden = ("global_step", "unigram_masked_lm_accuracy", "unigram_next_sentence")
    for name, value in run.results.items():
        if not name.startswith(hidden):
            diagnosis.facts[name] = f"{value:.4g}"
    _check_rate(run, diagnosis)
    _check_loss(run, diagnosis)
    _check_evaluations(run, diagnosis)
    if run.is_pretraining:
        _check_pretraining(run, diagnosis)
    else:
        _check_scores(run, diagnosis)
        _check_seeds(run, diagnosis)
    _check_speed(run, diagnosis)
    _plot(run, diagnosis)
    return diagnosis


def _check_rate(run: Run, diagnosis: Diagnosis) -> None:
    rate = run.number("learning_rate")
    # LAMB scales the rate of each layer by itself.
    if run.is_pretraining and run.flags.get("optimizer") != "lamb":
        by_width = rate * run.number("hidden_size")
        usual = 0.3 / run.number("hidden_size")
        diagnosis.check(
            thresholds.RATE_BY_WIDTH,
            by_width,
            "The learning rate is high for a model of this width",
            f"Use about --learning_rate={usual:.0e}.",
            measured=f"{rate:g} x {run.flags.get('hidden_size')} = {by_width:.3g}",
        )
    elif not run.is_pretraining and run.number("frozen_layers", -1.0) < 0:
        diagnosis.check(
            thresholds.FINE_TUNING_RATE,
            rate,
            "The learning rate is high for fine-tuning",
            "Use 2e-5 to 5e-5.",
        )
    warm_up = run.number("num_warmup_steps", 0.0)
    steps = run.num_train_steps
    if run.number("train_minutes", 0.0):
        warm_up = steps * run.number("warmup_proportion")
    diagnosis.check(
        thresholds.WARM_UP,
        warm_up / steps if steps else math.nan,
        "Warm-up takes most of the run, or is longer",
        "Lower --num_warmup_steps to 1 to 10 % of --num_train_steps.",
        measured=f"{warm_up:,.0f} of {steps:,.0f} steps",
    )


def _check_loss(run: Run, diagnosis: Diagnosis) -> None:
    """Checks the logged events and the loss curves; in ELECTRA, one curve for each model."""
    events = read_metrics(run.folder / "events.jsonl")
    stopped = [event["step"] for event in events if event.get("done") == "stop"]
    end = f"; the run stopped at step {stopped[-1]:,}" if stopped else ""
    diagnosis.check(
        thresholds.EVENTS,
        max(len(events), 10 * len(stopped)),
        "Losses that were not finite or jumped",
        "Lower --learning_rate or lengthen --num_warmup_steps; look at the batches of these steps.",
        measured=f"{len(events)} events{end}",
        expected="none",
        details=tuple(map(_describe_event, events[:10])),
    )
    weight = run.number("discriminator_weight", 50.0)
    steps, replaced = run.curve("replaced_tokens_loss")
    if not replaced.size:
        _check_curve(run, diagnosis, run.curve("loss"))
        return
    _check_curve(run, diagnosis, run.curve("masked_lm_loss"), "generator")
    if weight:  # The loss is reported multiplied by this weight.
        _check_curve(run, diagnosis, (steps, replaced / weight), "discriminator")
    _check_generator(run, diagnosis)


def _describe_event(event: dict[str, Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in event.items())


def _check_curve(run: Run, diagnosis: Diagnosis, curve: Curve, model: str = "") -> None:
    """Checks a loss in nats; `model` is "generator" or "discriminator" in ELECTRA, otherwise ""."""
    steps, losses = curve
    if len(losses) < MIN_LINES:
        return
    is_discriminator = model == "discriminator"
    suffix = f" of the {model}" if model else ""
    spikes = _find_spikes(
        curve,
        thresholds.DISCRIMINATOR_SPIKE if is_discriminator else thresholds.SPIKE,
    )
    diagnosis.check(
        thresholds.LOSS_SPIKES,
        len(spikes),
        f"Spikes of the loss{suffix}",
        "Lower --learning_rate or lengthen --num_warmup_steps.",
        measured=f"{len(spikes)} logged steps: {', '.join(spikes[:5])}",
        expected="none",
    )
    size = max(3, len(losses) // 10)
    means = np.convolve(losses, np.ones(size) / size, "valid")  # moving average
    diagnosis.check(
        thresholds.DISCRIMINATOR_DIVERGENCE if is_discriminator else thresholds.DIVERGENCE,
        math.nan if run.share_moves else float(means[-1] - means.min()),
        f"The loss{suffix} goes up",
        "Stop the run. Resume from the checkpoint before the rise with a lower --learning_rate.",
        measured=f"{means[-1]:.2f} at the end, {means.min():.2f} about step "
        f"{steps[int(means.argmin())]:,.0f}",
    )
    if not run.is_pretraining:
        _check_progress(losses, diagnosis)
    elif not is_discriminator:  # Its task gets harder as the generator improves, so it may stall.
        _check_plateau(run, losses, diagnosis, suffix)


def _find_spikes(curve: Curve, minimum: float) -> list[str]:
    """Returns the steps whose loss is above the preceding ones by `minimum` and 8 deviations."""
    steps, losses = curve
    spikes = []
    for i in range(MIN_LINES, len(losses)):
        preceding = losses[max(0, i - WINDOW) : i]
        # Medians, which earlier spikes hardly change.
        median = np.median(preceding)
        deviation = np.median(np.abs(preceding - median))
        if losses[i] - median > max(minimum, 8 * deviation):
            spikes.append(f"{steps[i]:,.0f}")
    return spikes


def _check_progress(losses: np.ndarray, diagnosis: Diagnosis) -> None:
    last = np.array_split(losses, 3)[2]
    first = float(losses[: max(1, len(losses) // 10)].mean())
    diagnosis.check(
        thresholds.UNMOVED_LOSS,
        float(last.mean()) / first,
        "The training loss has not moved",
        "A failed run, or labels that do not match the texts: lower --learning_rate, try another "
        "--random_seed, read some rows.",
        measured=f"{last.mean():.3f} at the end, {first:.3f} at the start",
    )


def _check_plateau(run: Run, losses: np.ndarray, diagnosis: Diagnosis, suffix: str) -> None:
    _, middle, last = np.array_split(losses, 3)
    rates = np.array_split(run.curve("learning_rate")[1], 3)[2]
    is_high = rates.size > 0 and rates.mean() >= 0.2 * run.number("learning_rate", 0.0)
    diagnosis.check(
        thresholds.PLATEAU,
        float(middle.mean() - last.mean()) if is_high and not run.share_moves else math.nan,
        f"The loss{suffix} stagnates",
        "At the unigram baseline the rate is too high or the data are broken; well below it the "
        "model has reached its capacity: train a larger one, or stop.",
        measured=f"{middle.mean() - last.mean():.3f} nats gained by the last third of the steps",
    )


def _check_generator(run: Run, diagnosis: Diagnosis) -> None:
    """Checks whether ELECTRA's generator replaces enough tokens for the discriminator to learn."""
    shares = np.array_split(run.curve("replaced_tokens_share")[1], 3)[2]
    if len(shares) < MIN_LINES // 3:
        return
    lowest = run.number("masked_lm_prob")
    # The mean of the range that the share of each example is drawn from.
    chosen = (lowest + (run.number("masked_lm_prob_to", 0.0) or lowest)) / 2
    if end := run.number("masked_lm_prob_end", 0.0):  # The mean over the last third.
        chosen = lowest + (end - lowest) * 5 / 6
    # The prediction slots limit the masked share of the longest sequences.
    limit = run.number("max_predictions_per_seq") / run.number("max_seq_length")
    chosen = min(chosen, limit) if limit > 0 else chosen
    replaced = float(shares.mean())
    diagnosis.check(
        thresholds.UNCHANGED_BY_GENERATOR,
        1.0 - replaced / chosen,
        "The generator is too good",
        "It leaves little for the discriminator to detect: use a smaller generator_hidden_size, "
        "usually 0.25.",
        measured=f"{percent(1.0 - replaced / chosen)} of the chosen tokens unchanged, "
        f"{percent(replaced)} of all tokens replaced in the last third of the steps",
        expected=f"below {percent(thresholds.UNCHANGED_BY_GENERATOR.warning)} unchanged",
    )


def _check_evaluations(run: Run, diagnosis: Diagnosis) -> None:
    name = "masked_lm_loss" if run.is_pretraining else "loss"
    steps, losses = run.curve(name, is_evaluated=True)
    if not losses.size:
        return
    best = int(losses.argmin())
    diagnosis.check(
        thresholds.OVERFITTING,
        math.nan if run.share_moves else float(losses[-1] - losses[best]),
        "Evaluations get worse",
        "Use the best checkpoint (best_checkpoint.json), stop earlier "
        "(--early_stopping_evaluations), or give more data.",
        measured=f"loss {losses[-1]:.3f} at step {steps[-1]:,.0f}, {losses[best]:.3f} at "
        f"{steps[best]:,.0f}",
    )
    logged, training = run.curve(name)
    # Training losses of the tenth of the steps before the last evaluation.
    near = training[(logged > 0.9 * steps[-1]) & (logged <= steps[-1])]
    if near.size and not run.share_moves:
        diagnosis.check(
            thresholds.GAP,
            float(losses[-1] - near.mean()),
            "The model does better on training data than on evaluation data",
            "Use fewer epochs, more data, more dropout or a smaller model.",
            measured=f"evaluation {losses[-1]:.3f}, training {near.mean():.3f}",
        )


def _check_pretraining(run: Run, diagnosis: Diagnosis) -> None:
    loss = run.results.get("masked_lm_loss", math.nan)
    unigram = run.results.get("unigram_masked_lm_loss", math.nan)
    diagnosis.check(
        thresholds.UNIGRAM_MARGIN,
        unigram - loss,
        "The model is hardly better than the unigram baseline",
        "The model does not use the context. Early in a run: wait. Otherwise lower "
        "--learning_rate, lengthen warm-up, and look at the examples (show_examples).",
        measured=f"MLM loss {loss:.3f}, unigram baseline {unigram:.3f}",
        expected=f"below {unigram - 0.3:.3f}",
    )
    steps, losses = run.curve("next_sentence_loss")
    if len(losses) < 3:
        return
    examples = steps[-1] * run.number("train_batch_size", 0.0)
    last = float(np.array_split(losses, 3)[2].mean())
    diagnosis.check(
        thresholds.NEXT_SENTENCE,
        last if examples >= thresholds.NEXT_SENTENCE_EXAMPLES else math.nan,
        "Next sentence prediction is at chance",
        "Check that labels match their pairs: run the doctor on the prepared data and read a few "
        "with show_examples. Short documents and a too high learning rate have the same effect.",
        measured=f"{last:.4f} over the last third; ln 2 is {LN_2:.4f}",
    )


def main_score(results: dict[str, float]) -> tuple[str, float]:
    """Returns name and value, 0 to 1, of the main metric; ("", nan) if there is no metric.

    Example: main_score({"accuracy": 0.95, "f1": 47.0, "precision": 55.0}) == ("f1", 0.47).
    """
    # Results of tagging: F1 in percent. Their accuracy says little, as most tags are O.
    if {"f1", "precision"} <= results.keys():
        return "f1", results["f1"] / 100
    name = next((name for name in SCORES if name in results), "")
    value = results.get(name, math.nan)
    return name, value / 100 if name.startswith("exact") else value


def class_sizes(report: str) -> dict[str, int]:
    """Returns the number of examples of each class in report.txt; {} if it has no such table."""
    sizes = {}
    # The first part of the report is the table of classes.
    for name, size in _SUPPORT.findall(report.split("\n\n")[0]):
        if name.strip() not in MEANS:
            sizes[name.strip()] = int(size)
    return sizes


def _check_scores(run: Run, diagnosis: Diagnosis) -> None:
    """Checks the score against that of a constant answer."""
    name, score = main_score(run.results)
    remedy = (
        "Try another --random_seed, more steps with warm-up (3 epochs or more on small data), "
        "or a lower --learning_rate; --num_seeds distinguishes bad luck from bad settings."
    )
    sizes = class_sizes(run.text("report.txt"))
    if name == "accuracy" and sizes:
        majority = max(sizes.values()) / sum(sizes.values())
        diagnosis.check(
            thresholds.ABOVE_MAJORITY,
            round(score - majority, 9),
            "No better than the majority class",
            remedy,
            measured=f"accuracy {percent(score)}; majority class {percent(majority)}",
            expected=f"above {percent(majority + 0.02)}",
        )
    elif name and name != "accuracy":
        diagnosis.check(
            thresholds.SCORE,
            0.0 if math.isnan(score) else score,  # nan is the correlation of constant answers.
            "The answers are almost independent of the input",
            remedy,
            measured=f"{name} {score:.4g}",
        )


def _check_seeds(run: Run, diagnosis: Diagnosis) -> None:
    path = run.folder / "seeds.json"
    seeds: dict[str, dict[str, Any]] = read_json(path)["seeds"] if path.is_file() else {}
    named = {seed: main_score(results) for seed, results in seeds.items()}
    # null is the correlation of constant answers.
    scores = np.nan_to_num(np.array([score for _, score in named.values()], float))
    if len(scores) < 2:
        return
    name = next(iter(named.values()))[0]
    diagnosis.check(
        thresholds.SEED_SPREAD,
        float(scores.max() - scores.min()),
        "The seeds differ",
        "Report mean and deviation, not the best seed. More steps, warm-up and bias correction "
        "(--optimizer=adamw) reduce the spread; if you leave out failed runs, say so.",
        measured=f"{name} from {scores.min():.4f} to {scores.max():.4f} over {len(scores)} seeds",
        details=tuple(f"seed {s}: {score:.4f}" for s, score in zip(named, scores, strict=True)),
    )


def _check_speed(run: Run, diagnosis: Diagnosis) -> None:
    curves = read_timed(run.folder / "train")
    if "share_of_peak" in curves:
        diagnosis.facts["of the peak"] = percent(float(np.median(curves["share_of_peak"][1])))
    seconds = {name: float(values.sum()) for name, (_, values) in curves.items()}
    diagnosis.check(
        thresholds.INPUT_WAIT,
        seconds.get("input_seconds", math.nan) / seconds.get("step_seconds", math.nan),
        "Steps wait for input",
        "Use more CPU cores, put the records on a local disk, or mask beforehand "
        "(--masking=static).",
    )
    if "examples_per_second" not in curves:
        return
    steps, rates = curves["examples_per_second"]
    diagnosis.plots["Examples per second"] = lambda axes: plot_line(axes, steps, rates)
    if len(rates) >= MIN_LINES:
        quarters = [float(np.median(quarter)) for quarter in np.array_split(rates, 4)]
        diagnosis.check(
            thresholds.SLOWER,
            1.0 - quarters[-1] / max(quarters),
            "Training has become slower",
            "Check for other processes, the temperature, and the disk with the records.",
            measured=f"{quarters[-1]:.3g} examples/s at the end, {max(quarters):.3g} before",
        )


def _plot(run: Run, diagnosis: Diagnosis) -> None:
    levels = {
        "masked_lm_loss": run.results.get("unigram_masked_lm_loss", math.nan),
        "next_sentence_loss": LN_2,
        "gradient_norm": run.number("clip_norm"),
    }
    names: tuple[str, ...] = ("loss", "accuracy")
    if run.is_pretraining:
        names = ("masked_lm_loss", "next_sentence_loss", "replaced_tokens_loss")

    def plot_of(name: str) -> Callable[["Axes"], None]:
        def draw(axes: "Axes") -> None:
            plot_line(axes, *run.curve(name), label="training")
            if run.curve(name, is_evaluated=True)[0].size:
                axes.plot(*run.curve(name, is_evaluated=True), "o-", label="evaluation")
                axes.legend(frameon=False, labelcolor="grey")
            if math.isfinite(levels.get(name, math.nan)):
                axes.axhline(levels[name], ls="--", color="grey")

        return draw

    for name in (*names, "learning_rate", "gradient_norm"):
        if np.isfinite(run.curve(name)[1]).any():
            diagnosis.plots[name.replace("_", " ").capitalize()] = plot_of(name)
