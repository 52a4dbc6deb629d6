"""Raw input of a Keras model: texts, words or questions with labels, made into batches of ids.

    texts, labels --read_examples--> TokenizedDataset in memory --batches, padded to the longest-->
        (inputs, labels, weights) -> Keras' own loop

All other input, such as dicts of ids or datasets of them, goes to Keras unchanged.
"""

import itertools
import typing
from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert_tf.config.fine_tuning_config import BALANCED
from bert_tf.config.fine_tuning_defaults import BATCH_SIZE, default_batch_size
from bert_tf.system.type_names import ClassWeight, Column, KerasInput, Labels, Texts
from bert_tf.tasks.base.examples.known_texts import KnownTexts
from bert_tf.tasks.base.examples.row_batches import epoch_batches, evaluation_batches
from bert_tf.tasks.base.examples.rows import (
    TaskExamples,
    TokenizedDataset,
    bucket_of,
    length_buckets,
)
from bert_tf.tasks.base.models import raw_batches
from bert_tf.tasks.base.models.fit_input import (
    FitArguments,
    FitInput,
    check_is_alone,
    split_off,
    with_known_size,
)
from bert_tf.text.packing import INPUTS
from bert_tf.text.text_counts import TextCounts, counting_texts, remedy_of
from bert_tf.text.typed_tokens import log_typed_tokens

if typing.TYPE_CHECKING:
    from bert_tf.tasks.base.models.text_model import TextModel


