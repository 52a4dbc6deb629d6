"""What a run of a fine-tuning program shows beyond what any run does: labels, lengths, seeds."""

import math
import re

import numpy as np

from bert_tf.diagnosis.charts import lines
from bert_tf.diagnosis.findings import Diagnosis, Finding, Plot, judge, percent
from bert_tf.diagnosis.run_files import RunFiles
from bert_tf.diagnosis.run_findings import common_findings, common_plots
from bert_tf.tasks.glue import glue_task, read_glue
from bert_tf.tasks.text_examples import read_text_examples
from bert_tf.text.vocab import Vocab
from bert_tf.text.wordpiece import WordPiece

# Main metric of a run, the first that its results have.
SCORES = ("matthews", "pearson", "micro_f1", "exact_match", "exact", "accuracy", "f1")
_SUPPORT = re.compile(r"^(.+?) +[\d.]+ +[\d.]+ +[\d.]+ +(\d+)$", re.MULTILINE)
MAX_TEXTS = 2000
_MEANS = ("micro", "macro", "weighted")


def diagnose_fine_tuning(run: RunFiles) -> Diagnosis:
    """Returns what a run directory of a fine-tuning program says, or a folder of several seeds."""
    last = max([*run.checkpoints, *(row["step"] for row in run.steps[-1:]), 0])
    facts = {}
    if run.steps:
        facts["steps"] = f"{last:,} of {run.number('num_train_steps', 0):,.0f}"
    facts |= {name.removeprefix("eval_"): f"{value:.4g}" for name, value in run.results.items()}
    findings = seed_findings(run) + score_findings(run) + label_findings(run)
    findings += length_findings(run) + learning_findings(run)
    if run.steps:
        findings += common_findings(run)
    return Diagnosis(str(run.folder), "fine-tuning run", facts, findings, _plots(run))


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
    return {name.strip(): int(size) for name, size in rows if name.strip() not in _MEANS}


def score_findings(run: RunFiles) -> list[Finding]:
    """The score against what a constant answer gets."""
    results = {name.removeprefix("eval_"): value for name, value in run.results.items()}
    name, score = main_score(results)
    if not name:
        return []
    remedy = (
        "Give it another --random_seed, more steps with warm-up (3 epochs or more on small data), "
        "or a lower --learning_rate; --num_seeds tells bad luck from a bad setting."
    )
    sizes = class_sizes(run.report)
    if name == "accuracy" and sizes:
        majority = max(sizes.values()) / sum(sizes.values())
        return judge(
            "chance",
            score - majority,
            "No better than always giving the commonest answer",
            f"accuracy {percent(score)}; {percent(majority)} of the examples are of one class",
            remedy,
            expected=f"above {percent(majority + 0.02)}",
        )
    if name == "accuracy":
        return []
    return judge(
        "chance_score",
        0.0 if np.isnan(score) else score,  # nan: a correlation of constants
        "The answers say next to nothing",
        f"{name} {score:.4g}",
        remedy,
    )


def cut_share(run: RunFiles) -> float:
    """Returns the share of the training texts that max_seq_length cuts, of some drawn evenly.

    Only run_classifier's files are read; nan for another program, or where they are gone.
    """
    if "label_kind" not in run.flags or not (run.folder / "vocab.txt").is_file():
        return math.nan
    flags = run.flags
    try:
        if flags.get("task_name"):
            task = glue_task(flags["task_name"])
            examples = read_glue(task, flags.get("data_dir", ""), "train")
        else:
            columns = flags["text_column"], flags.get("text_b_column", "")
            examples = read_text_examples(flags["train_file"], *columns, "")
        vocab = Vocab.read(run.folder / "vocab.txt")
    except (OSError, ValueError, KeyError):
        return math.nan
    tokenizer = WordPiece(vocab, run.is_on("do_lower_case"))
    step = max(1, len(examples) // MAX_TEXTS)
    lengths = []
    for example in examples[::step]:
        texts = [tokenizer.encode(text) for text in (example.text_a, example.text_b) if text]
        lengths.append(1 + sum(len(text) + 1 for text in texts))
    return float((np.array(lengths) > run.number("max_seq_length")).mean())


def length_findings(run: RunFiles) -> list[Finding]:
    """Texts that are cut."""
    share = cut_share(run)
    if math.isnan(share):
        return []
    return judge(
        "cut_texts",
        share,
        "Training texts are cut",
        f"{percent(share)} have more than {run.number('max_seq_length'):.0f} pieces",
        "Take a longer --max_seq_length, or --long_texts=windows (tail, if the end says more).",
    )


def label_findings(run: RunFiles) -> list[Finding]:
    """Classes of unlike size."""
    sizes = class_sizes(run.report)
    if len(sizes) < 2:
        return []
    largest = max(sizes, key=lambda name: sizes[name])
    share = sizes[largest] / sum(sizes.values())
    return judge(
        "imbalance",
        share,
        "One class is most of the examples",
        f"{percent(share)} of the evaluation examples are {largest!r}",
        "Judge by --best_metric=macro_f1, and try --class_weights=balanced.",
    )


def learning_findings(run: RunFiles) -> list[Finding]:
    """A loss that did not move, and a rate that is none for fine-tuning."""
    found = []
    _, losses = run.column("loss")
    if len(losses) >= 3:
        first = float(losses[: max(1, len(losses) // 10)].mean())
        share = float(np.array_split(losses, 3)[2].mean()) / first
        found = judge(
            "nothing_learnt",
            share,
            "The training loss has not moved",
            f"{percent(share)} of what it was at the start ({first:.3f})",
            "A failed run, or labels that do not belong to the texts: lower --learning_rate, take "
            "another --random_seed, read some rows.",
        )
    is_frozen = run.number("frozen_layers", -1.0) >= 0
    rate = 0.0 if is_frozen else run.number("learning_rate", 0.0)
    return found + judge(
        "fine_tuning_rate",
        rate,
        "The learning rate is high for fine-tuning",
        f"--learning_rate={rate:g}",
        "Take 2e-5 to 5e-5.",
    )


def seed_findings(run: RunFiles) -> list[Finding]:
    """How far the seeds of one setting lie apart."""
    if len(run.seeds) < 2:
        return []
    results = list(run.seeds.values())
    name, _ = main_score(results[0])
    if not name:
        return []
    scores = np.array([main_score(result)[1] for result in results])
    spread = float(scores.max() - scores.min())
    rows = tuple(f"seed {seed}: {score:.4f}" for seed, score in zip(run.seeds, scores, strict=True))
    found = judge(
        "seed_spread",
        spread,
        "The seeds differ",
        f"{name} from {scores.min():.4f} to {scores.max():.4f} over {len(scores)} seeds",
        "Report mean and deviation, not the best. More steps, warm-up and bias correction "
        "(--optimizer=adamw) narrow it; leave out runs that failed only if you say so.",
        rows,
    )
    is_equal = float(len(set(scores.tolist())) == 1)
    return found + judge(
        "equal_seeds",
        is_equal,
        "All seeds give the same score",
        f"{name} {scores[0]:.4f} with {len(scores)} seeds",
        "Few evaluation examples, or answers that are constant: look at report.txt.",
        rows,
        expected="different ones",
    )


def _plots(run: RunFiles) -> list[Plot]:
    plots = []
    for name, title in (("loss", "Loss"), ("accuracy", "Accuracy")):
        series = {"training": run.column(name), "evaluation": run.evaluated(name)}
        series = {key: values for key, values in series.items() if len(values[0])}
        if series:
            plots.append(Plot(title, lines(series)))
    return plots + common_plots(run)
