"""Answers of files for questions."""

import numpy as np

from bert_tf.config.fine_tuning_config import SquadConfig
from bert_tf.inference.model_outputs import QUESTION_REMEDY
from bert_tf.inference.rows.answers import RowAnswers, row_outputs
from bert_tf.tasks.base.examples.rows import TokenizedDataset
from bert_tf.tasks.base.serving.row_model import RowModel
from bert_tf.tasks.question_answering.answers import END, START, QuestionAnswers

# Fields of `SquadConfig` in the metadata of a file.
READING = (
    "doc_stride",
    "max_query_length",
    "n_best_size",
    "max_answer_length",
    "null_score_diff_threshold",
)


class RowSpanLabeler(RowAnswers, QuestionAnswers):
    """The answers of a file for questions."""

    text_remedy = QUESTION_REMEDY

    def __init__(self, model: RowModel) -> None:
        super().__init__(model)
        recorded = {name: model.card[name] for name in READING}
        is_version_2 = bool(model.card.get("version_2"))
        self._reading = SquadConfig(version_2_with_negative=is_version_2, **recorded)

    @property
    def reading(self) -> SquadConfig:
        """How contexts are split into windows, and answers chosen."""
        return self._reading

    def predict_rows(self, rows: TokenizedDataset, batch_size: int) -> list[dict[str, np.ndarray]]:
        """Returns the logits of start and end of each row, float32 [T]."""
        outputs = []
        for index, row in enumerate(row_outputs(self._model, rows, batch_size)):
            length = rows.lengths[index]  # without the padding of its batch
            outputs.append({name: row[name][:length] for name in (START, END)})
        return outputs