class RawInput:
    """Makes the input of Keras' loop from the raw input of a model."""

    def __init__(self, model: "TextModel") -> None:
        # `Any`: a task's class calls methods that only its model has.
        self.model: Any = model

    def prepare(self, given: FitArguments) -> FitInput:
        """Returns the input of `fit` for Keras, with validation data."""
        remedy = remedy_of(self.model)
        with counting_texts("fit", remedy=remedy):
            prepare = self._read if self.is_raw(given.x) else self._keras_input
            made = prepare(given)
        if made.validation_data is not None:
            size = given.validation_batch_size or made.batch_size
            with counting_texts("fit, validation_data", remedy=remedy) as counts:
                made.options["validation_data"] = self.evaluation_data(
                    made.validation_data, size, made.known_texts, counts
                )
            made.options["validation_steps"] = given.validation_steps
            made.options["validation_batch_size"] = size
        return made

    def _read(self, given: FitArguments) -> FitInput:
        """Reads raw input; see `fit`."""
        x: Any = given.x
        y = given.y
        weights = given.sample_weight
        validation_data: Any = given.validation_data
        if given.validation_split and validation_data is None:
            # A tuple is a tuple of columns, unless the model takes one column.
            columns = list(x) if self.model.is_one_column and isinstance(x, tuple) else x
            x, y, weights, validation_data = split_off(columns, y, weights, given.validation_split)
        if y is None and self.model.needs_labels:
            raise ValueError("fit: received no labels; give them as y: fit(texts, labels).")
        weights = self.weigh_classes(y, given.class_weight, weights)
        examples = self.model.read_examples(x, y, weights)
        # A written "[SEP]" is not a separator here, as it is in other packages.
        log_typed_tokens(x, self.model.tokenizer.vocab)
        self.model.prepare_head(examples)
        # From NumPy's generator, so that `keras.utils.set_random_seed` makes the order repeatable.
        seed = int(np.random.randint(2**31)) if given.shuffle else None
        batch_size = given.batch_size
        if batch_size is None and self.model.takes_defaults:
            batch_size = default_batch_size(int(examples.rows.lengths.max(initial=0)))
        batch_size = batch_size or BATCH_SIZE
        data, steps = self.training_data(examples, batch_size, seed, given.initial_epoch)
        return FitInput(
            data=data,
            # `training_data` determines the order.
            options={"steps_per_epoch": given.steps_per_epoch or steps, "shuffle": False},
            batch_size=batch_size,
            num_rows=len(examples.rows),
            validation_data=validation_data,
            has_steps=bool(given.steps_per_epoch),
            known_texts=None if validation_data is None else KnownTexts(examples),
        )

    def _keras_input(self, given: FitArguments) -> FitInput:
        """Returns input for Keras, with texts in streams and datasets as ids; see `fit`."""
        x = given.x
        y = given.y
        if isinstance(x, list | tuple) and (not x or isinstance(x[0], Mapping)):
            raise ValueError(f"fit: x is {x!r:.80}, expected texts, or a dict or dataset of ids.")
        class_weight = given.class_weight
        options: dict[str, Any] = {"shuffle": False}
        if isinstance(x, tf.data.Dataset):
            check_is_alone(
                y=y,
                sample_weight=given.sample_weight,
                validation_split=given.validation_split or None,
            )
            data = with_known_size(self.with_inputs(x), given.steps_per_epoch)
        else:
            # Keras gets the class weights, unless the packed batches have them already.
            data, class_weight = self.pack_stream(x, class_weight)
            options["y"] = self.ids_of(y)
            options["sample_weight"] = given.sample_weight
            options["batch_size"] = given.batch_size
            options["validation_split"] = given.validation_split
            # Keras warns when it is asked to shuffle a generator.
            options["shuffle"] = given.shuffle and not hasattr(x, "__next__")
        options["steps_per_epoch"] = given.steps_per_epoch
        options["class_weight"] = class_weight
        batch_size = given.batch_size or BATCH_SIZE
        has_steps = bool(given.steps_per_epoch)
        return FitInput(data, options, batch_size, 0, given.validation_data, has_steps)

    def is_raw(self, x: KerasInput | None) -> bool:
        """Returns whether the input is raw; other input goes to Keras unchanged."""
        if isinstance(x, Mapping):
            missing = [name for name in INPUTS if name not in x]
            if missing:
                raise ValueError(
                    f"The dict has {', '.join(map(repr, x))} and lacks {', '.join(missing)}; "
                    "expected the encoder's inputs, or raw texts."
                )
            return False
        if x is None or isinstance(x, tf.data.Dataset) or raw_batches.is_stream(x):
            return False
        if not self.model.preprocessor:
            if not raw_batches.holds_texts(x):
                return False
            # Raises an error that tells how to get a preprocessor.
            return bool(self.model.needed_preprocessor)
        return not hasattr(x, "element_spec")

    def pack_batch(
        self,
        x: Texts,
        y: Labels | None,
        weights: Column | None = None,
        is_evaluated: bool = False,
        length: int = 0,
    ) -> raw_batches.KerasBatch:
        """Returns a batch of raw input for Keras' loop.

        Args:
          is_evaluated: whether the batch is for evaluation, where each text has the same weight,
            however many windows it has.
          length: length of the rows; 0: the smallest bucket that fits.
        """
        if y is None and self.model.needs_labels:
            raise ValueError("A batch has no labels; expected (texts, labels).")
        with counting_texts("A batch", self.model):
            examples = self.model.read_examples(x, y, weights)
        if is_evaluated:
            rows = self.evaluation_rows(examples)
        else:
            self.model.prepare_head(examples)
            rows = examples.rows
        # Each length is another shape to trace, so a few lengths serve all batches.
        lengths = length_buckets(self.model.max_seq_length, bool(self.model.jit_compile))
        length = length or bucket_of(int(rows.lengths.max()), lengths)
        batch = self.model.keras_batch(rows.batch(np.arange(len(rows)), len(rows), length))
        return tf.nest.map_structure(np.asarray, batch)

    def join_batches(self, batches: list[Any]) -> Texts:
        """Returns the raw input of several batches as one batch."""
        if isinstance(batches[0], tuple) and not self.model.is_one_column:
            columns = zip(*batches, strict=True)
            return tuple(list(itertools.chain.from_iterable(column)) for column in columns)
        return list(itertools.chain.from_iterable(batches))

    def pack_stream(
        self, data: object, class_weight: ClassWeight | None = None, is_evaluated: bool = False
    ) -> tuple[Any, ClassWeight | None]:
        """Packs the batches of a stream of texts; other data are returned as they are.

        Returns:
          The data, and the class weights for Keras: None if `pack` applies them.
        """
        if not raw_batches.is_stream(data):
            return data, class_weight
        batch, data = raw_batches.first_batch(data)
        if class_weight == BALANCED:
            raise ValueError(
                f"class_weight={BALANCED!r} needs all labels at once; give a dict of weights, or "
                "lists of texts and labels."
            )
        if not raw_batches.holds_texts(raw_batches.unpack_batch(batch)[0]):
            return data, class_weight

        def pack(item: Any) -> raw_batches.KerasBatch:
            x, y, weights = raw_batches.unpack_batch(item)
            weights = self.weigh_classes(y, class_weight, weights)
            # Keras takes the shapes of a stream from its first batches.
            length = self.model.needed_preprocessor.max_seq_length
            return self.pack_batch(x, y, weights, is_evaluated, length)

        return raw_batches.pack_stream(data, pack), None

    def training_data(
        self, examples: TaskExamples, batch_size: int, seed: int | None, first_epoch: int = 0
    ) -> tuple[tf.data.Dataset, int]:
        """Returns an endless dataset of batches for Keras, and the number of batches per epoch."""
        rows = examples.rows
        steps = -(-len(rows) // batch_size)
        buckets = self.buckets(rows)
        # The number of the first batch: those of earlier epochs precede it.
        data, steps = epoch_batches(rows, batch_size, first_epoch * steps, seed, buckets)
        return data.map(self.model.keras_batch), steps

    def evaluation_data(
        self,
        data: KerasInput,
        batch_size: int,
        known_texts: KnownTexts | None = None,
        counts: TextCounts | None = None,
    ) -> KerasInput:
        """Returns validation data for Keras: raw input as a dataset, other data as they are.

        Args:
          known_texts: the training texts; None: texts are not compared with them.
        """
        if isinstance(data, tf.data.Dataset):
            return self.with_inputs(data)
        if raw_batches.is_stream(data):
            return self.pack_stream(data, is_evaluated=True)[0]
        x, y, weights = self.model.unpack_texts(data)
        if not self.is_raw(x):
            return keras.utils.pack_x_y_sample_weight(x, self.ids_of(y), weights)
        if y is None and self.model.needs_labels:
            raise ValueError("There are no labels to evaluate with; expected (texts, labels).")
        examples = self.model.read_examples(x, y, weights)
        if known_texts and counts:
            counts.num_known, counts.num_compared = known_texts.count(examples)
        rows = self.evaluation_rows(examples)
        buckets = self.buckets(rows)
        # Not filled up with rows of weight 0: Keras' metrics without weights would count them.
        batches = evaluation_batches(rows, batch_size, 0, buckets, is_filled=False)
        return batches.map(self.model.keras_batch)

    def buckets(self, rows: TokenizedDataset) -> list[int]:
        """Returns the lengths that batches are padded to, which limits the shapes to trace."""
        is_fixed = bool(self.model.preprocessor and self.model.preprocessor.pad_to_max_length)
        longest = self.model.max_seq_length if is_fixed else max(1, int(rows.lengths.max()))
        return length_buckets(longest, bool(self.model.jit_compile), is_fixed)

    def ids_of(self, y: Labels | None) -> Labels | None:
        """Returns labels of inputs that are ids, as the model's own loss takes them."""
        takes_ids = self.model.compiler.has_own_loss or not self.model.compiled
        return self.label_ids(y) if takes_ids and y is not None else y

    def label_ids(self, y: Labels) -> Labels:
        """Returns labels of inputs that are ids, in the form of the loss."""
        return y

    def with_inputs(self, data: tf.data.Dataset) -> tf.data.Dataset:
        """Returns a dataset of ids as it is."""
        if any(spec.dtype == tf.string for spec in tf.nest.flatten(data.element_spec)):
            raise ValueError(
                f"{type(self.model).__name__} does not take a dataset of texts; give lists, or a "
                "dataset of dicts of ids."
            )
        return data

    def weigh_classes(
        self, y: Labels | None, class_weight: ClassWeight | None, sample_weight: Column | None
    ) -> Column | None:
        """Returns the weight of each example; None for 1."""
        if class_weight is not None:
            raise ValueError(
                f"{type(self.model).__name__} has no class_weight; give sample_weight."
            )
        return sample_weight

    def evaluation_rows(self, examples: Any) -> TokenizedDataset:
        """Returns the rows for evaluation, with their weights."""
        return examples.rows
