"""Reads X, y and the sample weights of scikit-learn's methods, and checks them."""

from typing import Any, NamedTuple

import numpy as np
from sklearn.utils import check_array, check_consistent_length, column_or_1d
from sklearn.utils.multiclass import check_classification_targets, type_of_target

from bert_tf.system.type_names import Column, Labels, TextColumn, Texts
from bert_tf.tasks.base.examples.columns import is_missing, read_numbers, read_pairs, read_texts

TextsOrPairs = list[str] | list[tuple[str, str]]


class ClassTargets(NamedTuple):
    """The labels of a classifier."""

    classes: np.ndarray  # the values of y, sorted; for several labels per text, the columns of y
    names: list[str]  # the classes as text, in the same order
    labels: list[str] | np.ndarray  # the name of each text's class, or 0 and 1 [N, C]
    problem_type: str  # `single_label` or `multi_label`


def read_single_texts(values: TextColumn) -> list[str]:
    """Returns X, a column [N] or [N, 1] in any form that `read_texts` takes, as a list of texts."""
    return read_texts(_checked_column(values), "X")


def read_texts_or_pairs(values: Texts) -> TextsOrPairs:
    """Returns X as texts; or as pairs, if it is a list of tuples or two columns [N, 2]."""
    firsts, seconds = read_pairs(_checked_column(values))
    if seconds is None:
        return firsts
    return list(zip(firsts, seconds, strict=True))


def _checked_column(values: Texts) -> Texts:
    """Returns X without a second dimension: [N, 1] as [N], and [N, 2] as a list of pairs."""
    table: Any = values
    if hasattr(values, "columns") and hasattr(values, "to_numpy"):  # a data frame
        table = values.to_numpy()
    dtype = getattr(table, "dtype", None)
    if getattr(dtype, "kind", "") in tuple("biufc"):  # booleans, integers, floats, complex
        raise ValueError(f"X has numbers ({dtype}), expected texts.")
    shape: tuple[int, ...] = getattr(table, "shape", ())
    if len(shape) != 2:
        # For scikit-learn a tuple is a column of texts, not a tuple of two columns.
        return list(table) if isinstance(table, tuple) else table
    num_columns = shape[1]
    if num_columns == 1:
        return table[:, 0]
    if num_columns == 2:
        return list(map(tuple, table))
    raise ValueError(
        f"X has {num_columns} columns, expected one of texts, or two for pairs. Give a "
        "ColumnTransformer for tables."
    )


def check_y_is_given(estimator: object, y: Labels | None) -> None:
    """Raises ValueError if there is no y."""
    if y is None:
        name = type(estimator).__name__
        raise ValueError(f"{name} requires y to be passed, but the target y is None.")


def read_classes(y: Labels) -> ClassTargets:
    """Reads the labels of a classifier.

    Args:
      y: a column of labels; or, for several labels per text, a matrix of 0 and 1, dense or sparse,
        or a frame, whose columns then name the labels.

    Raises:
      ValueError: if a label is missing, there is only one class, or y has another form.
    """
    if not hasattr(y, "toarray"):  # Sparse matrices are left to `check_array`.
        _check_not_missing(np.asarray(y, dtype=object))
    if type_of_target(y, input_name="y") == "multilabel-indicator":
        columns = list(getattr(y, "columns", ()))
        matrix = check_array(y, accept_sparse=True, input_name="y")
        if hasattr(matrix, "toarray"):
            matrix = matrix.toarray()
        # A frame names its labels; those of a matrix are numbered.
        classes = np.array(columns or range(matrix.shape[1]))
        return ClassTargets(classes, list(map(str, classes.tolist())), matrix, "multi_label")
    column = column_or_1d(y, warn=True)
    check_classification_targets(column)
    # Sorted, as scikit-learn requires of `classes_`.
    classes, indices = np.unique(column, return_inverse=True)
    if len(classes) < 2:
        raise ValueError(
            f"y has one class, {classes[0]!r:.60}, expected two or more; nothing can be learned."
        )
    names = list(map(str, classes.tolist()))
    return ClassTargets(classes, names, [names[index] for index in indices], "single_label")


def _check_not_missing(y: np.ndarray) -> None:
    for position, value in np.ndenumerate(y):
        if is_missing(value):
            index = ", ".join(map(str, position))
            raise ValueError(f"Input y contains NaN: y[{index}] is {value!r}, expected a label.")


def read_targets(y: Labels) -> np.ndarray:
    """Returns the numbers of a regressor, float64 [N]."""
    column = column_or_1d(y, warn=True)
    return check_array(column, ensure_2d=False, dtype=np.float64, input_name="y")


def with_weight(
    texts: TextsOrPairs, y: Labels, sample_weight: Column | None
) -> tuple[TextsOrPairs, Labels, np.ndarray]:
    """Returns the examples with a weight above 0: texts, y and weights, float32 [N].

    An example of weight 0 would be computed without an effect on the loss.

    Raises:
      ValueError: if a weight is missing or below 0, or all are 0, or the numbers of texts and of
        values of y differ.
    """
    check_consistent_length(texts, y)
    if sample_weight is None:
        return texts, y, np.ones(len(texts), np.float32)
    weights = read_numbers(np.asarray(sample_weight), len(texts), "sample_weight")
    if weights.min() < 0:
        index = int(weights.argmin())
        raise ValueError(
            f"sample_weight[{index}] is {weights[index]:g}, a negative weight; expected 0 or more."
        )
    if not weights.any():
        raise ValueError("All values of sample_weight are zero; expected a weight above zero.")
    kept = np.flatnonzero(weights)
    if len(kept) == len(weights):
        return texts, y, weights
    return _chosen(texts, kept), _chosen(y, kept), weights[kept]


def _chosen(values: Any, kept: np.ndarray) -> Any:
    if hasattr(values, "iloc"):
        return values.iloc[kept]
    if hasattr(values, "shape"):
        return values[kept]
    return [values[index] for index in kept]
