"""Plain Python answers from the outputs of a model that reads texts in its graph."""

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy as np

from bert_tf.examples.text_columns import as_list, text_column, text_columns, word_lists
from bert_tf.metrics.classification import check_threshold, labels_above, softmax
from bert_tf.metrics.entities import join_words
from bert_tf.text.packing import by_length
from bert_tf.text.vocab import MASK

Row = dict[str, Any]
# The output that is a number, by kind.
NUMBERS = {"regression": "value", "next_sentence": "is_next"}


class TextModel(Protocol):
    """A function of texts: a TensorFlow graph or a LiteRT file with its tokenizer.

    Attributes:
      card: kind, inputs (names of the texts), labels, max_seq_length.
    """

    card: Row

    def rows(self, *columns: Sequence[str]) -> list[Row]:
        """Returns the outputs by name for each row of texts; strings are bytes."""

    def word_rows(self, sentences: Sequence[Sequence[str]]) -> list[Row]:
        """Returns the outputs by name for each list of words, of a tagger."""


class OutputAnswers:
    """Answers from the outputs of a `TextModel`; the methods are those of `Predictor`.

    Args:
      model: computes the outputs.
    """

    def __init__(self, model: TextModel) -> None:
        self._model = model
        self.kind = str(model.card["kind"])
        self.labels = tuple(model.card["labels"])
        self.inputs = tuple(model.card["inputs"])
        self.max_seq_length = int(model.card["max_seq_length"])

    def classify(
        self, texts: Any, batch_size: int = 32, threshold: float | None = None
    ) -> list[dict[str, Any]]:
        least = check_threshold(threshold, self.kind == "multi_label")
        if self.kind == "multi_label":
            return [labels_above(row, least) for row in self.probabilities(texts, batch_size)]
        rows = self._rows(text_columns(texts, self.inputs), batch_size)
        return [{"label": _text(r["label"]), "score": float(r["score"])} for r in rows]

    def probabilities(self, texts: Any, batch_size: int = 32) -> list[dict[str, float]]:
        rows = self._rows(text_columns(texts, self.inputs), batch_size)
        return [dict(zip(self.labels, r["probabilities"].tolist(), strict=True)) for r in rows]

    def score(self, texts: Any, batch_size: int = 32) -> list[float]:
        rows = self._rows(text_columns(texts, self.inputs), batch_size)
        return [float(row[NUMBERS[self.kind]]) for row in rows]

    def choose(self, contexts: Any, choices: Any, batch_size: int = 32) -> list[dict[str, Any]]:
        if len(self.inputs) != 2:
            raise ValueError("choose needs a model of pairs, but this one takes single texts.")
        contexts, lists = text_column(contexts, "contexts"), as_list(choices, "choices")
        if len(contexts) != len(lists):
            raise ValueError(
                f"{len(contexts)} contexts, but {len(lists)} lists of choices; expected equal "
                f"numbers."
            )
        lists = [text_column(texts, f"choices[{i}]") for i, texts in enumerate(lists)]
        if [] in lists:
            raise ValueError(f"choices[{lists.index([])}] is empty; expected two or more texts.")
        pairs = [(c, text) for c, texts in zip(contexts, lists, strict=True) for text in texts]
        scores = iter(self.score(pairs, batch_size))
        found = []
        for texts in lists:
            values = np.array([next(scores) for _ in texts])
            best, score = int(values.argmax()), float(softmax(values).max())
            found.append({"choice": texts[best], "index": best, "score": score})
        return found

    def tag(self, texts: Any, batch_size: int = 32) -> list[list[dict[str, Any]]]:
        texts = as_list(texts, "texts")
        if texts and not isinstance(texts[0], str):
            return self._tag_words(word_lists(texts, "texts"), batch_size)
        texts = text_column(texts)
        return [
            [
                {
                    "word": text[start:end],
                    "label": _text(tag),
                    "score": float(score),
                    "start": int(start),
                    "end": int(end),
                }
                for tag, score, start, end in _words(row)
            ]
            for text, row in zip(texts, self._rows([texts], batch_size), strict=True)
        ]

    def find_entities(self, texts: Any, batch_size: int = 32) -> list[list[dict[str, Any]]]:
        texts = text_column(texts)
        tagged = zip(texts, self.tag(texts, batch_size), strict=True)
        return [join_words(self.labels, text, words) for text, words in tagged]

    def _tag_words(self, sentences: list[list[str]], batch_size: int) -> list[list[dict[str, Any]]]:
        sizes = [sum(map(len, words)) for words in sentences]
        rows = by_length(
            *(sizes, batch_size),
            lambda chosen: self._model.word_rows([sentences[i] for i in chosen]),
        )
        return [
            [
                {"word": word, "label": _text(tag), "score": float(score)}
                for word, tag, score in zip(words, row["tags"], row["scores"], strict=False)
            ]
            for words, row in zip(sentences, rows, strict=True)
        ]

    def answer(self, questions: Any, contexts: Any, batch_size: int = 32) -> list[dict[str, Any]]:
        columns = [text_column(questions, "questions"), text_column(contexts, "contexts")]
        if len(columns[0]) != len(columns[1]):
            raise ValueError(
                f"{len(columns[0])} questions, but {len(columns[1])} contexts; expected equal "
                f"numbers."
            )
        return [
            {
                "answer": _text(row["answer"]),
                "start": int(row["start"]),
                "end": int(row["end"]),
                "score": float(row["score"]),
                "null_odds": float(row["null_odds"]),
            }
            for row in self._rows(columns, batch_size)
        ]

    def fill_mask(
        self, texts: Any, batch_size: int = 32, top_k: int = 5
    ) -> list[list[list[dict[str, Any]]]]:
        most = self._model.card.get("top_k", 0)
        if top_k < 1 or (most and top_k > most):
            raise ValueError(
                f"top_k is {top_k}, expected 1 .. {most or 'the number that was exported'}."
            )
        texts = text_column(texts)
        names = {MASK, self._model.card.get("mask", MASK)}  # Byte-level BPE writes it differently.
        found = []
        for index, (text, row) in enumerate(
            zip(texts, self._rows([texts], batch_size), strict=True)
        ):
            count = sum(map(text.count, names))
            masks = [
                [
                    {"piece": _text(piece), "score": float(score)}
                    for piece, score in zip(pieces[:top_k], scores[:top_k], strict=True)
                ]
                for pieces, scores in zip(row["pieces"], row["probabilities"], strict=True)
                if scores[0] > 0  # Padding, where another text of the batch has more masks.
            ]
            if len(row["pieces"]) and len(row["pieces"][0]) < top_k:
                raise ValueError(
                    f"top_k is {top_k}; this model was exported with {len(row['pieces'][0])}."
                )
            if not masks or len(masks) < count:
                raise ValueError(
                    f"texts[{index}] has {count} {MASK}, {len(masks)} of them among the "
                    f"{self.max_seq_length} tokens that are read; write {MASK} where a word should "
                    f"be filled in."
                )
            found.append(masks)
        return found

    def encode(self, texts: Any, batch_size: int = 32) -> np.ndarray:
        columns = text_columns(texts, self.inputs)
        rows = self._rows(columns if columns[0] else [[""]], batch_size)
        return np.stack([row["embedding"] for row in rows])[: len(columns[0])]

    def _rows(self, columns: Sequence[Sequence[str]], batch_size: int) -> list[Row]:
        if not columns[0]:
            return []
        sizes = [sum(map(len, texts)) for texts in zip(*columns, strict=True)]
        return by_length(
            *(sizes, batch_size),
            lambda chosen: self._model.rows(*([c[i] for i in chosen] for c in columns)),
        )


def _text(value: Any) -> str:
    return value.decode("utf8") if isinstance(value, bytes) else str(value)


def _words(row: Row) -> Iterator[tuple[Any, ...]]:
    """Yields tag, score, start and end of each word; rows are padded with ""."""
    columns = (row[name] for name in ("tags", "scores", "starts", "ends"))
    return (word for word in zip(*columns, strict=True) if word[0])
