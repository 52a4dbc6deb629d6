"""Few labels: `BertClassifier.from_few_shot` beside SetFit and two baselines, on the same examples.

    python -m benchmarks.few_shot --model=MINILM_FOLDER --data=DATA_FOLDER \\
        --peer_python=VENV/bin/python --dataset=banking77 --per_class=8 --seeds=3

SetFit runs in its own process with the same model, examples, numbers of pairs and threads. The
baselines are logistic regression on TF-IDF and `BertClassifier.fit`. Seconds are those of the
training alone; on a machine that does other work, compare the seconds of the processor.
"""

import csv
import json
import os
import pathlib
import random
import subprocess
import tempfile
import time
from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf
from absl import app, flags
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from bert_tf.tasks.classification.model import BertClassifier

MODEL = flags.DEFINE_string("model", "", "Embedder to train.")
DATA = flags.DEFINE_string("data", "", "Folder with classification/banking77 and clinc150.")
DATASET = flags.DEFINE_enum("dataset", "banking77", ["banking77", "clinc150"], "Intents.")
CLASSES = flags.DEFINE_integer("classes", 10, "Number of classes, in order of names; 0: all.")
SKIP = flags.DEFINE_integer("skip", 0, "Classes to leave out before them.")
PER_CLASS = flags.DEFINE_integer("per_class", 8, "Training examples of each class.")
SEEDS = flags.DEFINE_integer("seeds", 3, "Number of draws of the examples, with seeds 1, 2, ...")
PAIRS = flags.DEFINE_integer("pairs_per_example", 40, "Pairs of each example, for both.")
THREADS = flags.DEFINE_integer("threads", 1, "Threads of each process.")
PEER_PYTHON = flags.DEFINE_string("peer_python", "", "Python with setfit; empty: without the peer.")
METHODS = flags.DEFINE_list(
    "methods", ["tfidf", "fine_tuning", "few_shot", "setfit"], "Methods to measure."
)

Rows = list[tuple[str, str]]
Answers = list[str]


def read_rows() -> tuple[Rows, Rows]:
    """Returns the training and test examples, text and label."""
    folder = pathlib.Path(DATA.value, "classification", DATASET.value)
    if DATASET.value == "clinc150":
        content = json.loads((folder / "data_full.json").read_text(encoding="utf8"))
        splits = [[tuple(row) for row in content[name]] for name in ("train", "test")]
    else:
        splits = []
        for name in ("train", "test"):
            with (folder / f"{name}.csv").open(encoding="utf8", newline="") as file:
                splits.append([(row["text"], row["category"]) for row in csv.DictReader(file)])
    names = sorted({label for _, label in splits[0]})
    names = names[SKIP.value :]
    kept = set(names[: CLASSES.value or None])
    train, test = ([row for row in rows if row[1] in kept] for rows in splits)
    return train, test


def draw(rows: Rows, seed: int) -> Rows:
    """Returns the same number of examples of each class."""
    rng = random.Random(seed)
    drawn: Rows = []
    for name in sorted({label for _, label in rows}):
        drawn += rng.sample([row for row in rows if row[1] == name], PER_CLASS.value)
    return drawn


def tfidf(train: Rows, test: Rows, seed: int) -> tuple[Answers, float, float]:
    texts, labels = (list(column) for column in zip(*train, strict=True))
    model = make_pipeline(TfidfVectorizer(sublinear_tf=True), LogisticRegression(C=10))
    start, cpu_start = time.perf_counter(), time.process_time()
    model.fit(texts, labels)
    times = time.perf_counter() - start, time.process_time() - cpu_start
    return model.predict([text for text, _ in test]).tolist(), *times


def fine_tuning(train: Rows, test: Rows, seed: int) -> tuple[Answers, float, float]:
    keras.utils.set_random_seed(seed)
    texts, labels = (list(column) for column in zip(*train, strict=True))
    model = BertClassifier.from_pretrained(MODEL.value, labels=sorted(set(labels)))
    start, cpu_start = time.perf_counter(), time.process_time()
    model.fit(texts, labels, verbose=0)
    times = time.perf_counter() - start, time.process_time() - cpu_start
    return [row["label"] for row in model.classify([text for text, _ in test])], *times


def few_shot(train: Rows, test: Rows, seed: int) -> tuple[Answers, float, float]:
    keras.utils.set_random_seed(seed)
    texts, labels = (list(column) for column in zip(*train, strict=True))
    start, cpu_start = time.perf_counter(), time.process_time()
    model = BertClassifier.from_few_shot(
        MODEL.value, texts, labels, pairs_per_example=PAIRS.value, seed=seed, verbose=0
    )
    times = time.perf_counter() - start, time.process_time() - cpu_start
    return [row["label"] for row in model.classify([text for text, _ in test])], *times


def setfit(train: Rows, test: Rows, seed: int) -> tuple[Answers, float, float]:
    texts, labels = (list(column) for column in zip(*train, strict=True))
    with tempfile.TemporaryDirectory() as folder:
        examples = pathlib.Path(folder, "examples.json")
        answers = pathlib.Path(folder, "answers.json")
        content = {"texts": texts, "labels": labels, "test_texts": [text for text, _ in test]}
        examples.write_text(json.dumps(content), encoding="utf8")
        script = pathlib.Path(__file__).with_name("few_shot_peer.py")
        command = [PEER_PYTHON.value, script, MODEL.value, examples, answers, f"--seed={seed}"]
        command.append(f"--pairs_per_example={PAIRS.value}")
        environment = {**os.environ, "OMP_NUM_THREADS": str(THREADS.value)}
        subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)
        result = json.loads(answers.read_text(encoding="utf8"))
    return result["answers"], result["seconds"], result["cpu_seconds"]


FUNCTIONS: dict[str, Callable[[Rows, Rows, int], tuple[Answers, float, float]]] = {
    "tfidf": tfidf,
    "fine_tuning": fine_tuning,
    "few_shot": few_shot,
    "setfit": setfit,
}


def main(_: list[str]) -> None:
    tf.config.threading.set_intra_op_parallelism_threads(THREADS.value)
    tf.config.threading.set_inter_op_parallelism_threads(THREADS.value)
    train, test = read_rows()
    num_classes = len({label for _, label in train})
    print(f"{DATASET.value}, {num_classes} classes, {PER_CLASS.value} each, {len(test)} tests")
    results: dict[str, list[tuple[float, float, float]]] = {}
    for seed in range(1, SEEDS.value + 1):
        drawn = draw(train, seed)
        for name in METHODS.value:
            if name == "setfit" and not PEER_PYTHON.value:
                continue
            answers, seconds, cpu_seconds = FUNCTIONS[name](drawn, test, seed)
            rights = [answer == label for answer, (_, label) in zip(answers, test, strict=True)]
            accuracy = float(np.mean(rights))
            results.setdefault(name, []).append((accuracy, seconds, cpu_seconds))
            print(
                f"seed {seed}  {name:12} accuracy {accuracy:.4f}  {seconds:8.1f} s  "
                f"processor {cpu_seconds:8.1f} s",
                flush=True,
            )
    for name, rows in results.items():
        accuracies, seconds, cpu_seconds = np.array(rows).T
        spread = accuracies.std(ddof=1) if len(rows) > 1 else 0.0
        print(
            f"{name:12} accuracy {accuracies.mean():.4f} +- {spread:.4f}  "
            f"{seconds.mean():8.1f} s  processor {cpu_seconds.mean():8.1f} s"
        )


if __name__ == "__main__":
    app.run(main)
