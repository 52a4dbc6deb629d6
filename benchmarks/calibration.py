"""Temperature and thresholds beside scikit-learn's, on SST-2 and on the entity types of WNUT-17.

    python -m benchmarks.calibration --model=MINILM_FOLDER --data=DATA_FOLDER

Each task trains one model per loss. Half of the development examples choose the temperature and the
thresholds; the other half measures. scikit-learn gets the same scores: its
CalibratedClassifierCV(method="temperature") and TunedThresholdClassifierCV(scoring="f1"), each with
a frozen estimator that returns them.
"""

import csv
import pathlib
import time
from typing import Any

import keras
import numpy as np
from absl import app, flags
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.frozen import FrozenEstimator
from sklearn.metrics import f1_score
from sklearn.model_selection import TunedThresholdClassifierCV

from bert_tf.metrics.calibration import calibration_error, log_losses, reliability
from bert_tf.tasks.classification.decisions import Decisions
from bert_tf.tasks.classification.model import BertClassifier
from bert_tf.tasks.tagging.files import read_tagged

MODEL = flags.DEFINE_string("model", "", "Encoder to train.")
DATA = flags.DEFINE_string("data", "", "Folder with glue/SST-2 and ner/wnut17.")
ROWS = flags.DEFINE_integer("rows", 2000, "Training examples.")
EPOCHS = flags.DEFINE_integer("epochs", 3, "Passes over them.")
SEED = flags.DEFINE_integer("seed", 1, "Seed of the head, the dropout and the order.")

Table = tuple[list[str], list[Any]]


class Scores(ClassifierMixin, BaseEstimator):
    """An estimator whose input are the logits that it returns, of two classes."""

    def fit(self, x: np.ndarray, y: np.ndarray) -> "Scores":
        self.classes_ = np.unique(y)
        self.n_features_in_ = x.shape[1]
        return self

    def decision_function(self, x: np.ndarray) -> np.ndarray:
        return x[:, 1] - x[:, 0]

    def predict_proba(self, x: np.ndarray) -> np.ndarray:
        positive = 1 / (1 + np.exp(-self.decision_function(x).astype(np.float64)))
        return np.stack([1 - positive, positive], axis=1)

    def predict(self, x: np.ndarray) -> np.ndarray:
        return self.predict_proba(x).argmax(axis=1)


def read_sst2(split: str) -> Table:
    path = pathlib.Path(DATA.value, "glue/SST-2", f"{split}.tsv")
    with path.open(encoding="utf8") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    return [row["sentence"] for row in rows], [row["label"] for row in rows]


def read_types(name: str) -> Table:
    """Returns sentences with the types of the entities in them, a set of up to six."""
    texts: list[str] = []
    types: list[list[str]] = []
    for sentence in read_tagged(str(pathlib.Path(DATA.value, "ner/wnut17", name)), 0, -1):
        texts.append(" ".join(sentence.words))
        types.append(sorted({tag[2:] for tag in sentence.tags if tag != "O"}))
    return texts, types


def train(table: Table, labels: list[str], problem_type: str, **options: Any) -> BertClassifier:
    keras.utils.set_random_seed(SEED.value)
    texts, answers = (column[: ROWS.value] for column in table)
    model = BertClassifier.from_pretrained(MODEL.value, labels=labels, problem_type=problem_type)
    model.fit(texts, answers, epochs=EPOCHS.value, verbose=0, **options)
    return model


