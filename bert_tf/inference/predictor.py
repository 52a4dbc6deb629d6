"""The object that `bert_tf.load` returns: a trained model with plain Python answers."""

import contextlib
import functools
import inspect
import re
import typing
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

from bert_tf.inference.kinds import ANSWERING
from bert_tf.system.number_arguments import check_numbers
from bert_tf.system.type_names import TextColumn, Texts
from bert_tf.tasks.base.examples.columns import text_column, text_columns
from bert_tf.tasks.base.serving.kind import import_object
from bert_tf.tasks.base.serving.metadata import Metadata

if typing.TYPE_CHECKING:
    from bert_tf.pretraining.masked_words.left_to_right import PretrainerAnswers
    from bert_tf.tasks.classification.answers import ClassifierAnswers
    from bert_tf.tasks.embedding.answers import EmbedderAnswers, LateInteractionAnswers
    from bert_tf.tasks.multiple_choice.answers import ChoiceAnswers
    from bert_tf.tasks.question_answering.answers import QuestionAnswers
    from bert_tf.tasks.reranking.answers import RerankerAnswers
    from bert_tf.tasks.tagging.answers import TaggerAnswers

# Methods that take rows of the model's texts, single texts or pairs.
OF_ROWS = ("classify", "probabilities", "score")
# The entry of a docstring, which may have several lines.
BATCH_SIZE_ENTRY = re.compile(r"\n  batch_size: .*(\n {4}.*)*")
# Methods of Keras models that callers may expect here; the error tells where they are.
OF_TRAINING = ("fit", "compile", "evaluate", "predict", "train_on_batch", "save", "save_pretrained")


P = ParamSpec("P")
R = TypeVar("R")


def handed_on(
    method: Callable[Concatenate[Any, P], R],
) -> Callable[Concatenate["Predictor", P], R]:
    """Returns the method of `Predictor` that asks the answers' method of the same name.

    Signature and docstring are those of the answers, but for `batch_size`: the predictor has it.
    """
    signature = inspect.signature(method)
    parameters = [one for one in signature.parameters.values() if one.name != "batch_size"]
    signature = signature.replace(parameters=parameters)

    @functools.wraps(method)
    def ask(self: "Predictor", *arguments: Any, **options: Any) -> Any:
        given = signature.bind(self, *arguments, **options).arguments
        _, first, *_ = given.values()
        others = dict(list(given.items())[2:])
        others |= others.pop("options", {})
        return self._ask(method.__name__, first, others)

    ask.__signature__ = signature  # type: ignore[attr-defined]
    ask.__doc__ = BATCH_SIZE_ENTRY.sub("", inspect.getdoc(method) or "")
    return ask


