"""The tasks of the comparison of fine-tuning: their files, rows and hyper-parameters.

Which rows are trained on: all of the file; or the first ones, a header not counted; or, with
is_choice, those at numpy.random.default_rng(0).permutation(n)[:rows], in that order, of all n rows
in the file's order. clinc150 has n = 15,100: "train", then "oos_train"; its 151st label is "oos".
SQuAD's rows are questions. All rows of the other file are evaluated.
"""

import csv
import dataclasses
import io
import itertools
import json
import lzma
from collections.abc import Callable
from typing import Any

import numpy as np

Row = dict[str, Any]  # text, pair or None, label | words, labels | a question of SQuAD


@dataclasses.dataclass(frozen=True)
class Recipe:
    """How a task is trained."""

    read: Callable[[str], list[Row]]
    files: str  # "*" stands for the next two
    score: str = "accuracy"
    train: str = "train"
    evaluation: str = "dev"
    rows: int = 0  # 0: all
    is_choice: bool = False
    epochs: int = 2
    learning_rate: float = 5e-5
    max_length: int = 128


def read_text(path: str) -> str:
    with (lzma.open if path.endswith(".xz") else open)(path, "rt", encoding="utf-8-sig") as file:
        return file.read()


def read_table(text: int, pair: int | None, label: int, header: bool) -> Callable:
    """Returns a reader of lines separated by tabs, without quoting, of which it takes columns."""

    def read(path: str) -> list[Row]:
        lines = [line.split("\t") for line in read_text(path).split("\n")[header:] if line]
        return [as_row(f[text], None if pair is None else f[pair], f[label]) for f in lines]

    return read


def as_row(text: str, pair: str | None, label: str) -> Row:
    return {"text": text, "pair": pair, "label": label}


def read_mnli(path: str) -> list[Row]:
    rows = [json.loads(line) for line in read_text(path).split("\n") if line]
    return [as_row(row["premise"], row["hypothesis"], row["label"]) for row in rows]


def read_banking(path: str) -> list[Row]:
    rows = csv.DictReader(io.StringIO(read_text(path)))
    return [as_row(row["text"], None, row["category"]) for row in rows]


def read_clinc(path: str) -> list[Row]:
    """Reads the part named behind "#", and that of the same name that is out of scope."""
    path, part = path.split("#")
    data = json.loads(read_text(path))
    return [as_row(text, None, label) for text, label in data[part] + data["oos_" + part]]


def read_tagged(word: int, tag: int) -> Callable:
    """Returns a reader of columns, a word a line, sentences separated by blank lines.

    In CoNLL-U, where column 0 is the word's number, comments, multiword tokens ("3-4") and empty
    nodes ("3.1") are skipped.
    """

    def read(path: str) -> list[Row]:
        rows = []
        lines = [line.split("\t") for line in read_text(path).split("\n")]
        for is_blank, group in itertools.groupby(lines, lambda fields: not "".join(fields).strip()):
            kept = [f for f in group if len(f) > tag and (word == 0 or f[0].isdigit())]
            if not is_blank:
                rows.append({"words": [f[word] for f in kept], "labels": [f[tag] for f in kept]})
        return rows

    return read


def read_squad(path: str) -> list[Row]:
    articles = json.loads(read_text(path))["data"]
    paragraphs = [paragraph for article in articles for paragraph in article["paragraphs"]]
    return [{"context": p["context"], **question} for p in paragraphs for question in p["qas"]]


CHOICE = {"rows": 3000, "is_choice": True, "learning_rate": 2e-4, "evaluation": "test"}
SQUAD = {"rows": 1000, "is_choice": True, "epochs": 1, "learning_rate": 1e-4, "max_length": 256}
WNUT = {"train": "wnut17train", "evaluation": "emerging.dev", "learning_rate": 1e-4}
UDPOS = {"train": "train.rebuilt", "rows": 2500, "epochs": 1, "learning_rate": 1e-4}
MRPC_FILES = ("train", "test")
STSB = "glue/STS-B/sts-*.csv"
MRPC = "glue/MRPC-original/msr_paraphrase_*.txt"
RECIPES = {
    "sst2": Recipe(read_table(0, None, 1, header=True), "glue/SST-2/*.tsv", epochs=1, rows=8000),
    "rte": Recipe(read_table(1, 2, 3, header=True), "glue/RTE/*.tsv", epochs=1),
    "stsb": Recipe(
        read_table(5, 6, 4, header=False), STSB, "correlation", epochs=1, learning_rate=2e-4
    ),
    "cola": Recipe(read_table(3, None, 1, header=False), "glue/CoLA/*.tsv", "matthews", rows=8000),
    "mrpc": Recipe(read_table(3, 4, 0, header=True), MRPC, "accuracy", *MRPC_FILES, epochs=1),
    "mnli": Recipe(read_mnli, "glue/MNLI-cut/*.jsonl", rows=2500, epochs=1, learning_rate=2e-4),
    "banking77": Recipe(read_banking, "classification/banking77/*.csv", **CHOICE),
    "clinc150": Recipe(read_clinc, "classification/clinc150/data_full.json#*", **CHOICE),
    "wnut17": Recipe(read_tagged(0, 1), "ner/wnut17/*.conll", "entities", **WNUT),
    "udpos": Recipe(read_tagged(1, 3), "pos/ud-ewt/en_ewt-ud-*.conllu.xz", "words", **UDPOS),
    "squad1": Recipe(read_squad, "squad/v1.1-*.json", "squad1", "train36", "dev6", **SQUAD),
    "squad2": Recipe(read_squad, "squad/v2.0-*.json", "squad2", **SQUAD),
}


def choose(recipe: Recipe, rows: list[Row]) -> list[Row]:
    """Returns the rows that are trained on, by the rule above."""
    if recipe.is_choice:
        return [rows[i] for i in np.random.default_rng(0).permutation(len(rows))[: recipe.rows]]
    return rows[: recipe.rows or None]


def find_names(recipe: Recipe, rows: list[Row]) -> list[str]:
    """Returns the labels of all rows, sorted; none where they are no classes."""
    if recipe.score in ("entities", "words"):
        return sorted({label for row in rows for label in row["labels"]})
    is_class = recipe.score in ("accuracy", "matthews")
    return sorted({row["label"] for row in rows}) if is_class else []
