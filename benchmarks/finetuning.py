"""Fine-tunes with bert_tf and with plain PyTorch on the same rows, side by side.

    python -m benchmarks.finetuning --model=<folder> --data=data --tasks=sst2,rte \\
        --seeds=3 --cores=0 --output_dir=/tmp/finetuning
    python -m benchmarks.finetuning --table --output_dir=/tmp/finetuning

Each task and seed is run twice, each time in a process of its own: `finetuning_torch.py`, and the
program of bert_tf with the same hyper-parameters. Times are of whole processes, from start to end,
with loading, tokenizing, evaluating. --cores binds the processes to these cores; both libraries
take as many threads. Runs whose results are there are not repeated. --table prints what there is.

Keras loads scikit-learn and TensorFlow loads JAX wherever they are installed; here they are for the
peers, and hidden from bert_tf, which does not need them.

The learning rate falls on the line from the end of the warm-up, as transformers' does; for SQuAD,
where the steps are not known before the windows are, on google-research/bert's.

--same_start gives both the head that transformers draws, and the rows in the order that bert_tf
takes them; then only the masks of dropout are others, and few seeds tell more.

What differs: bert_tf does not decay biases and LayerNorms, goes on over the end of an epoch with
whole batches, and for SQuAD steps 140 pieces from window to window, where the other shares 96.
"""

import itertools
import json
import os
import pathlib
import statistics
import sys
from collections.abc import Iterator
from typing import Any

from absl import app, flags

from benchmarks import finetuning_torch as peer
from benchmarks import timing
from benchmarks.finetuning_tasks import RECIPES, Recipe, choose

TASKS = flags.DEFINE_list("tasks", list(RECIPES), "Names in RECIPES.")
SEEDS = flags.DEFINE_integer("seeds", 1, "Seeds 1 to this.", lower_bound=1)
OUTPUT_DIR = flags.DEFINE_string("output_dir", None, "Runs, files and results.", required=True)
SAME_START = flags.DEFINE_bool("same_start", False, "One head and one order of rows for both.")
CORES = flags.DEFINE_list("cores", None, "Numbers of the processor cores to run on.")
TABLE = flags.DEFINE_bool("table", False, "Print the table of the results and stop.")

SHOWN = {"correlation": "spearman", "matthews": "matthews", "entities": "f1", "words": "accuracy"}
SHOWN |= {"squad1": "f1", "squad2": "best_f1"}
ENDINGS = {"entities": ".conll", "words": ".conll", "squad1": ".json", "squad2": ".json"}
PERCENT = ("squad1", "squad2")
GLUE = {"rte": "RTE", "stsb": "STS-B", "mrpc": "MRPC-original", "sst2": "SST-2", "cola": "CoLA"}
GLUE_NAMES = {"sst2": "sst-2", "stsb": "sts-b"}

WITHOUT_PEERS = """
import runpy, sys
sys.modules["sklearn"] = sys.modules["jax"] = None
runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)
"""


def make_files(task: str, recipe: Recipe, folder: pathlib.Path) -> list[str]:
    """Writes the rows that are trained on; returns the program and the flags that name them."""
    folder.mkdir(parents=True, exist_ok=True)
    path = f"{peer.DATA.value}/{recipe.files}"
    files = {
        "train": path.replace("*", recipe.train),
        "eval": path.replace("*", recipe.evaluation),
    }
    if task in GLUE:
        return ["run_classifier", *glue_flags(task, recipe, folder)]
    rows = {name: recipe.read(file) for name, file in files.items()}
    rows["train"] = choose(recipe, rows["train"])
    ending = ENDINGS.get(recipe.score, ".jsonl")
    named = {name: folder / f"{name}{ending}" for name in rows}
    for name, chosen in rows.items():
        named[name].write_text(as_text(recipe, chosen), encoding="utf8")
    given = [f"--{name}_file={file}" for name, file in named.items()]
    if recipe.score in ("entities", "words"):
        return ["run_tagger", *given]
    if recipe.score in PERCENT:
        version_2 = ["--version_2_with_negative"] if recipe.score == "squad2" else []
        return ["run_squad", *given, "--doc_stride=140", *version_2]
    pair = ["--text_b_column=pair"] if rows["train"][0]["pair"] is not None else []
    return ["run_classifier", *given, *pair]


def glue_flags(task: str, recipe: Recipe, folder: pathlib.Path) -> list[str]:
    data = pathlib.Path(peer.DATA.value, "glue", GLUE[task])
    if recipe.rows:
        lines = (data / "train.tsv").read_text(encoding="utf8").split("\n")
        header = 1 if task == "sst2" else 0
        (folder / "train.tsv").write_text("\n".join(lines[: recipe.rows + header]) + "\n")
        (folder / "dev.tsv").write_bytes((data / "dev.tsv").read_bytes())
        data = folder
    return [f"--task_name={GLUE_NAMES.get(task, task)}", f"--data_dir={data}"]


def as_text(recipe: Recipe, rows: list[dict[str, Any]]) -> str:
    if recipe.score in ("entities", "words"):
        pairs = [zip(row["words"], row["labels"], strict=True) for row in rows]
        return "\n".join("".join(f"{w}\t{t}\n" for w, t in sentence) for sentence in pairs)
    if recipe.score in PERCENT:
        paragraphs = [{"context": row["context"], "qas": [row]} for row in rows]
        return json.dumps({"data": [{"paragraphs": paragraphs}]})
    return "".join(json.dumps(row) + "\n" for row in rows)


