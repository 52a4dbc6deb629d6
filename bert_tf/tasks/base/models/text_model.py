"""The base class of Keras models that are trained, evaluated and used on raw input.

A model that has not been compiled is compiled for each `fit` with the defaults of fine-tuning.
"""

import abc
import functools
import operator
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf
from absl import logging

from bert_tf.config.fine_tuning_config import LabelLossConfig
from bert_tf.config.fine_tuning_defaults import BATCH_SIZE, default_epochs, default_learning_rate
from bert_tf.network.encoder import BertEncoder
from bert_tf.network.losses import LabelLoss, WeightedSum
from bert_tf.network.pretrained import FromPretrained
from bert_tf.system.number_arguments import check_numbers
from bert_tf.system.type_names import (
    Batch,
    Callbacks,
    ClassWeight,
    Column,
    Fields,
    KerasInput,
    Labels,
    Optimizer,
    Tensor,
    Texts,
)
from bert_tf.tasks.base.examples.columns import read_numbers
from bert_tf.tasks.base.examples.rows import TaskExamples, TokenizedDataset
from bert_tf.tasks.base.models.default_compile import (
    DefaultCompiler,
    LossArgument,
    with_finite_losses,
)
from bert_tf.tasks.base.models.fit_input import FitArguments, FitInput
from bert_tf.tasks.base.models.graph_labels import LabelAccuracy
from bert_tf.tasks.base.models.raw_batches import (
    KerasBatch,
    first_batch,
    holds_texts,
    inputs_in,
    is_stream,
    unpack_batch,
)
from bert_tf.tasks.base.models.raw_input import RawInput
from bert_tf.tasks.base.models.row_outputs import RowOutputs, stack
from bert_tf.text.text_counts import counts_texts

# What `fit`, `evaluate` and `predict` show: 0, 1, 2, or "auto".
Verbosity = int | str


