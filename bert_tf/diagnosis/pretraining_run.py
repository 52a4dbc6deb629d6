"""What a run of pre-training shows beyond what any run does: its two losses."""

import math

import numpy as np

from bert_tf.diagnosis.charts import lines
from bert_tf.diagnosis.findings import Diagnosis, Finding, Plot, judge, percent
from bert_tf.diagnosis.run_files import RunFiles
from bert_tf.diagnosis.run_findings import common_findings, common_plots

LN_2 = math.log(2.0)
NSP_EXAMPLES = 50_000  # before so many, next sentence prediction may well be a coin's


def diagnose_pretraining(run: RunFiles) -> Diagnosis:
    """Returns what a run directory of run_pretraining says."""
    last = run.steps[-1] if run.steps else {}
    facts = {
        "steps": f"{last.get('step', 0):,} of {run.number('num_train_steps', 0):,.0f}",
        "examples": f"{examples_seen(run):,.0f}",
    }
    names = {"masked_lm_loss": "MLM loss", "next_sentence_loss": "NSP loss"}
    facts |= {title: f"{last[name]:.3f}" for name, title in names.items() if name in last}
    if "unigram_masked_lm_loss" in run.results:
        facts["unigram baseline"] = f"{run.results['unigram_masked_lm_loss']:.3f}"
    if shares := run.timed.get("share_of_peak"):
        facts["of the peak"] = percent(float(np.median([share for _, share in shares])))
    findings = start_findings(run) + baseline_findings(run) + sentence_findings(run)
    findings += common_findings(run)
    return Diagnosis(str(run.folder), "pre-training run", facts, findings, _plots(run))


def examples_seen(run: RunFiles) -> float:
    """Returns steps done x batch size; 0 if unknown."""
    last = run.steps[-1]["step"] if run.steps else 0
    return last * run.number("train_batch_size", 0.0)


def uniform_loss(run: RunFiles) -> float:
    """Returns what a uniform guess costs: ln V, and ln 2 with next sentence prediction."""
    sentence = LN_2 if any("next_sentence_loss" in row for row in run.steps) else 0.0
    return math.log(run.number("vocab_size")) + sentence


def start_findings(run: RunFiles) -> list[Finding]:
    """The first loss against a uniform guess."""
    if not run.steps or run.steps[0]["step"] != 1 or "vocab_size" not in run.flags:
        return []
    loss, expected = run.steps[0]["loss"], uniform_loss(run)
    measured = f"{loss:.2f} at step 1; ln V + ln 2 is {expected:.2f}"
    if run.flags.get("init_checkpoint"):
        return judge(
            "start_of_checkpoint",
            loss - expected,
            "The run begins as if its --init_checkpoint knew nothing",
            measured,
            "See that the checkpoint has an MLM head (--may_miss lists what was left to chance), "
            "and that vocabulary and casing are its own.",
            expected=f"below {expected - 0.5:.2f}",
        )
    return judge(
        "start_loss",
        abs(loss - expected),
        "The first loss is not that of a uniform guess",
        measured,
        "Far above: --initializer_range is too large or logits are wrong. Far below: labels leak "
        "into the input, or the weights are not fresh.",
        expected=f"about {expected:.2f}",
    )


def baseline_findings(run: RunFiles) -> list[Finding]:
    """The MLM loss against a guess by frequency alone."""
    mlm, unigram = (run.results.get(f"{name}masked_lm_loss") for name in ("", "unigram_"))
    if mlm is None or unigram is None:
        return []
    return judge(
        "unigram_margin",
        unigram - mlm,
        "The model is hardly better than counting words",
        f"MLM loss {mlm:.3f}, unigram baseline {unigram:.3f}",
        "Early in a run: wait. Else lower --learning_rate, lengthen warm-up, and look at the "
        "examples (show_examples): context is not used.",
        expected=f"below {unigram - 0.3:.3f}",
    )


def sentence_findings(run: RunFiles) -> list[Finding]:
    """The NSP loss against a coin's."""
    _, losses = run.column("next_sentence_loss")
    if len(losses) < 3 or examples_seen(run) < NSP_EXAMPLES:
        return []
    loss = float(np.array_split(losses, 3)[2].mean())
    return judge(
        "next_sentence",
        loss,
        "Next sentence prediction is a coin's",
        f"{loss:.4f} over the last third; ln 2 is 0.6931",
        "See that labels fit their pairs: run the doctor on the prepared data, read a few with "
        "show_examples. Short documents and a rate too high do it as well.",
    )


def _plots(run: RunFiles) -> list[Plot]:
    plots = []
    for name, title, level in (
        ("masked_lm_loss", "MLM loss", run.results.get("unigram_masked_lm_loss")),
        ("next_sentence_loss", "NSP loss", LN_2),
    ):
        series = {"training": run.column(name), "evaluation": run.evaluated(name)}
        series = {key: values for key, values in series.items() if len(values[0])}
        if series:
            levels = {"knowing nothing of the context": level} if level is not None else {}
            plots.append(Plot(title, lines(series, levels)))
    return plots + common_plots(run)