def run_ours(task: str, seed: int) -> dict[str, Any]:
    recipe, folder = RECIPES[task], pathlib.Path(OUTPUT_DIR.value, "runs", f"{task}-{seed}")
    program, *given = make_files(task, recipe, pathlib.Path(OUTPUT_DIR.value, "data", task))
    command = [
        *(sys.executable, "-c", WITHOUT_PEERS, f"bert_tf.{program}", *given),
        *("--do_train", "--do_eval", f"--output_dir={folder}", f"--random_seed={seed}"),
        *(f"--init_checkpoint={start_model(task, seed)}", f"--max_seq_length={recipe.max_length}"),
        *(f"--learning_rate={recipe.learning_rate}", f"--num_train_epochs={recipe.epochs}"),
        *("--optimizer=adamw", "--optimizer_options=adam_epsilon=1e-8", "--weight_decay_rate=0.01"),
        *("--train_batch_size=32", "--eval_batch_size=32", "--log_steps=50"),
        *("--problem_type=regression",) * (recipe.score == "correlation" and task not in GLUE),
        *line_from_warmup(recipe),
    ]
    result = measure(command, f"{task}-{seed}-bert_tf")
    lines = (folder / "eval_results.txt").read_text().splitlines()
    values = dict(line.split(" = ") for line in lines if not line.startswith("# "))
    metrics = {name.removeprefix("eval_"): float(value) for name, value in values.items()}
    return {"metrics": metrics, **result}


def line_from_warmup(recipe: Recipe) -> list[str]:
    """Returns flags of the schedule that transformers calls linear; its cooldown is a number."""
    if recipe.score in PERCENT:
        return []
    path = f"{peer.DATA.value}/{recipe.files}".replace("*", recipe.train)
    num_rows = len(choose(recipe, recipe.read(path)))
    steps = num_rows * recipe.epochs // peer.BATCH_SIZE
    cooldown = steps - int(peer.WARM_UP * steps)
    return ["--learning_rate_schedule=trapezoid", f"--cooldown={cooldown}"]


def run_peer(task: str, seed: int) -> dict[str, Any]:
    output = pathlib.Path(OUTPUT_DIR.value, f"torch-{task}-{seed}.json")
    start = [f"--model={start_model(task, seed)}", f"--same_order={SAME_START.value}"]
    command = [*peer_command(task, seed), *start, f"--output={output}"]
    result = measure(command, f"{task}-{seed}-torch")
    return {"metrics": json.loads(output.read_text()), **result}


def peer_command(task: str, seed: int) -> list[str]:
    command = [sys.executable, "-m", "benchmarks.finetuning_torch", f"--data={peer.DATA.value}"]
    return [*command, f"--task={task}", f"--seed={seed}"]


def start_model(task: str, seed: int) -> str:
    """Returns the folder that a run starts from; with a head of its own if both start from it."""
    if not SAME_START.value:
        return peer.MODEL.value
    folder = pathlib.Path(OUTPUT_DIR.value, f"start-{task}-{seed}")
    if not folder.exists():
        command = [*peer_command(task, seed), f"--model={peer.MODEL.value}"]
        measure([*command, f"--save_start={folder}"], folder.name)
    return str(folder)


def measure(command: list[str], name: str) -> dict[str, float]:
    """Runs a command, with a log of this name; returns what it used."""
    return timing.measure(command, pathlib.Path(OUTPUT_DIR.value, f"{name}.log"))._asdict()


def rows(results: list[dict[str, Any]]) -> Iterator[list[str]]:
    """Yields a line a task."""
    for task, recipe in RECIPES.items():
        both = [
            [r for r in results if (r["task"], r["framework"]) == (task, framework)]
            for framework in RUNNERS
        ]
        if not all(both):
            continue
        metric = SHOWN.get(recipe.score, "accuracy")
        used = {
            field: [statistics.median(row[field] for row in rows) for rows in both]
            for field in timing.Used._fields
        }
        times = [f"{b / a:.2f}" for a, b in (used["seconds"], used["processor_seconds"])]
        memory = " / ".join(f"{value:.0f}" for value in used["peak_mb"])
        yield [task, metric, *(scores(recipe, metric, rows) for rows in both), *times, memory]


def scores(recipe: Recipe, metric: str, rows: list[dict[str, Any]]) -> str:
    """Returns the mean in percent, and the range of several seeds."""
    is_percent = recipe.score in PERCENT
    is_percent |= rows[0]["framework"] == "bert_tf" and recipe.score == "entities"
    values = [row["metrics"][metric] * (1 if is_percent else 100) for row in rows]
    mean = f"{statistics.fmean(values):.1f}"
    return mean if len(values) == 1 else f"{mean} ({min(values):.1f} to {max(values):.1f})"


def read_results() -> list[dict[str, Any]]:
    path = pathlib.Path(OUTPUT_DIR.value, "results.jsonl")
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


RUNNERS = {"bert_tf": run_ours, "torch": run_peer}


def run_all() -> None:
    """Runs what has no result yet, and appends its result."""
    for task, seed, name in itertools.product(TASKS.value, range(1, SEEDS.value + 1), RUNNERS):
        key = {"task": task, "seed": seed, "framework": name}
        if any(key.items() <= result.items() for result in read_results()):
            continue
        result = {**key, **RUNNERS[name](task, seed)}
        with pathlib.Path(OUTPUT_DIR.value, "results.jsonl").open("a", encoding="utf8") as file:
            file.write(json.dumps(result) + "\n")


def main(_: list[str]) -> None:
    pathlib.Path(OUTPUT_DIR.value).mkdir(parents=True, exist_ok=True)
    if CORES.value:
        os.sched_setaffinity(0, map(int, CORES.value))  # The processes inherit it.
    if not TABLE.value:
        run_all()
    heads = ["task", "metric", *RUNNERS, "time ratio", "processor time ratio", "peak MB"]
    timing.print_table(heads, rows(read_results()))


if __name__ == "__main__":
    app.run(main)
