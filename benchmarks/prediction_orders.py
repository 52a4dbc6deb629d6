"""Compares the orders in which tokens are predicted: equal processor time, held-out loss by each.

    python -m benchmarks.prediction_orders --output_dir=/tmp/orders --steps=800

The model is the quickstart's, on the text that came with Python. `masked_lm` trains for --steps;
an objective whose step costs more trains for fewer, by the processor seconds of short runs. Every
model is then evaluated by every measure. A second call continues where the first was stopped.
"""

import json
import pathlib
import sys

from absl import app, flags

from benchmarks.timing import measure, print_table

OUTPUT = flags.DEFINE_string("output_dir", "/tmp/orders", "Folder of the runs.")
STEPS = flags.DEFINE_integer("steps", 800, "Steps of masked_lm.", lower_bound=20)

OBJECTIVES = {
    "masked_lm": [],
    "causal share 1/16": ["--causal_share=0.0625"],
    "causal share 1/2": ["--causal_share=0.5"],
    "permuted_lm": ["--objective=permuted_lm"],
    "masked_permuted_lm": ["--objective=masked_permuted_lm"],
}
# The flags and the result of each measure.
MEASURES = {
    "masked": ([], "masked_lm_loss"),
    "left to right": (["--causal_share=1"], "causal_nats"),
    "permuted": (["--objective=permuted_lm"], "masked_lm_loss"),
}
SHORT, LONG = 10, 40  # Steps of the runs that are timed.


def folder_of(*names: str) -> pathlib.Path:
    return pathlib.Path(OUTPUT.value, "-".join(names).replace(" ", "_").replace("/", "_"))


def command(folder: pathlib.Path, *options: str) -> list[str]:
    """Returns the command of a run of the quickstart's model."""
    program = [sys.executable, "-m", "bert_tf.run_pretraining"]
    return [
        *program,
        "--flagfile=configs/quickstart.flags",
        "--precision=mixed_bfloat16",
        "--eval_steps=0",
        "--show_masks=",
        f"--cache_dir={OUTPUT.value}/cache",
        f"--output_dir={folder}",
        *options,
    ]


def training(steps: int) -> list[str]:
    """Returns the flags of a schedule of this many steps."""
    return [
        "--train_minutes=0",
        f"--num_train_steps={steps}",
        f"--num_warmup_steps={max(1, steps // 20)}",
        f"--num_cooldown_steps={steps // 2}",
        "--cooldown_proportion=0",
        "--do_eval=false",
    ]


def step_seconds(name: str) -> float:
    """Returns the processor seconds of a step of an objective."""
    path = folder_of(name, "seconds.json")
    if not path.exists():
        used = []
        for steps in (SHORT, LONG):
            folder = folder_of(name, f"{steps}-steps")
            used.append(measure(command(folder, *training(steps), *OBJECTIVES[name])))
        seconds = (used[1].processor_seconds - used[0].processor_seconds) / (LONG - SHORT)
        path.write_text(json.dumps(seconds))
    return float(json.loads(path.read_text()))


def train(name: str, steps: int) -> pathlib.Path:
    folder = folder_of(name)
    if not (folder / "done").exists():
        measure(command(folder, *training(steps), *OBJECTIVES[name]), folder_of(name, "log"))
        (folder / "done").touch()
    return folder


def evaluate(name: str, measured: str) -> float:
    """Returns the held-out loss of a trained model by a measure."""
    folder = folder_of(name, "by", measured)
    results = folder / "eval_results.txt"
    if not results.exists():
        options, _ = MEASURES[measured]
        start = ["--do_train=false", f"--init_checkpoint={folder_of(name)}"]
        measure(command(folder, *start, "--train_minutes=0", "--num_train_steps=1", *options))
    values = dict(line.split(" = ") for line in results.read_text().splitlines())
    return float(values[MEASURES[measured][1]])


def main(_: list[str]) -> None:
    pathlib.Path(OUTPUT.value).mkdir(parents=True, exist_ok=True)
    train("masked_lm", STEPS.value)  # It also makes the examples, which no timed run should.
    base = step_seconds("masked_lm")

    def row(name: str) -> list[str]:
        cost = step_seconds(name) / base
        steps = round(STEPS.value / cost)
        train(name, steps)
        losses = [f"{evaluate(name, measured):.3f}" for measured in MEASURES]
        return [name, f"{cost:.2f}", f"{steps}", *losses]

    heads = ["objective", "cost of a step", "steps", *MEASURES]
    print_table(heads, map(row, OBJECTIVES))


if __name__ == "__main__":
    app.run(main)
