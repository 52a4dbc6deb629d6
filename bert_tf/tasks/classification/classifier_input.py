"""Raw input of a classifier: texts with labels, also in datasets of batches."""

from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert_tf.system.type_names import ClassWeight, Column, Labels
from bert_tf.tasks.base.examples.rows import TokenizedDataset
from bert_tf.tasks.base.models.raw_input import RawInput
from bert_tf.tasks.classification.features import TextExamples


class ClassifierInput(RawInput):
    """The raw input of a `BertClassifier`."""

    def weigh_classes(
        self, y: Labels | None, class_weight: ClassWeight | None, sample_weight: Column | None
    ) -> Column | None:
        return self.model.classes.weigh(y, class_weight, sample_weight)

    def label_ids(self, y: Labels) -> Labels:
        return self.model.classes.without_one_hot(y)

    def evaluation_rows(self, examples: TextExamples) -> TokenizedDataset:
        """Returns the rows, with weights that make all texts count equally."""
        rows = examples.rows
        # A text with three windows has three rows, each with a third of its weight.
        num_windows = np.bincount(examples.owners)  # [E]
        shares = 1.0 / num_windows[examples.owners]  # [R]
        weights = rows.labels.get("example_weights", 1.0)
        rows.labels["example_weights"] = (weights * shares).astype(np.float32)
        return rows

    def with_inputs(self, data: tf.data.Dataset) -> tf.data.Dataset:
        """Converts a dataset of batches of texts to ids; datasets of ids are returned unchanged.

        Raises:
          ValueError: if the elements are not batches, or the labels do not fit the model.
        """
        spec = data.element_spec
        x_spec, y_spec, _ = keras.utils.unpack_x_y_sample_weight(spec)
        if isinstance(x_spec, Mapping):
            self.is_raw(x_spec)  # Raises an error if it lacks ids.
        columns = x_spec if isinstance(x_spec, tuple) else (x_spec,)
        if not all(getattr(column, "dtype", None) == tf.string for column in columns):
            return data
        if len(columns) > 2 or any(column.shape.rank != 1 for column in columns):
            raise ValueError(
                f"Received a dataset with elements {spec}; expected batches: texts and labels of "
                "shape [B], pairs as ((first texts, second texts), labels). data.batch(32) makes "
                "them."
            )
        to_ids = self.model.classes.in_graph(y_spec)
        preprocessor = self.model.needed_preprocessor
        self.model.pair = self.model.pair or isinstance(x_spec, tuple)
        if self.model.long_texts != "head":
            raise ValueError(
                f"Received a dataset of texts, but long_texts={self.model.long_texts}: give lists."
            )

        @tf.autograph.experimental.do_not_convert
        def pack_batch(*element: Any) -> Any:
            # `map` passes a tuple as several arguments, and a single column as one.
            x, y, weights = keras.utils.unpack_x_y_sample_weight(
                element if isinstance(spec, tuple) else element[0]
            )
            inputs = preprocessor(*x) if isinstance(x, tuple) else preprocessor(x)
            y = None if y is None else to_ids(y)
            return keras.utils.pack_x_y_sample_weight(inputs, y, weights)

        return data.map(pack_batch, num_parallel_calls=tf.data.AUTOTUNE).prefetch(2)
