"""LiteRT files with texts: rows and windows made in Python, without TensorFlow.

The answers are those of `bert_tf.serving`, whose classes compute them in the graph. Here the file
computes probabilities or logits of rows, and the rest is done as the programs do.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from bert_tf.examples.rows import TokenizedDataset
from bert_tf.inference.output_answers import OutputAnswers
from bert_tf.serving.lite_model import LiteModel
from bert_tf.tasks.classification.answers import ClassifierAnswers, to_logits
from bert_tf.tasks.question_answering.answers import NO_SPAN_ODDS, find_best_span
from bert_tf.tasks.question_answering.features import (
    SquadFeature,
    SquadQuestion,
    make_features,
)
from bert_tf.tasks.tagging.features import make_tag_rows
from bert_tf.tasks.tagging.files import TaggedSentence
from bert_tf.text.packing import INPUTS, PackedText, by_length, pad_batch
from bert_tf.text.words import word_offsets

Row = dict[str, Any]
LABEL_KINDS = {"classifier": "class", "multi_label": "several", "regression": "number"}
MAX_ROWS = 32  # of one call
NO_SPAN = -1e30
ANSWERING = ("doc_stride", "max_query_length", "n_best_size", "max_answer_length")
DEFAULTS = {"doc_stride": 128, "max_query_length": 64, "n_best_size": 20, "max_answer_length": 30}


class LiteClassifier(ClassifierAnswers):
    """The answers of a LiteRT file of a classifier.

    Args:
      lite: the file.
    """

    def __init__(self, lite: LiteModel) -> None:
        self._lite = lite
        self.label_kind = LABEL_KINDS[lite.card["kind"]]
        self.num_labels = max(1, len(lite.labels))
        self.known_labels = lite.labels
        self.tokenizer = lite.tokenizer
        self.max_seq_length = lite.card["max_seq_length"]
        self.long_texts = lite.long_texts

    def compute_rows(self, rows: TokenizedDataset, batch_size: int) -> list[np.ndarray]:
        """Returns the logits of each row, float [C]."""
        if self.label_kind == "number":
            return [row["value"].reshape(1) for row in lite_rows(self._lite, rows, batch_size)]
        return [
            to_logits(row["probabilities"], self.label_kind)
            for row in lite_rows(self._lite, rows, batch_size)
        ]


def lite_answers(lite: LiteModel) -> Any:
    """Returns the answers of a LiteRT file by its kind."""
    if lite.card["kind"] in LABEL_KINDS:
        return LiteClassifier(lite)
    return OutputAnswers(LiteTexts(lite))


def lite_rows(
    lite: LiteModel, rows: TokenizedDataset, batch_size: int
) -> list[dict[str, np.ndarray]]:
    """Returns the outputs of each row by name; rows of similar length are computed together."""

    def compute(chosen: list[int]) -> list[dict[str, np.ndarray]]:
        longest = int(rows.lengths[chosen].max())
        batch = rows.batch(np.array(chosen), len(chosen), longest)
        outputs = lite.from_ids({name: batch[name] for name in INPUTS})
        return [{name: column[i] for name, column in outputs.items()} for i in range(len(chosen))]

    return by_length(rows.lengths.tolist(), batch_size, compute)


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
        if kind == "tagger":
            return self._tag_texts(columns[0])
        if kind == "question_answering":
            return [self._answer(*pair) for pair in zip(*columns, strict=True)]
        outputs = self._lite(*columns)
        return [{name: array[i] for name, array in outputs.items()} for i in range(len(columns[0]))]

    def word_rows(self, sentences: Sequence[Sequence[str]]) -> list[Row]:
        """Returns tags and scores for each list of words."""
        length = self.card["max_seq_length"]
        tagged = [TaggedSentence(tuple(words), None, "") for words in sentences]
        rows = make_tag_rows(tagged, self._lite.tokenizer, length)
        probabilities = self._compute([row.text for row in rows])
        found = [
            {"tags": np.zeros(len(words), object), "scores": np.zeros(len(words), np.float32)}
            for words in sentences
        ]
        for row, outputs in zip(rows, probabilities, strict=True):
            chosen = outputs["probabilities"][row.positions]  # [W, C]
            tags = np.array([self._labels[i] for i in chosen.argmax(-1)], object)
            found[row.sentence]["tags"][row.words] = tags
            found[row.sentence]["scores"][row.words] = chosen.max(-1, initial=0.0)
        return found

    def _tag_texts(self, texts: Sequence[str]) -> list[Row]:
        places = [word_offsets(text, self._lite.tokenizer) for text in texts]
        words = [
            [text[start:end] for start, end in found]
            for text, found in zip(texts, places, strict=True)
        ]
        rows = self.word_rows(words)
        for found, row in zip(places, rows, strict=True):
            row["starts"] = np.array([start for start, _ in found], np.int32)
            row["ends"] = np.array([end for _, end in found], np.int32)
        return rows

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
