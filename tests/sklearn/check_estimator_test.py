"""scikit-learn's `check_estimator`.

For estimators of text it runs one check and leaves out the others, whose data are numbers. So here
subclasses write each row of numbers as a text, one word per number, and every check is run on them.
"""

import pathlib
from typing import Any

import numpy as np
import pytest
from sklearn.utils.estimator_checks import check_estimator, estimator_checks_generator
from sklearn.utils.validation import check_is_fitted, validate_data

from bert_tf.sklearn import BertEmbeddings, BertTextClassifier, BertTextRegressor
from tests.tiny_model import write_tiny_model

# Within 1e-7, which float32 reaches on some machines: a text's rounding depends on its batch.
ROUNDING = "Scores are float32: their rounding depends on the other texts of the batch."
ROUNDING_CHECKS = {
    "check_methods_sample_order_invariance": ROUNDING,
    "check_methods_subset_invariance": ROUNDING,
}
# Of the classifier and the regressor.
TRAINING_CHECKS = {
    "check_sample_weight_equivalence_on_dense_data": (
        "Training goes by batches: an example of weight 2 is once in an epoch, two examples are "
        "twice, in other batches."
    ),
}
# Checks that do not train; the others are slow.
FAST_CHECKS = {
    "check_all_zero_sample_weights_error",
    "check_classifiers_one_label",
    "check_classifiers_one_label_sample_weights",
    "check_classifiers_regression_target",
    "check_complex_data",
    "check_do_not_raise_errors_in_init_or_set_params",
    "check_estimator_cloneable",
    "check_estimator_repr",
    "check_estimator_sparse_array",
    "check_estimator_sparse_matrix",
    "check_estimator_sparse_tag",
    "check_estimator_tags_renamed",
    "check_estimators_empty_data_messages",
    "check_estimators_unfitted",
    "check_get_params_invariance",
    "check_mixin_order",
    "check_no_attributes_set_in_init",
    "check_parameters_default_constructible",
    "check_requires_y_none",
    "check_set_params",
    "check_transformers_unfitted",
    "check_valid_tag_types",
}
WARNINGS = (
    "ignore:invalid value encountered in cast:RuntimeWarning",  # scikit-learn casts infinities.
    "ignore:Even though the `tf.config.experimental_run_functions_eagerly`:UserWarning",
)
LETTERS = "abcdefghij"


def as_texts(rows: np.ndarray) -> list[str]:
    """Returns a word per number: its sign and its size."""
    texts = []
    for row in rows:
        words = []
        for number in row:
            sign = "minus" if number < 0 else "plus"
            words.append(sign + LETTERS[min(9, int(abs(number)))])
        texts.append(" ".join(words))
    return texts


class OfNumbers:
    """Makes an estimator of texts one of rows of numbers; mixed in before it."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = False
        tags.input_tags.two_d_array = True
        for kind in (tags.classifier_tags, tags.regressor_tags):
            if kind is not None:
                kind.poor_score = True  # An untrained network of one layer, for an epoch.
        return tags

    def fit(self, X: Any, y: Any = None, **options: Any) -> Any:
        return super().fit(as_texts(validate_data(self, X)), y, **options)

    def read(self, X: Any) -> list[str]:
        check_is_fitted(self)
        return as_texts(validate_data(self, X, reset=False))


class NumberClassifier(OfNumbers, BertTextClassifier):
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Any:
        return super().fit(X, y, sample_weight=sample_weight)

    def _compute_logits(self, X: Any) -> np.ndarray:
        return super()._compute_logits(self.read(X))


class NumberRegressor(OfNumbers, BertTextRegressor):
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Any:
        return super().fit(X, y, sample_weight=sample_weight)

    def _compute_logits(self, X: Any) -> np.ndarray:
        return super()._compute_logits(self.read(X))


class NumberEmbeddings(OfNumbers, BertEmbeddings):
    def fit(self, X: Any, y: Any = None) -> Any:
        return super().fit(X, y)

    def transform(self, X: Any) -> np.ndarray:
        return super().transform(self.read(X))


def make_estimator(name: str, folder: pathlib.Path) -> Any:
    path = str(write_tiny_model(folder, num_hidden_layers=1))
    if name == "embeddings":
        return NumberEmbeddings(path)
    made = NumberClassifier if name == "classifier" else NumberRegressor
    return made(path, epochs=1, random_state=0)


def check_name(check: Any) -> str:
    """Returns the name of a check, which may be partial and wrapped."""
    while hasattr(check, "func") or hasattr(check, "__wrapped__"):
        check = getattr(check, "func", None) or check.__wrapped__
    return check.__name__


NAMES = ["classifier", "regressor", "embeddings"]


@pytest.mark.parametrize("name", NAMES)
def test_checks_that_do_not_train(name, tmp_path):
    estimator = make_estimator(name, tmp_path)
    num_run = 0
    for chosen, check in estimator_checks_generator(estimator):
        if check_name(check) in FAST_CHECKS:
            check(chosen)
            num_run += 1
    assert num_run >= 14


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.filterwarnings(*WARNINGS)
def test_all_checks_pass_but_those_listed(name, tmp_path, eager):
    needed = {} if name == "embeddings" else TRAINING_CHECKS
    results = check_estimator(
        make_estimator(name, tmp_path),
        expected_failed_checks=needed | ROUNDING_CHECKS,
        on_skip=None,
        on_fail=None,
    )
    statuses: dict[str, list[str]] = {}
    for result in results:
        statuses.setdefault(result["status"], []).append(result["check_name"])
    assert not statuses.get("failed"), [r for r in results if r["status"] == "failed"]
    assert set(needed) <= set(statuses.get("xfail", [])) <= set(needed | ROUNDING_CHECKS)
    assert len(statuses["passed"]) >= 40


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@pytest.mark.parametrize("made", [BertTextClassifier, BertTextRegressor, BertEmbeddings])
def test_the_estimators_themselves_pass_as_estimators_of_text(made):
    (result,) = check_estimator(made(), on_skip=None)
    assert result["status"] == "passed"
