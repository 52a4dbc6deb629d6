"""The estimators of `bert_tf.sklearn` in scikit-learn's tools, beside TF-IDF with a linear model.

    python -m benchmarks.scikit_learn --model=MINILM_FOLDER --data=DATA_FOLDER --parts=union,grid

Each part prints lines: what, metric, value, seconds. The parts `optuna` and `cleanlab` need these
packages. The sets are small, so that a part takes minutes on two cores.
"""

import csv
import json
import pathlib
import time
from collections.abc import Callable
from typing import Any, Self

import numpy as np
from absl import app, flags
from scipy.stats import spearmanr
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score, log_loss
from sklearn.model_selection import (
    GridSearchCV,
    TunedThresholdClassifierCV,
    cross_val_predict,
)
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline, make_union
from sklearn.preprocessing import MultiLabelBinarizer, normalize

from bert_tf.sklearn import BertEmbeddings, BertTextClassifier, BertTextRegressor
from bert_tf.tasks.tagging.files import read_tagged

MODEL = flags.DEFINE_string("model", "", "Encoder of sentence embeddings.")
DATA = flags.DEFINE_string("data", "", "Folder with glue, ner and classification.")
PARTS = flags.DEFINE_list("parts", [], "Parts to run; all by default.")
NUM_PAIRS = flags.DEFINE_integer("num_pairs", 5749, "Pairs of STS-B to train on.")
SEED = flags.DEFINE_integer("seed", 1, "Seed of the choice of texts and of the training.")
EPOCHS = 5

Table = tuple[np.ndarray, np.ndarray]


def report(what: str, metric: str, value: Any, start: float) -> None:
    shown = value if isinstance(value, str) else f"{value:.3f}"
    print(f"{what}\t{metric}\t{shown}\t{time.perf_counter() - start:.0f} s", flush=True)


def chosen(texts: list[str], labels: list[Any], count: int) -> Table:
    """Returns examples drawn at random: texts, labels."""
    order = np.random.RandomState(SEED.value).permutation(len(texts))[:count]
    return np.array(texts, object)[order], np.array(labels)[order]


def sst2(split: str, count: int) -> Table:
    path = pathlib.Path(DATA.value, "glue/SST-2", f"{split}.tsv")
    with path.open(encoding="utf8") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    return chosen([row["sentence"] for row in rows], [int(row["label"]) for row in rows], count)


def clinc(split: str, num_intents: int, per_intent: int) -> Table:
    """Returns the first texts of the intents that come first in the alphabet."""
    path = pathlib.Path(DATA.value, "classification/clinc150/data_full.json")
    rows = json.loads(path.read_text(encoding="utf8"))[split]
    texts: list[str] = []
    labels: list[str] = []
    for intent in sorted({intent for _, intent in rows})[:num_intents]:
        found = [text for text, label in rows if label == intent][:per_intent]
        texts += found
        labels += [intent] * len(found)
    return chosen(texts, labels, len(texts))


def wnut(name: str, count: int) -> Table:
    """Returns sentences with 0 or 1 for each type of entity, [N, 6]."""
    sentences = list(read_tagged(str(pathlib.Path(DATA.value, "ner/wnut17", name)), 0, -1))
    types = [sorted({tag[2:] for tag in one.tags if tag != "O"}) for one in sentences]
    matrix = MultiLabelBinarizer().fit_transform(types)
    return chosen([" ".join(one.words) for one in sentences], matrix.tolist(), count)


def classifier(**arguments: Any) -> BertTextClassifier:
    given = {"epochs": EPOCHS, "random_state": SEED.value, **arguments}
    return BertTextClassifier(MODEL.value, **given)


def baseline(**arguments: Any) -> Any:
    return make_pipeline(TfidfVectorizer(), LogisticRegression(**arguments))


def run_union() -> None:
    x, y = clinc("train", 150, 10)
    x_test, y_test = clinc("test", 150, 10)
    words = TfidfVectorizer()
    vectors = BertEmbeddings(MODEL.value)
    for name, features in {
        "TF-IDF": words,
        "BertEmbeddings": vectors,
        "FeatureUnion of both": make_union(words, vectors),
    }.items():
        start = time.perf_counter()
        model = make_pipeline(features, LogisticRegression(C=10)).fit(x, y)
        report(f"{name}, LogisticRegression", "accuracy", model.score(x_test, y_test), start)


