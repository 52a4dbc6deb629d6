"""tf.data pipelines from TFRecords to masked batches.

    step -> rows of the step -> examples -> serialized records -> features -> masked batch
         example_order       RecordFiles.read      parse_example     masking

Every batch is a pure function of (records, seed, step): a run resumes by its step number, a worker
makes its own slice of the global batch, and the pipeline holds no state. All shapes are static.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import NoReturn, cast

import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf.config import MaskingConfig
from bert_tf.corpus import features
from bert_tf.corpus.example_order import order_examples
from bert_tf.corpus.mapping import ALL, InputShard, map_in_order
from bert_tf.corpus.mask_draws import MaskDraws
from bert_tf.corpus.masking import mask_batch
from bert_tf.corpus.record_form import RecordForm, check_form, describe_records, find_fault
from bert_tf.corpus.tfrecords import RecordFiles
from bert_tf.text.tokenization import AnyVocab

# A step -> example ids and epochs of its rows.
Choose = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]


class MaskedBatches:
    """Makes batches of records for training and for evaluation.

    Args:
      records: unmasked records, which get new masks in each epoch, or masked records.
      masking: the masking of unmasked records, and P.
      max_seq_length: T of the records.
      seed: seed of order and masks.
      use_next_sentence: False for 0 in all `next_sentence_weights`.
      mask: a masking function with the signature of `mask_batch`, instead of that of `masking`.

    Raises:
      ValueError: if the records do not fit T, P or the masking. A bad record or token id raises
        InvalidArgumentError when it is met: see `raise_input_fault`.
    """

    def __init__(
        self,
        records: RecordFiles,
        vocab: AnyVocab,
        masking: MaskingConfig,
        *,
        max_seq_length: int,
        seed: int,
        use_next_sentence: bool = True,
        mask: Callable | None = None,
    ) -> None:
        self._records = records
        self._vocab = vocab
        self._masking = masking
        self._seed = seed
        self._use_next_sentence = use_next_sentence
        self._form = describe_records(records)
        self._mask = _choose_masking(self._form, masking, mask, str(records.paths[0]))
        check_form(records, self._form, max_seq_length, masking.max_predictions_per_seq)

    def training(
        self,
        batch_size: int,
        start_step: int = 0,
        num_steps: int | None = None,
        shard: InputShard = ALL,
        last_step: int | None = None,
    ) -> tf.data.Dataset:
        """Returns the batches of the steps from `start_step` on.

        Args:
          batch_size: examples per step over all workers.
          num_steps: number of batches; None for no limit.
          shard: the rows of each batch to make.
          last_step: the step at which the share of masks is `masked_lm_prob_end`.

        Returns:
          Dataset of PretrainingBatch, B / W rows each, in the order of the steps.

        Raises:
          ValueError: if the workers do not divide B.
        """
        rows = shard.rows(batch_size)

        def choose(step: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            return order_examples(step * batch_size + rows, len(self._records), self._seed)

        # Endless: a range up to the largest step.
        if num_steps is None:
            num_steps = np.iinfo(np.int64).max - start_step
        steps = tf.data.Dataset.range(start_step, start_step + num_steps)
        return self._map_steps(steps, choose, len(rows), last_step)

    def evaluation(
        self, batch_size: int, max_steps: int | None = None, shard: InputShard = ALL
    ) -> tf.data.Dataset:
        """Returns every example once, in file order and with the masks of epoch 0.

        Arguments and errors are those of `training`; `max_steps` is the most batches. The last
        batch is filled up with rows of padding, whose weights are 0.
        """
        rows = shard.rows(batch_size)
        count = len(self._records)

        def choose(step: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            example_ids = step * batch_size + rows
            # The last batch is short here; `_fill_rows` pads it.
            example_ids = example_ids[example_ids < count]
            return example_ids, np.zeros_like(example_ids)

        # Rounded up, so the last batch is evaluated even if it is not full.
        num_steps = -(-count // batch_size)
        if max_steps is not None:
            num_steps = min(num_steps, max_steps)
        return self._map_steps(tf.data.Dataset.range(num_steps), choose, len(rows), None)

    def _map_steps(
        self, steps: tf.data.Dataset, choose: Choose, num_rows: int, last_step: int | None
    ) -> tf.data.Dataset:
        """Maps steps to batches of `num_rows` rows, several at once, in order."""

        def gather(step: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
            example_ids, epochs = choose(step)
            return np.array(self._records.read(example_ids), object), example_ids, epochs

        # There is no Python control flow on tensors, and so it is traced faster.
        @tf.autograph.experimental.do_not_convert
        def load(step: tf.Tensor) -> features.PretrainingBatch:
            # Python only reads bytes; parsing and masking are operations of the graph, in its
            # threads.
            gathered = tf.numpy_function(gather, [step], (tf.string, tf.int64, tf.int64))
            serialized, example_ids, epochs = (tf.ensure_shape(one, [None]) for one in gathered)
            progress = None
            if self._masking.masked_lm_prob_end and last_step is not None:
                # If batches were skipped, the run ends with steps after `last_step`.
                progress = tf.minimum(tf.cast(step, tf.float64) / max(1, last_step), 1.0)
            batch = self._make_batch(serialized, example_ids, epochs, progress)
            return _fill_rows(batch, num_rows, self._vocab.pad_id)

        return map_in_order(steps, load)

    def _make_batch(
        self,
        serialized: tf.Tensor,
        example_ids: tf.Tensor,
        epochs: tf.Tensor,
        progress: tf.Tensor | None,
    ) -> dict[str, tf.Tensor]:
        """Returns the masked batch of serialized records; for `progress` see `MaskDraws`."""
        vocab = self._vocab
        batch = parse_records(serialized, self._form)
        names = ["input_word_ids", *(["masked_lm_ids"] if self._form.is_masked else [])]
        checked = [_check_ids(batch[n], example_ids, self._records, len(vocab)) for n in names]
        # The identities make the batch depend on the checks, which would otherwise not run.
        with tf.control_dependencies(checked):
            batch = {name: tf.identity(values) for name, values in batch.items()}
        if vocab.pad_id:  # Records in google-research/bert's form are padded with 0.
            is_token = batch["input_mask"] > 0
            batch["input_word_ids"] = tf.where(is_token, batch["input_word_ids"], vocab.pad_id)
        if self._mask:
            draws = MaskDraws(example_ids, epochs, vocab, self._masking, self._seed, progress)
            batch = self._mask(batch, draws)
        weights = tf.fill(tf.shape(example_ids), float(self._use_next_sentence))
        return {**batch, "next_sentence_weights": weights}


def first_examples(
    records: RecordFiles, seed: int, masking: MaskingConfig, vocab: AnyVocab, num_examples: int
) -> Iterator[dict[str, np.ndarray]]:
    """Yields the first examples of files, masked, for display; the features of a batch without B.

    Raises:
      ValueError: naming the record, if one cannot be read or is of another vocabulary.
    """
    form = describe_records(records)
    if form.is_masked:
        masking = dataclasses.replace(masking, max_predictions_per_seq=form.max_predictions_per_seq)
    batches = MaskedBatches(records, vocab, masking, max_seq_length=form.max_seq_length, seed=seed)
    try:
        for batch in batches.evaluation(1, num_examples).as_numpy_iterator():
            yield {name: values[0] for name, values in batch.items()}
    except tf.errors.InvalidArgumentError as error:
        raise_input_fault(error, records)


def raise_input_fault(
    error: tf.errors.InvalidArgumentError, *records: RecordFiles | None
) -> NoReturn:
    """Reports in one line the error in the input that made a dataset of this module fail.

    A program calls it with an error of the dataset, or of a training step on its batches, and the
    records that were read; None is ignored.

    Raises:
      ValueError: naming the record and what to do.
      InvalidArgumentError: `error` again, if the records are not to blame.
    """
    # A ValueError raised in `tf.numpy_function` arrives as a line of TensorFlow's message.
    messages = [line for line in error.message.splitlines() if line.startswith("ValueError: ")]
    if messages:
        raise ValueError(messages[-1].removeprefix("ValueError: ")) from error
    for files in records:
        if files is not None:
            find_fault(files)
    raise error


def _fill_rows(
    batch: Mapping[str, tf.Tensor], num_rows: int, pad_id: int
) -> features.PretrainingBatch:
    """Adds rows of padding up to `num_rows`, which becomes the static shape."""
    # Zero weights leave the added rows out of losses and metrics.
    filled = {}
    for name, values in batch.items():
        missing = num_rows - tf.shape(values)[0]
        empty = pad_id if name == "input_word_ids" else 0
        paddings = [[0, missing]] + [[0, 0]] * (values.shape.rank - 1)
        padded = tf.pad(values, paddings, constant_values=empty)
        filled[name] = tf.ensure_shape(padded, [num_rows, *values.shape[1:]])
    return cast(features.PretrainingBatch, filled)


def _choose_masking(
    form: RecordForm, masking: MaskingConfig, of_objective: Callable | None, path: str
) -> Callable | None:
    """Returns the objective's masking function, or the configuration's; None for masked records."""
    if of_objective and form.is_masked:
        raise ValueError(
            f"The records of {path} are masked already, but --objective draws other masks. Use raw "
            "text, or records of create_pretraining_data --masking=dynamic."
        )
    if of_objective:
        return of_objective
    if form.is_masked:
        if masking.masking != "static":
            logging.info(
                "The records are already masked: --masking=%s has no effect.", masking.masking
            )
        return None
    if masking.masking == "static":
        raise ValueError(
            f"The records of {path} are not masked, and --masking=static does not mask them. Pass "
            "--masking=dynamic, or make the records again with create_pretraining_data "
            "--masking=static."
        )
    if masking.masking == "tf_text":
        from bert_tf.corpus import tf_text_masking

        return tf_text_masking.mask_batch
    return mask_batch


def parse_records(serialized: tf.Tensor, form: RecordForm) -> dict[str, tf.Tensor]:
    """Parses records, string [B], into the features they hold, with the library's names and types.

    Raises:
      InvalidArgumentError: if a record lacks a feature or a list has another length.
    """
    lengths = {"T": [form.max_seq_length], "P": [form.max_predictions_per_seq], "": []}
    present = features.STORED[form.is_masked]
    specs = {
        form.file_names[feature.name]: tf.io.FixedLenFeature(
            lengths[feature.axis], feature.file_dtype
        )
        for feature in present
    }
    parsed = tf.io.parse_example(serialized, specs)
    return {
        feature.name: tf.cast(parsed[form.file_names[feature.name]], feature.dtype)
        for feature in present
    }


def _check_ids(
    ids: tf.Tensor, example_ids: tf.Tensor, records: RecordFiles, vocab_size: int
) -> tf.Tensor:
    """Fails, naming the record, if token ids int32 [B, ...] are not in [0, vocab_size)."""

    def fail(ids: np.ndarray, example_ids: np.ndarray) -> bool:
        row, column = np.argwhere((ids < 0) | (ids >= vocab_size))[0]
        raise ValueError(
            f"Token id {ids[row, column]} in {records.locate(example_ids[row])}, but the "
            f"vocabulary has {vocab_size} tokens. Use the vocabulary that made the records "
            "(--vocab_file)."
        )

    # Python runs only for a batch with an error; the check itself stays in the graph.
    is_wrong = tf.reduce_any((ids < 0) | (ids >= vocab_size))
    return tf.cond(
        is_wrong,
        lambda: tf.numpy_function(fail, [ids, example_ids], tf.bool),
        lambda: False,
    )
