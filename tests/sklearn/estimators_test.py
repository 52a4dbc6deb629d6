"""The estimators of texts: equal to the models they use, and usable by scikit-learn's tools."""

import ast
import io
import pickle
import subprocess
import sys

import joblib
import keras
import numpy as np
import pytest
import scipy.sparse
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline, make_union

import bert_tf
from bert_tf.sklearn import BertEmbeddings, BertTextClassifier, BertTextRegressor
from tests.float_bounds import OTHER_FRAMEWORK, assert_close
from tests.shared_data import ROOT
from tests.tiny_model import write_tiny_model

TEXTS = ["the slow boat", "a stone house", "rain in the night", "the king turned"] * 3
LABELS = ["water", "land", "water", "land"] * 3
SEED = 7
pytestmark = [
    pytest.mark.usefixtures("eager"),
    pytest.mark.filterwarnings("ignore:Even though the `tf.config:UserWarning"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    words = " ".join(TEXTS).split()
    return write_tiny_model(tmp_path_factory.mktemp("tiny"), *words, num_hidden_layers=1)


def make_classifier(folder, **arguments):
    given = {"epochs": 1, "batch_size": 4, "learning_rate": 1e-2, "random_state": SEED}
    return BertTextClassifier(folder, **given | arguments)


@pytest.fixture(scope="module")
def fitted(folder):
    return make_classifier(folder).fit(TEXTS, LABELS)


def seed_of(random_state):
    return int(np.random.RandomState(random_state).randint(2**31 - 1))


@pytest.mark.slow
def test_training_is_that_of_the_keras_model(folder, fitted):
    keras.utils.set_random_seed(seed_of(SEED))
    names = ["land", "water"]
    model = bert_tf.BertClassifier.from_pretrained(folder, labels=names, new_head=True)
    model.fit(TEXTS, LABELS, epochs=1, batch_size=4, learning_rate=1e-2, verbose=0)
    logits = model.compute_logits(TEXTS)
    np.testing.assert_array_equal(fitted.model_.compute_logits(TEXTS), logits)
    assert fitted.classes_.tolist() == names
    difference = logits[:, 1] - logits[:, 0]
    assert_close(fitted.decision_function(TEXTS), difference, OTHER_FRAMEWORK)
    positive = 1 / (1 + np.exp(-difference))
    assert_close(fitted.predict_proba(TEXTS)[:, 1], positive)
    expected = np.where(difference > 0, "water", "land")
    assert fitted.predict(TEXTS).tolist() == expected.tolist()


def test_the_generators_of_the_user_are_left_alone(folder):
    np.random.seed(3)
    expected = np.random.rand()
    np.random.seed(3)
    make_classifier(folder, epochs=1).fit(TEXTS[:4], LABELS[:4])
    assert np.random.rand() == expected


@pytest.mark.slow
def test_labels_that_are_numbers_are_their_own_names(folder):
    numbers = np.array([3, 1, 2, 1] * 3)  # 1 is the first class, whose index is 0.
    model = make_classifier(folder).fit(TEXTS, numbers)
    named = make_classifier(folder).fit(TEXTS, np.array(["", "a", "b", "c"])[numbers])
    assert model.classes_.tolist() == [1, 2, 3]
    scores = model.decision_function(TEXTS)
    assert scores.shape == (12, 3)
    np.testing.assert_array_equal(scores, named.decision_function(TEXTS))
    assert model.predict(TEXTS).tolist() == (scores.argmax(axis=1) + 1).tolist()


@pytest.mark.slow
def test_weights_of_classes_and_of_examples_are_the_same_loss(folder):
    numbers = np.array([0, 5] * 6)
    by_class = make_classifier(folder, class_weight={5: 3.0}).fit(TEXTS, numbers)
    by_example = make_classifier(folder).fit(TEXTS, numbers, np.where(numbers == 5, 3.0, 1.0))
    plain = make_classifier(folder).fit(TEXTS, numbers)
    weighted = by_class.decision_function(TEXTS)
    assert_close(weighted, by_example.decision_function(TEXTS))
    assert np.abs(weighted - plain.decision_function(TEXTS)).max() > 1e-3


@pytest.mark.slow
def test_examples_of_weight_zero_are_left_out(folder):
    weights = [1.0] * 8 + [0.0] * 4
    weighted = make_classifier(folder).fit(TEXTS, LABELS[:8] + ["other"] * 4, weights)
    fewer = make_classifier(folder).fit(TEXTS[:8], LABELS[:8])
    assert weighted.classes_.tolist() == ["land", "water"]
    np.testing.assert_array_equal(weighted.predict_proba(TEXTS), fewer.predict_proba(TEXTS))


@pytest.mark.slow
def test_temperature_and_thresholds(folder, fitted):
    settings = {"temperature": 4.0, "thresholds": {"water": 0.0}}
    model = make_classifier(folder, **settings).fit(TEXTS, LABELS)
    expected = fitted.decision_function(TEXTS) / 4
    np.testing.assert_allclose(model.decision_function(TEXTS), expected, rtol=1e-5)
    positive = 1 / (1 + np.exp(-expected))
    np.testing.assert_allclose(model.predict_proba(TEXTS)[:, 1], positive, rtol=1e-5)
    assert set(model.predict(TEXTS)) == {"water"}


@pytest.mark.parametrize(
    "to_matrix", [pytest.param(np.asarray, marks=pytest.mark.slow), scipy.sparse.csr_matrix]
)
def test_several_labels(folder, to_matrix):
    matrix = np.array([[1, 0, 1], [0, 1, 0], [0, 0, 0], [1, 1, 0]] * 3)
    model = make_classifier(folder, epochs=1, class_weight="balanced", thresholds={2: 1.0})
    model.fit(TEXTS, to_matrix(matrix))
    assert model.classes_.tolist() == [0, 1, 2]
    assert model.model_.label_loss.pos_weight == pytest.approx((1.0, 1.0, 3.0))
    chances = model.predict_proba(TEXTS)
    assert chances.shape == (12, 3)
    expected = 1 / (1 + np.exp(-model.decision_function(TEXTS)))
    np.testing.assert_allclose(chances, expected, rtol=1e-5)
    predicted = model.predict(TEXTS)
    assert predicted.tolist() == (chances > [0.5, 0.5, 1.0]).astype(int).tolist()


@pytest.mark.needs("pandas")
def test_columns_of_a_frame_are_texts_pairs_and_names_of_labels(folder):
    import pandas

    frame = pandas.DataFrame({"a": TEXTS, "b": TEXTS[::-1], "x": 1, "y": [0, 1] * 6})
    model = make_classifier(folder).fit(frame["a"], frame[["x", "y"]])
    assert model.classes_.tolist() == ["x", "y"]
    one_column = model.predict_proba(frame[["a"]])
    np.testing.assert_array_equal(one_column, model.predict_proba(TEXTS))
    pairs = model.predict_proba(frame[["a", "b"]])
    expected = model.predict_proba(list(zip(TEXTS, TEXTS[::-1], strict=True)))
    np.testing.assert_array_equal(pairs, expected)
    assert not np.allclose(pairs, one_column)


class RecordingUnpickler(pickle.Unpickler):
    """Records the packages whose classes and functions a pickle names."""

    packages: set[str]

    def find_class(self, module, name):
        self.packages.add(module.split(".")[0])
        return super().find_class(module, name)


@pytest.mark.slow
def test_pickles_hold_the_keras_file_and_no_other_class(fitted, tmp_path):
    unpickler = RecordingUnpickler(io.BytesIO(pickle.dumps(fitted)))
    unpickler.packages = set()
    copy = unpickler.load()
    assert unpickler.packages <= {"bert_tf", "numpy", "pathlib"}
    expected = fitted.predict_proba(TEXTS)
    np.testing.assert_array_equal(copy.predict_proba(TEXTS), expected)
    joblib.dump(fitted, tmp_path / "classifier.joblib")
    loaded = joblib.load(tmp_path / "classifier.joblib")
    np.testing.assert_array_equal(loaded.predict_proba(TEXTS), expected)
    assert loaded.get_params() == fitted.get_params()


@pytest.mark.slow
def test_numbers_are_learned_from_pairs(folder):
    pairs = list(zip(TEXTS, TEXTS[::-1], strict=True))
    numbers = [4.0, 5.0, 6.0] * 4
    model = BertTextRegressor(folder, epochs=1, learning_rate=1e-6, random_state=SEED)
    model.fit(pairs, numbers)
    predicted = model.predict(pairs)
    assert predicted.shape == (12,)
    assert predicted.mean() == pytest.approx(5, abs=1)  # The head starts at the mean of y.
    assert model.model_.pair
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict(pairs), predicted)


def test_embeddings_are_those_of_the_embedder(folder):
    vectors = BertEmbeddings(folder, pooling="cls").fit_transform(np.array(TEXTS, object))
    embedder = bert_tf.BertEmbedder.from_pretrained(folder, pooling="cls")
    np.testing.assert_array_equal(vectors, embedder.encode(TEXTS))
    mean = BertEmbeddings(folder).fit(TEXTS)
    assert not np.allclose(mean.transform(TEXTS), vectors)
    names = mean.get_feature_names_out()
    assert names.shape == (32,) and names[0] == "bertembeddings0"
    np.testing.assert_array_equal(
        pickle.loads(pickle.dumps(mean)).transform(TEXTS), mean.transform(TEXTS)
    )


@pytest.mark.slow
def test_a_union_of_features_in_a_search(folder):
    features = make_union(TfidfVectorizer(), BertEmbeddings(folder))
    pipeline = make_pipeline(features, LogisticRegression())
    grid = {"featureunion__bertembeddings__pooling": ["mean", "cls"]}
    search = GridSearchCV(pipeline, grid, cv=2, error_score="raise").fit(TEXTS, LABELS)
    assert search.predict(TEXTS).tolist() == LABELS
    assert len(search.cv_results_["params"]) == 2


@pytest.mark.slow
def test_a_search_over_settings_of_training(folder):
    grid = {"learning_rate": [1e-8, 5e-3]}
    search = GridSearchCV(make_classifier(folder, epochs=20), grid, cv=2, error_score="raise")
    search.fit(TEXTS, LABELS)
    assert search.best_params_ == {"learning_rate": 5e-3}
    assert search.predict(TEXTS).tolist() == LABELS


WRONG = {
    "another number of labels": (TEXTS, LABELS[:-1], None, "12, 11"),
    "numbers for texts": (np.ones([12, 3]), LABELS, None, "^X .*float64"),
    "a number in the texts": ([*TEXTS[:-1], 3], LABELS, None, r"texts\[11\] .*3,"),
    "no text": ([None, *TEXTS[1:]], LABELS, None, r"texts\[0\] .*None,"),
    "NaN for a text": (np.array([*TEXTS[:-1], np.nan], object), LABELS, None, r"\[11\] .*nan,"),
    "one text": ("the boat", LABELS, None, "^texts .*'the boat'"),
    "no texts": ([], [], None, "^texts .*empty"),
    "three columns": (np.array([TEXTS] * 3).T, LABELS, None, "^X .*3 columns"),
    "one class": (TEXTS, ["water"] * 12, None, "^y .*class.*'water'"),
    "no label": (TEXTS, [*LABELS[:-1], None], None, r"y\[11\]"),
    "no labels": (TEXTS, None, None, "BertTextClassifier"),
    "numbers for classes": (TEXTS, np.linspace(0, 1, 12), None, "continuous"),
    "labels equal but for case": (TEXTS, ["Joy", "joy"] * 6, None, "'Joy'.*'joy'"),
    "a negative weight": (TEXTS, LABELS, [-1.0] + [1.0] * 11, r"sample_weight\[0\] .*-1,"),
    "no weight": (TEXTS, LABELS, [0.0] * 12, "sample_weight .*zero"),
    "fewer weights": (TEXTS, LABELS, [1.0] * 11, "11 .*sample_weight .*12 texts"),
}


@pytest.mark.parametrize("x, y, weights, named", WRONG.values(), ids=WRONG)
def test_wrong_input_of_fit(folder, x, y, weights, named):
    with pytest.raises(ValueError, match=named):
        make_classifier(folder).fit(x, y, weights)


@pytest.mark.parametrize(
    "arguments, named",
    [
        ({"init_checkpoint": ""}, "init_checkpoint .*'';"),
        ({"init_checkpoint": 3}, "init_checkpoint .*3;"),
        ({"thresholds": {"fire": 0.5}}, "thresholds .*'fire'.* 'water'"),
        ({"class_weight": {"fire": 0.5}}, "class_weight.* 'fire'.* 'water'"),
        ({"temperature": 0.0}, "temperature .*0.0,"),
        ({"label_smoothing": 2.0}, "label_smoothing.*2.0, .*0.99"),
    ],
)
def test_wrong_settings(folder, arguments, named):
    with pytest.raises(ValueError, match=named):
        make_classifier(folder).set_params(**arguments).fit(TEXTS, LABELS)


def test_wrong_numbers_of_a_regressor(folder):
    for numbers in ([1.0] * 11 + [np.nan], ["many"] * 12, LABELS[:-1]):
        with pytest.raises(ValueError):
            BertTextRegressor(folder).fit(TEXTS, numbers)


@pytest.mark.slow
def test_input_is_checked_before_tensorflow_is_loaded():
    code = (
        "import sys\n"
        "from bert_tf.sklearn import BertTextClassifier\n"
        "try:\n"
        "    BertTextClassifier('folder').fit(['a', 'b'], [1, 1])\n"
        "except ValueError:\n"
        "    sys.exit('tensorflow' in sys.modules)\n"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0


def test_without_scikit_learn_the_error_names_the_extra():
    code = "import sys; sys.modules['sklearn'] = None; import bert_tf; import bert_tf.sklearn"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    last = done.stderr.splitlines()[-1]
    assert done.returncode == 1 and last.startswith("ImportError") and "[sklearn]" in last


@pytest.mark.slow
def test_nothing_else_imports_scikit_learn():
    for path in [*ROOT.glob("bert_tf/**/*.py"), *ROOT.glob("export/**/*.py")]:
        if path.parent.name == "sklearn":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf8"))):
            names = [alias.name for alias in getattr(node, "names", []) if hasattr(alias, "name")]
            if isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            elif not isinstance(node, ast.Import):
                continue
            wrong = [name for name in names if name.split(".")[0] == "sklearn"]
            assert not wrong, path
            assert not any(name.startswith("bert_tf.sklearn") for name in names), path
