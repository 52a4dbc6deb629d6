"""Answers of LiteRT and ONNX files: rows and windows made in Python, without TensorFlow.

The answers are those of `bert_tf.tasks.base.serving`, whose classes compute them in the graph. Here
the file computes only probabilities or logits of rows; the answers are made of them in Python, by
the same classes as in the programs.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from bert_tf.inference.model_outputs import EXPORT_REMEDY
from bert_tf.tasks.base.examples.rows import TokenizedDataset
from bert_tf.tasks.base.serving.kind import import_object
from bert_tf.tasks.base.serving.row_model import RowModel
from bert_tf.text.packing import INPUTS, PackedText, by_length
from bert_tf.text.tokenization import Tokenizer

ROWS = "bert_tf.inference.rows"
EMBEDDERS = "bert_tf.inference.output_embedder"
# By kind; imported when needed, so that the first answer waits for one task alone.
ROW_CLASSES = {
    "classifier": f"{ROWS}.classification.RowClassifier",
    "multi_label": f"{ROWS}.classification.RowClassifier",
    "regression": f"{ROWS}.classification.RowClassifier",
    "zero_shot": f"{ROWS}.classification.RowZeroShot",
    "tagger": f"{ROWS}.tagging.RowTagger",
    "question_answering": f"{ROWS}.question_answering.RowSpanLabeler",
    "fill_mask": f"{ROWS}.masked_words.RowPretrainer",
    "next_sentence": f"{ROWS}.masked_words.RowPretrainer",
    "reranker": f"{ROWS}.reranking.RowReranker",
    "embeddings": f"{EMBEDDERS}.OutputEmbedder",
    "late_interaction": f"{EMBEDDERS}.OutputLateInteraction",
    # These answer nothing.
    "encoder": "bert_tf.inference.model_outputs.ModelOutputs",
    "splade": "bert_tf.inference.model_outputs.ModelOutputs",
}


def row_answers(model: RowModel) -> Any:
    """Returns the answers of a file by its kind."""
    return import_object(ROW_CLASSES[model.card["kind"]])(model)


class RowAnswers:
    """Mixin that holds the file that computes rows."""

    text_remedy = EXPORT_REMEDY

    def __init__(self, model: RowModel) -> None:
        self._model = model
        self.known_labels: Any = model.labels
        self.tokenizer: Tokenizer = model.tokenizer
        self.max_seq_length = model.card["max_seq_length"]
        self.long_texts = model.long_texts


def packed_outputs(
    model: RowModel, packed: Sequence[PackedText], batch_size: int
) -> list[dict[str, np.ndarray]]:
    """Returns the outputs of packed texts; see `row_outputs`."""
    if not packed:
        return []
    return row_outputs(model, TokenizedDataset(packed, pad_id=model.vocab.pad_id), batch_size)


def row_outputs(
    model: RowModel, rows: TokenizedDataset, batch_size: int
) -> list[dict[str, np.ndarray]]:
    """Returns the outputs of each row by name; rows of similar length are computed together."""

    def compute(chosen: list[int]) -> list[dict[str, np.ndarray]]:
        longest = int(rows.lengths[chosen].max())
        batch = rows.batch(np.array(chosen), len(chosen), longest)  # [R, T]
        outputs = model.from_ids({name: batch[name] for name in INPUTS})
        return [{name: column[i] for name, column in outputs.items()} for i in range(len(chosen))]

    return by_length(rows.lengths.tolist(), batch_size, compute)
