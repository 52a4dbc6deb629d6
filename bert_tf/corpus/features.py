"""The features of pre-training examples: names, lengths and types, in files and in batches.

The library uses the names of the TensorFlow Model Garden ("v2" names). Files are written with the
names of google-research/bert ("v1" names) and read with either. Every list is zero padded to its
full length: T tokens and P predictions per sequence.

This module does not import TensorFlow, because the processes that write examples do not need it.
"""

import dataclasses
import typing

import numpy as np

if typing.TYPE_CHECKING:
    import tensorflow as tf


class PretrainingBatch(typing.TypedDict):
    """A batch as the model and the losses take it; a dict, because Keras and tf.data want dicts.

    `next_sentence_weights` is 1 for a row whose label counts and 0 for a row that pads the last
    evaluation batch, and everywhere when next sentence prediction is off. It is in no file.
    """

    input_word_ids: "tf.Tensor"  # int32 [B, T], token ids after masking
    input_mask: "tf.Tensor"  # int32 [B, T], 1 real, 0 padding
    input_type_ids: "tf.Tensor"  # int32 [B, T], 0 first segment, 1 second
    masked_lm_positions: "tf.Tensor"  # int32 [B, P], ascending
    masked_lm_ids: "tf.Tensor"  # int32 [B, P], original ids at these positions
    masked_lm_weights: "tf.Tensor"  # float32 [B, P], 1 real, 0 padding
    next_sentence_labels: "tf.Tensor"  # int32 [B], 0 really next, 1 random
    next_sentence_weights: "tf.Tensor"  # float32 [B], 1 the label counts


@dataclasses.dataclass(frozen=True)
class Feature:
    """One feature of a stored example."""

    name: str  # its name inside the library, which is also its v2 name in files
    file_name: str  # its v1 name in files, google-research/bert's
    axis: str  # "T" or "P", the length of its list; "" for a single value
    file_dtype: type = np.int64  # type of the list in files
    dtype: type = np.int32  # type in a batch


INPUT_FEATURES = (
    Feature("input_word_ids", "input_ids", "T"),
    Feature("input_mask", "input_mask", "T"),
    Feature("input_type_ids", "segment_ids", "T"),
)
MASKED_LM_FEATURES = (
    Feature("masked_lm_positions", "masked_lm_positions", "P"),
    Feature("masked_lm_ids", "masked_lm_ids", "P"),
    Feature("masked_lm_weights", "masked_lm_weights", "P", np.float32, np.float32),
)
NEXT_SENTENCE_FEATURE = Feature("next_sentence_labels", "next_sentence_labels", "")

MASKED_FEATURES = (*INPUT_FEATURES, *MASKED_LM_FEATURES, NEXT_SENTENCE_FEATURE)
# By whether records are masked.
STORED = {False: (*INPUT_FEATURES, NEXT_SENTENCE_FEATURE), True: MASKED_FEATURES}
