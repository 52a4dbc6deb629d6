"""Plain Python answers from the outputs of a model that reads texts in its graph."""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from bert_tf.metrics.classification import check_threshold, labels_above
from bert_tf.metrics.entities import join_words
from bert_tf.pretraining.masked_words.answers import (
    TokenAnswer,
    check_masks_are_read,
    check_top_k,
    count_masks,
    token_answer,
)
from bert_tf.system.type_names import Column, TextColumn, Texts
from bert_tf.tasks.base.examples.columns import is_empty
from bert_tf.tasks.base.examples.text_columns import as_list, text_column, text_columns, word_lists
from bert_tf.tasks.base.serving.metadata import Metadata
from bert_tf.tasks.classification.zero_shot import candidate_labels, check_candidates
from bert_tf.tasks.question_answering.columns import read_asked
from bert_tf.tasks.reranking.answers import ranked, read_candidates, read_query_pairs
from bert_tf.tasks.tagging.answers import as_text, words_of_outputs
from bert_tf.text.packing import by_length
from bert_tf.text.text_counts import Remedy, counts_texts
from bert_tf.text.vocab import MASK

Row = dict[str, Any]
NOT_LEFT_TO_RIGHT = (
    "{} from left to right is not part of an exported model; load the run directory or the "
    "checkpoint that it was exported from."
)
EXPORT_REMEDY = Remedy("--max_seq_length={} when the model is exported")
# Name of the output that `score` returns, by kind.
NUMBERS = {"regression": "value", "next_sentence": "is_next"}


class TextModel(Protocol):
    """A function of texts: a TensorFlow graph or a LiteRT file with its tokenizer.

    Attributes:
      card: kind, inputs (names of the texts), labels, max_seq_length.
    """

    card: Metadata

    def rows(self, *columns: Sequence[Any]) -> list[Row]:
        """Returns the outputs by name for each row of texts; strings are bytes.

        Args:
          columns: a column of texts for each input; lists of texts for a reranker's documents and
            for candidates.
        """

    def word_rows(self, sentences: Sequence[Sequence[str]]) -> list[Row]:
        """Returns the outputs by name for each list of words; only taggers have this."""


