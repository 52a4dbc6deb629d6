"""Scores encoders by what they are for: fine-tuned on tasks with one setting and some seeds.

    python -m benchmarks.fine_tuned --data=data --seeds=3 --output_dir=/tmp/fine_tuned \\
        runs/one_hour runs/paper random

`random` is the first folder's architecture and vocabulary with random weights. The tasks' rows are
those of `finetuning_tasks`; every model gets the same rate, epochs and batches. Scores are the
means of the seeds with their standard deviations, in percent; what is on disk is not run again.
"""

import json
import pathlib
import statistics
import subprocess
import sys

from absl import app, flags

from benchmarks.finetuning_tasks import RECIPES, choose
from benchmarks.timing import print_table
from bert_tf.system.files import atomic_write

DATA = flags.DEFINE_string("data", "data", "Folder of the data sets.")
OUTPUT = flags.DEFINE_string("output_dir", None, "Runs, files and results.", required=True)
SEEDS = flags.DEFINE_integer("seeds", 3, "Seeds 1 to this, at least two.", lower_bound=2)
RATE = flags.DEFINE_float("learning_rate", 3e-4, "Of all models and tasks.")
EPOCHS = flags.DEFINE_integer("num_train_epochs", 2, "Of all models and tasks.")
CHOSEN = flags.DEFINE_list("tasks", ["sst2", "mrpc", "mnli", "stsb"], "Also cola.")

TASKS = {
    "sst2": "accuracy",
    "mrpc": "accuracy",
    "mnli": "accuracy",
    "stsb": "spearman",
    "cola": "matthews",
}


def make_files(task: str) -> list[str]:
    """Returns the flags that name a task's rows, which it writes as JSONL."""
    if task == "cola":  # Files of one's own are not scored by Matthews' correlation.
        return ["--task_name=cola", f"--data_dir={DATA.value}/glue/CoLA"]
    recipe, given = RECIPES[task], []
    for name, part in (("train", recipe.train), ("eval", recipe.evaluation)):
        rows = recipe.read(f"{DATA.value}/{recipe.files}".replace("*", part))
        rows = choose(recipe, rows) if name == "train" else rows
        path = pathlib.Path(OUTPUT.value, "data", f"{task}.{name}.jsonl")
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as file:  # Another call may be reading it.
            file.writelines(json.dumps(row) + "\n" for row in rows)
        given.append(f"--{name}_file={path}")
    if rows[0]["pair"] is not None:
        given.append("--text_b_column=pair")
    return [*given, "--problem_type=regression"] if recipe.score == "correlation" else given


def scores(task: str, name: str, source: str) -> list[float]:
    """Fine-tunes with every seed; returns the scores in percent."""
    setting = f"{RATE.value:g}-{EPOCHS.value}-{SEEDS.value}"
    folder = pathlib.Path(OUTPUT.value, setting, name, task)
    path = folder / "seeds.json"
    if not path.exists():
        # transformers pre-trains without a pooler.
        start = [f"--init_checkpoint={source}", "--allow_missing=bert/pooler/"]
        if name == "random":
            shape = f"--bert_config_file={source}/bert_config.json"
            start = [shape, f"--vocab_file={source}/vocab.txt"]
        command = [
            *(sys.executable, "-m", "bert_tf.run_classifier", *make_files(task), *start),
            *("--do_train", "--do_eval", f"--output_dir={folder}", f"--num_seeds={SEEDS.value}"),
            *("--max_seq_length=128", "--train_batch_size=32", "--random_seed=1"),
            *(f"--learning_rate={RATE.value}", f"--num_train_epochs={EPOCHS.value}"),
        ]
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "log.txt").open("w", encoding="utf8") as log:
            subprocess.run(command, check=True, stdout=log, stderr=subprocess.STDOUT)
    by_seed = json.loads(path.read_text())["seeds"]
    # The correlation of constant predictions is undefined.
    return [100 * (metrics[TASKS[task]] or 0.0) for metrics in by_seed.values()]


def as_text(values: list[float]) -> str:
    return f"{statistics.fmean(values):.1f} ± {statistics.stdev(values):.1f}"


def line(source: str, first: str) -> list[str]:
    """Returns a model's scores, a task a column, and those of the tasks' mean."""
    name = pathlib.Path(source).name
    found = [scores(task, name, first if name == "random" else source) for task in CHOSEN.value]
    means = [statistics.fmean(values) for values in zip(*found, strict=True)]
    return [name, *map(as_text, [*found, means])]


def main(arguments: list[str]) -> None:
    sources = arguments[1:]
    if len({pathlib.Path(source).name for source in sources}) < len(sources):
        raise ValueError(f"Two of {sources} have the same name, which their results go by.")
    print_table(["model", *CHOSEN.value, "mean"], (line(source, sources[0]) for source in sources))


if __name__ == "__main__":
    app.run(main)
