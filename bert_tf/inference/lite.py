"""LiteRT files with texts: rows and windows made in Python, without TensorFlow.

The answers are those of `bert_tf.tasks.base.serving`, whose classes compute them in the graph. Here
the file computes only probabilities or logits of rows; the answers are made of them in Python, by
the same classes as in the programs.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from bert_tf.config.fine_tuning_config import SquadConfig
from bert_tf.inference.kinds import KINDS
from bert_tf.inference.output_answers import EXPORT_REMEDY, output_answers
from bert_tf.tasks.base.examples.rows import TokenizedDataset
from bert_tf.tasks.base.serving.lite_model import LiteModel
from bert_tf.tasks.classification.answers import ClassifierAnswers, to_logits
from bert_tf.tasks.classification.decisions import Decisions
from bert_tf.tasks.question_answering.answers import END, START, QuestionAnswers
from bert_tf.tasks.tagging.answers import TaggerAnswers
from bert_tf.text.packing import INPUTS, by_length
from bert_tf.text.tokenization import Tokenizer

Row = dict[str, Any]
INFERENCE_LOGITS = ("entailment", "contradiction")
# Fields of `SquadConfig` in the metadata of a file.
READING = (
    "doc_stride",
    "max_query_length",
    "n_best_size",
    "max_answer_length",
    "null_score_diff_threshold",
)


class LiteRows:
    """Mixin that holds the file that computes rows.

    Args:
      lite: the file.
    """

    def __init__(self, lite: LiteModel) -> None:
        self._lite = lite
        self.known_labels: Any = lite.labels
        self.tokenizer: Tokenizer = lite.tokenizer
        self.max_seq_length = lite.card["max_seq_length"]
        self.long_texts = lite.long_texts


class LiteClassifier(LiteRows, ClassifierAnswers):
    """The answers of a LiteRT file of a classifier."""

    # The file computes probabilities, from which only differences of logits can be recovered.
    has_logits = False
    text_remedy = EXPORT_REMEDY

    def __init__(self, lite: LiteModel) -> None:
        super().__init__(lite)
        self.problem_type = KINDS[lite.card["kind"]].problem_type
        self.num_labels = max(1, len(lite.labels))
        self.decisions = Decisions.of(
            self.problem_type,
            lite.labels,
            temperature=lite.card.get("temperature", 1.0),
            thresholds=lite.card.get("thresholds"),
        )

    def compute_rows(self, rows: TokenizedDataset, batch_size: int) -> list[np.ndarray]:
        """Returns the logits of each row, float [C]."""
        if self.problem_type == "regression":
            return [row["value"].reshape(1) for row in lite_rows(self._lite, rows, batch_size)]
        # The file divided its logits by the temperature before it computed probabilities.
        temperature = self.decisions.temperature
        logits = []
        for row in lite_rows(self._lite, rows, batch_size):
            logits.append(temperature * to_logits(row["probabilities"], self.problem_type))
        return logits


class LiteZeroShot(LiteRows, ClassifierAnswers):
    """The answers of a LiteRT file of a zero-shot classifier, with two logits of each pair."""

    text_remedy = EXPORT_REMEDY
    problem_type = "single_label"

    def __init__(self, lite: LiteModel) -> None:
        super().__init__(lite)
        # A model may lack the class of contradictions.
        self.known_labels = [name for name in INFERENCE_LOGITS if name in lite.card["outputs"]]
        self.num_labels = len(self.known_labels)

    def compute_rows(self, rows: TokenizedDataset, batch_size: int) -> list[np.ndarray]:
        """Returns the logits of entailment and contradiction of each row, float32 [2]."""
        outputs = lite_rows(self._lite, rows, batch_size)
        return [np.stack([row[name] for name in self.known_labels]) for row in outputs]


class LiteTagger(LiteRows, TaggerAnswers):
    """The answers of a LiteRT file of a tagger."""

    text_remedy = EXPORT_REMEDY

    def compute_rows(self, rows: TokenizedDataset, batch_size: int) -> list[np.ndarray]:
        """Returns the log-probabilities of the tags of each row, float32 [T, C]."""
        scores = []
        for outputs in lite_rows(self._lite, rows, batch_size):
            with np.errstate(divide="ignore"):  # The softmax makes minus infinity 0 again.
                scores.append(np.log(outputs["probabilities"]))
        return scores


class LiteSpanLabeler(LiteRows, QuestionAnswers):
    """The answers of a LiteRT file for questions."""

    def __init__(self, lite: LiteModel) -> None:
        super().__init__(lite)
        recorded = {name: lite.card[name] for name in READING}
        is_version_2 = bool(lite.card.get("version_2"))
        self._reading = SquadConfig(version_2_with_negative=is_version_2, **recorded)

    @property
    def reading(self) -> SquadConfig:
        """How contexts are split into windows, and answers chosen."""
        return self._reading

    def compute_rows(self, rows: TokenizedDataset, batch_size: int) -> list[dict[str, np.ndarray]]:
        """Returns the logits of start and end of each row, float32 [T]."""
        outputs = []
        for index, row in enumerate(lite_rows(self._lite, rows, batch_size)):
            length = rows.lengths[index]  # without the padding of its batch
            outputs.append({name: row[name][:length] for name in (START, END)})
        return outputs


def lite_rows(
    lite: LiteModel, rows: TokenizedDataset, batch_size: int
) -> list[dict[str, np.ndarray]]:
    """Returns the outputs of each row by name; rows of similar length are computed together."""

    def compute(chosen: list[int]) -> list[dict[str, np.ndarray]]:
        longest = int(rows.lengths[chosen].max())
        batch = rows.batch(np.array(chosen), len(chosen), longest)  # [R, T]
        outputs = lite.from_ids({name: batch[name] for name in INPUTS})
        return [{name: column[i] for name, column in outputs.items()} for i in range(len(chosen))]

    return by_length(rows.lengths.tolist(), batch_size, compute)


LITE_CLASSES: dict[str, Callable[[LiteModel], Any]] = {
    "classifier": LiteClassifier,
    "multi_label": LiteClassifier,
    "regression": LiteClassifier,
    "zero_shot": LiteZeroShot,
    "tagger": LiteTagger,
    "question_answering": LiteSpanLabeler,
}


def lite_answers(lite: LiteModel) -> Any:
    """Returns the answers of a LiteRT file by its kind."""
    lite_class = LITE_CLASSES.get(lite.card["kind"])
    if lite_class:
        return lite_class(lite)
    return output_answers(lite)
