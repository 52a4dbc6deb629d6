"""Keras' `fit`, `evaluate` and `predict` on raw input: texts, words or questions with labels.

    texts, labels --read_examples--> TokenizedDataset in memory --batches, padded to the longest-->
        (inputs, labels, weights) -> Keras' own loop

Everything else, such as dicts of ids or datasets of them, goes to Keras unchanged. A model that has
not been compiled is compiled for each `fit` with the defaults of fine-tuning; see `compile_for`.
"""

import abc
import dataclasses
import itertools
import math
import operator
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import keras
import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf.config import OptimizerConfig
from bert_tf.examples.columns import TO_LIST, read_column
from bert_tf.examples.row_batches import epoch_batches, evaluation_batches
from bert_tf.examples.rows import TokenizedDataset, length_buckets, longest_first
from bert_tf.fine_tuning_config import BALANCED
from bert_tf.fine_tuning_defaults import (
    BATCH_SIZE,
    default_batch_size,
    default_epochs,
    default_learning_rate,
)
from bert_tf.models.compiled_losses import loss_of_scores, takes_one_hot, takes_probabilities
from bert_tf.models.preprocessor import BertPreprocessor
from bert_tf.models.raw_batches import first_batch, inputs_in, is_stream, packed, parts_of
from bert_tf.network.losses import WeightedSum
from bert_tf.network.pretrained import FromPretrained
from bert_tf.optimization.optimizers import build_optimizer
from bert_tf.optimization.schedules import WarmupFactor
from bert_tf.text.packing import INPUTS
from bert_tf.text.tokenization import Tokenizer
from bert_tf.text.typed_tokens import log_typed_tokens

# The defaults of the fine-tuning programs.
OPTIMIZER, WARMUP_PROPORTION = OptimizerConfig("adamw"), OptimizerConfig().warmup_proportion
# Callbacks of Keras that set the learning rate.
RATE_CALLBACKS = (keras.callbacks.LearningRateScheduler, keras.callbacks.ReduceLROnPlateau)
KerasBatch = tuple[dict[str, Any], Any, Any]


class Examples(Protocol):
    """Raw input that was read, with the rows that the model sees of it."""

    @property
    def rows(self) -> TokenizedDataset: ...


