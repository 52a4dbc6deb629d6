"""The object that `bert_tf.load` returns: a trained model with plain Python answers."""

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy as np

from bert_tf.examples.text_columns import as_list, text_column, text_columns, word_lists
from bert_tf.metrics.classification import check_threshold, labels_above, softmax
from bert_tf.metrics.entities import join_words
from bert_tf.text.packing import by_length
from bert_tf.text.vocab import MASK

Row = dict[str, Any]
# Methods of Keras' models that are looked for here, and the class that has them.
OF_TRAINING = ("fit", "compile", "evaluate", "predict", "train_on_batch", "save", "save_pretrained")
CLASSES = {
    "classifier": "BertClassifier",
    "multi_label": "BertClassifier",
    "regression": "BertClassifier",
    "next_sentence": "BertPretrainer",
    "tagger": "BertTokenClassifier",
    "question_answering": "BertSpanLabeler",
    "fill_mask": "BertPretrainer",
    "embeddings": "BertEmbedder",
}
# What a method needs a model to be, and the output that is a number.
NUMBERS = {"regression": "value", "next_sentence": "is_next"}
METHODS = {
    "classifier": "classify",
    "multi_label": "classify",
    "regression": "score",
    "next_sentence": "score",
    "tagger": "tag or find_entities",
    "question_answering": "answer",
    "fill_mask": "fill_mask",
    "embeddings": "embed",
}


class TextModel(Protocol):
    """The model behind a predictor: a TensorFlow graph or a LiteRT file.

    Attributes:
      card: kind, inputs (names of the texts), labels, max_seq_length.
    """

    card: Row

    def rows(self, *columns: Sequence[str]) -> list[Row]:
        """Returns the outputs by name for each row of texts; strings are bytes."""

    def word_rows(self, sentences: Sequence[Sequence[str]]) -> list[Row]:
        """Returns the outputs by name for each list of words, of a tagger."""


