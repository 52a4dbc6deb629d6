"""Rows of SQuAD in one array, to compare with the original's and with batches."""

from collections.abc import Sequence

import numpy as np

from bert_tf.tasks.question_answering.features import SquadFeature


def pad_features(
    features: Sequence[SquadFeature], max_seq_length: int, pad_id: int = 0
) -> dict[str, np.ndarray]:
    """Pads rows to one length: ids with `pad_id`, the vocabulary's, the rest with 0.

    Returns:
      `input_word_ids`, `input_mask`, `input_type_ids`, each int32 [B, T] with T max_seq_length,
      and `start_positions`, `end_positions`, int32 [B].

    Raises:
      ValueError: if a row is longer.
    """
    shape = (len(features), max_seq_length)
    names = ("input_word_ids", "input_mask", "input_type_ids")
    batch = {name: np.zeros(shape, np.int32) for name in names}
    batch["input_word_ids"][:] = pad_id
    for row, feature in enumerate(features):
        length = len(feature.ids)
        if length > max_seq_length:
            raise ValueError(
                f"question {feature.question_id}: a window of {length} pieces, expected at most "
                f"max_seq_length, {max_seq_length}; make the features with the same length."
            )
        batch["input_word_ids"][row, :length] = feature.ids
        batch["input_mask"][row, :length] = 1
        batch["input_type_ids"][row, :length] = feature.type_ids
    batch["start_positions"] = np.array([f.start_position for f in features], np.int32)
    batch["end_positions"] = np.array([f.end_position for f in features], np.int32)
    return batch
