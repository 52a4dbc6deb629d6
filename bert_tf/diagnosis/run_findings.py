"""What any run shows: schedule, gradients, loss, evaluations, checkpoints, speed."""

import numpy as np

from bert_tf.diagnosis.charts import lines
from bert_tf.diagnosis.findings import Finding, Plot, judge, percent
from bert_tf.diagnosis.run_files import RunFiles

WINDOW = 20  # logged lines before one, that it is compared with
MIN_LINES = 8  # a shorter run says nothing of its course


def common_findings(run: RunFiles) -> list[Finding]:
    """Returns the findings that do not depend on the task."""
    found = schedule_findings(run) + gradient_findings(run) + loss_findings(run)
    return found + evaluation_findings(run) + checkpoint_findings(run) + speed_findings(run)


def schedule_findings(run: RunFiles) -> list[Finding]:
    """Warm-up against the run's length; the logged rate against the flags."""
    peak, steps = run.number("learning_rate"), run.number("num_train_steps")
    warmup = run.number("num_warmup_steps", 0.0)
    found = judge(
        "warmup",
        warmup / steps,
        "Warm-up takes most of the run" if warmup < steps else "Warm-up is longer than the run",
        f"{warmup:,.0f} of {steps:,.0f} steps",
        "Lower --num_warmup_steps to 1 to 10 % of --num_train_steps.",
    )
    logged, rates = run.column("learning_rate")
    done = logged - 1  # the rate of the line at step n is that of step n - 1
    behind = np.flatnonzero((done >= warmup) & (done < warmup + steps / 4))
    if not behind.size or not peak or np.isnan(steps):
        return found
    step, rate = done[behind[0]], rates[behind[0]]
    # Linear decay, or its power, is the lowest of the schedules there, a constant the highest.
    power = max(1.0, run.number("decay_power", 1.0))
    lowest, highest = peak * (1 - step / steps) ** power, peak
    off = max(0.0, 1 - rate / lowest, rates.max() / highest - 1 - 1e-6)
    return found + judge(
        "rate_off",
        off if off > 1e-3 else 0.0,
        "The learning rate is not what the flags say",
        f"{rate:.3g} at step {step + 1:,.0f}, {rates.max():.3g} at most",
        "Another schedule or rate was used than run.flags records: compare it with the command.",
        expected=f"{lowest:.3g} to {highest:.3g}",
    )


