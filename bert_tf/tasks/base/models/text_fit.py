"""Keras' `fit`, `evaluate` and `predict` on raw input: texts, words or questions with labels.

    texts, labels --read_examples--> TokenizedDataset in memory --batches, padded to the longest-->
        (inputs, labels, weights) -> Keras' own loop

All other input, such as dicts of ids or datasets of them, goes to Keras unchanged. A model that has
not been compiled is compiled for each `fit` with the defaults of fine-tuning; see `compile_for`.
"""

import abc
import itertools
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import keras
import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf.config.fine_tuning_config import BALANCED, LabelLossConfig
from bert_tf.config.fine_tuning_defaults import (
    BATCH_SIZE,
    default_batch_size,
    default_epochs,
    default_learning_rate,
)
from bert_tf.network.losses import LabelLoss, WeightedSum, label_loss_of
from bert_tf.system.number_arguments import check_numbers
from bert_tf.system.type_names import (
    Batch,
    Callbacks,
    ClassWeight,
    Column,
    KerasInput,
    Labels,
    Tensor,
    Texts,
)
from bert_tf.tasks.base.examples.known_texts import KnownTexts
from bert_tf.tasks.base.examples.row_batches import epoch_batches, evaluation_batches
from bert_tf.tasks.base.examples.rows import TokenizedDataset, length_buckets
from bert_tf.tasks.base.models.default_compile import DefaultCompileMixin, check_rate_is_settable
from bert_tf.tasks.base.models.fit_input import (
    FitArguments,
    FitInput,
    check_is_alone,
    with_known_size,
)
from bert_tf.tasks.base.models.preprocessor import BertPreprocessor
from bert_tf.tasks.base.models.raw_batches import (
    KerasBatch,
    first_batch,
    holds_texts,
    inputs_in,
    is_stream,
    is_symbolic,
    pack_stream,
    unpack_batch,
)
from bert_tf.tasks.base.models.row_outputs import RowOutputs, stack
from bert_tf.text.packing import INPUTS
from bert_tf.text.text_counts import TextCounts, counting_texts, counts_texts, remedy_of
from bert_tf.text.tokenization import Tokenizer
from bert_tf.text.typed_tokens import log_typed_tokens
from bert_tf.training.finite_weights import FiniteLosses

# What `fit`, `evaluate` and `predict` show: 0, 1, 2, or "auto".
Verbosity = int | str


class Examples(Protocol):
    """Raw input that was read, and the rows that the model computes for it."""

    @property
    def rows(self) -> TokenizedDataset: ...