def run_grid() -> None:
    x, y = sst2("train", 300)
    x_test, y_test = sst2("dev", 300)
    start = time.perf_counter()
    grid = {"learning_rate": [1e-4, 2e-4], "label_smoothing": [0.0, 0.1]}
    search = GridSearchCV(classifier(epochs=3), grid, cv=2).fit(x, y)
    report(f"GridSearchCV {search.best_params_}", "accuracy", search.score(x_test, y_test), start)
    start = time.perf_counter()
    search = GridSearchCV(baseline(), {"logisticregression__C": [1, 10, 100]}, cv=2).fit(x, y)
    report(
        f"baseline, GridSearchCV {search.best_params_}",
        "accuracy",
        search.score(x_test, y_test),
        start,
    )


def run_calibration() -> None:
    x, y = sst2("train", 500)
    x_test, y_test = sst2("dev", 800)
    for name, model in {"classifier": classifier(), "baseline": baseline()}.items():
        start = time.perf_counter()
        model.fit(x, y)
        before = log_loss(y_test[400:], model.predict_proba(x_test[400:]))
        report(f"{name}, as trained", "log loss", before, start)
        start = time.perf_counter()
        calibrated = CalibratedClassifierCV(FrozenEstimator(model), method="temperature")
        calibrated.fit(x_test[:400], y_test[:400])
        after = log_loss(y_test[400:], calibrated.predict_proba(x_test[400:]))
        report(f"{name}, CalibratedClassifierCV", "log loss", after, start)


def run_threshold() -> None:
    x, matrix = wnut("wnut17train.conll", 1000)
    x_test, matrix_test = wnut("emerging.dev.conll", 1000)
    y, y_test = matrix[:, 5 - 1], matrix_test[:, 5 - 1]  # person
    for name, model in {"classifier": classifier(epochs=3), "baseline": baseline()}.items():
        start = time.perf_counter()
        tuned = TunedThresholdClassifierCV(
            model, scoring="f1", cv=0.7, refit=False, random_state=SEED.value
        ).fit(x, y)
        plain = f1_score(y_test, tuned.estimator_.predict(x_test))
        report(f"{name}, threshold 0.5", "F1", plain, start)
        report(
            f"{name}, TunedThresholdClassifierCV {tuned.best_threshold_:.3f}",
            "F1",
            f1_score(y_test, tuned.predict(x_test)),
            start,
        )


def run_several() -> None:
    """Chooses the threshold of each label on development sentences, in both libraries."""
    x, y = wnut("wnut17train.conll", 1000)
    x_all, y_all = wnut("emerging.dev.conll", 1000)
    half = len(x_all) // 2
    x_dev, y_dev, x_test, y_test = x_all[:half], y_all[:half], x_all[half:], y_all[half:]
    linear = make_pipeline(
        TfidfVectorizer(),
        OneVsRestClassifier(LogisticRegression(class_weight="balanced")),
    )
    for name, model in {
        "classifier, class_weight=balanced": classifier(epochs=4, class_weight="balanced"),
        "baseline, OneVsRestClassifier, balanced": linear,
    }.items():
        start = time.perf_counter()
        model.fit(x, y)
        dev, test = model.predict_proba(x_dev), model.predict_proba(x_test)
        report(f"{name}, thresholds 0.5", "macro F1", macro_f1(y_test, test > 0.5), start)
        chosen = thresholds_of_scikit_learn(dev, y_dev)
        after = macro_f1(y_test, test > chosen)
        report(f"{name}, TunedThresholdClassifierCV", "macro F1", after, start)
        if isinstance(model, BertTextClassifier):
            found = model.model_.choose_thresholds(list(x_dev), y_dev)
            after = macro_f1(y_test, test > np.array(list(found.values())))
            report(f"{name}, choose_thresholds", "macro F1", after, start)


def macro_f1(labels: np.ndarray, answers: np.ndarray) -> float:
    return f1_score(labels, answers, average="macro", zero_division=0)


class Scores(ClassifierMixin, BaseEstimator):
    """A classifier whose input is the probability of the second class, [N, 1]."""

    def fit(self, X: np.ndarray, y: np.ndarray) -> Self:
        self.classes_ = np.unique(y)
        return self

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        return np.hstack([1 - X, X])

    def predict(self, X: np.ndarray) -> np.ndarray:
        return self.classes_[(X[:, 0] > 0.5).astype(int)]


