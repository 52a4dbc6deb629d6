"""Examines a run directory of pre-training or fine-tuning, finished or not.

The numbers are those of metrics.jsonl, eval_metrics.jsonl, events.jsonl, eval_results.txt,
report.txt, seeds.json, run.flags and TensorBoard's files in train/.
"""

import contextlib
import math
import pathlib
import re
from typing import Any

import numpy as np

from bert_tf.config_flags import read_flagfile
from bert_tf.diagnosis import thresholds
from bert_tf.diagnosis.findings import Diagnosis, percent
from bert_tf.files import read_json
from bert_tf.run_record import list_checkpoints
from bert_tf.training.curves import plot_line
from bert_tf.training.metrics_log import read_metrics

WINDOW = 20  # logged lines before one, that it is compared with
MIN_LINES = 8  # A shorter run says nothing of its course.
LN_2 = math.log(2.0)
# Main metric of a run: the first that its results have. Exact match is in percent.
SCORES = ("matthews", "pearson", "micro_f1", "exact_match", "exact", "accuracy", "f1")
MEANS = ("micro", "macro", "weighted")
_SUPPORT = re.compile(r"^(.+?) +[\d.]+ +[\d.]+ +[\d.]+ +(\d+)$", re.MULTILINE)
Curve = tuple[np.ndarray, np.ndarray]  # steps and values


class Run:
    """What a run directory holds; what is missing is empty.

    Attributes:
      flags: of run.flags, as text.
      steps: lines of metrics.jsonl; `evaluations`: of eval_metrics.jsonl.
      results: numbers of eval_results.txt, without Google's `eval_`.
    """

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        path = folder / "run.flags"
        self.flags = read_flagfile(path) if path.is_file() else {}
        self.steps = read_metrics(folder / "metrics.jsonl")
        self.evaluations = read_metrics(folder / "eval_metrics.jsonl")
        self.results: dict[str, float] = {}
        for line in self.text("eval_results.txt").splitlines():
            name, _, value = line.partition(" = ")
            with contextlib.suppress(ValueError):
                self.results[name.removeprefix("eval_")] = float(value)

    def text(self, name: str) -> str:
        """Returns a file's text; "" without it."""
        path = self.folder / name
        return path.read_text(encoding="utf8") if path.is_file() else ""

    def number(self, name: str, default: float = math.nan) -> float:
        """Returns a flag's value as a number; `default` if it is not recorded or is none."""
        try:
            return float(self.flags[name])
        except (KeyError, ValueError):
            return default

    @property
    def num_train_steps(self) -> float:
        """Steps of the whole run; of one with a budget of minutes those that it has done."""
        if self.number("train_minutes", 0.0) and self.last_step:
            return self.last_step
        return self.number("num_train_steps")

    @property
    def last_step(self) -> int:
        """The last step that left a trace: a line, an evaluation or a checkpoint; 0 without any."""
        seen = [line["step"] for line in (*self.steps, *self.evaluations)]
        seen += [int(path.name.rpartition("-")[2]) for path in list_checkpoints(self.folder)]
        return max(seen, default=0)

    @property
    def share_moves(self) -> bool:
        """Whether the share of masks changes over the run, and the loss with it."""
        return self.number("masked_lm_prob_end", 0.0) > 0

    @property
    def is_pretraining(self) -> bool:
        return "masked_lm_prob" in self.flags or any("masked_lm_loss" in row for row in self.steps)

    def curve(self, name: str, is_evaluated: bool = False) -> Curve:
        """Returns steps and values of a column of metrics.jsonl, or of eval_metrics.jsonl."""
        rows = self.evaluations if is_evaluated else self.steps
        pairs = [(row["step"], row[name]) for row in rows if name in row]
        values = np.array(pairs, float).reshape(-1, 2)
        return values[:, 0], values[:, 1]


def is_run(path: pathlib.Path) -> bool:
    """True for a run directory, and for one with several seeds."""
    return any((path / name).is_file() for name in ("run.flags", "metrics.jsonl", "seeds.json"))


