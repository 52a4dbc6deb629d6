"""A model's outputs of tokenized rows of all lengths, computed without padding."""

import typing
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert_tf.system.number_arguments import check_numbers
from bert_tf.system.type_names import Batch, Callbacks, Outputs, Tensor
from bert_tf.tasks.base.examples.rows import TokenizedDataset, longest_first
from bert_tf.text.packing import INPUTS

if typing.TYPE_CHECKING:
    from bert_tf.tasks.base.models.text_model import TextModel


class RowOutputs:
    """Computes the outputs of a `TextModel`, traced once for all lengths of rows.

    Args:
      call: computes the outputs of a batch; None: the model.
    """

    def __init__(
        self, model: "TextModel", call: Callable[[Batch], Tensor | Outputs] | None = None
    ) -> None:
        self._model: Any = model
        self._call = call or (lambda batch: self._model(batch, training=False))
        self._compute: Callable[[Batch], Tensor | Outputs] | None = None

    def predict(
        self,
        rows: TokenizedDataset,
        batch_size: int,
        verbose: int | str | None = 0,
        callbacks: Callbacks | None = None,
    ) -> list[Any]:
        """Returns the outputs of each row; see `TextModel.predict_rows`."""
        check_numbers(1, batch_size=batch_size)
        order = longest_first(rows)
        starts = range(0, len(rows), batch_size)
        callback_list = keras.callbacks.CallbackList(
            callbacks,
            add_progbar=verbose not in (0, None),
            verbose=verbose,
            epochs=1,
            steps=len(starts),
            model=self._model,
        )
        compute = self._compute_function(rows)
        row_outputs: list[Any] = [None] * len(rows)
        callback_list.on_predict_begin()
        for step, start in enumerate(starts):
            row_ids = order[start : start + batch_size]
            callback_list.on_predict_batch_begin(step)
            length = int(rows.lengths[row_ids[0]])  # The first row of a batch is its longest.
            batch = rows.batch(row_ids, len(row_ids), length)
            outputs = compute({name: batch[name] for name in INPUTS})
            outputs = tf.nest.map_structure(lambda values: values.numpy(), outputs)
            callback_list.on_predict_batch_end(step, {"outputs": outputs})
            for position, row in enumerate(row_ids):
                row_outputs[row] = self._model.output_of_row(outputs, position, rows.lengths[row])
        callback_list.on_predict_end()
        return row_outputs

    def _compute_function(self, rows: TokenizedDataset) -> Callable[[Batch], Tensor | Outputs]:
        """Returns the model as a graph for batches of any size and length."""
        if self._compute is None:
            shape = [None] * (3 if rows.num_choices else 2)  # [B, C, T] or [B, T]
            specs = {name: tf.TensorSpec(shape, tf.int32) for name in INPUTS}
            # Tracing is faster without AutoGraph's conversion.
            call = tf.autograph.experimental.do_not_convert(self._call)
            self._compute = tf.function(call, input_signature=[specs])
        return self._compute


def stack(values: Sequence[Any]) -> Any:
    """Stacks the outputs of rows, arrays or dicts of them; shorter ones are padded with 0."""
    first = values[0]
    if isinstance(first, dict):
        return {name: stack([value[name] for value in values]) for name in first}
    if first.ndim == 0 or all(value.shape == first.shape for value in values):
        return np.stack(values)
    # Scores of tokens [T, ...], where T is another in each row.
    longest = max(map(len, values))
    joined = np.zeros((len(values), longest, *first.shape[1:]), first.dtype)
    for index, value in enumerate(values):
        joined[index, : len(value)] = value
    return joined
