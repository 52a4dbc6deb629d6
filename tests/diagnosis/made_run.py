"""Run directories with made numbers, for the doctor's tests."""

import json
import math

from bert_tf.diagnosis.places import diagnose_run

BATCH, STEPS, WARMUP, PEAK, VOCAB = 256, 1000, 100, 1e-4, 1000
FLAGS = {
    "vocab_size": VOCAB,
    "learning_rate": PEAK,
    "num_train_steps": STEPS,
    "num_warmup_steps": WARMUP,
    "clip_norm": 1.0,
    "train_batch_size": BATCH,
    "init_checkpoint": "",
}
MASKED = {"masked_lm_prob": 0.15}
LOGGED = (1, *range(10, STEPS + 1, 10))


def rate(step: int, peak: float = PEAK) -> float:
    """Returns the rate of the step before `step`: linear warm-up, linear decay."""
    done = step - 1
    return peak * (done / WARMUP if done < WARMUP else 1 - done / STEPS)


def pretraining_lines(**functions) -> list[dict[str, float]]:
    """Returns lines of a good run; `functions` give other values of columns by step."""
    columns = {
        "masked_lm_loss": lambda step: 3.0 + (math.log(VOCAB) - 3.0) * math.exp(-step / 300),
        "next_sentence_loss": lambda step: 0.3 + (math.log(2) - 0.3) * math.exp(-step / 300),
        "learning_rate": rate,
        "gradient_norm": lambda step: 0.5 + 3 * math.exp(-step / 50),
        **functions,
    }
    lines = []
    for step in LOGGED:
        line = {"step": step, **{name: column(step) for name, column in columns.items()}}
        line["loss"] = line["masked_lm_loss"] + line["next_sentence_loss"]
        lines.append(line)
    return lines


def fine_tuning_lines(**functions) -> list[dict[str, float]]:
    """Returns lines of a good fine-tuning; `functions` as above."""
    columns = {
        "loss": lambda step: 0.3 + 0.4 * math.exp(-step / 200),
        "learning_rate": lambda step: rate(step, 3e-5),
        "gradient_norm": lambda step: 4.0,
        **functions,
    }
    return [{"step": s, **{name: column(s) for name, column in columns.items()}} for s in LOGGED]


def write_run(folder, lines, *, flags=(), evaluations=(), results=(), report="", checkpoints=()):
    """Writes a run directory; returns its findings by title."""
    folder.mkdir(exist_ok=True)
    values = {**FLAGS, **dict(flags)}
    text = "".join(f"--{name}={value}\n" for name, value in values.items())
    (folder / "run.flags").write_text(text, "utf8")
    for name, rows in (("metrics.jsonl", lines), ("eval_metrics.jsonl", evaluations)):
        (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows), "utf8")
    if results:
        rows = "".join(f"{name} = {value}\n" for name, value in dict(results).items())
        (folder / "eval_results.txt").write_text(rows, "utf8")
    if report:
        (folder / "report.txt").write_text(report, "utf8")
    for step in checkpoints:
        (folder / f"model.ckpt-{step}.index").write_bytes(b"x" * 10)
        (folder / f"model.ckpt-{step}.data-00000-of-00001").write_bytes(b"x" * 990)
    return {finding.title: finding for finding in diagnose_run(folder).findings}
