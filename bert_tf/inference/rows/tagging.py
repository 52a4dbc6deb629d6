"""Answers of files of taggers."""

import numpy as np

from bert_tf.inference.rows.answers import RowAnswers, row_outputs
from bert_tf.tasks.base.examples.rows import TokenizedDataset
from bert_tf.tasks.tagging.answers import TaggerAnswers


class RowTagger(RowAnswers, TaggerAnswers):
    """The answers of a file of a tagger."""

    def predict_rows(self, rows: TokenizedDataset, batch_size: int) -> list[np.ndarray]:
        """Returns the logits or log-probabilities of the tags of each row, float32 [T, C]."""
        scores = []
        for outputs in row_outputs(self._model, rows, batch_size):
            if self._model.has_logits:
                scores.append(outputs["logits"])
                continue
            with np.errstate(divide="ignore"):  # The softmax makes minus infinity 0 again.
                scores.append(np.log(outputs["probabilities"]))
        return scores
