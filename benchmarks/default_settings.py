"""The default settings of fine-tuning beside settings chosen by hand, on small sets.

    python -m benchmarks.default_settings --minilm=all-MiniLM-L6-v2 --data=data \\
        --output_dir=/tmp/default_settings --sets=sst2,stsb

Each row is a set; the columns are the scores, in percent, of `fit` and of `run_classifier` without
a setting, and of `fit` with each rate and number of epochs given. Training rows are drawn with a
fixed seed from the sets of `finetuning_tasks`, as many as TASKS says. Results are kept in
--output_dir, so a second call measures only what is missing. `sst2:100` takes 100 rows to train on.

`long` is a set of texts of 190 to 250 words, from Wikipedia or from novels, which their first 130
words do not tell: these are from Wikipedia in all of them. `--settings=fit,fit-128` compares the
default length with 128 tokens.
"""

import csv
import itertools
import json
import lzma
import pathlib
import subprocess
import sys
import time
from typing import Any, NamedTuple

import numpy as np
from absl import app, flags

from benchmarks.finetuning_tasks import RECIPES, Row
from benchmarks.timing import print_table
from bert_tf.system.files import atomic_write

MINILM = flags.DEFINE_string("minilm", None, "The model to fine-tune.", required=True)
DATA = flags.DEFINE_string("data", "data", "Folder of the data sets.")
OUTPUT = flags.DEFINE_string("output_dir", None, "Files and results.", required=True)
SETS = flags.DEFINE_list("sets", ["sst2", "banking77", "clinc150", "mnli", "stsb"], "Which sets.")
SETTINGS = flags.DEFINE_list(
    "settings",
    ["fit", "run_classifier", "5e-5x3", "5e-5x10", "1e-4x3", "1e-4x10", "2e-4x3", "2e-4x10"],
    "fit and run_classifier: the defaults of each; fit-LENGTH: of fit with this length; "
    "RATExEPOCHS: set by hand.",
)
SEED = flags.DEFINE_integer("seed", 1, "Of the head, the order and dropout.")


class Size(NamedTuple):
    """Rows of a set to train on, and rows to score."""

    train: int
    evaluation: int


TASKS = {
    "sst2": Size(1200, 872),
    "banking77": Size(1155, 1000),
    "clinc150": Size(1510, 1000),
    "mnli": Size(500, 1000),
    "stsb": Size(800, 1000),
    "long": Size(600, 200),
}


class Split(NamedTuple):
    """One split of a set."""

    texts: Any  # a list, or a tuple of two lists
    labels: list[Any]


def draw(rows: list[Row], count: int) -> list[Row]:
    """Returns some rows, always the same."""
    chosen = np.random.default_rng(0).permutation(len(rows))[:count]
    return [rows[index] for index in chosen]


def read_set(name: str) -> dict[str, list[Row]]:
    """Returns the rows of both splits.

    Args:
      name: of the set; with `:N`, N rows to train on.
    """
    task, _, count = name.partition(":")
    size = TASKS[task]
    if task == "long":
        return {
            "train": make_long("00", int(count or size.train)),
            "eval": make_long("02", size.evaluation),
        }
    recipe = RECIPES[task]
    path = f"{DATA.value}/{recipe.files}"
    train = recipe.read(path.replace("*", recipe.train))
    evaluation = recipe.read(path.replace("*", recipe.evaluation))
    return {
        "train": draw(train, int(count or size.train)),
        "eval": draw(evaluation, size.evaluation),
    }


def paragraphs(corpus: str, words: range, count: int) -> list[list[str]]:
    """Returns the words of the first paragraphs of some size in a corpus."""
    with lzma.open(f"{DATA.value}/corpus/{corpus}.jsonl.xz", "rt", encoding="utf8") as file:
        documents = (json.loads(line)["text"] for line in file)
        every = (part.split() for text in documents for part in text.split("\n"))
        return [*itertools.islice((part for part in every if len(part) in words), count)]