def halves(count: int) -> tuple[np.ndarray, np.ndarray]:
    order = np.random.default_rng(0).permutation(count)
    return order[: count // 2], order[count // 2 :]


def part(column: list[Any], indices: np.ndarray) -> list[Any]:
    return [column[index] for index in indices]


def show(name: str, *values: float) -> None:
    print(f"{name:44}" + "".join(f"{value:10.4f}" for value in values), flush=True)


def judge(name: str, decisions: Decisions, logits: np.ndarray, labels: np.ndarray) -> None:
    """Prints loss, calibration error and F1 (macro F1 of several labels)."""
    kind = "multi_label" if labels.ndim == 2 else "single_label"
    chances = decisions.probabilities(logits, kind)
    if kind == "multi_label":
        score = f1_score(
            labels, decisions.choose_several(chances), average="macro", zero_division=0
        )
    else:
        score = f1_score(labels, decisions.choose(chances))
    error = calibration_error(reliability(chances, labels))
    show(name, log_losses(chances, labels).mean(), error, score)


def show_temperature_of_peer(
    name: str, own: np.ndarray, chosen: np.ndarray, logits: np.ndarray, measured: np.ndarray
) -> None:
    """Prints the temperature that scikit-learn chooses, and what it does to two classes."""
    estimator = FrozenEstimator(Scores().fit(own, chosen))
    peer = CalibratedClassifierCV(estimator, method="temperature")
    peer.fit(own, chosen)
    # It scales the scores -d and d of two classes, whose difference is twice ours.
    temperature = 0.5 / peer.calibrated_classifiers_[0].calibrators[0].beta_
    chances = peer.predict_proba(logits)
    error = calibration_error(reliability(chances, measured))
    print(f"scikit-learn's temperature {temperature:.3f}")
    show(f"{name}: scikit-learn's T", log_losses(chances, measured).mean(), error)


def compare(name: str, model: BertClassifier, dev: Table, labels: np.ndarray) -> None:
    """Prints the numbers of a model before and after the choice, and scikit-learn's."""
    chosen_on, measured_on = halves(len(labels))
    texts, answers = dev
    plain = Decisions()
    logits = model.compute_logits(part(texts, measured_on))
    measured = labels[measured_on]
    judge(f"{name}: as trained", plain, logits, measured)
    start = time.perf_counter()
    model.calibrate(part(texts, chosen_on), part(answers, chosen_on))
    with_temperature = model.decisions
    judge(f"{name}: T = {with_temperature.temperature:.3f}", with_temperature, logits, measured)
    model.choose_thresholds(part(texts, chosen_on), part(answers, chosen_on))
    judge(f"{name}: T and thresholds", model.decisions, logits, measured)
    own = model.compute_logits(part(texts, chosen_on))
    if labels.ndim == 2:
        pairs = [(index, own[:, index], logits[:, index]) for index in range(labels.shape[1])]
    else:
        pairs = [(1, own[:, 1] - own[:, 0], logits[:, 1] - logits[:, 0])]
        show_temperature_of_peer(name, own, labels[chosen_on], logits, measured)
    answers_of_peer = np.zeros([len(measured), len(pairs)], int)
    peer_thresholds = []
    for column, (index, scores, measured_scores) in enumerate(pairs):
        truth = labels[chosen_on]
        truth = truth[:, index] if labels.ndim == 2 else truth
        scaled = [
            np.stack([np.zeros(len(one)), one / with_temperature.temperature], axis=1)
            for one in (scores, measured_scores)
        ]
        if len(np.unique(truth)) < 2:
            peer_thresholds.append(0.5)
            continue
        estimator = Scores().fit(scaled[0], truth)
        tuned = TunedThresholdClassifierCV(
            FrozenEstimator(estimator), scoring="f1", cv="prefit", refit=False, thresholds=1000
        )
        tuned.fit(scaled[0], truth)
        answers_of_peer[:, column] = tuned.predict(scaled[1])
        peer_thresholds.append(float(tuned.best_threshold_))
    if labels.ndim == 2:
        score = f1_score(measured, answers_of_peer, average="macro", zero_division=0)
        own_thresholds = model.decisions.thresholds
    else:
        score = f1_score(measured, answers_of_peer[:, 0])
        own_thresholds = model.decisions.thresholds[1:]
    show(f"{name}: scikit-learn's thresholds", float("nan"), float("nan"), score)
    print("  thresholds       ", " ".join(f"{value:.3f}" for value in own_thresholds))
    print("  scikit-learn's   ", " ".join(f"{value:.3f}" for value in peer_thresholds))
    print(f"  {time.perf_counter() - start:.1f} s", flush=True)


def main(_: list[str]) -> None:
    print(f"{'':44}{'log loss':>10}{'ECE':>10}{'F1':>10}")
    dev = read_sst2("dev")
    labels = np.array(list(map(int, dev[1])))
    for name, options in (
        ("SST-2", {}),
        ("SST-2, smoothing 0.1", {"label_smoothing": 0.1}),
    ):
        model = train(read_sst2("train"), ["0", "1"], "single_label", **options)
        compare(name, model, dev, labels)
    training, dev = read_types("wnut17train.conll"), read_types("emerging.dev.conll")
    names = sorted({name for chosen in training[1] for name in chosen})
    labels = np.array([[name in chosen for name in names] for chosen in dev[1]], int)
    print("labels", names, "dev examples with each", labels.sum(axis=0).tolist())
    for name, options in (
        ("WNUT-17", {}),
        ("WNUT-17, balanced", {"class_weight": "balanced"}),
    ):
        compare(name, train(training, names, "multi_label", **options), dev, labels)


if __name__ == "__main__":
    app.run(main)
