"""Computes tokenized rows with a LiteRT file, and answers of its tasks, without TensorFlow."""

from typing import Any

import numpy as np

from bert_tf.examples.rows import TokenizedDataset
from bert_tf.serving.lite_model import LiteModel
from bert_tf.tasks.tagging.answers import TaggerAnswers
from bert_tf.text.packing import INPUTS, by_length
from bert_tf.text.tokenization import Tokenizer


class LiteRows:
    """Base class: the outputs of a LiteRT file for tokenized rows.

    Args:
      lite: the file.
    """

    def __init__(self, lite: LiteModel) -> None:
        self._lite = lite
        self.tokenizer: Tokenizer = lite.tokenizer
        self.max_seq_length = int(lite.card["max_seq_length"])

    def compute_outputs(
        self, rows: TokenizedDataset, batch_size: int
    ) -> list[dict[str, np.ndarray]]:
        """Returns the outputs of each row by name, with the padding of its batch."""

        def compute(chosen: list[int]) -> list[dict[str, np.ndarray]]:
            row_ids = np.array(chosen)
            length = int(rows.lengths[row_ids].max())
            batch = rows.batch(row_ids, len(chosen), length)
            outputs = self._lite.from_ids({name: batch[name] for name in INPUTS})
            found = []
            for index in range(len(chosen)):
                found.append({name: values[index] for name, values in outputs.items()})
            return found

        return by_length(rows.lengths.tolist(), batch_size, compute)


class LiteTagger(LiteRows, TaggerAnswers):
    """A LiteRT file with the methods of `BertTokenClassifier`."""

    def __init__(self, lite: LiteModel) -> None:
        super().__init__(lite)
        self.known_labels = lite.labels

    def compute_rows(self, rows: TokenizedDataset, batch_size: int) -> list[Any]:
        scores = []
        for outputs in self.compute_outputs(rows, batch_size):
            with np.errstate(divide="ignore"):  # The softmax of minus infinity is 0 again.
                scores.append(np.log(outputs["probabilities"]))
        return scores