def gradient_findings(run: RunFiles) -> list[Finding]:
    """Clipping, and norms far above those before."""
    steps, norms = run.column("gradient_norm")
    if len(norms) < MIN_LINES:
        return []
    clip = run.number("clip_norm", 0.0)
    late = norms[len(norms) // 2 :]
    clipped = float((late > clip).mean()) if clip and run.is_pretraining else 0.0
    found = judge(
        "clipped",
        clipped,
        "Nearly every gradient is clipped",
        f"{percent(clipped)} of the logged steps in the later half; the median norm is "
        f"{np.median(late):.3g}, --clip_norm={clip:g}",
        "Lower --learning_rate or lengthen warm-up, if the loss is not falling; or raise "
        "--clip_norm.",
    )
    spikes = [i for i in range(MIN_LINES, len(norms)) if norms[i] > 10 * _median(norms, i)]
    return found + judge(
        "gradient_spikes",
        len(spikes),
        "Spikes of the gradient",
        f"{len(spikes)} logged steps, the first at {_at(steps, spikes)}, up to "
        f"{max(norms[spikes], default=0):.3g}",
        "Keep --clip_norm=1; if the loss does not recover, lower --learning_rate, and look at the "
        "batch with show_examples.",
        expected="none",
    )


def loss_findings(run: RunFiles) -> list[Finding]:
    """Events that training noted, spikes, divergence, a plateau."""
    steps, losses = run.column("loss")
    stopped = [event["step"] for event in run.events if event.get("done") == "stop"]
    end = f"; the last stopped the run at step {stopped[-1]:,}" if stopped else ""
    found = judge(
        "events",
        max(len(run.events), 10 * bool(stopped)),
        "Training met losses that were not finite or jumped",
        f"{len(run.events)} events{end}",
        "Lower --learning_rate or lengthen --num_warmup_steps; look at the batches of these steps.",
        tuple(", ".join(f"{name} {value}" for name, value in e.items()) for e in run.events[:10]),
        expected="none",
    )
    if len(losses) < MIN_LINES:
        return found
    spikes = []
    for i in range(MIN_LINES, len(losses)):
        before = losses[max(0, i - WINDOW) : i]
        deviation = np.median(np.abs(before - np.median(before)))
        if losses[i] - np.median(before) > max(0.5, 8 * deviation):
            spikes.append(i)
    found += judge(
        "loss_spikes",
        len(spikes),
        "Spikes of the loss",
        f"{len(spikes)} logged steps, the first at {_at(steps, spikes)}",
        "Lower --learning_rate or lengthen --num_warmup_steps.",
        expected="none",
    )
    size = max(3, len(losses) // 10)
    means = np.convolve(losses, np.ones(size) / size, "valid")
    rise = float(means[-1] - means.min())
    found += judge(
        "divergence",
        rise,
        "The loss goes up",
        f"{rise:.2f} nats above its lowest mean ({means[-1]:.2f} at the end, {means.min():.2f} "
        f"about step {steps[int(means.argmin())]:,.0f})",
        "Stop it. Start from the checkpoint before the rise with a lower --learning_rate.",
    )
    return found + _plateau(run, losses) if run.is_pretraining else found


def _plateau(run: RunFiles, losses: np.ndarray) -> list[Finding]:
    middle, last = np.array_split(losses, 3)[1:]
    rates = np.array_split(run.column("learning_rate")[1], 3)[2]
    if rates.mean() < 0.2 * run.number("learning_rate", 0.0) or len(losses) < 3 * MIN_LINES:
        return []
    gained = float(middle.mean() - last.mean())
    return judge(
        "plateau",
        gained,
        "The loss stands still",
        f"{gained:.3f} nats gained by the last third of the steps",
        "Compare it with the unigram baseline: at it, the rate is too high or the data are broken; "
        "well below it, the model is as good as it gets: train a larger one or stop.",
    )


def evaluation_findings(run: RunFiles) -> list[Finding]:
    """Overfitting, and an evaluation that is older than the weights."""
    name = "masked_lm_loss" if run.is_pretraining else "loss"
    steps, losses = run.evaluated(name)
    found = []
    if len(losses) > 1:
        best = int(losses.argmin())
        rise = float(losses[-1] - losses[best])
        found = judge(
            "overfit",
            rise,
            "Evaluations get worse",
            f"loss {losses[-1]:.3f} at step {steps[-1]:,.0f}, {losses[best]:.3f} at "
            f"{steps[best]:,.0f}",
            "Use the best checkpoint (best_checkpoint.json), stop earlier "
            "(--early_stopping_evaluations), or give more data.",
        )
    logged, training = run.column(name)
    near = (logged > steps[-1] * 0.9) & (logged <= steps[-1]) if len(steps) else logged < 0
    if near.any():
        gap = float(losses[-1] - training[near].mean())
        found += judge(
            "gap",
            gap,
            "The model knows its training data better than others",
            f"evaluation {losses[-1]:.3f}, training {training[near].mean():.3f}",
            "Fewer epochs, more data, more dropout or a smaller model; are both masked alike?",
        )
    newest = max(run.checkpoints, default=0)
    evaluated = run.results.get("global_step", newest)
    return found + judge(
        "stale_evaluation",
        (newest - evaluated) / newest if newest else 0.0,
        "The evaluation is older than the newest checkpoint",
        f"eval_results.txt is of step {evaluated:,.0f}, the checkpoint of {newest:,}",
        "Run the program again with --do_eval and without --do_train.",
    )


def checkpoint_findings(run: RunFiles) -> list[Finding]:
    """Checkpoints that cannot be read, and room for the next ones."""
    broken = [step for step, size in run.checkpoints.items() if not size]
    found = judge(
        "broken_checkpoints",
        len(broken),
        "Checkpoints without all of their files",
        f"model.ckpt-{broken[0]} and {len(broken) - 1} more" if broken else "",
        "Restore them from a copy, or delete them: training goes on from the newest whole one.",
    )
    size = max(run.checkpoints.values(), default=0)
    last = run.steps[-1]["step"] if run.steps else 0
    if not size or last >= run.number("num_train_steps", 0.0):
        return found
    room = run.free_bytes / size
    return found + judge(
        "disk",
        room,
        "The disk is nearly full",
        f"{run.free_bytes / 1e9:.2f} GB left, a checkpoint takes {size / 1e9:.2f} GB: {room:.1f}",
        "Make room, or lower --keep_checkpoint_max: a save that fails ends the run.",
    )


def speed_findings(run: RunFiles) -> list[Finding]:
    """The share of the machine's peak, and what the rest of the time went to."""
    timed = {name: np.array(values)[:, 1] for name, values in run.timed.items() if values}
    found: list[Finding] = []
    if "share_of_peak" in timed:
        share = float(np.median(timed["share_of_peak"]))
        found = judge(
            "share_of_peak",
            share,
            "The machine is far from its peak",
            f"{percent(share)} of it (median)",
            "See that nothing else runs there; try --jit_compile, larger batches, "
            "--precision=mixed_bfloat16; measure the input with --measure.",
        )
    parts = {"input_seconds": "input_wait", "save_seconds": "save_share"}
    total = sum(
        float(timed[name].sum()) for name in ("step_seconds", "save_seconds") if name in timed
    )
    remedies = {
        "input_seconds": "More --num_workers and faster disks; make the records beforehand.",
        "save_seconds": "Raise --save_checkpoints_steps, or write to a faster disk.",
    }
    for name, threshold in parts.items():
        if name in timed and total:
            share = float(timed[name].sum()) / total
            title = {"input_wait": "Steps wait for input", "save_share": "Saving takes long"}
            found += judge(
                threshold, share, title[threshold], f"{percent(share)} of the time", remedies[name]
            )
    return found


def common_plots(run: RunFiles) -> list[Plot]:
    """Returns the pictures of rate, gradient norm and speed."""
    plots = []
    peak, clip = run.number("learning_rate"), run.number("clip_norm", 0.0)
    for name, title, level in (
        ("learning_rate", "Learning rate", {"peak": peak}),
        ("gradient_norm", "Gradient norm", {"clip_norm": clip} if clip else {}),
    ):
        steps, values = run.column(name)
        if len(values):
            drawn = lines({name: (steps, values)}, level, name == "gradient_norm")
            plots.append(Plot(title, drawn))
    if speed := run.timed.get("examples_per_second"):
        drawn = lines({"examples a second": np.array(speed).T})
        plots.append(Plot("Speed", drawn))
    return plots


def _median(values: np.ndarray, index: int) -> float:
    return float(np.median(values[max(0, index - WINDOW) : index]))


def _at(steps: np.ndarray, found: list[int]) -> str:
    return f"{steps[found[0]]:,.0f}" if found else "none"
