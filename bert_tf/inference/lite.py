"""LiteRT files with texts: rows and windows made in Python, without TensorFlow.

The answers are those of `bert_tf.serving`, whose classes compute them in the graph. Here the file
computes probabilities or logits of rows, and the rest is done as the programs do.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from bert_tf.serving.lite_model import LiteModel
from bert_tf.tasks.question_answering.answers import NO_SPAN_ODDS, find_best_span
from bert_tf.tasks.question_answering.features import (
    SquadFeature,
    SquadQuestion,
    make_features,
)
from bert_tf.text.packing import PackedText, by_length, pad_batch

Row = dict[str, Any]
MAX_ROWS = 32  # of one call
NO_SPAN = -1e30
ANSWERING = ("doc_stride", "max_query_length", "n_best_size", "max_answer_length")
DEFAULTS = {"doc_stride": 128, "max_query_length": 64, "n_best_size": 20, "max_answer_length": 30}


class LiteTexts:
    """A LiteRT file as a `predictor.TextModel`.

    Args:
      lite: the file.
    """

    def __init__(self, lite: LiteModel) -> None:
        self._lite, self.card = lite, lite.card
        self._labels = [label.encode("utf8") for label in lite.labels]

    def rows(self, *columns: Sequence[str]) -> list[Row]:
        """Returns the outputs by name for each row of texts."""
        kind = self.card["kind"]
        if kind == "question_answering":
            return [self._answer(*pair) for pair in zip(*columns, strict=True)]
        outputs = self._lite(*columns)
        rows = [{name: array[i] for name, array in outputs.items()} for i in range(len(columns[0]))]
        if kind == "classifier":
            return [{**row, **self._best(row["probabilities"])} for row in rows]
        if kind == "multi_label":
            return [{**row, "labels": self._above_half(row["probabilities"])} for row in rows]
        return rows

    def _best(self, probabilities: np.ndarray) -> Row:
        best = int(probabilities.argmax())
        return {"label": self._labels[best], "score": probabilities[best]}

    def _above_half(self, probabilities: np.ndarray) -> list[bytes]:
        order = np.argsort(-probabilities, kind="stable")
        return [self._labels[i] for i in order if probabilities[i] > 0.5]

    def _answer(self, question: str, context: str) -> Row:
        """Finds the best answer in all windows of a context: `QuestionAnsweringServing`."""
        numbers = {name: self.card.get(name, DEFAULTS[name]) for name in ANSWERING}
        asked = SquadQuestion("", question, context, None, (), False)
        windows = make_features(
            asked,
            self._lite.tokenizer,
            self.card["max_seq_length"],
            numbers["doc_stride"],
            numbers["max_query_length"],
        )
        none = {"answer": b"", "start": -1, "end": -1}
        if not windows:
            return {**none, "score": 0.0, "null_odds": NO_SPAN_ODDS}
        sizes = numbers["n_best_size"], numbers["max_answer_length"]
        best = find_best_span(context, windows, *self._window_logits(windows), *sizes)
        if best is None:
            return {**none, "score": 0.0, "null_odds": NO_SPAN_ODDS}
        found = {**none, "score": best.score, "null_odds": best.null_odds}
        if self.card.get("version_2") and best.null_odds > self.card["null_score_diff_threshold"]:
            return found
        answer = context[best.start : best.end].encode("utf8")
        return {**found, "answer": answer, "start": best.start, "end": best.end}

    def _window_logits(self, windows: Sequence[SquadFeature]) -> tuple[np.ndarray, np.ndarray]:
        """Returns the logits of starts and ends, float64 [R, T]; padding is no place for either."""
        rows = [PackedText(window.ids.tolist(), window.type_ids.tolist()) for window in windows]
        longest = max(len(row.ids) for row in rows)
        logits = np.full((2, len(rows), longest), NO_SPAN)
        for index, (row, outputs) in enumerate(zip(rows, self._compute(rows), strict=True)):
            length = len(row.ids)
            logits[0, index, :length] = outputs["start_logits"][:length]
            logits[1, index, :length] = outputs["end_logits"][:length]
        return logits[0], logits[1]

    def _compute(self, rows: Sequence[PackedText]) -> list[dict[str, np.ndarray]]:
        """Returns the outputs of rows."""

        def compute(chosen: list[int]) -> list[dict[str, np.ndarray]]:
            batch = pad_batch([rows[index] for index in chosen], self._lite.vocab.pad_id)
            outputs = self._lite.from_ids(batch)
            return [
                dict(zip(outputs, row, strict=True)) for row in zip(*outputs.values(), strict=True)
            ]

        return by_length([len(row.ids) for row in rows], MAX_ROWS, compute)
