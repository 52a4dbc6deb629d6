"""The object that `bert_tf.load` returns: a trained model with plain Python answers."""

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np

from bert_tf.inference.kinds import ANSWERING
from bert_tf.system.type_names import Column, TextColumn, Texts
from bert_tf.tasks.base.examples.text_columns import text_columns
from bert_tf.tasks.base.serving.metadata import Metadata
from bert_tf.tasks.classification.zero_shot import check_no_candidates
from bert_tf.tasks.multiple_choice.answers import choose_by_scores

# Methods of Keras models that callers may expect here; the error tells where they are.
OF_TRAINING = ("fit", "compile", "evaluate", "predict", "train_on_batch", "save", "save_pretrained")


class Predictor:
    """A model with methods for its purpose; each takes lists and returns lists.

        predictor = bert_tf.load("runs/sst2")
        predictor.classify(["A fine film.", "Dull."])

    Rows of similar length are computed together. Taggers and question answering models read texts
    of any length, in overlapping windows; other models cut texts at `max_seq_length` tokens. Texts
    are strings, or tuples of two for a model of pairs.

    Args:
      answers: has the methods below that its kind needs, with a keyword `batch_size`: a Keras model
        of this package, or the answers of an exported model.
      metadata: kind, labels, inputs and max_seq_length of the model.
      batch_size: maximum number of rows per batch.
      scope: makes a context in which the answers are computed, such as one of a device.

    Attributes:
      kind: classifier, zero_shot, multi_label, regression, multiple_choice, next_sentence, tagger,
        question_answering, fill_mask, embeddings or reranker.
      labels: names of classes or tags, () without.
      inputs: names of the texts of a row: ("text",) or ("text", "text_b"), of questions
        ("question", "context"), of rerankers ("query", "documents").
      max_seq_length: maximum length of a row.
    """

    def __init__(
        self,
        answers: object,
        metadata: Metadata,
        batch_size: int = 32,
        scope: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext,
    ) -> None:
        if batch_size < 1:
            raise ValueError(f"batch_size is {batch_size}, expected 1 or more.")
        self._answers = answers
        self._scope = scope
        self.batch_size = batch_size
        self.kind = str(metadata["kind"])
        self.labels = tuple(metadata["labels"])
        self.inputs = tuple(metadata["inputs"])
        self.max_seq_length = int(metadata["max_seq_length"])
        if self.kind not in ANSWERING:
            raise ValueError(
                f"A model of kind {self.kind} has no predictor; expected one of "
                f"{', '.join(ANSWERING)}."
            )

    def __repr__(self) -> str:
        labels = f", labels={list(self.labels)}" if self.labels else ""
        methods = " or ".join(ANSWERING[self.kind].methods)
        return f"<Predictor {self.kind}: {methods}, of {' and '.join(self.inputs)}{labels}>"

    def __getattr__(self, name: str) -> Any:
        if name in OF_TRAINING:
            model_name = ANSWERING[self.kind].model_name
            raise AttributeError(
                f"A predictor cannot {name}: it only answers. Train "
                f"bert_tf.{model_name}.from_pretrained(...) of the same path; fit and evaluate "
                "take texts."
            )
        kind = vars(self).get("kind", "")  # `copy` asks for attributes before they are set.
        methods = ""
        if kind in ANSWERING:
            methods = f"; of the kind {kind} it answers with {' or '.join(ANSWERING[kind].methods)}"
        raise AttributeError(f"A predictor has no attribute {name!r}{methods}.")

    def classify(
        self,
        texts: Texts,
        threshold: float | None = None,
        candidates: TextColumn | None = None,
        template: str | None = None,
        several: bool = False,
    ) -> list[dict[str, Any]]:
        """Classifies texts.

        Args:
          texts: B texts.
          threshold: of a model of several labels, the probability above which a text has a label;
            None: the thresholds of the model, or 0.5.
          candidates: labels to choose from instead of the model's, by a model of natural language
            inference (zero-shot classification); each text is read with a sentence about each.
          template: the sentence, with {} for the candidate; None: "This example is {}.", or the one
            of the export.
          several: whether a text may have several candidates, or none, each with its own
            probability.

        Returns:
          For each text the likeliest class, {"label": "good", "score": 0.98}; for a
          model of several labels {"labels": ["news", "sport"], "scores": [0.9, 0.7]}, all above
          the threshold, the likeliest first.

        Raises:
          ValueError: if the model is not a classifier, one of the texts is not a string, or there
            is a threshold for a model of one label per text; with candidates, if the model was not
            trained on natural language inference.
        """
        options = self._candidate_options(candidates, template, several)
        if not options:
            texts = self._columns(texts)
        return self._ask("classify", texts, threshold=threshold, **options)

    def probabilities(
        self,
        texts: Texts,
        candidates: TextColumn | None = None,
        template: str | None = None,
        several: bool = False,
    ) -> list[dict[str, float]]:
        """Returns for each text the probability of every class or candidate, by label.

        Arguments and errors are those of `classify`.
        """
        options = self._candidate_options(candidates, template, several)
        if not options:
            texts = self._columns(texts)
        return self._ask("probabilities", texts, **options)

    def _candidate_options(
        self, candidates: TextColumn | None, template: str | None, several: bool
    ) -> dict[str, Any]:
        """Returns the options of candidates; {} without candidates."""
        if candidates is None:
            check_no_candidates(template, several)
            if self.kind == "zero_shot":
                raise ValueError("A zero-shot model needs candidates=[...] to choose from.")
            return {}
        if self.kind not in ("classifier", "zero_shot"):
            raise ValueError(
                "candidates are for a model of natural language inference, but this model is a "
                f"{self.kind}."
            )
        return {"candidates": candidates, "template": template, "several": several}

    def score(self, texts: Texts) -> list[float]:
        """Scores texts.

        Args:
          texts: texts; of a reranker pairs (query, document).

        Returns:
          For each text the number that a regression predicts; the probability that the second text
          follows the first; the log-probability in nats of a text by a model that was trained with
          `causal_share`; the unnormalised score of a choice after
          its context; or a reranker's score, the probability that the document is relevant,
          or its unnormalised score if it was trained with another loss than bce.

        Raises:
          ValueError: if the model does not score texts, or one of the texts is not a string.
        """
        return self._ask("score", self._columns(texts))

    def choose(self, contexts: Column, choices: Column | None = None) -> list[dict[str, Any]]:
        """Chooses the continuation or answer for each context.

        Args:
          contexts: B texts; or, without choices, a list of pairs (context, list of choices), or a
            tuple of the two columns.
          choices: B lists of texts, which may have different lengths.

        Returns:
          For each context {"choice": "He sat down.", "index": 2, "score": 0.7}, the score being a
          probability among its choices.

        Raises:
          ValueError: if the model does not score pairs, there are no choices, or one is not a
            string.
        """
        # An exported model of multiple choice is a regression: a score for each pair.
        if self.kind == "regression":
            if len(self.inputs) != 2:
                raise ValueError("choose needs a model of pairs, but this one takes single texts.")
            return choose_by_scores(contexts, choices, self.score)
        return self._ask("choose", contexts, choices)

    def tag(self, texts: Column) -> list[list[dict[str, Any]]]:
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
        return self._ask("tag", texts)

    def find_entities(self, texts: TextColumn) -> list[list[dict[str, Any]]]:
        """Finds named or other tagged entities in texts of any length.

        Returns:
          For each text its entities in order: {"type": "PER", "text": "Ada Lovelace", "start": 0,
          "end": 12, "score": 0.99}: text[start:end] is the entity, and the score is the
          lowest of its words'. If the tags are not BIO, IOB1, BIOES or BILOU, each word with a tag
          other than O is an entity.

        Raises:
          ValueError: if the model is not a tagger, or one of the texts is not a string.
        """
        return self._ask("find_entities", texts)

    def answer(self, questions: Column, contexts: TextColumn | None = None) -> list[dict[str, Any]]:
        """Answers questions with parts of their contexts, which may be of any length.

        Args:
          questions: B texts; or, without contexts, a list of pairs (question, context), or a tuple
            of the two columns.
          contexts: B texts.

        Returns:
          For each question {"answer": "in London", "start": 9, "end": 18, "score": 11.3,
          "null_odds": -8.2, "probability": 0.97}: context[start:end] is the answer, or "" and -1.
          The score is the sum of the logits of the best span, and null_odds is the score of no
          answer minus that; for a joint head, the sum of log-probabilities, and the score of no
          answer alone. The probability is that of the answer among the best ones.

        Raises:
          ValueError: if the model does not answer questions, or one of the texts is not a string.
        """
        return self._ask("answer", questions, contexts)

    def fill_mask(self, texts: TextColumn, top_k: int = 5) -> list[list[list[dict[str, Any]]]]:
        """Fills in [MASK].

        Args:
          texts: texts, each with at least one [MASK], or <mask> for byte-level BPE.
          top_k: tokens per mask.

        Returns:
          For each text and each of its masks the likeliest tokens: {"piece": "paris", "score":
          0.4}.

        Raises:
          ValueError: if the model does not fill masks, `top_k` is more than the model was exported
            with, or a text has no mask among the tokens that are read.
        """
        return self._ask("fill_mask", texts, top_k=top_k)

    def continue_text(
        self,
        texts: TextColumn,
        max_new_tokens: int = 20,
        temperature: float = 0.0,
        top_k: int = 0,
        top_p: float = 1.0,
        seed: int = 0,
    ) -> list[str]:
        """Continues texts from left to right, by a model that was trained with `causal_share`.

        Args:
          texts: texts; "" to generate a text from its start.
          max_new_tokens: tokens to add; fewer where `max_seq_length` is reached.
          temperature: 0 takes the likeliest token; otherwise tokens are drawn, the more evenly the
            higher it is.
          top_k: draw from the likeliest `top_k` tokens; 0: from all.
          top_p: draw from the likeliest tokens that together have this probability.
          seed: seed of the draws.

        Returns:
          Each text with its continuation.

        Raises:
          ValueError: if the model was not trained from left to right, or is an exported one.
        """
        return self._ask(
            "continue_text",
            texts,
            max_new_tokens=max_new_tokens,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            seed=seed,
        )

    def encode(self, texts: Texts) -> np.ndarray:
        """Embeds texts, with the model's default prompt or the prompt of the export.

        Returns:
          float32 [B, D].

        Raises:
          ValueError: if the model does not embed, or one of the texts is not a string.
        """
        return self._ask("encode", texts)

    def encode_query(self, texts: Texts) -> np.ndarray:
        """Embeds queries, with the prompt of queries if the model has one; see `encode`.

        Raises:
          ValueError: as `encode`; also if the model was exported with another prompt.
        """
        return self._ask("encode_query", texts)

    def encode_document(self, texts: Texts) -> np.ndarray:
        """Embeds documents, with the prompt of documents if there is one; see `encode_query`."""
        return self._ask("encode_document", texts)

    def rank(self, query: str, documents: TextColumn) -> list[dict[str, Any]]:
        """Ranks documents for a query.

        Args:
          query: a text.
          documents: texts.

        Returns:
          A dict for each document, the best first: {"index": 2, "score": 0.98, "document": "..."},
          the index being that in `documents`, and the score that of `score`.

        Raises:
          ValueError: if the model is not a reranker, or one of the texts is not a string.
        """
        return self._ask("rank", query, documents)

    def _columns(self, texts: Texts) -> Texts:
        """Returns checked texts: a list, or a tuple of two lists for a model of pairs."""
        columns = text_columns(texts, self.inputs)
        return columns[0] if len(columns) == 1 else tuple(columns)

    def _ask(self, method: str, *arguments: object, **options: object) -> Any:
        """Calls a method of the answers.

        Raises:
          ValueError: if models of this kind do not have the method.
        """
        methods = ANSWERING[self.kind].methods
        if method not in methods:
            kinds = [kind.name for kind in ANSWERING.values() if method in kind.methods]
            raise ValueError(
                f"{method} is for {' and '.join(kinds)}, but the kind of this model is "
                f"{self.kind}: use {' or '.join(methods)}, or load it with kind={kinds[0]!r} if it "
                "has that head."
            )
        with self._scope():
            return getattr(self._answers, method)(*arguments, batch_size=self.batch_size, **options)