def diagnose_run(folder: pathlib.Path) -> Diagnosis:
    """Looks at a run directory."""
    run = Run(folder)
    kind = "pre-training run" if run.is_pretraining else "fine-tuning run"
    found = Diagnosis(str(folder), kind)
    if run.last_step:
        found.facts["steps"] = f"{run.last_step:,} of {run.num_train_steps:,.0f}"
    hidden = ("global_step", "unigram_masked_lm_accuracy", "unigram_next_sentence")
    shown = {name: value for name, value in run.results.items() if not name.startswith(hidden)}
    found.facts |= {name: f"{value:.4g}" for name, value in shown.items()}
    _judge_rate(run, found)
    _judge_loss(run, found)
    _judge_evaluations(run, found)
    if run.is_pretraining:
        _judge_pretraining(run, found)
    else:
        _judge_scores(run, found)
        _judge_seeds(run, found)
    _judge_speed(run, found)
    _plot(run, found)
    return found


def _judge_rate(run: Run, found: Diagnosis) -> None:
    rate = run.number("learning_rate")
    if run.is_pretraining and run.flags.get("optimizer") != "lamb":  # which scales each layer
        by_width = rate * run.number("hidden_size")
        usual = 0.3 / run.number("hidden_size")
        found.judge(
            thresholds.RATE_BY_WIDTH,
            by_width,
            "The learning rate is high for a model of this width",
            f"Take about --learning_rate={usual:.0e}.",
            measured=f"{rate:g} x {run.flags.get('hidden_size')} = {by_width:.3g}",
        )
    elif not run.is_pretraining and run.number("frozen_layers", -1.0) < 0:
        found.judge(
            thresholds.FINE_TUNING_RATE,
            rate,
            "The learning rate is high for fine-tuning",
            "Take 2e-5 to 5e-5.",
        )
    warm_up, steps = run.number("num_warmup_steps", 0.0), run.num_train_steps
    if run.number("train_minutes", 0.0):
        warm_up = steps * run.number("warmup_proportion")
    found.judge(
        thresholds.WARM_UP,
        warm_up / steps if steps else math.nan,
        "Warm-up takes most of the run, or is longer",
        "Lower --num_warmup_steps to 1 to 10 % of --num_train_steps.",
        measured=f"{warm_up:,.0f} of {steps:,.0f} steps",
    )


def _judge_loss(run: Run, found: Diagnosis) -> None:
    """Judges what training noted, and each curve of the loss: of ELECTRA's towers apart."""
    events = read_metrics(run.folder / "events.jsonl")
    stopped = [event["step"] for event in events if event.get("done") == "stop"]
    end = f"; the run stopped at step {stopped[-1]:,}" if stopped else ""
    found.judge(
        thresholds.EVENTS,
        max(len(events), 10 * len(stopped)),
        "Losses that were not finite or jumped",
        "Lower --learning_rate or lengthen --num_warmup_steps; look at the batches of these steps.",
        measured=f"{len(events)} events{end}",
        expected="none",
        details=tuple(", ".join(f"{k} {v}" for k, v in event.items()) for event in events[:10]),
    )
    weight = run.number("discriminator_weight", 50.0)
    steps, replaced = run.curve("replaced_tokens_loss")
    if not replaced.size:
        _judge_curve(run, found, run.curve("loss"))
        return
    _judge_curve(run, found, run.curve("masked_lm_loss"), "generator")
    if weight:  # With which the loss is reported.
        _judge_curve(run, found, (steps, replaced / weight), "discriminator")
    _judge_generator(run, found)