class TextFitMixin(RowOutputs, DefaultCompileMixin, abc.ABC):
    """Mixin that gives a Keras model with the encoder `bert` a loop for raw input.

    Inherited before `keras.Model`. `WithPreprocessor`, inherited after this class, provides the
    tokenizer and its settings. A subclass defines its raw input (`read_examples`), the form of its
    batches (`keras_batch`) and its loss (`task_loss`).
    """

    preprocessor: BertPreprocessor | None
    needed_preprocessor: BertPreprocessor
    tokenizer: Tokenizer
    max_seq_length: int
    # Whether training needs labels; models that read texts alone can train without.
    needs_labels = True
    # Number of classes of whole texts; 0 for a model that does not classify them.
    num_text_classes = 0
    # Whether a tuple is a column of examples; for other models it is a tuple of columns.
    is_one_column = False

    # Defined by a subclass ---------------------------------------------------------------------

    @abc.abstractmethod
    def read_examples(
        self, x: Texts, y: Labels | None = None, weights: Column | None = None
    ) -> Examples:
        """Reads raw input.

        Args:
          x: texts, or other input of the model.
          y: labels; None for predictions.
          weights: weight of each example; None: 1.

        Raises:
          ValueError: naming the first value that is missing or wrong.
        """

    @abc.abstractmethod
    def keras_batch(self, batch: dict[str, Any]) -> KerasBatch:
        """Returns inputs, labels and weights of a batch from `TokenizedDataset.batch`."""

    @abc.abstractmethod
    def task_loss(
        self, x: Batch, y: Tensor | Batch, outputs: Tensor | Batch, weights: Tensor | Batch | None
    ) -> WeightedSum:
        """Returns the loss of a batch; see `DefaultCompileMixin`."""

    def join_rows(self, examples: Any, outputs: list[Any]) -> list[Any]:
        """Returns the outputs of each example from those of its rows, such as its windows."""
        return outputs

    # Keras' methods ----------------------------------------------------------------------------

    def fit(
        self,
        x: KerasInput | None = None,
        y: Labels | None = None,
        batch_size: int | None = None,
        epochs: int | None = None,
        verbose: Verbosity = "auto",
        callbacks: Callbacks | None = None,
        validation_split: float = 0.0,
        validation_data: KerasInput | None = None,
        shuffle: bool = True,
        class_weight: ClassWeight | None = None,
        sample_weight: Column | None = None,
        initial_epoch: int = 0,
        steps_per_epoch: int | None = None,
        validation_steps: int | None = None,
        validation_batch_size: int | None = None,
        validation_freq: int | Sequence[int] = 1,
        learning_rate: float | None = None,
        label_smoothing: float = 0.0,
        focal_gamma: float = 0.0,
    ) -> keras.callbacks.History:
        """Trains as Keras' `fit`, on raw input or on ids.

        The other arguments are those of Keras.

        Args:
          x, y: raw input and labels as for `read_examples` of the class, a `tf.data` dataset of
            them if it takes one, or anything that Keras takes.
          batch_size: examples per step; None: 32, or fewer for long texts if the model has not been
            compiled, see `bert_tf.config.fine_tuning_defaults`.
          epochs: passes over the examples; None: 1 for a compiled model or with steps_per_epoch, as
            in Keras, else a number that falls as the number of examples grows.
          learning_rate: peak rate if the model has not been compiled; None: see `compile_for`.
          label_smoothing, focal_gamma: of classifiers and taggers, see `network.losses`. A
            classifier of several labels takes `class_weight` as `pos_weight`.

        Raises:
          ValueError: for errors in the input, before anything is traced.
          TypeError: if a number is given as text.
          FloatingPointError: if the loss of an epoch is not a finite number.
        """
        check_numbers(
            1, batch_size=batch_size, epochs=epochs, validation_batch_size=validation_batch_size
        )
        check_numbers(0, whole=False, learning_rate=learning_rate)
        # Before the data are read, because class weights may become part of the loss.
        config = LabelLossConfig(label_smoothing=label_smoothing, focal_gamma=focal_gamma)
        class_weight = self.choose_label_loss(config, y, class_weight)
        arguments = FitArguments(
            x=x,
            y=y,
            batch_size=batch_size,
            validation_split=validation_split,
            validation_data=validation_data,
            shuffle=shuffle,
            class_weight=class_weight,
            sample_weight=sample_weight,
            initial_epoch=initial_epoch,
            steps_per_epoch=steps_per_epoch,
        )
        with counting_texts("fit", remedy=remedy_of(self)):
            made = self._raw_input(arguments) if self.is_raw(x) else self._keras_input(arguments)
        if made.validation_data is not None:
            size = validation_batch_size or made.batch_size
            with counting_texts("fit, validation_data", remedy=remedy_of(self)) as counts:
                data = self.evaluation_data(made.validation_data, size, made.known_texts, counts)
                made.options["validation_data"] = data
            made.options |= {"validation_steps": validation_steps, "validation_batch_size": size}
        # After the data are read: the schedule needs the number of steps.
        epochs = self._compile_for_fit(made, epochs, initial_epoch, steps_per_epoch, learning_rate)
        self._check_loss()
        check_rate_is_settable(self.optimizer, callbacks)
        if isinstance(callbacks, keras.callbacks.CallbackList):
            callbacks.append(FiniteLosses())
        else:
            callbacks = [*tf.nest.flatten(callbacks or []), FiniteLosses()]
        return super().fit(  # type: ignore[misc]
            made.data,
            epochs=epochs,
            verbose=verbose,
            callbacks=callbacks,
            initial_epoch=initial_epoch,
            validation_freq=validation_freq,
            **made.options,
        )

    @property
    def _takes_defaults(self) -> bool:
        """Whether `fit` compiles the model."""
        return not self.compiled or self.is_compiled_by_default  # type: ignore[attr-defined]

    def _raw_input(self, arguments: FitArguments) -> FitInput:
        """Reads raw input; see `fit`."""
        arguments.split_validation(self.is_one_column)
        x: Any = arguments.x
        y = arguments.y
        if y is None and self.needs_labels:
            raise ValueError("fit: received no labels; give them as y: fit(texts, labels).")
        weights = self.weigh_classes(y, arguments.class_weight, arguments.sample_weight)
        examples = self.read_examples(x, y, weights)
        # A written "[SEP]" is not a separator here, as it is in other packages.
        log_typed_tokens(x, self.tokenizer.vocab)
        self.prepare_head(examples)
        # From NumPy's generator, so that `keras.utils.set_random_seed` makes the order repeatable.
        seed = int(np.random.randint(2**31)) if arguments.shuffle else None
        batch_size = arguments.batch_size
        if batch_size is None and self._takes_defaults:
            batch_size = default_batch_size(int(examples.rows.lengths.max(initial=0)))
        batch_size = batch_size or BATCH_SIZE
        data, steps = self.training_data(examples, batch_size, seed, arguments.initial_epoch)
        options = {
            "steps_per_epoch": arguments.steps_per_epoch or steps,
            "shuffle": False,  # `training_data` determines the order.
        }
        num_rows = len(examples.rows)
        return FitInput(
            data=data,
            options=options,
            batch_size=batch_size,
            num_rows=num_rows,
            validation_data=arguments.validation_data,
            known_texts=None if arguments.validation_data is None else KnownTexts(examples),
        )

    def _keras_input(self, arguments: FitArguments) -> FitInput:
        """Returns input for Keras, with texts in streams and datasets as ids; see `fit`."""
        x = arguments.x
        y = arguments.y
        class_weight = arguments.class_weight
        options: dict[str, Any] = {"shuffle": False}
        if isinstance(x, tf.data.Dataset):
            check_is_alone(
                y=y,
                sample_weight=arguments.sample_weight,
                validation_split=arguments.validation_split or None,
            )
            data = with_known_size(self.with_inputs(x), arguments.steps_per_epoch)
        else:
            # Keras gets the class weights, unless the packed batches have them already.
            data, class_weight = self._pack_stream(x, class_weight)
            options["y"] = self._ids_of(y)
            options["sample_weight"] = arguments.sample_weight
            options["batch_size"] = arguments.batch_size
            options["validation_split"] = arguments.validation_split
            # Keras warns when it is asked to shuffle a generator.
            options["shuffle"] = arguments.shuffle and not hasattr(x, "__next__")
        options["steps_per_epoch"] = arguments.steps_per_epoch
        options["class_weight"] = class_weight
        batch_size = arguments.batch_size or BATCH_SIZE
        return FitInput(data, options, batch_size, 0, arguments.validation_data)

    def _compile_for_fit(
        self,
        made: FitInput,
        epochs: int | None,
        initial_epoch: int,
        steps_per_epoch: int | None,
        learning_rate: float | None,
    ) -> int:
        """Compiles the model unless it has been compiled by hand; returns the number of epochs.

        Raises:
          ValueError: if the model is compiled and a learning rate is given.
        """
        if not self._takes_defaults:
            if learning_rate is not None:
                raise ValueError(
                    f"learning_rate={learning_rate} is for a model that has not been compiled; set "
                    f"the rate of the optimizer instead."
                )
            return 1 if epochs is None else epochs
        steps = made.steps_per_epoch
        if epochs is None:
            # The rows of a dataset or stream are known only by the batch.
            num_rows = made.num_rows or steps * made.batch_size
            epochs = 1 if steps_per_epoch else default_epochs(num_rows, self.num_text_classes)
        if learning_rate is None:
            learning_rate = default_learning_rate(self.bert.config.hidden_size)
        logging.info(
            "fit: learning_rate=%g, epochs=%d, batch_size=%d.",
            learning_rate,
            epochs,
            made.batch_size,
        )
        self.compile_for(max(1, (epochs - initial_epoch) * steps), learning_rate)
        return epochs

    @counts_texts
    def evaluate(
        self,
        x: KerasInput | None = None,
        y: Labels | None = None,
        batch_size: int | None = None,
        verbose: Verbosity = "auto",
        sample_weight: Column | None = None,
        **options: Any,
    ) -> Any:
        """Evaluates as Keras' `evaluate`, also on raw input."""
        if not self.compiled:  # type: ignore[attr-defined]
            self.compile_for(1)  # Only the loss and the metrics are used.
        if not self.is_raw(x):
            if isinstance(x, tf.data.Dataset):
                x = self.with_inputs(x)
            x, _ = self._pack_stream(x, is_evaluated=True)
            y = self._ids_of(y)
            options |= {"y": y, "batch_size": batch_size, "sample_weight": sample_weight}
            return super().evaluate(x, verbose=verbose, **options)  # type: ignore[misc]
        data = self.evaluation_data((x, y, sample_weight), batch_size or BATCH_SIZE)
        return super().evaluate(data, verbose=verbose, **options)  # type: ignore[misc]

    @counts_texts
    def predict(
        self,
        x: KerasInput,
        batch_size: int | None = None,
        verbose: Verbosity = "auto",
        steps: int | None = None,
        callbacks: Callbacks | None = None,
    ) -> Any:
        """Predicts as Keras' `predict`, also on raw input: unnormalized scores in its order.

        Rows of similar length are computed together.
        """
        if is_stream(x):
            batch, x = first_batch(x)
            if holds_texts(unpack_batch(batch)[0]):
                # All texts at once, so that texts of similar length share a batch.
                texts = self.join_batches(list(inputs_in(x, steps)))
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
        x: KerasInput,
        y: Labels | None = None,
        sample_weight: Column | None = None,
        class_weight: ClassWeight | None = None,
        return_dict: bool = False,
    ) -> Any:
        """Trains on a batch as Keras' `train_on_batch`, also on raw input."""
        self._check_loss()
        if self.is_raw(x):
            weights = self.weigh_classes(y, class_weight, sample_weight)
            x, y, sample_weight = self.pack_batch(x, y, weights)
            class_weight = None  # It is part of the weights.
        return super().train_on_batch(x, y, sample_weight, class_weight, return_dict)  # type: ignore[misc]

    def test_on_batch(
        self,
        x: KerasInput,
        y: Labels | None = None,
        sample_weight: Column | None = None,
        return_dict: bool = False,
    ) -> Any:
        """Evaluates a batch as Keras' `test_on_batch`, also of raw input."""
        if self.is_raw(x):
            x, y, sample_weight = self.pack_batch(x, y, sample_weight, is_evaluated=True)
        return super().test_on_batch(x, y, sample_weight, return_dict)  # type: ignore[misc]

    def predict_on_batch(self, x: Any) -> Any:
        """Predicts a batch as Keras' `predict_on_batch`, also of raw input; see `predict`."""
        if self.is_raw(x):
            return self.predict(x, len(x[0]) if isinstance(x, tuple) else len(x), verbose=0)
        return super().predict_on_batch(x)  # type: ignore[misc]

    # Raw input ---------------------------------------------------------------------------------

    def is_raw(self, x: KerasInput | None) -> bool:
        """Returns whether the input is raw; other input goes to Keras unchanged.

        Raises:
          ValueError: if a dict lacks an input of the encoder.
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
            if not holds_texts(x):
                return False
            # Raises an error that tells how to get a preprocessor.
            return bool(self.needed_preprocessor)
        return not hasattr(x, "element_spec")

    def inputs_of(self, x: Any) -> dict[str, Tensor]:
        """Returns the encoder's inputs for raw input; each window of a long text is a row."""
        columns = x if isinstance(x, tuple) else (x,)
        # In a graph and in Keras' functional API the texts have no values yet.
        if all(is_symbolic(column) for column in columns):
            return self.needed_preprocessor(*columns)
        rows = self.read_examples(x).rows
        # All rows in one batch, padded to the longest.
        batch = rows.batch(np.arange(len(rows)), len(rows), int(rows.lengths.max()))
        return {name: batch[name] for name in INPUTS}

    def pack_batch(
        self,
        x: Texts,
        y: Labels | None,
        weights: Column | None = None,
        is_evaluated: bool = False,
        length: int = 0,
    ) -> KerasBatch:
        """Returns a batch of raw input for Keras' loop.

        Args:
          x, y, weights: as for `read_examples`.
          is_evaluated: whether the batch is for evaluation, where each text has the same weight,
            however many windows it has.
          length: length of the rows; 0: the smallest bucket that fits.

        Raises:
          ValueError: if there are no labels, or as `read_examples`.
        """
        if y is None and self.needs_labels:
            raise ValueError("A batch has no labels; expected (texts, labels).")
        with counting_texts("A batch", self):
            examples = self.read_examples(x, y, weights)
        if is_evaluated:
            rows = self.evaluation_rows(examples)
        else:
            self.prepare_head(examples)
            rows = examples.rows
        # Each length is another shape to trace, so a few lengths serve all batches.
        longest = int(rows.lengths.max())
        lengths = length_buckets(self.max_seq_length, bool(self.jit_compile))
        length = length or next(bucket for bucket in lengths if bucket >= longest)
        batch = self.keras_batch(rows.batch(np.arange(len(rows)), len(rows), length))
        return tf.nest.map_structure(np.asarray, batch)

    def join_batches(self, batches: list[Any]) -> Texts:
        """Returns the raw input of several batches as one batch."""
        if isinstance(batches[0], tuple) and not self.is_one_column:
            columns = zip(*batches, strict=True)
            return tuple(list(itertools.chain.from_iterable(column)) for column in columns)
        return list(itertools.chain.from_iterable(batches))

    def _ids_of(self, y: Labels | None) -> Labels | None:
        """Returns labels of inputs that are ids, as the model's own loss takes them."""
        takes_ids = self._has_own_loss or not self.compiled  # type: ignore[attr-defined]
        return self.label_ids(y) if takes_ids and y is not None else y

    def label_ids(self, y: Labels) -> Labels:
        """Returns labels of inputs that are ids, in the form of the loss."""
        return y

    def _pack_stream(
        self, data: Any, class_weight: ClassWeight | None = None, is_evaluated: bool = False
    ) -> tuple[Any, ClassWeight | None]:
        """Packs the batches of a stream of texts; other data are returned as they are.

        Returns:
          The data, and the class weights for Keras: None if `pack` applies them.

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
        if not holds_texts(unpack_batch(batch)[0]):
            return data, class_weight

        def pack(item: Any) -> KerasBatch:
            x, y, weights = unpack_batch(item)
            weights = self.weigh_classes(y, class_weight, weights)
            # Keras takes the shapes of a stream from its first batches.
            length = self.needed_preprocessor.max_seq_length
            return self.pack_batch(x, y, weights, is_evaluated, length)

        return pack_stream(data, pack), None

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

    def weigh_classes(
        self, y: Labels | None, class_weight: ClassWeight | None, sample_weight: Column | None
    ) -> Column | None:
        """Returns the weight of each example; None for 1."""
        if class_weight is not None:
            raise ValueError(f"{type(self).__name__} has no class_weight; give sample_weight.")
        return sample_weight

    def choose_label_loss(
        self, config: LabelLossConfig, y: Labels | None, class_weight: ClassWeight | None
    ) -> ClassWeight | None:
        """Sets the loss of the labels for `fit`.

        Args:
          config: as given to `fit`.
          y: the labels; None if they are in a dataset.
          class_weight: as given to `fit`.

        Returns:
          Class weights that are not part of the loss.

        Raises:
          ValueError: if the model does not have such a loss.
        """
        if config != LabelLossConfig():
            raise ValueError(f"{type(self).__name__} has no label_smoothing and no focal_gamma.")
        return class_weight

    def set_label_loss(self, config: LabelLossConfig, pos_weight: Sequence[float] = ()) -> None:
        """Sets the loss of the labels; raises ValueError if `compile` was given another loss."""
        label_loss = label_loss_of(config, pos_weight)
        if label_loss != LabelLoss() and self.compiled and not self._has_own_loss:  # type: ignore[attr-defined]
            raise ValueError(f"fit: {label_loss} needs the model's own loss; give none to compile.")
        if label_loss != self.label_loss:
            self.train_function = None  # Keras traces a new step, with this loss.
        self.label_loss = label_loss

    def prepare_head(self, examples: Any) -> None:
        """Prepares the head for training on these examples; a subclass overrides it."""

    def evaluation_rows(self, examples: Any) -> TokenizedDataset:
        """Returns the rows for evaluation, with their weights."""
        return examples.rows

    def training_data(
        self, examples: Examples, batch_size: int, seed: int | None, first_epoch: int = 0
    ) -> tuple[tf.data.Dataset, int]:
        """Returns an endless dataset of batches for Keras, and the number of batches per epoch."""
        rows = examples.rows
        steps = -(-len(rows) // batch_size)
        buckets = self._buckets(rows)
        # The number of the first batch: those of earlier epochs precede it.
        data, steps = epoch_batches(rows, batch_size, first_epoch * steps, seed, buckets)
        return data.map(self.keras_batch), steps

    def unpack_texts(self, data: KerasInput) -> tuple[Any, Any, Any]:
        """Returns x, y and weights of validation data."""
        return keras.utils.unpack_x_y_sample_weight(data)

    def evaluation_data(
        self,
        data: KerasInput,
        batch_size: int,
        known_texts: KnownTexts | None = None,
        counts: TextCounts | None = None,
    ) -> KerasInput:
        """Returns validation data for Keras: raw input as a dataset, other data as they are.

        Args:
          data: the data.
          batch_size: examples per batch.
          known_texts: the training texts; None: texts are not compared with them.
          counts: receives how many examples are known.
        """
        if isinstance(data, tf.data.Dataset):
            return self.with_inputs(data)
        if is_stream(data):
            return self._pack_stream(data, is_evaluated=True)[0]
        x, y, weights = self.unpack_texts(data)
        if not self.is_raw(x):
            return keras.utils.pack_x_y_sample_weight(x, self._ids_of(y), weights)
        if y is None and self.needs_labels:
            raise ValueError("There are no labels to evaluate with; expected (texts, labels).")
        examples = self.read_examples(x, y, weights)
        if known_texts and counts:
            counts.num_known, counts.num_compared = known_texts.count(examples)
        rows = self.evaluation_rows(examples)
        buckets = self._buckets(rows)
        # Not filled up with rows of weight 0: Keras' metrics without weights would count them.
        batches = evaluation_batches(rows, batch_size, 0, buckets, is_filled=False)
        return batches.map(self.keras_batch)

    def _buckets(self, rows: TokenizedDataset) -> list[int]:
        """Returns the lengths that batches are padded to, which limits the shapes to trace."""
        is_fixed = bool(self.preprocessor and self.preprocessor.pad_to_max_length)
        longest = self.max_seq_length if is_fixed else max(1, int(rows.lengths.max()))
        return length_buckets(longest, bool(self.jit_compile), is_fixed)
