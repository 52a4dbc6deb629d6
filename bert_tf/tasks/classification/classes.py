"""The classes of a classifier: their labels in Python's data, and in TensorFlow's graph."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from keras import ops

from bert_tf.config.fine_tuning_config import BALANCED
from bert_tf.system.type_names import ClassWeight, Column, Labels, Tensor
from bert_tf.tasks.base.examples import labels
from bert_tf.tasks.base.examples.columns import (
    numbers_of,
    read_label_ids,
    read_label_sets,
    read_numbers,
)
from bert_tf.tasks.base.models.graph_labels import checked_ids, one_hot_ids


class ClassLabels:
    """The labels of a classifier.

    Args:
      names: names of the classes; None if they have no names.
      count: number of classes C; 1 for a number.
      problem_type: `single_label`, `regression` or `multi_label`.
    """

    def __init__(self, names: Sequence[str] | None, count: int, problem_type: str) -> None:
        self.names = names
        self.count = count
        self.problem_type = problem_type
        # As `read_label_ids` takes them, with "" for a class without a name.
        self.to_read = tuple(names or ("",) * count)

    def read(self, y: Labels, count: int) -> np.ndarray:
        """Returns labels in the loss's format: int32 [N], float32 [N] or float32 [N, C]."""
        if self.problem_type == "regression":
            return read_numbers(y, count)
        read = read_label_ids if self.problem_type == "single_label" else read_label_sets
        return read(y, self.to_read, count)

    def weights_of(self, class_weight: Mapping[Any, float]) -> np.ndarray:
        """Returns the weight of each class, float32 [C], from weights by name or index."""
        weights = np.ones(self.count, np.float32)
        names = list(class_weight)
        indices = read_label_ids(names, self.to_read, len(names), "class_weight")
        weights[indices] = list(class_weight.values())
        return weights

    def weigh(
        self, y: Any, class_weight: ClassWeight | None, sample_weight: Column | None
    ) -> Column | None:
        """Returns the weight of each example [N], from class weights by name or index."""
        if class_weight is None:
            return sample_weight
        is_balanced = isinstance(class_weight, str) and class_weight == BALANCED
        is_known = is_balanced or isinstance(class_weight, Mapping)
        if self.problem_type != "single_label" or not is_known:
            raise ValueError(
                f"class_weight is {class_weight!r:.60}; expected {BALANCED!r} or a dict of weights "
                f"by class, for a model that predicts classes; this one has "
                f"problem_type={self.problem_type!r}."
            )
        ids = read_label_ids(y, self.to_read, len(y))
        weights = np.ones(self.count, np.float32)  # [C]
        if isinstance(class_weight, str):
            # As in scikit-learn: all classes that occur have the same sum of weights.
            classes, counts = np.unique(ids, return_counts=True)
            weights[classes] = len(ids) / (len(classes) * counts)
        else:
            weights = self.weights_of(class_weight)
        if sample_weight is None:
            return weights[ids]
        return weights[ids] * read_numbers(sample_weight, len(ids), "sample_weight")

    def without_one_hot(self, y: Any) -> Any:
        """Returns the indices of one-hot labels [N, C]; other labels are returned unchanged."""
        shape = np.shape(y)
        if self.problem_type != "single_label" or not self.is_one_hot(shape):
            return y
        return read_label_ids(np.asarray(y), ("",) * self.count, shape[0])

    def is_one_hot(self, shape: Sequence[int]) -> bool:
        """Returns whether labels of a shape are one-hot rows [N, C]."""
        return len(shape) == 2 and shape[-1] == self.count > 1

    def of_batch(self, y: Tensor, weights: Tensor | None) -> Tensor:
        """Returns the labels of a batch in the loss's format, checked when they are computed.

        Args:
          y: indices [B] or [B, 1], one-hot rows [B, C], numbers, or rows of several labels.
          weights: weights of the labels; those with weight 0 are not checked.
        """
        if self.problem_type == "regression":
            return ops.reshape(ops.cast(y, "float32"), (-1,))
        if self.problem_type == "multi_label":
            return y
        if self.is_one_hot(y.shape):
            y = one_hot_ids(y)
        elif len(y.shape) > 1 and y.shape[-1] != 1:
            raise ValueError(
                f"The labels have shape {tuple(y.shape)}, expected [B]: one index per text. "
                "Several labels per text need problem_type='multi_label'."
            )
        return checked_ids(ops.reshape(y, (-1,)), weights, self.count)

    def as_one_hot(self, y: Tensor | None) -> Tensor | None:
        """Converts indices of classes, [B] or [B, 1], to rows [B, C]; others stay as they are."""
        if self.problem_type != "single_label" or y is None:
            return y
        if len(y.shape) == 2 and y.shape[-1] == self.count:
            return y
        return ops.one_hot(ops.reshape(ops.cast(y, "int32"), (-1,)), self.count)

    def in_graph(self, spec: Any) -> Callable[[Any], Any]:
        """Returns the function from labels in a graph to the labels of the loss.

        Args:
          spec: the type of the labels; None without labels.
        """
        has_names = getattr(spec, "dtype", None) == tf.string
        is_class = self.problem_type == "single_label"
        if has_names and not (is_class and self.names):
            raise ValueError(
                "The labels of the dataset are names; expected numbers, or a model made with "
                "labels=[...]."
            )
        y_shape = getattr(spec, "shape", tf.TensorShape(None))
        if is_class and y_shape.rank is not None and self.is_one_hot(y_shape):
            return one_hot_ids
        if has_names:
            return self._indices_of_names
        # As in lists of labels: if all names are numbers, a number is a name and not an index.
        if is_class and (numbers := numbers_of(self.names or ("",))):
            return lambda y: self._indices_of(tf.cast(y, tf.float64), numbers)
        return lambda y: y

    def _indices_of_names(self, values: tf.Tensor) -> tf.Tensor:
        """Returns the indices of label names in the graph, in any of their spellings."""
        names = self.names or ()
        kind = labels.kind_of_spelling(names)
        key = labels.spelling_key(kind)
        keys = list(map(key, names))
        if len(set(keys)) < len(keys):
            # An older model, which has both True and true: names must match exactly.
            return self._indices_of(values, names)
        values = tf.strings.strip(values)
        if kind == labels.NUMBERS:
            values = tf.strings.regex_replace(values, labels.WHOLE, r"\1")
        elif kind == labels.BOOLEANS:
            values = tf.strings.lower(values)
        return self._indices_of(values, keys)

    def _indices_of(self, values: tf.Tensor, known: Sequence[Any]) -> tf.Tensor:
        """Returns the indices, int32 [B], of names or numbers [B] or [B, 1], in a graph."""
        is_equal = tf.reshape(values, [-1, 1]) == tf.constant(known, values.dtype)  # [B, C]
        are_known = tf.reduce_all(tf.reduce_any(is_equal, axis=1))
        message = f"A label is not one of {', '.join(self.names or ())}:"
        with tf.control_dependencies([tf.debugging.Assert(are_known, [message, values])]):
            return tf.argmax(is_equal, axis=1, output_type=tf.int32)