class HandedOn:
    """`handed_on` for a class that is imported when the method is first read.

    A model answers before the code of other tasks is loaded.

    Args:
      location: of the class, as "package.module.Class".
    """

    def __init__(self, location: str) -> None:
        self.location = location

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, predictor: object, owner: type) -> Any:
        method = handed_on(getattr(import_object(self.location), self.name))
        setattr(Predictor, self.name, method)
        return method.__get__(predictor, owner)


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
        question_answering, fill_mask, embeddings, late_interaction or reranker.
      labels: names of classes or tags, () without.
      inputs: names of the texts of a row: ("text",) or ("text", "text_b"), of questions
        ("question", "context"), of rerankers ("query", "documents").
      max_seq_length: maximum length of a row.
    """

    def __init__(
        self,
        answers: Any,
        metadata: Metadata,
        batch_size: int = 32,
        scope: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext,
    ) -> None:
        check_numbers(1, batch_size=batch_size)
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

    if typing.TYPE_CHECKING:
        classify = handed_on(ClassifierAnswers.classify)
        probabilities = handed_on(ClassifierAnswers.probabilities)
        choose = handed_on(ChoiceAnswers.choose)
        tag = handed_on(TaggerAnswers.tag)
        find_entities = handed_on(TaggerAnswers.find_entities)
        answer = handed_on(QuestionAnswers.answer)
        fill_mask = handed_on(PretrainerAnswers.fill_mask)
        continue_text = handed_on(PretrainerAnswers.continue_text)
        encode = handed_on(EmbedderAnswers.encode)
        encode_query = handed_on(EmbedderAnswers.encode_query)
        encode_document = handed_on(EmbedderAnswers.encode_document)
        encode_queries = handed_on(LateInteractionAnswers.encode_queries)
        encode_documents = handed_on(LateInteractionAnswers.encode_documents)
        rank = handed_on(RerankerAnswers.rank)
    else:
        classify = HandedOn("bert_tf.tasks.classification.answers.ClassifierAnswers")
        probabilities = HandedOn("bert_tf.tasks.classification.answers.ClassifierAnswers")
        choose = HandedOn("bert_tf.tasks.multiple_choice.answers.ChoiceAnswers")
        tag = HandedOn("bert_tf.tasks.tagging.answers.TaggerAnswers")
        find_entities = HandedOn("bert_tf.tasks.tagging.answers.TaggerAnswers")
        answer = HandedOn("bert_tf.tasks.question_answering.answers.QuestionAnswers")
        fill_mask = HandedOn("bert_tf.pretraining.masked_words.left_to_right.PretrainerAnswers")
        continue_text = HandedOn("bert_tf.pretraining.masked_words.left_to_right.PretrainerAnswers")
        encode = HandedOn("bert_tf.tasks.embedding.answers.EmbedderAnswers")
        encode_query = HandedOn("bert_tf.tasks.embedding.answers.EmbedderAnswers")
        encode_document = HandedOn("bert_tf.tasks.embedding.answers.EmbedderAnswers")
        encode_queries = HandedOn("bert_tf.tasks.embedding.answers.LateInteractionAnswers")
        encode_documents = HandedOn("bert_tf.tasks.embedding.answers.LateInteractionAnswers")
        rank = HandedOn("bert_tf.tasks.reranking.answers.RerankerAnswers")

    def score(self, texts: Texts, documents: TextColumn | None = None) -> Any:
        """Scores texts.

        Args:
          texts: texts; of a reranker pairs (query, document); of late interaction queries.
          documents: with late interaction, the documents to score with each query.

        Returns:
          For each text the number that a regression predicts; the probability that the second text
          follows the first; the log-probability in nats of a text by a model that was trained with
          `causal_share`; the unnormalised score of a choice after
          its context; or a reranker's score, the probability that the document is relevant,
          or its unnormalised score if it was trained with another loss than bce. With late
          interaction, float32 [Q, N]: the score of every query with every document.

        Raises:
          ValueError: if the model does not score texts, or one of the texts is not a string.
        """
        if (self.kind == "late_interaction") != (documents is not None):
            raise ValueError(
                f"score takes queries and documents for a model of late interaction, and one list "
                f"of texts for others; the kind of this model is {self.kind}."
            )
        return self._ask("score", texts, {} if documents is None else {"documents": documents})

    def _ask(self, method: str, first: Any, others: dict[str, Any]) -> Any:
        """Calls a method of the answers.

        Args:
          method: its name.
          first: its first argument.
          others: its other arguments by name, without `batch_size`.

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
        if method in OF_ROWS and self.kind != "late_interaction":
            first = self._read(first, others)
        if method == "choose" and self.kind == "regression":
            if len(self.inputs) != 2:
                raise ValueError("choose needs a model of pairs, but this one takes single texts.")
            # An exported model of multiple choice is a regression: a score for each pair.
            choose = import_object("bert_tf.tasks.multiple_choice.answers.ChoiceAnswers").choose
            answer = functools.partial(choose, self._answers)
        else:
            answer = getattr(self._answers, method)
        with self._scope():
            return answer(first, batch_size=self.batch_size, **others)

    def _read(self, texts: Texts, options: dict[str, Any]) -> Texts:
        """Returns checked texts: a list, or a tuple of two lists for a model of pairs."""
        if options.get("candidates") is not None:
            return text_column(texts)
        from bert_tf.tasks.classification.zero_shot import check_no_candidates

        check_no_candidates(options.get("template"), options.get("several", False))
        if self.kind == "zero_shot":
            raise ValueError("A zero-shot model needs candidates=[...] to choose from.")
        columns = text_columns(texts, self.inputs)
        return columns[0] if len(columns) == 1 else tuple(columns)
