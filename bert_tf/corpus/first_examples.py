"""Reads the first pre-training examples of record files, masked, for display."""

import dataclasses
from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from bert_tf.config import DataConfig, MaskingConfig
from bert_tf.corpus.pipeline import MaskedBatches, raise_input_fault
from bert_tf.corpus.record_form import describe_records
from bert_tf.corpus.tfrecords import RecordFiles, list_record_files
from bert_tf.text.tokenization import AnyVocab


def read_examples(
    data: DataConfig, masking: MaskingConfig, vocab: AnyVocab, num_examples: int
) -> Iterator[dict[str, np.ndarray]]:
    """Yields the first examples of the files, masked; the features of a batch without B.

    Raises:
      ValueError: naming the record, if one cannot be read or is of another vocabulary.
    """
    records = RecordFiles(list_record_files(data.input_file))
    form = describe_records(records)
    if form.is_masked:
        masking = dataclasses.replace(masking, max_predictions_per_seq=form.max_predictions_per_seq)
    batches = MaskedBatches(
        records, vocab, masking, max_seq_length=form.max_seq_length, seed=data.random_seed
    )
    try:
        for batch in batches.evaluation(1, num_examples).as_numpy_iterator():
            yield {name: values[0] for name, values in batch.items()}
    except tf.errors.InvalidArgumentError as error:
        raise_input_fault(error, records)