def thresholds_of_scikit_learn(probabilities: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Returns the threshold of each label by TunedThresholdClassifierCV, float [C].

    Args:
      probabilities: of labelled texts, float [N, C].
      labels: 0 and 1, [N, C].
    """
    chosen = []
    for column, right in zip(probabilities.T, labels.T, strict=True):
        scores = column[:, None]  # [N, 1]
        model = FrozenEstimator(Scores().fit(scores, right))
        tuned = TunedThresholdClassifierCV(
            model,
            scoring="f1",
            cv="prefit",
            refit=False,
            thresholds=1000,
        )
        chosen.append(tuned.fit(scores, right).best_threshold_)
    return np.array(chosen)


def sts_b(split: str) -> tuple[list[tuple[str, str]], np.ndarray]:
    """Returns pairs of sentences and their similarity, 0 to 5."""
    path = pathlib.Path(DATA.value, "glue/STS-B", f"sts-{split}.csv")
    pairs = []
    scores = []
    for line in path.read_text(encoding="utf8").splitlines():
        cells = line.split("\t")
        pairs.append((cells[5], cells[6]))
        scores.append(float(cells[4]))
    return pairs, np.array(scores)


def run_similarity() -> None:
    """Predicts the similarity of two sentences; the vectors are used as they are."""
    pairs, scores = sts_b("train")
    test_pairs, test_scores = sts_b("dev")
    order = np.random.RandomState(SEED.value).permutation(len(pairs))[: NUM_PAIRS.value]
    start = time.perf_counter()
    model = BertTextRegressor(MODEL.value, epochs=EPOCHS, random_state=SEED.value)
    model.fit([pairs[i] for i in order], scores[order])
    found = spearmanr(model.predict(test_pairs), test_scores).statistic
    report(f"BertTextRegressor, {len(order)} pairs", "Spearman", found, start)

    first, second = (list(side) for side in zip(*test_pairs, strict=True))
    start = time.perf_counter()
    words = TfidfVectorizer().fit([text for pair in pairs for text in pair])
    products = words.transform(first).multiply(words.transform(second))
    found = spearmanr(products.sum(axis=1), test_scores).statistic
    report("cosine of TF-IDF", "Spearman", found, start)
    start = time.perf_counter()
    vectors = BertEmbeddings(MODEL.value).fit(first)
    products = normalize(vectors.transform(first)) * normalize(vectors.transform(second))
    found = spearmanr(products.sum(axis=1), test_scores).statistic
    report("cosine of BertEmbeddings", "Spearman", found, start)


def run_optuna() -> None:
    import optuna
    from sklearn.model_selection import cross_val_score

    x, y = sst2("train", 300)
    x_test, y_test = sst2("dev", 300)

    def objective(trial: Any) -> float:
        model = classifier(
            learning_rate=trial.suggest_float("learning_rate", 5e-5, 5e-4, log=True),
            epochs=trial.suggest_int("epochs", 2, 5),
        )
        return cross_val_score(model, x, y, cv=2).mean()

    start = time.perf_counter()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(
        direction="maximize", sampler=optuna.samplers.TPESampler(seed=SEED.value)
    )
    study.optimize(objective, n_trials=4)
    best = classifier(**study.best_params).fit(x, y)
    report(f"Optuna {study.best_params}", "accuracy", best.score(x_test, y_test), start)


def run_cleanlab() -> None:
    from cleanlab.filter import find_label_issues

    x, y = clinc("train", 10, 40)
    random = np.random.RandomState(SEED.value)
    wrong = random.permutation(len(y))[:20]
    given = y.copy()
    intents = np.unique(y)
    for index in wrong:
        given[index] = random.choice(intents[intents != y[index]])
    numbers = np.searchsorted(intents, given)
    vectors = make_pipeline(BertEmbeddings(MODEL.value), LogisticRegression(C=10))
    models = {
        "classifier": classifier(epochs=10),
        "BertEmbeddings, LogisticRegression": vectors,
        "baseline": baseline(C=10),
    }
    for name, model in models.items():
        start = time.perf_counter()
        chances = cross_val_predict(model, x, given, cv=3, method="predict_proba")
        issues = find_label_issues(numbers, chances)
        hits = int(issues[wrong].sum())
        report(
            f"{name}, cross_val_predict", "accuracy", (chances.argmax(1) == numbers).mean(), start
        )
        report(f"{name}, cleanlab", "found of 20 / named", f"{hits} / {int(issues.sum())}", start)


def main(_: list[str]) -> None:
    parts: dict[str, Callable[[], None]] = {
        "union": run_union,
        "cleanlab": run_cleanlab,
        "grid": run_grid,
        "calibration": run_calibration,
        "threshold": run_threshold,
        "several": run_several,
        "similarity": run_similarity,
        "optuna": run_optuna,
    }
    for name in PARTS.value or parts:
        print(f"# {name}", flush=True)
        parts[name]()


if __name__ == "__main__":
    app.run(main)
