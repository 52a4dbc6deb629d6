"""Answers of files of masked language models and of next-sentence heads."""

from collections.abc import Sequence

import numpy as np

from bert_tf.inference.model_outputs import refuse_direction
from bert_tf.inference.rows.answers import RowAnswers, packed_outputs
from bert_tf.pretraining.masked_words.left_to_right import PretrainerAnswers
from bert_tf.tasks.base.serving.row_model import RowModel
from bert_tf.text.packing import PackedText, single_type_ids


class RowPretrainer(RowAnswers, PretrainerAnswers):
    """The answers of a file of a masked language model, or of its next-sentence head."""

    def __init__(self, model: RowModel) -> None:
        super().__init__(model)
        self.use_next_sentence = model.card["kind"] == "next_sentence"

    def compute_mask_logits(
        self, rows: Sequence[Sequence[int]], positions: Sequence[Sequence[int]], batch_size: int
    ) -> list[np.ndarray]:
        packed = [
            PackedText(list(row), single_type_ids(self._model.vocab, len(row))) for row in rows
        ]
        outputs = packed_outputs(self._model, packed, batch_size)
        return [row["logits"][where] for row, where in zip(outputs, positions, strict=True)]

    def compute_next_sentence_logits(
        self, rows: Sequence[PackedText], batch_size: int
    ) -> np.ndarray:
        return np.stack([row["logits"] for row in packed_outputs(self._model, rows, batch_size)])

    def check_direction(self) -> None:
        refuse_direction()