class TextModel(FromPretrained, abc.ABC):
    """Base class of a Keras model that trains on raw input; inherited before `keras.Model`.

    A subclass has the encoder `bert` and a tokenizer, and defines its raw input (`read_examples`),
    the form of its batches (`keras_batch`) and its loss (`task_loss`).
    """

    bert: BertEncoder
    compiled: bool
    losses: list[Tensor]
    optimizer: Optimizer
    raw_input_class = RawInput
    label_loss = LabelLoss()  # in the last `fit`
    # Whether `fit` takes `label_smoothing` and `focal_gamma`, and `task_loss` a `label_loss`.
    has_label_loss = False
    # Whether the outputs have an axis of tokens.
    scores_tokens = False
    # Settings of `fit`, other than Keras' own, on which the graph of a training step depends.
    traced_settings: tuple[Any, ...] = ()
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
    ) -> TaskExamples:
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
        """Returns the loss of a batch.

        Args:
          y: labels; a dict for a model with several outputs, like `outputs` and `weights`.
          weights: weights of the labels; None: 1.

        With `has_label_loss` there is a further argument, `label_loss`: the loss of training.
        """

    @property
    def default_metrics(self) -> list[Any] | dict[str, list[Any]]:
        """Metrics to report besides the loss, as for `compile`."""
        return [LabelAccuracy("accuracy")]

    def join_rows(self, examples: Any, outputs: list[Any]) -> list[Any]:
        """Returns the outputs of each example from those of its rows, such as its windows."""
        return outputs

    # Compiling and loss ------------------------------------------------------------------------

    @functools.cached_property
    def raw_input(self) -> RawInput:
        return self.raw_input_class(self)

    @functools.cached_property
    def compiler(self) -> DefaultCompiler:
        return DefaultCompiler(self)

    @functools.cached_property
    def _row_outputs(self) -> RowOutputs:
        return RowOutputs(self)

    def compile(
        self,
        optimizer: str | Fields | Optimizer = "rmsprop",
        loss: LossArgument = None,
        **options: Any,
    ) -> None:
        """Compiles as Keras' `compile`; without a loss, the loss of the task is used.

        The model's outputs are unnormalized scores, so a cross entropy given by name is computed
        from logits.
        """
        loss = self.compiler.take_loss(loss)
        if options.get("jit_compile") is True:
            # Without the padding, the number of tokens differs in each batch, but XLA needs fixed
            # shapes.
            self.bert.leave_out_padding(False)
        super().compile(optimizer, loss, **options)  # type: ignore[misc]

    def compile_for(self, num_train_steps: int, learning_rate: float | None = None) -> None:
        """Compiles the model with the defaults of the fine-tuning programs.

        AdamW with bias correction, weight decay 0.01 except for LayerNorm and biases, and gradients
        clipped to norm 1. The rate rises during the first tenth of the steps and falls to 0 at the
        last.

        Args:
          num_train_steps: steps of the whole `fit`.
          learning_rate: peak rate; None: the default for the encoder's width, see
            `bert_tf.config.fine_tuning_defaults`.

        Callbacks such as `ReduceLROnPlateau` read and set the peak. Calling this again keeps the
        traced training step, unless an option that the graph depends on has changed.
        """
        self.compiler.compile_for(num_train_steps, learning_rate)

    def own_loss(
        self,
        x: Batch,
        y: Tensor | Batch | None,
        outputs: Tensor | Batch,
        weights: Tensor | Batch | None,
        training: bool,
    ) -> Tensor | None:
        """Returns the loss of the task, which in `evaluate` is the plain one.

        None if `compile` was given another loss.
        """
        if not self.compiler.has_own_loss or y is None:
            return None
        options = {"label_loss": self.label_loss} if training and self.has_label_loss else {}
        # `losses` are those that layers added, such as regularizers.
        return sum(self.losses, self.task_loss(x, y, outputs, weights, **options).mean())

    def save(self, *arguments: object, **options: object) -> None:
        """Saves as Keras' `save`, without an optimizer that `fit` made: its schedule has ended."""
        if not self.compiler.is_default:
            super().save(*arguments, **options)  # type: ignore[misc]
            return
        # Keras writes the state of the optimizer, twice the size of the weights.
        optimizer = self.optimizer
        self.optimizer = None
        try:
            super().save(*arguments, **options)  # type: ignore[misc]
        finally:
            self.optimizer = optimizer

    def get_compile_config(self) -> Fields | None:
        """Returns None for a model compiled by default: its schedule has ended."""
        return None if self.compiler.is_default else super().get_compile_config()  # type: ignore

    def compile_from_config(self, config: Fields) -> None:
        """Compiles a loaded model as the saved one was."""
        self.compile(**keras.saving.deserialize_keras_object(config))
        if self.optimizer is not None:
            # Keras reads the optimizer's state into variables that exist.
            self.optimizer.build(self.trainable_variables)  # type: ignore[attr-defined]

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
            1,
            or_none=True,
            batch_size=batch_size,
            validation_batch_size=validation_batch_size,
            epochs=epochs,
            steps_per_epoch=steps_per_epoch,
            validation_steps=validation_steps,
        )
        check_numbers(0, initial_epoch=initial_epoch)
        check_numbers(0, whole=False, or_none=True, learning_rate=learning_rate)
        check_numbers(0, 1, whole=False, validation_split=validation_split)
        # Before the data are read, because class weights may become part of the loss.
        config = LabelLossConfig(label_smoothing=label_smoothing, focal_gamma=focal_gamma)
        class_weight = self.choose_label_loss(config, y, class_weight)
        training = (x, y, sample_weight, class_weight, batch_size, shuffle, initial_epoch)
        validation = (validation_data, validation_split, validation_steps, validation_batch_size)
        made = self.raw_input.prepare(FitArguments(*training, steps_per_epoch, *validation))
        # After the data are read: the schedule needs the number of steps.
        epochs = self._compile_for_fit(made, epochs, initial_epoch, learning_rate)
        self.compiler.check_loss()
        return super().fit(  # type: ignore[misc]
            made.data,
            epochs=epochs,
            verbose=verbose,
            callbacks=with_finite_losses(self.optimizer, callbacks),
            initial_epoch=initial_epoch,
            validation_freq=validation_freq,
            **made.options,
        )

    @property
    def takes_defaults(self) -> bool:
        """Whether `fit` compiles the model."""
        return not self.compiled or self.compiler.is_default

    def _compile_for_fit(
        self, made: FitInput, epochs: int | None, initial_epoch: int, learning_rate: float | None
    ) -> int:
        """Compiles the model unless it has been compiled by hand; returns the number of epochs."""
        if not self.takes_defaults:
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
            is_counted = made.has_steps
            epochs = 1 if is_counted else default_epochs(num_rows, self.num_text_classes)
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
        if not self.compiled:
            self.compile_for(1)  # Only the loss and the metrics are used.
        if not self.raw_input.is_raw(x):
            if isinstance(x, tf.data.Dataset):
                x = self.raw_input.with_inputs(x)
            x, _ = self.raw_input.pack_stream(x, is_evaluated=True)
            y = self.raw_input.ids_of(y)
            options |= {"y": y, "batch_size": batch_size, "sample_weight": sample_weight}
            return super().evaluate(x, verbose=verbose, **options)  # type: ignore[misc]
        data = self.raw_input.evaluation_data((x, y, sample_weight), batch_size or BATCH_SIZE)
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
                texts = self.raw_input.join_batches(list(inputs_in(x, steps)))
                return self.predict(texts, batch_size, verbose, callbacks=callbacks)
        if not self.raw_input.is_raw(x):
            data = self.raw_input.with_inputs(x) if isinstance(x, tf.data.Dataset) else x
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
        self.compiler.check_loss()
        if self.raw_input.is_raw(x):
            weights = self.raw_input.weigh_classes(y, class_weight, sample_weight)
            x, y, sample_weight = self.raw_input.pack_batch(x, y, weights)
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
        if self.raw_input.is_raw(x):
            x, y, sample_weight = self.raw_input.pack_batch(x, y, sample_weight, is_evaluated=True)
        return super().test_on_batch(x, y, sample_weight, return_dict)  # type: ignore[misc]

    def predict_on_batch(self, x: Any) -> Any:
        """Predicts a batch as Keras' `predict_on_batch`, also of raw input; see `predict`."""
        if self.raw_input.is_raw(x):
            return self.predict(x, len(x[0]) if isinstance(x, tuple) else len(x), verbose=0)
        return super().predict_on_batch(x)  # type: ignore[misc]

    def predict_rows(
        self,
        rows: TokenizedDataset,
        batch_size: int,
        verbose: Verbosity | None = 0,
        callbacks: Callbacks | None = None,
    ) -> list[Any]:
        """Returns the model's outputs of each row, in the order of the rows, without padding.

        An output is an array, or a dict of arrays for a model with several outputs.
        """
        return self._row_outputs.predict(rows, batch_size, verbose, callbacks)

    def output_of_row(self, outputs: Any, position: int, length: int) -> Any:
        """Returns the outputs of one row of a batch, without its padding."""
        kept = (position, slice(length)) if self.scores_tokens else position  # [B, T, ...]
        return tf.nest.map_structure(operator.itemgetter(kept), outputs)

    # Raw input ---------------------------------------------------------------------------------

    def choose_label_loss(
        self, config: LabelLossConfig, y: Labels | None, class_weight: ClassWeight | None
    ) -> ClassWeight | None:
        """Sets the loss of the labels for `fit`.

        Returns:
          Class weights that are not part of the loss.
        """
        if self.has_label_loss:
            self.compiler.set_label_loss(config)
        elif config != LabelLossConfig():
            raise ValueError(f"{type(self).__name__} has no label_smoothing and no focal_gamma.")
        return class_weight

    def prepare_head(self, examples: Any) -> None:
        """Prepares the head for training on these examples; a subclass overrides it."""

    def set_weights_of_rows(
        self, examples: Any, weights: Column | None, count: int, owners: Any = slice(None)
    ) -> None:
        """Gives each row the weight of its example; `owners` is the index of the example."""
        if weights is not None:
            of_examples = read_numbers(weights, count, "sample_weight")
            least = of_examples.min()
            if least < 0:  # Training would make the answer worse.
                raise ValueError(f"sample_weight has {least:g}, expected 0 or more.")
            examples.rows.labels["example_weights"] = of_examples[owners]

    def unpack_texts(self, data: KerasInput) -> tuple[Any, Any, Any]:
        """Returns x, y and weights of validation data."""
        if isinstance(data, list | tuple) and len(data) > 3:
            raise ValueError(f"validation_data has {len(data)} parts, expected (texts, labels).")
        return keras.utils.unpack_x_y_sample_weight(data)