class TextFitMixin(FromPretrained, abc.ABC):
    """Gives a Keras model with `bert`, its encoder, the loop for raw input; mixed in before it.

    `WithPreprocessor`, mixed in after this class, gives the tokenizer and its settings.

    A subclass defines its raw input (`read_examples`), what Keras gets from a batch (`keras_batch`)
    and the loss (`task_loss`).
    """

    bert: Any
    preprocessor: BertPreprocessor | None
    needed_preprocessor: BertPreprocessor
    tokenizer: Tokenizer
    max_seq_length: int
    optimizer: Any
    distribute_strategy: Any
    trainable_variables: Any
    jit_compile: Any
    run_eagerly: Any
    losses: Any
    is_compiled_by_default = False
    _has_own_loss = False
    _takes_one_hot = False
    _loss_of_probabilities = ""
    _compute_rows: Any = None
    _traced_for: Any = None

    # What a subclass says ----------------------------------------------------------------------

    @abc.abstractmethod
    def read_examples(self, x: Any, y: Any = None, weights: Any = None) -> Examples:
        """Reads raw input.

        Args:
          x: texts, or other input of the model.
          y: labels; None for predictions.
          weights: weight of each example; None: 1.

        Raises:
          ValueError: naming the first thing that is missing or wrong.
        """

    @abc.abstractmethod
    def keras_batch(self, batch: dict[str, Any]) -> KerasBatch:
        """Returns inputs, labels and weights of a batch of the rows."""

    @abc.abstractmethod
    def task_loss(self, x: Any, y: Any, outputs: Any, weights: Any) -> WeightedSum:
        """Returns the loss of a batch; `weights` may be None."""

    def join_rows(self, examples: Any, outputs: list[Any]) -> list[Any]:
        """Returns the outputs of each example from those of its rows, which may be several."""
        return outputs

    @property
    def default_metrics(self) -> Any:
        """Metrics to report besides the loss, as for `compile`."""
        return ["accuracy"]

    # Keras' methods ----------------------------------------------------------------------------

    def compile(self, optimizer: Any = "rmsprop", loss: Any = None, **options: Any) -> None:
        """Keras' own; without a loss, the task's own loss is used, without padding.

        The model's outputs are unnormalised scores, of which a cross entropy given by name is.
        """
        loss = loss_of_scores(loss)
        self._takes_one_hot = takes_one_hot(loss)
        is_wrong = takes_probabilities(loss)
        self._loss_of_probabilities = type(loss).__name__ if is_wrong else ""
        self.is_compiled_by_default, self._has_own_loss = False, loss is None
        if options.get("jit_compile") is True:
            self.bert.leave_out_padding(False)  # XLA wants fixed shapes.
        super().compile(optimizer, loss, **options)  # type: ignore[misc]

    def compile_for(self, num_train_steps: int, learning_rate: float | None = None) -> None:
        """Compiles the model as the fine-tuning programs do by default.

        AdamW with bias correction, decay 0.01 except for LayerNorm and biases, gradients clipped to
        norm 1; the rate rises for a tenth of the steps and falls to 0 at the last.

        Args:
          num_train_steps: steps of the whole `fit`.
          learning_rate: peak; None: the one for the width of the encoder, see
            `bert_tf.fine_tuning_defaults`.

        Callbacks such as `ReduceLROnPlateau` read and set the peak. A model that was compiled so
        before is not traced again.
        """
        rate = learning_rate
        if rate is None:
            rate = default_learning_rate(self.bert.config.hidden_size)
        config = dataclasses.replace(
            OPTIMIZER,
            learning_rate=rate,
            num_train_steps=num_train_steps,
            num_warmup_steps=int(WARMUP_PROPORTION * num_train_steps),
        )
        steps = (config.num_train_steps, config.num_warmup_steps)
        if self.is_compiled_by_default and self._traced_for == self._what_is_traced():
            self.optimizer.restart(rate)
            self.optimizer.rate_factor.set_steps(*steps)
            return
        with self.distribute_strategy.scope():
            # The rate is a number that callbacks can set; warm-up and decay are a factor of it.
            optimizer = build_optimizer(config, rate)
            optimizer.rate_factor = WarmupFactor()
            optimizer.rate_factor.set_steps(*steps)
            self.compile(optimizer, weighted_metrics=self.default_metrics)
            optimizer.build(self.trainable_variables)
        optimizer.jit_compile = not self.jit_compile  # What TensorFlow runs, XLA updates in a pass.
        self.is_compiled_by_default = True
        self._traced_for = self._what_is_traced()

    def _what_is_traced(self) -> tuple[Any, ...]:
        """Returns the values, other than shapes, on which the graph of a training step depends."""
        paths = tuple(variable.path for variable in self.trainable_variables)
        encoder = self.bert
        return paths, self.jit_compile, self.run_eagerly, encoder.unpad, encoder.recompute

    def own_loss(self, x: Any, y: Any, outputs: Any, weights: Any, training: bool) -> Any:
        """The task's, if none was given to `compile`."""
        if not self._has_own_loss or y is None:
            return None
        return sum(self.losses, self.task_loss(x, y, outputs, weights).mean())

    def fit(
        self,
        x: Any = None,
        y: Any = None,
        batch_size: int | None = None,
        epochs: int | None = None,
        verbose: Any = "auto",
        callbacks: Any = None,
        validation_split: float = 0.0,
        validation_data: Any = None,
        shuffle: bool = True,
        class_weight: Any = None,
        sample_weight: Any = None,
        initial_epoch: int = 0,
        steps_per_epoch: int | None = None,
        validation_steps: int | None = None,
        validation_batch_size: int | None = None,
        validation_freq: Any = 1,
        learning_rate: float | None = None,
    ) -> Any:
        """Trains, as Keras' `fit`, on raw input or on ids; arguments beyond Keras':

        Args:
          x, y: raw input and labels as for `read_examples` of the class, a `tf.data` dataset of
            them if it takes one, or anything that Keras takes.
          batch_size: examples per step; None: 32, or fewer for long texts if the model has not been
            compiled, see `bert_tf.fine_tuning_defaults`.
          epochs: passes over the examples; None: 1 for a compiled model or with steps_per_epoch, as
            in Keras, else a number that falls as the number of examples grows.
          learning_rate: peak rate if the model has not been compiled; None: see `compile_for`.

        Raises:
          ValueError: for errors in the input, before anything is traced.
        """
        options: dict[str, Any] = {
            "verbose": verbose,
            "callbacks": callbacks,
            "initial_epoch": initial_epoch,
            "validation_freq": validation_freq,
            "shuffle": False,  # Rows come in an order of their own.
        }
        takes_defaults = not self.compiled or self.is_compiled_by_default  # type: ignore[attr-defined]
        num_rows = 0  # not known
        if self.is_raw(x):
            if validation_split and validation_data is None:
                whole = list(x) if self.is_one_column and isinstance(x, tuple) else x
                x, y, sample_weight, validation_data = split_off(
                    *(whole, y, sample_weight, validation_split)
                )
            if y is None and self.needs_labels:
                raise ValueError("fit: received no labels; give them as y: fit(texts, labels).")
            weights = self.weigh_classes(y, class_weight, sample_weight)
            examples = self.read_examples(x, y, weights)
            log_typed_tokens(x, self.tokenizer.vocab)
            self.prepare_head(examples)
            seed = int(np.random.randint(2**31)) if shuffle else None
            if batch_size is None and takes_defaults:
                batch_size = default_batch_size(int(examples.rows.lengths.max(initial=0)))
            size = batch_size or BATCH_SIZE
            data, steps = self.training_data(examples, size, seed, initial_epoch)
            options["steps_per_epoch"] = steps_per_epoch or steps
            num_rows = len(examples.rows)
        else:
            if isinstance(x, tf.data.Dataset):
                split = validation_split or None
                check_is_alone(y=y, sample_weight=sample_weight, validation_split=split)
                data = counted(self.with_inputs(x), steps_per_epoch)
            else:
                data, class_weight = self._stream_of(x, class_weight)
                y = self._ids_of(y)
                options |= {"y": y, "sample_weight": sample_weight, "batch_size": batch_size}
                options |= {"validation_split": validation_split}
                options["shuffle"] = shuffle and not hasattr(x, "__next__")  # Keras would warn.
            options |= {"steps_per_epoch": steps_per_epoch, "class_weight": class_weight}
        if validation_data is not None:
            size = validation_batch_size or batch_size or BATCH_SIZE
            options["validation_data"] = self.evaluation_data(validation_data, size)
            options |= {"validation_steps": validation_steps, "validation_batch_size": size}
        if takes_defaults:
            held_out = options.get("validation_split", 0.0)
            size = batch_size or BATCH_SIZE
            steps = options["steps_per_epoch"] or count_steps(data, size, held_out)
            if epochs is None:
                num_rows = num_rows or steps * size
                epochs = 1 if steps_per_epoch else default_epochs(num_rows, self.num_text_classes)
            if learning_rate is None:
                learning_rate = default_learning_rate(self.bert.config.hidden_size)
            logging.info(
                "fit: learning_rate=%g, epochs=%d, batch_size=%d.", learning_rate, epochs, size
            )
            self.compile_for(max(1, (epochs - initial_epoch) * steps), learning_rate)
        elif learning_rate is not None:
            raise ValueError(
                f"learning_rate={learning_rate} is for a model that has not been compiled; set the "
                f"rate of the optimizer instead."
            )
        self._check_loss()
        check_rate_is_settable(self.optimizer, callbacks)
        options["epochs"] = 1 if epochs is None else epochs
        return super().fit(data, **options)  # type: ignore[misc]

    def evaluate(
        self,
        x: Any = None,
        y: Any = None,
        batch_size: int | None = None,
        verbose: Any = "auto",
        sample_weight: Any = None,
        **options: Any,
    ) -> Any:
        """Keras' own, on raw input, too."""
        if not self.compiled:  # type: ignore[attr-defined]
            self.compile_for(1)
        if not self.is_raw(x):
            if isinstance(x, tf.data.Dataset) and "_use_cached_eval_dataset" not in options:
                x = self.with_inputs(x)
            x, _ = self._stream_of(x, is_evaluated=True)
            y = self._ids_of(y)
            options |= {"y": y, "batch_size": batch_size, "sample_weight": sample_weight}
            return super().evaluate(x, verbose=verbose, **options)  # type: ignore[misc]
        data = self.evaluation_data((x, y, sample_weight), batch_size or BATCH_SIZE)
        return super().evaluate(data, verbose=verbose, **options)  # type: ignore[misc]

    def predict(
        self,
        x: Any,
        batch_size: int | None = None,
        verbose: Any = "auto",
        steps: int | None = None,
        callbacks: Any = None,
    ) -> Any:
        """Keras' own, also on raw input: unnormalised scores in the order of the input.

        Rows of similar length are computed together.
        """
        if is_stream(x):
            batch, x = first_batch(x)
            if holds_texts(parts_of(batch)[0]):
                texts = self.joined(list(inputs_in(x, steps)))
                return self.predict(texts, batch_size, verbose, callbacks=callbacks)
        if not self.is_raw(x):
            data = self.with_inputs(x) if isinstance(x, tf.data.Dataset) else x
            options = {"steps": steps, "callbacks": callbacks}
            return super().predict(data, batch_size, verbose, **options)  # type: ignore[misc]
        if steps is not None:
            raise ValueError(
                f"steps={steps}: all given texts are predicted; leave steps out, or give fewer "
                f"texts."
            )
        examples = self.read_examples(x)
        outputs = self.predict_rows(examples.rows, batch_size or BATCH_SIZE, verbose, callbacks)
        return stack(self.join_rows(examples, outputs))

    def train_on_batch(
        self,
        x: Any,
        y: Any = None,
        sample_weight: Any = None,
        class_weight: Any = None,
        return_dict: bool = False,
    ) -> Any:
        """Keras' own, also on raw input."""
        self._check_loss()
        if self.is_raw(x):
            weights = self.weigh_classes(y, class_weight, sample_weight)
            x, y, sample_weight = self.pack_batch(x, y, weights)
            class_weight = None
        return super().train_on_batch(x, y, sample_weight, class_weight, return_dict)  # type: ignore[misc]

    def test_on_batch(
        self, x: Any, y: Any = None, sample_weight: Any = None, return_dict: bool = False
    ) -> Any:
        """Keras' own, also on raw input."""
        if self.is_raw(x):
            x, y, sample_weight = self.pack_batch(x, y, sample_weight, is_evaluated=True)
        return super().test_on_batch(x, y, sample_weight, return_dict)  # type: ignore[misc]

    def predict_on_batch(self, x: Any) -> Any:
        """Keras' own, also on raw input: the scores of `predict`."""
        if self.is_raw(x):
            return self.predict(x, len(x[0]) if isinstance(x, tuple) else len(x), verbose=0)
        return super().predict_on_batch(x)  # type: ignore[misc]

    def save(self, *arguments: Any, **options: Any) -> None:
        """Keras' own. Leaves out an optimizer that `fit` made by itself: it has no later use."""
        if not self.is_compiled_by_default:
            super().save(*arguments, **options)  # type: ignore[misc]
            return
        optimizer, self.optimizer = self.optimizer, None
        try:
            super().save(*arguments, **options)  # type: ignore[misc]
        finally:
            self.optimizer = optimizer

    def get_compile_config(self) -> Any:
        """Returns nothing for a model compiled by default: its schedule has ended."""
        return None if self.is_compiled_by_default else super().get_compile_config()  # type: ignore

    def compile_from_config(self, config: dict[str, Any]) -> None:
        """Compiles a loaded model as the saved one was."""
        self.compile(**keras.saving.deserialize_keras_object(config))
        if self.optimizer is not None:
            self.optimizer.build(self.trainable_variables)

    # Raw input ---------------------------------------------------------------------------------

    def is_raw(self, x: Any) -> bool:
        """Returns whether input is raw, or goes to Keras unchanged.

        Raises:
          ValueError: if a dict lacks what the encoder needs.
        """
        if isinstance(x, Mapping):
            missing = [name for name in INPUTS if name not in x]
            if missing:
                raise ValueError(
                    f"The dict has {', '.join(map(repr, x))} and lacks {', '.join(missing)}; "
                    "expected the encoder's inputs, or raw texts."
                )
            return False
        if x is None or isinstance(x, tf.data.Dataset) or is_stream(x):
            return False
        if not self.preprocessor:
            return holds_texts(x) and bool(self.needed_preprocessor)
        return not hasattr(x, "element_spec")

    def inputs_of(self, x: Any) -> dict[str, Any]:
        """Returns the inputs for raw input; of a text in several windows, each is a row."""
        columns = x if isinstance(x, tuple) else (x,)
        if all(is_symbolic(column) for column in columns):  # Inside a graph, or Keras' functional.
            return self.needed_preprocessor(*columns)
        rows = self.read_examples(x).rows
        batch = rows.batch(np.arange(len(rows)), len(rows), int(rows.lengths.max()))
        return {name: batch[name] for name in INPUTS}

    def pack_batch(
        self,
        x: Any,
        y: Any,
        weights: Any = None,
        is_evaluated: bool = False,
        length: int = 0,
    ) -> KerasBatch:
        """Returns a batch of raw input as Keras trains on it.

        Args:
          x, y, weights: as for `read_examples`.
          is_evaluated: whether it is evaluated, so that each text has the same weight.
          length: length of the rows; 0: one of a few lengths.

        Raises:
          ValueError: if there are no labels, or as `read_examples`.
        """
        if y is None and self.needs_labels:
            raise ValueError("A batch has no labels; expected (texts, labels).")
        examples = self.read_examples(x, y, weights)
        if is_evaluated:
            rows = self.judged_rows(examples)
        else:
            self.prepare_head(examples)
            rows = examples.rows
        longest = int(rows.lengths.max())
        lengths = length_buckets(self.max_seq_length, bool(self.jit_compile))
        length = length or next(bucket for bucket in lengths if bucket >= longest)
        batch = self.keras_batch(rows.batch(np.arange(len(rows)), len(rows), length))
        return tf.nest.map_structure(np.asarray, batch)

    def joined(self, batches: list[Any]) -> Any:
        """Returns the raw input of several batches as that of one."""
        if isinstance(batches[0], tuple) and not self.is_one_column:
            columns = zip(*batches, strict=True)
            return tuple(list(itertools.chain.from_iterable(column)) for column in columns)
        return list(itertools.chain.from_iterable(batches))

    def _check_loss(self) -> None:
        """Raises ValueError if the model was compiled with a loss of probabilities."""
        if name := self._loss_of_probabilities:
            raise ValueError(
                f"The model is compiled with {name}() of probabilities, but its outputs are "
                f"unnormalised scores: compile it with keras.losses.{name}(from_logits=True), or "
                "without a loss."
            )

    def _ids_of(self, y: Any) -> Any:
        """Returns labels of inputs that are ids, as the model's own loss takes them."""
        takes_ids = self._has_own_loss or not self.compiled  # type: ignore[attr-defined]
        return self.label_ids(y) if takes_ids and y is not None else y

    def label_ids(self, y: Any) -> Any:
        """Returns labels of inputs that are ids, in the form of the loss."""
        return y

    def _stream_of(
        self, data: Any, class_weight: Any = None, is_evaluated: bool = False
    ) -> tuple[Any, Any]:
        """Returns batches of texts as batches of ids, all else as it is; and Keras' class_weight.

        Raises:
          ValueError: if classes are to be balanced, for which all labels must be known.
        """
        if not is_stream(data):
            return data, class_weight
        batch, data = first_batch(data)
        if class_weight == BALANCED:
            raise ValueError(
                f"class_weight={BALANCED!r} needs all labels at once; give a dict of weights, or "
                "lists of texts and labels."
            )
        if not holds_texts(parts_of(batch)[0]):
            return data, class_weight

        def pack(item: Any) -> KerasBatch:
            x, y, weights = parts_of(item)
            weights = self.weigh_classes(y, class_weight, weights)
            length = self.needed_preprocessor.max_seq_length
            return self.pack_batch(x, y, weights, is_evaluated, length)

        return packed(data, pack), None

    def with_inputs(self, data: tf.data.Dataset) -> tf.data.Dataset:
        """Returns a dataset of ids as it is.

        Raises:
          ValueError: if it has raw texts, which this model does not take as a dataset.
        """
        if any(spec.dtype == tf.string for spec in tf.nest.flatten(data.element_spec)):
            raise ValueError(
                f"{type(self).__name__} does not take a dataset of texts; give lists, or a dataset "
                "of dicts of ids."
            )
        return data

    def weigh_classes(self, y: Any, class_weight: Any, sample_weight: Any) -> Any:
        """Returns the weight of each example; None for 1."""
        if class_weight is not None:
            raise ValueError(f"{type(self).__name__} has no class_weight; give sample_weight.")
        return sample_weight

    def prepare_head(self, examples: Any) -> None:
        """Does what a head needs before it is trained on these examples."""

    def judged_rows(self, examples: Any) -> TokenizedDataset:
        """Returns the rows of examples that are evaluated, with their weights."""
        return examples.rows

    def training_data(
        self, examples: Examples, batch_size: int, seed: int | None, first_epoch: int = 0
    ) -> tuple[tf.data.Dataset, int]:
        """Returns an endless dataset of what Keras trains on, and its batches an epoch."""
        rows = examples.rows
        steps = -(-len(rows) // batch_size)
        buckets = self._buckets(rows)
        data, steps = epoch_batches(rows, batch_size, first_epoch * steps, seed, buckets)
        return data.map(self.keras_batch), steps

    def evaluation_data(self, data: Any, batch_size: int) -> Any:
        """Returns validation data as Keras takes it: raw input as a dataset, all else as it is."""
        if isinstance(data, tf.data.Dataset):
            return self.with_inputs(data)
        if is_stream(data):
            return self._stream_of(data, is_evaluated=True)[0]
        x, y, weights = self.unpack_texts(data)
        if not self.is_raw(x):
            return keras.utils.pack_x_y_sample_weight(x, self._ids_of(y), weights)
        if y is None and self.needs_labels:
            raise ValueError("There are no labels to evaluate with; expected (texts, labels).")
        rows = self.judged_rows(self.read_examples(x, y, weights))
        buckets = self._buckets(rows)
        batches = evaluation_batches(rows, batch_size, 0, buckets, is_filled=False)
        return batches.map(self.keras_batch)

    def unpack_texts(self, data: Any) -> tuple[Any, Any, Any]:
        """Returns x, y and weights of validation data."""
        return keras.utils.unpack_x_y_sample_weight(data)

    def predict_rows(
        self, rows: TokenizedDataset, batch_size: int, verbose: Any = 0, callbacks: Any = None
    ) -> list[Any]:
        """Returns the model's outputs of each row, in the order of the rows, without padding."""
        order = longest_first(rows)
        starts = range(0, len(rows), batch_size)
        listening = keras.callbacks.CallbackList(
            callbacks,
            add_progbar=verbose not in (0, None),
            verbose=verbose,
            epochs=1,
            steps=len(starts),
            model=self,
        )
        compute, found = self._compute_function(rows), [None] * len(rows)
        listening.on_predict_begin()
        for step, start in enumerate(starts):
            row_ids = order[start : start + batch_size]
            listening.on_predict_batch_begin(step)
            length = int(rows.lengths[row_ids[0]])
            batch = rows.batch(row_ids, len(row_ids), length)
            outputs = compute({name: batch[name] for name in INPUTS})
            outputs = tf.nest.map_structure(lambda values: values.numpy(), outputs)
            listening.on_predict_batch_end(step, {"outputs": outputs})
            for place, row in enumerate(row_ids):
                found[row] = self._row_of(outputs, place, rows.lengths[row])
        listening.on_predict_end()
        return found

    # Inside ------------------------------------------------------------------------------------

    def _buckets(self, rows: TokenizedDataset) -> list[int]:
        """Returns the lengths that batches are padded to."""
        own = self.preprocessor
        is_plain = bool(own and own.pad_to_max_length)
        longest = own.max_seq_length if is_plain and own else max(1, int(rows.lengths.max()))
        return length_buckets(longest, bool(self.jit_compile), is_plain)

    def _compute_function(self, rows: TokenizedDataset) -> Any:
        """Returns the model as a graph for rows of all lengths."""
        if self._compute_rows is None:
            shape = [None] * (3 if rows.num_choices else 2)
            specs = {name: tf.TensorSpec(shape, tf.int32) for name in INPUTS}
            call = tf.autograph.experimental.do_not_convert(
                lambda batch: self(batch, training=False)
            )
            self._compute_rows = tf.function(call, input_signature=[specs])
        return self._compute_rows

    def _row_of(self, outputs: Any, place: int, length: int) -> Any:
        """Returns the outputs of one row of a batch, without its padding."""
        kept = (place, slice(length)) if self.has_pieces else place
        return tf.nest.map_structure(operator.itemgetter(kept), outputs)

    # Whether there is nothing to train on without labels.
    needs_labels = True
    # Classes of whole texts; 0: there are none.
    num_text_classes = 0
    # Whether the outputs have an axis of pieces.
    has_pieces = False
    # Whether a tuple is a column of examples; of other models it may be one of columns.
    is_one_column = False


def check_is_alone(**others: Any) -> None:
    """Raises ValueError for arguments that a dataset has in its elements."""
    for name, value in others.items():
        if value is not None:
            raise ValueError(
                f"fit: received {name} with a dataset; give a dataset of (x, y) or (x, y, "
                "sample_weight), and validation_data."
            )


def check_rate_is_settable(optimizer: Any, callbacks: Any) -> None:
    """Raises ValueError if a callback would set the rate of an optimizer that has a schedule."""
    listed = getattr(callbacks, "callbacks", callbacks) or ()
    if isinstance(listed, keras.callbacks.Callback):
        listed = (listed,)
    setting = [type(one).__name__ for one in listed if isinstance(one, RATE_CALLBACKS)]
    # A schedule is serialized as a dict, a number as itself.
    if setting and isinstance(optimizer.get_config().get("learning_rate"), dict):
        raise ValueError(
            f"fit: {setting[0]} sets the learning rate, but the optimizer has a schedule; compile "
            "the model with a number, compile(bert_tf.AdamW(2e-5)), or do not compile it."
        )


def checked_ids(labels: Any, weights: Any, count: Any) -> tf.Tensor:
    """Returns label ids, int32 [...], which are checked when they are computed.

    An out-of-range label would silently lower the scores of all classes.

    Args:
      labels: integers [...].
      weights: float [...], 0 for those that may be anything; None: all count.
      count: of the classes; an integer, or a tensor [].

    Raises:
      tf.errors.InvalidArgumentError: from the graph, unless they are in [0, count).
    """
    labels = tf.cast(labels, tf.int32)
    is_known = (labels >= 0) & (labels < count)
    if weights is not None:
        is_known |= tf.equal(weights, 0)
    found = ["Received labels from", tf.reduce_min(labels), "to", tf.reduce_max(labels)]
    message = [*found, "expected 0 to", count - 1]
    with tf.control_dependencies([tf.debugging.Assert(tf.reduce_all(is_known), message)]):
        return tf.identity(labels)


def one_hot_ids(labels: Any) -> tf.Tensor:
    """Returns the indices of one-hot labels [B, C], int32 [B]; checked when they are computed."""
    is_one = tf.cast(labels, tf.float32)
    are_bits = tf.reduce_all((is_one == 0) | (is_one == 1))
    is_right = are_bits & tf.reduce_all(tf.reduce_sum(is_one, -1) == 1)
    message = "Labels of shape [B, C] are one-hot: expected one 1 in each row. Several labels per "
    message += "text need label_kind='several'."
    with tf.control_dependencies([tf.debugging.Assert(is_right, [message, labels])]):
        return tf.argmax(is_one, axis=-1, output_type=tf.int32)


def is_symbolic(column: Any) -> bool:
    """Returns whether a column of texts is a tensor of a graph, without values."""
    is_tensor = tf.is_tensor(column) and not hasattr(column, "numpy")
    return is_tensor or isinstance(column, keras.KerasTensor)


def holds_texts(x: Any) -> bool:
    """Returns whether the first value of some input is a text."""
    while isinstance(x, list | tuple) and x:
        x = x[0]
    if isinstance(x, str | bytes):
        return True
    kind = getattr(getattr(x, "dtype", None), "kind", "")
    if kind == "O" and len(x):
        return holds_texts(list(x))
    return kind in ("U", "S") or getattr(x, "dtype", None) == tf.string


def is_text_column(values: Any) -> bool:
    """Returns whether a value is a column of texts, in any form, or of lists of them."""
    if isinstance(values, str | bytes | tf.data.Dataset) or values is None:
        return False
    if isinstance(values, list | tuple | np.ndarray):
        return holds_texts(values)
    method = next((name for name in TO_LIST if hasattr(values, name)), "")
    return bool(method) and holds_texts(getattr(values, method)())


def unpack_text_columns(data: Any) -> tuple[Any, Any, Any]:
    """Returns x, y and weights of validation data whose x may be a tuple of columns without y.

    Args:
      data: x, (x, y) or (x, y, weights).
    """
    if isinstance(data, list):
        return data, None, None
    if not isinstance(data, tuple) or not is_text_column(data[0]):
        return keras.utils.unpack_x_y_sample_weight(data)
    if len(data) == 3 and data[2] is None:
        return data
    if len(data) == 2 and not is_text_column(data[1]):
        return *data, None
    return data, None, None


def stack(values: Sequence[Any]) -> Any:
    """Joins the outputs of rows, each an array or a dict of them; the shorter end in 0."""
    if isinstance(values[0], dict):
        return {name: stack([value[name] for value in values]) for name in values[0]}
    longest = max((len(value) for value in values if value.ndim), default=0)
    first = values[0]
    if first.ndim == 0 or all(value.shape == first.shape for value in values):
        return np.stack(values)
    joined = np.zeros((len(values), longest, *first.shape[1:]), first.dtype)
    for index, value in enumerate(values):
        joined[index, : len(value)] = value
    return joined


def split_off(x: Any, y: Any, weights: Any, share: float) -> tuple[Any, Any, Any, Any]:
    """Returns all but the last part of the input, and that part as validation data.

    Raises:
      ValueError: if one of the two is empty.
    """
    is_columns = isinstance(x, tuple) and not isinstance(x[0], str | bytes)
    columns = [read_column(c, "x") for c in x] if is_columns else [read_column(x, "x")]
    count = len(columns[0])
    first = int(count * (1.0 - share))
    if not 0 < first < count:
        raise ValueError(f"validation_split={share} of {count} texts leaves one part empty.")
    is_whole = y is None or getattr(y, "ndim", 1) == 2  # A matrix stays one.
    labels = y if is_whole else read_column(y, "y")

    def part(chosen: slice) -> list[Any]:
        inputs = tuple(column[chosen] for column in columns)
        return [inputs if is_columns else inputs[0], None if y is None else labels[chosen]]

    given = None if weights is None else list(weights)
    later = part(slice(first, None)) + ([] if given is None else [given[first:]])
    return *part(slice(0, first)), given and given[:first], tuple(later)


def counted(data: tf.data.Dataset, steps_per_epoch: int | None) -> tf.data.Dataset:
    """Returns a dataset that says how many batches it has, for which it may be gone through once.

    A schedule needs the number. Where it is given nothing is counted.
    """
    if steps_per_epoch or data.cardinality() != tf.data.UNKNOWN_CARDINALITY:
        return data
    logging.info("Counting the batches of the dataset, whose number is unknown.")
    return data.apply(tf.data.experimental.assert_cardinality(sum(1 for _ in data)))


def count_steps(data: Any, batch_size: int, validation_split: float = 0.0) -> int:
    """Returns the batches of an epoch of what Keras trains on.

    Args:
      data: a dataset, or arrays.
      batch_size: of arrays.
      validation_split: share of arrays that is held out, as Keras takes it.

    Raises:
      ValueError: if that has no end.
    """
    if isinstance(data, tf.data.Dataset):
        if data.cardinality() != tf.data.INFINITE_CARDINALITY:
            return int(data.cardinality())
    elif isinstance(data, keras.utils.PyDataset):
        return int(data.num_batches or 1)
    elif not hasattr(data, "__next__"):
        count = math.floor(len(tf.nest.flatten(data)[0]) * (1.0 - validation_split))
        return -(-count // batch_size)
    if hasattr(data, "__next__"):
        raise ValueError("The number of batches of a generator is unknown: give steps_per_epoch.")
    raise ValueError("The dataset is infinite: give steps_per_epoch.")