def make_long(shard: str, count: int) -> list[Row]:
    """Returns texts of equal beginnings, with the corpus that the rest is from."""
    starts = paragraphs(f"wikipedia/wiki-{shard}", range(130, 1000), count)
    ends = {
        "wikipedia": paragraphs(f"wikipedia/wiki-{shard}", range(60, 120), count // 2),
        "books": paragraphs(f"books/books-{shard}", range(60, 120), count // 2),
    }
    rows = []
    for index, start in enumerate(starts):
        label = ("wikipedia", "books")[index % 2]
        words = [*start[:130], *ends[label][index // 2]]
        rows.append({"text": " ".join(words), "pair": None, "label": label})
    return rows


def is_regression(name: str) -> bool:
    task = name.partition(":")[0]
    return task in RECIPES and RECIPES[task].score == "correlation"


def as_split(rows: list[Row], is_number: bool) -> Split:
    texts: Any = [row["text"] for row in rows]
    if rows[0]["pair"] is not None:
        texts = texts, [row["pair"] for row in rows]
    return Split(texts, [float(row["label"]) if is_number else row["label"] for row in rows])


def score_fit(name: str, length: int = 0, **settings: Any) -> dict[str, float]:
    """Trains with `fit`; returns the score in percent and the seconds.

    Args:
      name: of the set.
      length: most tokens of a text; 0: the default.
      settings: arguments of `fit`.
    """
    import keras

    import bert_tf

    rows, is_number = read_set(name), is_regression(name)
    train, evaluation = (as_split(rows[split], is_number) for split in ("train", "eval"))
    head: dict[str, Any] = {"num_labels": 1}
    if not is_number:
        head = {"labels": sorted({*train.labels, *evaluation.labels})}
    keras.utils.set_random_seed(SEED.value)
    model = bert_tf.BertClassifier.from_pretrained(
        MINILM.value,
        new_head=True,
        allow_missing=["bert/pooler/"],
        max_seq_length=length,
        **head,
    )
    start = time.perf_counter()
    history = model.fit(train.texts, train.labels, verbose=0, **settings)
    seconds = time.perf_counter() - start
    if is_number:
        score = np.corrcoef(model.score(evaluation.texts), evaluation.labels)[0, 1]
    else:
        found = [answer["label"] for answer in model.classify(evaluation.texts)]
        score = np.mean([*map(str.__eq__, found, evaluation.labels)])
    return {"score": 100 * score, "seconds": seconds, "epochs": len(history.epoch)}


def score_program(name: str) -> dict[str, float]:
    """Trains with `run_classifier` on files of one's own; returns the score in percent."""
    folder = pathlib.Path(OUTPUT.value, model_name(), name.replace(":", "-"))
    files = []
    for split, rows in read_set(name).items():
        path = folder / f"{split}.csv"
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w", encoding="utf8", newline="") as file:
            table = csv.DictWriter(file, ["text", "pair", "label"])
            table.writeheader()
            table.writerows(rows)
        files.append(f"--{split}_file={path}")
    if rows[0]["pair"] is not None:
        files.append("--text_b_column=pair")
    if is_regression(name):
        files.append("--problem_type=regression")
    start = time.perf_counter()
    subprocess.run(
        [
            *(sys.executable, "-m", "bert_tf.run_classifier", *files, "--do_train", "--do_eval"),
            *(f"--init_checkpoint={MINILM.value}", "--allow_missing=bert/pooler/"),
            *(f"--output_dir={folder / 'run'}", f"--random_seed={SEED.value}"),
        ],
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    lines = (folder / "run/eval_results.txt").read_text(encoding="utf8").splitlines()
    results = dict(line.split(" = ") for line in lines if " = " in line)
    metric = "eval_pearson" if is_regression(name) else "eval_accuracy"
    return {"score": 100 * float(results[metric]), "seconds": time.perf_counter() - start}


def model_name() -> str:
    return str(pathlib.Path(MINILM.value).resolve()).replace("/", "_").strip("_")


def measure(name: str, setting: str) -> float:
    """Returns the score of a setting, from the results if it was measured before."""
    path = pathlib.Path(OUTPUT.value, f"{model_name()}.seed-{SEED.value}.json")
    results = json.loads(path.read_text(encoding="utf8")) if path.exists() else {}
    key = f"{name} {setting}"
    if key not in results:
        if setting == "run_classifier":
            found = score_program(name)
        elif setting.startswith("fit"):
            found = score_fit(name, int(setting.partition("-")[2] or 0))
        else:
            rate, epochs = setting.split("x")
            found = score_fit(name, learning_rate=float(rate), epochs=int(epochs))
        results = json.loads(path.read_text(encoding="utf8")) if path.exists() else {}
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as file:
            json.dump({**results, key: found}, file, indent=1)
        results[key] = found
        print(key, found, file=sys.stderr, flush=True)
    return results[key]["score"]


def line(name: str) -> list[str]:
    scores = {setting: measure(name, setting) for setting in SETTINGS.value}
    by_hand = [score for setting, score in scores.items() if "x" in setting]
    best = max(by_hand, default=float("nan"))
    return [name, *(f"{score:.1f}" for score in scores.values()), f"{best:.1f}"]


def main(_: list[str]) -> None:
    print_table(["set", *SETTINGS.value, "best by hand"], map(line, SETS.value))


if __name__ == "__main__":
    app.run(main)
