"""Plain Python answers from the outputs of a model that reads texts in its graph.

The classes override the part of a task's answers that the graph computes; arguments, checks and the
form of the answers are the task's.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from bert_tf.config.fine_tuning_config import SquadConfig
from bert_tf.inference.model_outputs import (
    QUESTION_REMEDY,
    ModelOutputs,
    Row,
    TextFunction,
    refuse_direction,
)
from bert_tf.inference.output_embedder import OutputEmbedder, OutputLateInteraction
from bert_tf.pretraining.masked_words.answers import (
    TokenAnswer,
    check_masks_are_read,
    check_top_k,
    count_masks,
    token_answer,
)
from bert_tf.pretraining.masked_words.left_to_right import PretrainerAnswers
from bert_tf.system.type_names import TextColumn, Texts
from bert_tf.tasks.base.examples.columns import text_column, text_columns
from bert_tf.tasks.classification.answers import ClassifierAnswers
from bert_tf.tasks.classification.decisions import Decisions
from bert_tf.tasks.classification.zero_shot import check_candidates
from bert_tf.tasks.question_answering.answers import Answer, QuestionAnswers
from bert_tf.tasks.question_answering.questions import SquadQuestion
from bert_tf.tasks.reranking.answers import RerankerAnswers
from bert_tf.tasks.tagging.answers import TaggerAnswers, Word, as_text, words_of_outputs
from bert_tf.text.vocab import MASK


class OutputClassifier(ModelOutputs, ClassifierAnswers):
    """The answers of an exported model of classes, several labels or a number."""

    def __init__(self, model: TextFunction) -> None:
        super().__init__(model)
        card = model.card
        names = {"classifier": "single_label", "multi_label": "multi_label"}
        self.problem_type = names.get(card["kind"], "regression")
        self.known_labels = tuple(card["labels"])
        # The graph divides the logits by the temperature, and chooses one of several classes.
        if self.problem_type == "multi_label":
            thresholds = card.get("thresholds")
            self.decisions = Decisions.of(self.problem_type, self.known_labels, 1.0, thresholds)

    def _rows(self, texts: Texts, batch_size: int) -> list[Row]:
        return self.compute(text_columns(texts, self._model.card["inputs"]), batch_size)

    def choose_labels(self, texts: Texts, batch_size: int) -> list[dict[str, Any]]:
        rows = self._rows(texts, batch_size)
        return [{"label": as_text(row["label"]), "score": float(row["score"])} for row in rows]

    def compute_probabilities(self, texts: Texts, batch_size: int) -> np.ndarray:
        rows = self._rows(texts, batch_size)
        found = [row["probabilities"] for row in rows]
        if found:
            return np.stack(found)
        return np.zeros([0, len(self.known_labels)])

    def compute_logits(self, texts: Texts, batch_size: int = 32) -> np.ndarray:
        rows = self._rows(texts, batch_size)
        return np.array([row["value"] for row in rows]).reshape(-1, 1)

    def compute_candidates(
        self,
        texts: TextColumn,
        candidates: TextColumn,
        template: str | None,
        several: bool,
        batch_size: int,
    ) -> list[dict[str, float]]:
        raise ValueError(
            "This model was exported to answer with its own classes; export it with "
            "--kind=zero_shot to choose among candidates."
        )


class OutputZeroShot(OutputClassifier):
    """The answers of an exported zero-shot classifier, which takes candidates in its requests."""

    def compute_candidates(
        self,
        texts: TextColumn,
        candidates: TextColumn,
        template: str | None,
        several: bool,
        batch_size: int,
    ) -> list[dict[str, float]]:
        exported = self._model.card["template"]
        if template not in (None, exported):
            raise ValueError(
                f"template is {template!r}, but the model was exported with {exported!r}; export "
                "it again with --template, or load the original model."
            )
        names = check_candidates(candidates, several)

        def call(premises: list[str]) -> list[Row]:
            return self._model.rows(premises, [names] * len(premises))

        output = "several_probabilities" if several else "probabilities"
        # The graph makes a row of each text with each candidate.
        num_texts = max(1, batch_size // len(names))
        rows = self.compute([text_column(texts)], num_texts, call)
        if rows and output not in rows[0]:
            raise ValueError(
                "several=True needs a class whose name begins with 'contradict'; the classes are "
                f"{', '.join(self._model.card['classes'])}."
            )
        return [dict(zip(names, row[output].tolist(), strict=True)) for row in rows]


class OutputTagger(ModelOutputs, TaggerAnswers):
    """The answers of an exported tagger.

    Args:
      model: has, besides `rows`, `word_rows` with the outputs of each list of words.
    """

    _model: Any

    def __init__(self, model: TextFunction) -> None:
        super().__init__(model)
        self.known_labels = tuple(model.card["labels"])

    def tag_texts(self, texts: list[str], batch_size: int) -> list[list[Word]]:
        rows = self.compute([texts], batch_size)
        return [words_of_outputs(text, row) for text, row in zip(texts, rows, strict=True)]

    def tag_words(self, sentences: list[list[str]], batch_size: int) -> list[list[Word]]:
        for index, words in enumerate(sentences):
            if "" in words:  # An empty word would end the sentence.
                where = f"texts[{index}][{words.index('')}]"
                raise ValueError(f"{where} is empty; leave empty words out.")
        rows = self.compute([sentences], batch_size, self._model.word_rows)
        tagged = []
        for words, row in zip(sentences, rows, strict=True):
            answers = []
            # The outputs are padded to the longest sentence of the batch.
            for word, tag, score in zip(words, row["tags"], row["scores"], strict=False):
                answers.append({"word": word, "label": as_text(tag), "score": float(score)})
            tagged.append(answers)
        return tagged


class OutputSpans(ModelOutputs, QuestionAnswers):
    """The answers of an exported model for questions."""

    text_remedy = QUESTION_REMEDY
    reading = SquadConfig()

    def answer_asked(
        self, asked: list[SquadQuestion], config: SquadConfig, batch_size: int
    ) -> list[dict[str, Any]]:
        if config != self.reading:
            raise ValueError(
                "The options of answers are part of the exported model; export it again with "
                "others, or load the original model."
            )
        columns = [[one.question for one in asked], [one.context for one in asked]]
        answers = []
        for row in self.compute(columns, batch_size):
            numbers = {name: row[name].item() for name in Answer._fields if name != "answer"}
            answers.append({"answer": as_text(row["answer"]), **numbers})
        return answers


class OutputPretrainer(ModelOutputs, PretrainerAnswers):
    """The answers of an exported pre-trained model, which fills masks or scores pairs."""

    def fill_texts(
        self, texts: Sequence[str], top_k: int, batch_size: int
    ) -> list[list[list[TokenAnswer]]]:
        card = self._model.card
        check_top_k(top_k, card.get("top_k", 0))
        rows = self.compute([texts], batch_size)
        answers = []
        for index, (text, row) in enumerate(zip(texts, rows, strict=True)):
            if len(row["pieces"]):  # [M, K]
                check_top_k(top_k, len(row["pieces"][0]))
            masks = []
            for tokens, scores in zip(row["pieces"], row["probabilities"], strict=True):
                if not scores[0] > 0:  # Padding, where another text of the batch has more masks.
                    continue
                best = zip(tokens[:top_k], scores[:top_k], strict=True)
                masks.append([token_answer(as_text(token), score) for token, score in best])
            num_written = count_masks(text, card.get("mask", MASK))
            check_masks_are_read(index, num_written, len(masks), self.max_seq_length)
            answers.append(masks)
        return answers

    @property
    def use_next_sentence(self) -> bool:  # type: ignore[override]
        return self._model.card["kind"] == "next_sentence"

    def score_pairs(
        self, firsts: Sequence[str], seconds: Sequence[str], batch_size: int
    ) -> list[float]:
        return [float(row["is_next"]) for row in self.compute([firsts, seconds], batch_size)]

    def check_direction(self) -> None:
        refuse_direction()


class OutputReranker(ModelOutputs, RerankerAnswers):
    """The answers of an exported reranker."""

    def rank_texts(
        self, query: str, texts: Sequence[str], batch_size: int
    ) -> tuple[np.ndarray, np.ndarray]:
        if not texts:
            return np.zeros(0, np.int32), np.zeros(0, np.float32)
        # The graph splits a list of documents into batches, so `batch_size` is not used.
        (row,) = self._model.rows([query], [_as_documents(texts)])
        return row["order"], row["scores"]

    def score_pairs(
        self, queries: Sequence[str], documents: Sequence[str], batch_size: int
    ) -> list[float]:
        """Scores pairs, each as a query with a single document."""

        def call(queries: list[str], texts: list[str]) -> list[Row]:
            return self._model.rows(queries, [_as_documents([text]) for text in texts])

        rows = self.compute([queries, documents], batch_size, call)
        return [float(row["scores"][0]) for row in rows]


def _as_documents(texts: Sequence[str]) -> list[str]:
    """Returns documents for a graph, which takes "" for the padding of a shorter list."""
    return [text or " " for text in texts]


ANSWERS_OF_KINDS: dict[str, type[ModelOutputs]] = {
    "classifier": OutputClassifier,
    "multi_label": OutputClassifier,
    "regression": OutputClassifier,
    "zero_shot": OutputZeroShot,
    "tagger": OutputTagger,
    "question_answering": OutputSpans,
    "fill_mask": OutputPretrainer,
    "next_sentence": OutputPretrainer,
    "embeddings": OutputEmbedder,
    "late_interaction": OutputLateInteraction,
    "reranker": OutputReranker,
}


def output_answers(model: TextFunction) -> ModelOutputs:
    """Returns the answers of a model by its kind; other kinds, such as encoders, have none."""
    return ANSWERS_OF_KINDS.get(model.card["kind"], ModelOutputs)(model)
