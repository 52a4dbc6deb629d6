"""Zero-shot classification by bert_tf and by transformers' pipeline, on the same weights.

    python -m bert_tf.convert_checkpoint --input=runs/nli --to=huggingface --output=nli
    OMP_NUM_THREADS=1 python -m benchmarks.zero_shot --run=runs/nli --exported=nli --data=DATA

For a Python with transformers 4.57 and torch. Both compute on one thread, in turn in one process.
The texts are SST-2's development examples and the test texts of CLINC150's first ten intents; the
candidates are the names of the classes. For each set: whether the labels are the same, the largest
difference of the probabilities, processor seconds, and the accuracies, beside the most frequent
class and logistic regression on TF-IDF of all training examples.
"""

import collections
import csv
import itertools
import json
import pathlib
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from absl import app, flags
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

import bert_tf
from benchmarks.timing import print_table

RUN = flags.DEFINE_string("run", "", "A run of run_classifier on natural language inference.")
EXPORTED = flags.DEFINE_string("exported", "", "Its folder in Hugging Face's form.")
DATA = flags.DEFINE_string("data", "", "Folder with glue and classification.")
TEMPLATE = flags.DEFINE_string("template", "This example is {}.", "Sentence of a candidate.")
BATCH_SIZE = flags.DEFINE_integer("batch_size", 32, "Pairs per batch.")
LIMIT = flags.DEFINE_integer("limit", 0, "Texts of each set; 0: all.")
NUM_INTENTS = 10
WARM_UP = 40  # texts that are computed before the time is taken


# By name: how a model is asked, and the model.
Models = dict[str, tuple[Callable[..., np.ndarray], Any]]


class Texts(NamedTuple):
    """Texts with the names of their classes."""

    texts: list[str]
    labels: list[str]


def read_sst2(split: str) -> Texts:
    """Returns SST-2's examples, with names for the classes 0 and 1."""
    path = pathlib.Path(DATA.value, "glue/SST-2", f"{split}.tsv")
    with path.open(encoding="utf8") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    names = ("negative", "positive")
    return Texts([row["sentence"] for row in rows], [names[int(row["label"])] for row in rows])


def read_clinc(split: str) -> Texts:
    """Returns the texts of the intents that come first in the alphabet."""
    path = pathlib.Path(DATA.value, "classification/clinc150/data_full.json")
    rows = json.loads(path.read_text(encoding="utf8"))[split]
    intents = sorted({intent for _, intent in rows})[:NUM_INTENTS]
    kept = [(text, intent) for text, intent in rows if intent in intents]
    return Texts([text for text, _ in kept], [intent.replace("_", " ") for _, intent in kept])


def ask_transformers(model: Any, texts: list[str], names: list[str], several: bool) -> np.ndarray:
    """Returns the probabilities of the candidates by the pipeline, float64 [E, K]."""
    answers = model(
        texts,
        names,
        hypothesis_template=TEMPLATE.value,
        multi_label=several,
        batch_size=BATCH_SIZE.value,
    )
    rows = []
    for answer in answers:
        by_name = dict(zip(answer["labels"], answer["scores"], strict=True))
        rows.append([by_name[name] for name in names])
    return np.array(rows)


def ask_bert_tf(model: Any, texts: list[str], names: list[str], several: bool) -> np.ndarray:
    """Returns the probabilities of the candidates, float64 [E, K]."""
    rows = model.probabilities(
        texts,
        candidates=names,
        template=TEMPLATE.value,
        several=several,
    )
    return np.array([[row[name] for name in names] for row in rows])


def majority(train: Texts, test: Texts) -> float:
    """Returns the accuracy of the class that most training examples have."""
    name = collections.Counter(train.labels).most_common(1)[0][0]
    return float(np.mean(np.array(test.labels) == name))


def supervised(train: Texts, test: Texts) -> float:
    """Returns the accuracy of logistic regression on TF-IDF, trained with all labels."""
    model = make_pipeline(TfidfVectorizer(), LogisticRegression(max_iter=1000))
    return model.fit(train.texts, train.labels).score(test.texts, test.labels)


def compare(models: Models, title: str, train: Texts, test: Texts) -> Iterator[tuple[str, ...]]:
    """Yields a row of the table for one label per text, and one for several."""
    texts = test.texts[: LIMIT.value or None]
    labels = np.array(test.labels[: len(texts)])
    names = sorted(set(test.labels))
    for several in (False, True):
        found = {}
        seconds = {}
        for name, (ask, model) in models.items():
            ask(model, texts[:WARM_UP], names, several)
            start = time.process_time()
            found[name] = ask(model, texts, names, several)  # [E, K]
            seconds[name] = f"{time.process_time() - start:.1f}"
        ours, peers = found["bert_tf"], found["transformers"]
        if several:
            is_same = np.all((ours > 0.5) == (peers > 0.5), axis=1)  # [E]
        else:
            is_same = ours.argmax(axis=1) == peers.argmax(axis=1)  # [E]
        accuracy = float(np.mean(np.array(names)[ours.argmax(axis=1)] == labels))
        baselines = ["", ""]
        if not several:
            baselines = [f"{majority(train, test):.3f}", f"{supervised(train, test):.3f}"]
        yield (
            f"{title}, several" if several else title,
            f"{is_same.sum()} of {len(texts)}",
            f"{np.abs(ours - peers).max():.1e}",
            *seconds.values(),
            f"{accuracy:.3f}",
            *baselines,
        )


def main(_: list[str]) -> None:
    import torch
    from transformers import pipeline

    torch.set_num_threads(1)
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    peer = pipeline("zero-shot-classification", model=EXPORTED.value, device="cpu")
    models: Models = {
        "bert_tf": (ask_bert_tf, bert_tf.load(RUN.value, batch_size=BATCH_SIZE.value)),
        "transformers": (ask_transformers, peer),
    }
    rows = itertools.chain(
        compare(models, "SST-2", read_sst2("train"), read_sst2("dev")),
        compare(models, "CLINC150, 10 intents", read_clinc("train"), read_clinc("test")),
    )
    heads = ["texts", "same answers", "largest difference", "bert_tf, s", "transformers, s"]
    print_table([*heads, "accuracy", "majority", "TF-IDF, all labels"], rows)


if __name__ == "__main__":
    app.run(main)