class Predictor:
    """A model with methods for its purpose; each takes lists and returns lists.

        predictor = bert_tf.load("runs/sst2")
        predictor.classify(["A fine film.", "Dull."])

    Rows of similar length are computed together. Taggers and question answering models read texts
    of any length, in overlapping windows; other models cut texts at `max_seq_length` pieces. Texts
    are strings, or tuples of two for a model of pairs.

    Args:
      model: computes the outputs.
      batch_size: maximum number of rows per batch.

    Attributes:
      kind: classifier, multi_label, regression, next_sentence, tagger, question_answering,
        fill_mask or embeddings.
      labels: names of classes or tags, () without.
      inputs: names of the texts of a row: ("text",) or ("text", "text_b"), of questions
        ("question", "context").
      max_seq_length: maximum length of a row.
    """

    def __init__(self, model: TextModel, batch_size: int = 32) -> None:
        if batch_size < 1:
            raise ValueError(f"batch_size is {batch_size}, expected 1 or more.")
        self._model, self.batch_size = model, batch_size
        self.kind = str(model.card["kind"])
        self.labels = tuple(model.card["labels"])
        self.inputs = tuple(model.card["inputs"])
        self.max_seq_length = int(model.card["max_seq_length"])
        if self.kind == "reranker":
            raise ValueError(
                "A reranker has no predictor; load it with "
                "bert_tf.search.reranker.Reranker.from_pretrained."
            )
        if self.kind not in METHODS:
            raise ValueError(
                f"A model of kind {self.kind} has no predictor; expected one of "
                f"{', '.join(METHODS)}."
            )

    def __repr__(self) -> str:
        labels = f", labels={list(self.labels)}" if self.labels else ""
        return (
            f"<Predictor {self.kind}: {METHODS[self.kind]}, of {' and '.join(self.inputs)}{labels}>"
        )

    def __getattr__(self, name: str) -> Any:
        if name in OF_TRAINING:
            raise AttributeError(
                f"A predictor cannot {name}: it only answers. Train "
                f"bert_tf.{CLASSES[self.kind]}.from_pretrained(...) of the same path; fit and "
                "evaluate take texts."
            )
        kind = vars(self).get("kind")  # Not there yet while a copy is made.
        methods = f"; of a {kind} it answers with {METHODS[kind]}" if kind in METHODS else ""
        raise AttributeError(f"A predictor has no attribute {name!r}{methods}.")

    def classify(self, texts: Any, threshold: float | None = None) -> list[dict[str, Any]]:
        """Classifies texts.

        Args:
          texts: B texts.
          threshold: of a model of several labels, the probability above which a text has a label;
            None: 0.5.

        Returns:
          For each text the likeliest class, {"label": "good", "score": 0.98}; for a
          model of several labels {"labels": ["news", "sport"], "scores": [0.9, 0.7]}, all above
          the threshold, the likeliest first.

        Raises:
          ValueError: if the model is not a classifier, one of the texts is not a string, or there
            is a threshold for a model of one label per text.
        """
        self._check("classify", "classifier", "multi_label")
        least = check_threshold(threshold, self.kind == "multi_label")
        if self.kind == "multi_label":
            return [labels_above(row, least) for row in self.probabilities(texts)]
        rows = self._rows(text_columns(texts, self.inputs))
        return [{"label": _text(r["label"]), "score": float(r["score"])} for r in rows]

    def probabilities(self, texts: Any) -> list[dict[str, float]]:
        """Returns for each text the probability of every class, by label; raises as `classify`."""
        self._check("probabilities", "classifier", "multi_label")
        rows = self._rows(text_columns(texts, self.inputs))
        return [dict(zip(self.labels, r["probabilities"].tolist(), strict=True)) for r in rows]

    def score(self, texts: Any) -> list[float]:
        """Scores texts: a regression's number, or the probability that the second text follows.

        Raises:
          ValueError: if the model does not, or one of the texts is no string.
        """
        self._check("score", *NUMBERS)
        rows = self._rows(text_columns(texts, self.inputs))
        return [float(row[NUMBERS[self.kind]]) for row in rows]

    def choose(self, contexts: Any, choices: Any) -> list[dict[str, Any]]:
        """Chooses the continuation or answer for each context.

        Args:
          contexts: B texts.
          choices: B lists of texts.

        Returns:
          For each context {"choice": "He sat down.", "index": 2, "score": 0.7}, the score being a
          probability among its choices.

        Raises:
          ValueError: if the model does not score pairs, there are no choices, or one is not a
            string.
        """
        self._check("choose", "regression")
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
        scores = iter(self.score(pairs))
        found = []
        for texts in lists:
            values = np.array([next(scores) for _ in texts])
            best, score = int(values.argmax()), float(softmax(values).max())
            found.append({"choice": texts[best], "index": best, "score": score})
        return found

    def tag(self, texts: Any) -> list[list[dict[str, Any]]]:
        """Tags words.

        Args:
          texts: texts of any length, which the tokenizer splits into words at white space and
            punctuation; or lists of words, which are used unchanged.

        Returns:
          For each text its words: {"word": "Ada", "label": "B-PER", "score": 0.99} and, for texts,
            their "start" and "end" in characters.

        Raises:
          ValueError: if the model is not a tagger, or one of the texts is neither.
        """
        self._check("tag", "tagger")
        texts = as_list(texts, "texts")
        if texts and not isinstance(texts[0], str):
            return self._tag_words(word_lists(texts, "texts"))
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
            for text, row in zip(texts, self._rows([texts]), strict=True)
        ]

    def find_entities(self, texts: Any) -> list[list[dict[str, Any]]]:
        """Finds named or other tagged entities in texts of any length.

        Returns:
          For each text its entities in order: {"type": "PER", "text": "Ada Lovelace", "start": 0,
          "end": 12, "score": 0.99}: text[start:end] is the entity, and the score is the
          lowest of its words'. If the tags are not BIO, IOB1, BIOES or BILOU, each word with a tag
          other than O is an entity.

        Raises:
          ValueError: if the model is not a tagger, or one of the texts is not a string.
        """
        self._check("find_entities", "tagger")
        texts = text_column(texts)
        tagged = zip(texts, self.tag(texts), strict=True)
        return [join_words(self.labels, text, words) for text, words in tagged]

    def _tag_words(self, sentences: list[list[str]]) -> list[list[dict[str, Any]]]:
        sizes = [sum(map(len, words)) for words in sentences]
        rows = by_length(
            *(sizes, self.batch_size),
            lambda chosen: self._model.word_rows([sentences[i] for i in chosen]),
        )
        return [
            [
                {"word": word, "label": _text(tag), "score": float(score)}
                for word, tag, score in zip(words, row["tags"], row["scores"], strict=False)
            ]
            for words, row in zip(sentences, rows, strict=True)
        ]

    def answer(self, questions: Any, contexts: Any) -> list[dict[str, Any]]:
        """Answers questions with parts of their contexts, which may be of any length.

        Args:
          questions: B texts.
          contexts: B texts.

        Returns:
          For each question {"answer": "in London", "start": 9, "end": 18, "score": 11.3,
          "null_odds": -8.2}: context[start:end] is the answer, score is the sum of its
          logits, and null_odds is the score of no answer minus that; of a joint head, the sum of
          log-probabilities and the score of its class for no answer. Without one, "" and -1.

        Raises:
          ValueError: if the model does not answer questions, or one of the texts is not a string.
        """
        self._check("answer", "question_answering")
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
            for row in self._rows(columns)
        ]

    def fill_mask(self, texts: Any, top_k: int = 5) -> list[list[list[dict[str, Any]]]]:
        """Fills in [MASK].

        Args:
          texts: texts, each with at least one [MASK]; byte-level BPE's own, <mask> say, is one.
          top_k: pieces per mask.

        Returns:
          For each text and each of its masks the likeliest pieces: {"piece": "paris", "score":
          0.4}.

        Raises:
          ValueError: if the model does not fill masks, or fewer pieces per mask, or a text has no
            mask among the pieces that are read.
        """
        self._check("fill_mask", "fill_mask")
        most = self._model.card.get("top_k", 0)
        if top_k < 1 or (most and top_k > most):
            raise ValueError(f"top_k is {top_k}, expected 1 .. {most or 'what was exported'}.")
        texts = text_column(texts)
        names = {MASK, self._model.card.get("mask", MASK)}  # Byte-level BPE has a name of its own.
        found = []
        for index, (text, row) in enumerate(zip(texts, self._rows([texts]), strict=True)):
            count = sum(map(text.count, names))
            masks = [
                [
                    {"piece": _text(piece), "score": float(score)}
                    for piece, score in zip(pieces[:top_k], scores[:top_k], strict=True)
                ]
                for pieces, scores in zip(row["pieces"], row["probabilities"], strict=True)
                if scores[0] > 0  # Of other texts of the batch with more masks.
            ]
            if len(row["pieces"]) and len(row["pieces"][0]) < top_k:
                raise ValueError(
                    f"top_k is {top_k}; this model was exported with {len(row['pieces'][0])}."
                )
            if not masks or len(masks) < count:
                raise ValueError(
                    f"texts[{index}] has {count} {MASK}, {len(masks)} of them among the "
                    f"{self.max_seq_length} pieces that are read; write {MASK} where a word should "
                    f"be filled in."
                )
            found.append(masks)
        return found

    def embed(self, texts: Any) -> np.ndarray:
        """Embeds texts.

        Returns:
          float32 [B, D].

        Raises:
          ValueError: if the model does not, or one of the texts is no string.
        """
        self._check("embed", "embeddings")
        columns = text_columns(texts, self.inputs)
        rows = self._rows(columns if columns[0] else [[""]])
        return np.stack([row["embedding"] for row in rows])[: len(columns[0])]

    def _check(self, method: str, *kinds: str) -> None:
        """Raises ValueError if the model has another kind."""
        if self.kind not in kinds:
            raise ValueError(
                f"{method} is for {' and '.join(kinds)}, but this model is a {self.kind}: use "
                f"{METHODS[self.kind]}, or load it with kind={kinds[0]!r} if it has that head."
            )

    def _rows(self, columns: Sequence[Sequence[str]]) -> list[Row]:
        if not columns[0]:
            return []
        sizes = [sum(map(len, texts)) for texts in zip(*columns, strict=True)]
        return by_length(
            *(sizes, self.batch_size),
            lambda chosen: self._model.rows(*([c[i] for i in chosen] for c in columns)),
        )


def _text(value: Any) -> str:
    return value.decode("utf8") if isinstance(value, bytes) else str(value)


def _words(row: Row) -> Iterator[tuple[Any, ...]]:
    """Yields tag, score, start and end of each word; rows are padded with ""."""
    columns = (row[name] for name in ("tags", "scores", "starts", "ends"))
    return (word for word in zip(*columns, strict=True) if word[0])