def _judge_curve(run: Run, found: Diagnosis, curve: Curve, tower: str = "") -> None:
    """Judges spikes, divergence, and a loss that stands still.

    Args:
      run: with the curve.
      found: gets the findings.
      curve: losses in nats.
      tower: which one of ELECTRA's it is; "" for other models.
    """
    steps, losses = curve
    if len(losses) < MIN_LINES:
        return
    of_discriminator = tower == "discriminator"
    spike = thresholds.DISCRIMINATOR_SPIKE if of_discriminator else thresholds.SPIKE
    whose = f" of the {tower}" if tower else ""
    spikes = []
    for i in range(MIN_LINES, len(losses)):
        before = losses[max(0, i - WINDOW) : i]
        median = np.median(before)
        if losses[i] - median > max(spike, 8 * np.median(np.abs(before - median))):
            spikes.append(f"{steps[i]:,.0f}")
    found.judge(
        thresholds.LOSS_SPIKES,
        len(spikes),
        f"Spikes of the loss{whose}",
        "Lower --learning_rate or lengthen --num_warmup_steps.",
        measured=f"{len(spikes)} logged steps: {', '.join(spikes[:5])}",
        expected="none",
    )
    size = max(3, len(losses) // 10)
    means = np.convolve(losses, np.ones(size) / size, "valid")
    found.judge(
        thresholds.DISCRIMINATOR_DIVERGENCE if of_discriminator else thresholds.DIVERGENCE,
        math.nan if run.share_moves else float(means[-1] - means.min()),
        f"The loss{whose} goes up",
        "Stop it. Start from the checkpoint before the rise with a lower --learning_rate.",
        measured=f"{means[-1]:.2f} at the end, {means.min():.2f} about step "
        f"{steps[int(means.argmin())]:,.0f}",
    )
    _, middle, last = np.array_split(losses, 3)
    if not run.is_pretraining:
        first = float(losses[: max(1, len(losses) // 10)].mean())
        found.judge(
            thresholds.UNMOVED_LOSS,
            float(last.mean()) / first,
            "The training loss has not moved",
            "A failed run, or labels that do not belong to the texts: lower --learning_rate, take "
            "another --random_seed, read some rows.",
            measured=f"{last.mean():.3f} at the end, {first:.3f} at the start",
        )
        return
    if of_discriminator:  # Its task gets harder with the generator: it may stand still.
        return
    rates = np.array_split(run.curve("learning_rate")[1], 3)[2]
    is_high = rates.size > 0 and rates.mean() >= 0.2 * run.number("learning_rate", 0.0)
    found.judge(
        thresholds.PLATEAU,
        float(middle.mean() - last.mean()) if is_high and not run.share_moves else math.nan,
        f"The loss{whose} stagnates",
        "At the unigram baseline the rate is too high or the data are broken; well below it the "
        "model is as good as it gets: train a larger one, or stop.",
        measured=f"{middle.mean() - last.mean():.3f} nats gained by the last third of the steps",
    )


def _judge_generator(run: Run, found: Diagnosis) -> None:
    """Judges whether ELECTRA's generator leaves the discriminator something to find."""
    shares = np.array_split(run.curve("replaced_tokens_share")[1], 3)[2]
    if len(shares) < MIN_LINES // 3:
        return
    lowest = run.number("masked_lm_prob")
    chosen = (lowest + (run.number("masked_lm_prob_to", 0.0) or lowest)) / 2
    if end := run.number("masked_lm_prob_end", 0.0):  # Of the last third the mean.
        chosen = lowest + (end - lowest) * 5 / 6
    # Long rows have no room for more predictions; with shorter ones more pieces are chosen.
    room = run.number("max_predictions_per_seq") / run.number("max_seq_length")
    chosen = min(chosen, room) if room > 0 else chosen
    replaced = float(shares.mean())
    found.judge(
        thresholds.UNCHANGED_BY_GENERATOR,
        1.0 - replaced / chosen,
        "The generator is too good",
        "It leaves little to find for the discriminator: take a smaller --generator_hidden_size, "
        "0.25 is usual.",
        measured=f"{percent(1.0 - replaced / chosen)} of the chosen pieces left as they were, "
        f"{percent(replaced)} of all pieces replaced in the last third of the steps",
        expected=f"below {percent(thresholds.UNCHANGED_BY_GENERATOR.warning)} left as they were",
    )


def _judge_evaluations(run: Run, found: Diagnosis) -> None:
    name = "masked_lm_loss" if run.is_pretraining else "loss"
    steps, losses = run.curve(name, is_evaluated=True)
    if not losses.size:
        return
    best = int(losses.argmin())
    found.judge(
        thresholds.OVERFITTING,
        math.nan if run.share_moves else float(losses[-1] - losses[best]),
        "Evaluations get worse",
        "Use the best checkpoint (best_checkpoint.json), stop earlier "
        "(--early_stopping_evaluations), or give more data.",
        measured=f"loss {losses[-1]:.3f} at step {steps[-1]:,.0f}, {losses[best]:.3f} at "
        f"{steps[best]:,.0f}",
    )
    logged, training = run.curve(name)
    near = training[(logged > 0.9 * steps[-1]) & (logged <= steps[-1])]
    if near.size and not run.share_moves:
        found.judge(
            thresholds.GAP,
            float(losses[-1] - near.mean()),
            "The model does better on its training data than on other data",
            "Fewer epochs, more data, more dropout or a smaller model.",
            measured=f"evaluation {losses[-1]:.3f}, training {near.mean():.3f}",
        )


def _judge_pretraining(run: Run, found: Diagnosis) -> None:
    loss = run.results.get("masked_lm_loss", math.nan)
    unigram = run.results.get("unigram_masked_lm_loss", math.nan)
    found.judge(
        thresholds.UNIGRAM_MARGIN,
        unigram - loss,
        "The model is hardly better than counting words",
        "Early in a run: wait. Else lower --learning_rate, lengthen warm-up, and look at the "
        "examples (show_examples): context is not used.",
        measured=f"MLM loss {loss:.3f}, unigram baseline {unigram:.3f}",
        expected=f"below {unigram - 0.3:.3f}",
    )
    steps, losses = run.curve("next_sentence_loss")
    if len(losses) < 3:
        return
    examples = steps[-1] * run.number("train_batch_size", 0.0)
    last = float(np.array_split(losses, 3)[2].mean())
    found.judge(
        thresholds.NEXT_SENTENCE,
        last if examples >= thresholds.NEXT_SENTENCE_EXAMPLES else math.nan,
        "Next sentence prediction is at chance",
        "See that labels fit their pairs: run the doctor on the prepared data, read a few with "
        "show_examples. Short documents and a too high learning rate have the same effect.",
        measured=f"{last:.4f} over the last third; ln 2 is {LN_2:.4f}",
    )


def main_score(results: dict[str, float]) -> tuple[str, float]:
    """Returns name and value, from 0 to 1, of the metric to judge by; ("", nan) without one.

    Example: main_score({"accuracy": 0.95, "f1": 47.0, "precision": 55.0}) == ("f1", 0.47).
    """
    if {"f1", "precision"} <= results.keys():  # of tags, most of which are O; in percent
        return "f1", results["f1"] / 100
    name = next((name for name in SCORES if name in results), "")
    value = results.get(name, math.nan)
    return name, value / 100 if name.startswith("exact") else value


def class_sizes(report: str) -> dict[str, int]:
    """Returns the examples of each class as report.txt has them; {} if it is no such report."""
    rows = _SUPPORT.findall(report.split("\n\n")[0])
    return {name.strip(): int(size) for name, size in rows if name.strip() not in MEANS}


def _judge_scores(run: Run, found: Diagnosis) -> None:
    """Judges the score against what a constant answer gets."""
    name, score = main_score(run.results)
    remedy = (
        "Give it another --random_seed, more steps with warm-up (3 epochs or more on small data), "
        "or a lower --learning_rate; --num_seeds distinguishes bad luck from bad settings."
    )
    sizes = class_sizes(run.text("report.txt"))
    if name == "accuracy" and sizes:
        majority = max(sizes.values()) / sum(sizes.values())
        found.judge(
            thresholds.ABOVE_MAJORITY,
            round(score - majority, 9),
            "No better than always giving the commonest answer",
            remedy,
            measured=f"accuracy {percent(score)}; {percent(majority)} are of one class",
            expected=f"above {percent(majority + 0.02)}",
        )
    elif name and name != "accuracy":
        found.judge(
            thresholds.SCORE,
            0.0 if math.isnan(score) else score,  # nan: a correlation of constants
            "The answers contain almost no information",
            remedy,
            measured=f"{name} {score:.4g}",
        )


def _judge_seeds(run: Run, found: Diagnosis) -> None:
    path = run.folder / "seeds.json"
    seeds: dict[str, dict[str, Any]] = read_json(path)["seeds"] if path.is_file() else {}
    named = {seed: main_score(results) for seed, results in seeds.items()}
    # null: a correlation of constants
    scores = np.nan_to_num(np.array([score for _, score in named.values()], float))
    if len(scores) < 2:
        return
    name = next(iter(named.values()))[0]
    found.judge(
        thresholds.SEED_SPREAD,
        float(scores.max() - scores.min()),
        "The seeds differ",
        "Report mean and deviation, not the best. More steps, warm-up and bias correction "
        "(--optimizer=adamw) narrow the spread; if you leave out failed runs, say so.",
        measured=f"{name} from {scores.min():.4f} to {scores.max():.4f} over {len(scores)} seeds",
        details=tuple(f"seed {s}: {score:.4f}" for s, score in zip(named, scores, strict=True)),
    )


def read_timed(folder: pathlib.Path) -> dict[str, Curve]:
    """Returns the scalars of TensorBoard's files by name; of a file cut off what is whole."""
    paths = sorted(folder.glob("events.out.tfevents.*"))
    if not paths:
        return {}
    # It takes seconds to load, and a run without such files is looked at without it.
    import tensorflow as tf
    from tensorflow.core.util import event_pb2

    found: dict[str, dict[int, float]] = {}
    for path in paths:
        with contextlib.suppress(tf.errors.DataLossError):
            for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator():
                event = event_pb2.Event.FromString(record)
                for value in event.summary.value:
                    if value.HasField("tensor"):  # A step done again after a restart counts once.
                        number = float(tf.make_ndarray(value.tensor))
                        found.setdefault(value.tag, {})[event.step] = number
    pairs = {name: sorted(values.items()) for name, values in found.items()}
    return {name: (np.array(rows)[:, 0], np.array(rows)[:, 1]) for name, rows in pairs.items()}


def _judge_speed(run: Run, found: Diagnosis) -> None:
    timed = read_timed(run.folder / "train")
    if "share_of_peak" in timed:
        found.facts["of the peak"] = percent(float(np.median(timed["share_of_peak"][1])))
    seconds = {name: float(values.sum()) for name, (_, values) in timed.items()}
    found.judge(
        thresholds.INPUT_WAIT,
        seconds.get("input_seconds", math.nan) / seconds.get("step_seconds", math.nan),
        "Steps wait for input",
        "Give the host more cores, put the records on a local disk, or mask beforehand "
        "(--masking=static).",
    )
    if "examples_per_second" not in timed:
        return
    steps, rates = timed["examples_per_second"]
    found.plots["Examples a second"] = lambda axes: plot_line(axes, steps, rates)
    if len(rates) >= MIN_LINES:
        quarters = [float(np.median(quarter)) for quarter in np.array_split(rates, 4)]
        found.judge(
            thresholds.SLOWER,
            1.0 - quarters[-1] / max(quarters),
            "Training has become slower",
            "Check for other processes, the temperature, and the disk with the records.",
            measured=f"{quarters[-1]:.3g} examples a second at the end, {max(quarters):.3g} before",
        )


def _plot(run: Run, found: Diagnosis) -> None:
    levels = {
        "masked_lm_loss": run.results.get("unigram_masked_lm_loss", math.nan),
        "next_sentence_loss": LN_2,
        "gradient_norm": run.number("clip_norm"),
    }
    names: tuple[str, ...] = ("loss", "accuracy")
    if run.is_pretraining:
        names = ("masked_lm_loss", "next_sentence_loss", "replaced_tokens_loss")

    def drawn(name: str) -> Any:
        def draw(axes: Any) -> None:
            plot_line(axes, *run.curve(name), label="training")
            if run.curve(name, is_evaluated=True)[0].size:
                axes.plot(*run.curve(name, is_evaluated=True), "o-", label="evaluation")
                axes.legend(frameon=False, labelcolor="grey")
            if math.isfinite(levels.get(name, math.nan)):
                axes.axhline(levels[name], ls="--", color="grey")

        return draw

    for name in (*names, "learning_rate", "gradient_norm"):
        if np.isfinite(run.curve(name)[1]).any():
            found.plots[name.replace("_", " ").capitalize()] = drawn(name)