class OutputAnswers:
    """Answers from the outputs of a `TextModel`; the methods are those of `Predictor`.

    Args:
      model: computes the outputs.
    """

    text_remedy = EXPORT_REMEDY

    def __init__(self, model: TextModel) -> None:
        self._model = model
        self.kind = str(model.card["kind"])
        self.labels = tuple(model.card["labels"])
        self.inputs = tuple(model.card["inputs"])
        self.max_seq_length = int(model.card["max_seq_length"])

    @counts_texts
    def classify(
        self,
        texts: Texts,
        batch_size: int = 32,
        threshold: float | None = None,
        candidates: TextColumn | None = None,
        template: str | None = None,
        several: bool = False,
    ) -> list[dict[str, Any]]:
        if candidates is not None:
            chances = self.probabilities(texts, batch_size, candidates, template, several)
            return candidate_labels(chances, several, threshold)
        # Only models of several labels take a threshold.
        least = check_threshold(threshold, self.kind == "multi_label")
        if self.kind == "multi_label":
            # A threshold of the call replaces the recorded ones of all labels.
            recorded = self._model.card.get("thresholds") if threshold is None else None
            chances = self.probabilities(texts, batch_size)
            return [labels_above(row, least, recorded) for row in chances]
        rows = self._rows(text_columns(texts, self.inputs), batch_size)
        return [{"label": as_text(r["label"]), "score": float(r["score"])} for r in rows]

    @counts_texts
    def probabilities(
        self,
        texts: Texts,
        batch_size: int = 32,
        candidates: TextColumn | None = None,
        template: str | None = None,
        several: bool = False,
    ) -> list[dict[str, float]]:
        if candidates is not None:
            return self._candidate_probabilities(texts, batch_size, candidates, template, several)
        rows = self._rows(text_columns(texts, self.inputs), batch_size)
        return [dict(zip(self.labels, r["probabilities"].tolist(), strict=True)) for r in rows]

    def _candidate_probabilities(
        self,
        texts: TextColumn,
        batch_size: int,
        candidates: TextColumn,
        template: str | None,
        several: bool,
    ) -> list[dict[str, float]]:
        """Returns the probability of every candidate; an export takes them in its requests."""
        if self.kind != "zero_shot":
            raise ValueError(
                "This model was exported to answer with its own classes; export it with "
                "--kind=zero_shot to choose among candidates."
            )
        exported = self._model.card["template"]
        if template not in (None, exported):
            raise ValueError(
                f"template is {template!r}, but the model was exported with {exported!r}; export "
                "it again with --template, or load the original model."
            )
        names = check_candidates(candidates, several)
        premises = text_column(texts)

        def compute(chosen: list[int]) -> list[Row]:
            return self._model.rows([premises[i] for i in chosen], [names] * len(chosen))

        output = "several_probabilities" if several else "probabilities"
        # The graph makes a row of each text with each candidate.
        num_texts = max(1, batch_size // len(names))
        rows = by_length(list(map(len, premises)), num_texts, compute)
        if rows and output not in rows[0]:
            raise ValueError(
                "several=True needs a class whose name begins with 'contradict'; the classes are "
                f"{', '.join(self._model.card['classes'])}."
            )
        return [dict(zip(names, row[output].tolist(), strict=True)) for row in rows]

    @counts_texts
    def score(self, texts: Texts, batch_size: int = 32) -> list[float]:
        if self.kind == "reranker":
            return self._score_pairs(*read_query_pairs(texts), batch_size)
        if self.kind == "fill_mask":
            raise ValueError(NOT_LEFT_TO_RIGHT.format("score"))
        rows = self._rows(text_columns(texts, self.inputs), batch_size)
        return [float(row[NUMBERS[self.kind]]) for row in rows]

    @counts_texts
    def tag(self, texts: Column, batch_size: int = 32) -> list[list[dict[str, Any]]]:
        values = as_list(texts, "texts")
        if values and not isinstance(values[0], str):
            return self._tag_words(word_lists(values, "texts"), batch_size)
        column = text_column(values)
        rows = self._rows([column], batch_size)
        return [words_of_outputs(text, row) for text, row in zip(column, rows, strict=True)]

    @counts_texts
    def find_entities(self, texts: TextColumn, batch_size: int = 32) -> list[list[dict[str, Any]]]:
        column = text_column(texts)
        tagged = zip(column, self.tag(column, batch_size), strict=True)
        return [join_words(self.labels, text, words) for text, words in tagged]

    def _tag_words(self, sentences: list[list[str]], batch_size: int) -> list[list[dict[str, Any]]]:
        def compute(chosen: list[int]) -> list[Row]:
            return self._model.word_rows([sentences[i] for i in chosen])

        # Characters instead of tokens, because the tokenizer is in the graph.
        sizes = [sum(map(len, words)) for words in sentences]
        tagged = []
        for words, row in zip(sentences, by_length(sizes, batch_size, compute), strict=True):
            answers = []
            # The outputs are padded to the longest sentence of the batch.
            for word, tag, score in zip(words, row["tags"], row["scores"], strict=False):
                answers.append({"word": word, "label": as_text(tag), "score": float(score)})
            tagged.append(answers)
        return tagged

    @counts_texts
    def answer(
        self, questions: Column, contexts: TextColumn | None = None, batch_size: int = 32
    ) -> list[dict[str, Any]]:
        asked = questions if contexts is None else (questions, contexts)
        if is_empty(asked):
            return []
        read = read_asked(asked)
        columns = [[one.question for one in read], [one.context for one in read]]
        return [_read_answer(row) for row in self._rows(columns, batch_size)]

    @counts_texts
    def fill_mask(
        self, texts: TextColumn, batch_size: int = 32, top_k: int = 5
    ) -> list[list[list[TokenAnswer]]]:
        check_top_k(top_k, self._model.card.get("top_k", 0))
        column = text_column(texts)
        mask = self._model.card.get("mask", MASK)
        rows = self._rows([column], batch_size)
        answers = []
        for index, (text, row) in enumerate(zip(column, rows, strict=True)):
            if len(row["pieces"]):  # [M, K]
                check_top_k(top_k, len(row["pieces"][0]))
            masks = []
            for tokens, scores in zip(row["pieces"], row["probabilities"], strict=True):
                if not scores[0] > 0:  # Padding, where another text of the batch has more masks.
                    continue
                best = zip(tokens[:top_k], scores[:top_k], strict=True)
                masks.append([token_answer(as_text(token), score) for token, score in best])
            check_masks_are_read(index, count_masks(text, mask), len(masks), self.max_seq_length)
            answers.append(masks)
        return answers

    def continue_text(
        self, texts: TextColumn, batch_size: int = 32, **options: object
    ) -> list[str]:
        raise ValueError(NOT_LEFT_TO_RIGHT.format("continue_text"))

    @counts_texts
    def encode(self, texts: Texts, batch_size: int = 32) -> np.ndarray:
        columns = text_columns(texts, self.inputs)
        # Without texts, an empty one shows the dimension of the array [0, D].
        rows = self._rows(columns if columns[0] else [[""]], batch_size)
        return np.stack([row["embedding"] for row in rows])[: len(columns[0])]  # [B, D]

    def encode_query(self, texts: Texts, batch_size: int = 32) -> np.ndarray:
        return self._encode_side("query", texts, batch_size)

    def encode_document(self, texts: Texts, batch_size: int = 32) -> np.ndarray:
        return self._encode_side("document", texts, batch_size)

    def _encode_side(self, side: str, texts: Texts, batch_size: int) -> np.ndarray:
        """Embeds texts as queries or documents.

        Raises:
          ValueError: if the model was exported with another prompt, or does not record the prompt
            of this side.
        """
        prompt = self._model.card.get(f"{side}_prompt")
        exported = self._model.card.get("prompt", "")
        if prompt is None:
            raise ValueError(
                f"The exported model does not record the prompt of a {side}; export it again, or "
                f"use encode, which has the prompt {exported!r}."
            )
        if prompt != exported:
            raise ValueError(
                f"The model was exported with the prompt {exported!r}, but a {side} needs "
                f"{prompt!r}: export it with --side={side}, or load the original model."
            )
        return self.encode(texts, batch_size)

    @counts_texts
    def rank(self, query: str, documents: TextColumn, batch_size: int = 32) -> list[dict[str, Any]]:
        texts = read_candidates(query, documents)
        if not texts:
            return []
        # The graph splits a list of documents into batches, so `batch_size` is not used.
        (row,) = self._model.rows([query], [_as_documents(texts)])
        return ranked(texts, row["order"], row["scores"])

    def _score_pairs(
        self, queries: Sequence[str], documents: Sequence[str], batch_size: int
    ) -> list[float]:
        """Scores pairs, each as a query with a single document."""
        sizes = [len(query) + len(text) for query, text in zip(queries, documents, strict=True)]

        def compute(chosen: list[int]) -> list[Row]:
            lists = [_as_documents([documents[i]]) for i in chosen]
            return self._model.rows([queries[i] for i in chosen], lists)

        return [float(row["scores"][0]) for row in by_length(sizes, batch_size, compute)]

    def _rows(self, columns: Sequence[Sequence[str]], batch_size: int) -> list[Row]:
        """Returns the outputs for each row; texts of similar length are computed together."""
        if not columns[0]:
            return []

        def compute(chosen: list[int]) -> list[Row]:
            parts = [[column[i] for i in chosen] for column in columns]
            return self._model.rows(*parts)

        # Characters instead of tokens, which only the graph computes.
        sizes = [sum(map(len, texts)) for texts in zip(*columns, strict=True)]
        return by_length(sizes, batch_size, compute)


def _as_documents(texts: Sequence[str]) -> list[str]:
    """Returns documents for a graph, which takes "" for the padding of a shorter list."""
    return [text or " " for text in texts]


def _read_answer(row: Row) -> dict[str, Any]:
    """Returns the fields of an answer."""
    answer = {"answer": as_text(row["answer"]), "start": int(row["start"]), "end": int(row["end"])}
    for name in ("score", "null_odds", "probability"):
        answer[name] = float(row[name])
    return answer
