"""Start and end of the answer to a question in a context (BERT section 4.2)."""

import dataclasses
import typing
from collections.abc import Mapping, Sequence
from typing import Any, Self

import keras
import numpy as np
from keras import ops

from bert_tf.config import ModelConfig
from bert_tf.examples.columns import (
    check_count,
    is_empty,
    is_missing,
    read_column,
    read_numbers,
    read_texts,
)
from bert_tf.fine_tuning_config import SquadConfig, reading_of_rows
from bert_tf.fine_tuning_defaults import SPAN_LENGTH
from bert_tf.models.fine_tuned import FineTunedModel
from bert_tf.models.row_outputs import stack
from bert_tf.models.text_fit import BATCH_SIZE, INPUTS, KerasBatch
from bert_tf.network.dropout import Dropout
from bert_tf.network.losses import WeightedSum, span_losses, weigh
from bert_tf.renamed import accepts_earlier_names
from bert_tf.tasks.question_answering.answers import Answer, best_answers
from bert_tf.tasks.question_answering.features import (
    SquadAnswer,
    SquadExamples,
    SquadQuestion,
    make_examples,
)

if typing.TYPE_CHECKING:
    from bert_tf.checkpoints.checkpoint import Checkpoint

START, END = "start_logits", "end_logits"
# What `answer` may be told of `SquadConfig`: how answers are chosen, not how contexts are read.
CHOOSING = (
    *("n_best_size", "max_answer_length", "null_score_diff_threshold", "version_2_with_negative"),
)
NO_SCORE = -1e4  # of positions beyond a row


@keras.saving.register_keras_serializable(package="bert_tf")
class BertSpanLabeler(FineTunedModel):
    """The encoder with scores for the first and the last piece of an answer.

    `from_pretrained` of a model with google-research/electra's joint head makes a
    `BertJointSpanLabeler`, which has the same methods.

        model = bert_tf.BertSpanLabeler.from_pretrained(
            "hf://google-bert/bert-base-uncased", new_head=True
        )
        model.fit((questions, contexts), answers)
        model.answer(["Who left?"], ["Ada left Oslo."])

    With a preprocessor it takes raw questions and contexts: a tuple of two columns, or a list of
    pairs. Answers are texts that occur in their contexts (the first occurrence counts), or dicts of
    `text` and `answer_start` as in SQuAD, or with lists of these as in Hugging Face's datasets, of
    which the first counts. "" or empty lists mean that the context has no answer. Long contexts are
    split into windows. Dicts of ids are also accepted.

    Like run_squad.py in the original, it has no dropout before this head.

    Args:
      config: shape of the network.
      use_pooler: whether the encoder has a pooler, which is not used here.
      recompute, unpad: see `BertEncoder`.
      reading: how contexts are split into windows and answers chosen; None: run_squad's defaults,
        with shorter windows and questions in rows shorter than 384 pieces.
      preprocessor: see `FineTunedModel`.

    Call arguments: as `BertClassifier`.

    Returns:
      dict: `start_logits` and `end_logits`, float32 [B, T].
    """

    head_name = "squad"
    has_pieces = True
    default_length = SPAN_LENGTH
    reads_pooler = False
    others_reading: tuple[str, ...] = ("span_head", "beam_size")  # Of the joint head's runs.

    def __init__(
        self,
        config: ModelConfig,
        use_pooler: bool = False,
        reading: SquadConfig | dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        kwargs = {"name": "bert_span_labeler", **kwargs, "num_labels": 2}
        super().__init__(config, head="squad", use_pooler=use_pooler, **kwargs)
        self._reading = SquadConfig(**reading) if isinstance(reading, dict) else reading
        self.dropout = Dropout(0.0, 0, dtype=self.dtype_policy)

    def call(
        self, inputs: dict[str, Any], training: bool = False, dropout_seed: Any = None
    ) -> dict[str, Any]:
        logits = self.score_pieces(inputs, training, dropout_seed)  # [B, T, 2]
        return {START: logits[..., 0], END: logits[..., 1]}

    def answer(
        self,
        questions: Any,
        contexts: Any,
        may_be_none: bool | None = None,
        batch_size: int = BATCH_SIZE,
        **options: Any,
    ) -> list[dict[str, Any]]:
        """Returns the answer to each question.

        Args:
          questions: texts.
          contexts: one text per question, of any length.
          may_be_none: whether "no answer" is allowed; None: as in `reading`, by default not.
          batch_size: windows per batch.
          options: `n_best_size`, `max_answer_length`, `null_score_diff_threshold` of `SquadConfig`.

        Returns:
          A dict per question: `answer`, a part of its context, or ""; `score`, the answer's
            probability among the best ones; `start` and `end` in characters of the context.

        Raises:
          ValueError: if the texts are wrong, or there is no such option.
        """
        if unknown := options.keys() - CHOOSING:
            raise ValueError(f"answer has no options {sorted(unknown)}; it has {list(CHOOSING)}.")
        if may_be_none is not None:
            options["version_2_with_negative"] = may_be_none
        if is_empty((questions, contexts)):
            return []
        config = dataclasses.replace(self.reading, **options)
        examples = self.read_examples((questions, contexts))
        rows = self.predict_rows(examples.rows, batch_size)
        found = self.choose_answers(examples, rows, config)
        return [{"answer": a.text, "score": a.score, "start": a.start, "end": a.end} for a in found]

    def choose_answers(
        self, examples: SquadExamples, rows: list[Any], config: SquadConfig
    ) -> list[Answer]:
        """Returns the answer to each question from the outputs of all rows."""
        starts, ends = (pad([row[name] for row in rows]) for name in (START, END))
        return best_answers(examples.questions, examples.features, starts, ends, config)

    # Raw input ---------------------------------------------------------------------------------

    @property
    def reading(self) -> SquadConfig:
        """How contexts are split into windows, and answers chosen."""
        return self._reading or reading_of_rows(self.max_seq_length)

    def read_examples(self, x: Any, y: Any = None, weights: Any = None) -> SquadExamples:
        tokenizer = self.tokenizer
        if isinstance(x, list) and all(isinstance(pair, tuple) and len(pair) == 2 for pair in x):
            x = tuple(zip(*x, strict=True))
        if not isinstance(x, tuple) or len(x) != 2:
            raise ValueError("Expected (questions, contexts), a tuple of two lists of texts.")
        questions, contexts = read_texts(x[0], "questions"), read_texts(x[1], "contexts")
        if len(questions) != len(contexts):
            raise ValueError(
                f"{len(questions):,} questions and {len(contexts):,} contexts; expected equal "
                "numbers."
            )
        answers: list[SquadAnswer | None] = [None] * len(questions)
        if y is not None:
            given = read_column(y, "y")
            check_count(given, len(questions), "y")
            answers = [
                read_answer(answer, context, f"y[{index}]")
                for index, (answer, context) in enumerate(zip(given, contexts, strict=True))
            ]
        read = []
        for index, (question, context) in enumerate(zip(questions, contexts, strict=True)):
            answer = answers[index]
            right = (answer,) if answer else ()
            row = SquadQuestion(str(index), question, context, answer, right, answer is None)
            read.append(row)
        made = make_examples(read, tokenizer, self.max_seq_length, self.reading)
        if weights is not None:
            of_question = read_numbers(weights, len(read), "sample_weight")
            owners = [int(feature.question_id) for feature in made.features]
            made.rows.labels["example_weights"] = of_question[owners]
        if not len(made.rows):
            raise ValueError("None of the contexts has a word; give contexts with text.")
        return made

    def keras_batch(self, batch: dict[str, Any]) -> KerasBatch:
        labels = {START: batch["start_positions"], END: batch["end_positions"]}
        weights = batch["example_weights"]
        inputs = {name: batch[name] for name in INPUTS}
        return inputs, labels, {START: weights, END: weights}

    def task_loss(self, x: Any, y: Any, outputs: Any, weights: Any) -> WeightedSum:
        sums = []
        for name in (START, END):
            losses = span_losses(outputs[name], x["input_mask"], y[name])  # [B]
            own = weights[name] if isinstance(weights, Mapping) else weights
            own = ops.ones_like(losses) if own is None else ops.cast(own, losses.dtype)
            sums.append(weigh(losses, own))
        start, end = sums
        return WeightedSum(start.total + end.total, start.weight + end.weight)

    @property
    def default_metrics(self) -> Any:
        return {START: ["accuracy"], END: ["accuracy"]}

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "reading": self._reading and self._reading.to_dict()}

    @classmethod
    @accepts_earlier_names
    def from_checkpoint(
        cls,
        checkpoint: "Checkpoint",
        allow_missing: Sequence[str] = (),
        new_head: bool = False,
        **arguments: Any,
    ) -> Self:
        """Makes the model from a checkpoint that was read, of the class that its head is of."""
        if cls is BertSpanLabeler and "joint_squad" in checkpoint.heads and not new_head:
            from bert_tf.tasks.question_answering.joint_model import BertJointSpanLabeler as joint

            return typing.cast(Self, joint.from_checkpoint(checkpoint, allow_missing, **arguments))
        return super().from_checkpoint(checkpoint, allow_missing, new_head, **arguments)

    @classmethod
    def arguments_for(cls, checkpoint: "Checkpoint") -> dict[str, Any]:
        """Returns the `reading` of a checkpoint's run."""
        kinds = typing.get_type_hints(SquadConfig)
        names = [name for name in SquadConfig.names() if name not in cls.others_reading]
        values = {name: checkpoint.settings.get(name, "") for name in names}
        given: dict[str, Any] = {
            name: value == "true" if kinds[name] is bool else kinds[name](value)
            for name, value in values.items()
            if value
        }
        return {"reading": SquadConfig(**given)} if given else {}


def read_answer(value: Any, context: str, where: str) -> SquadAnswer | None:
    """Returns an answer with its offset in the context; None for no answer.

    Raises:
      ValueError: if it does not occur there.
    """
    if isinstance(value, Mapping) and {"text", "answer_start"} <= set(value):
        text, start = value["text"], value["answer_start"]
        if not isinstance(text, str):
            if not len(text):
                return None
            text, start = text[0], start[0]
        start = int(start)
    elif isinstance(value, str):
        text, start = value, context.find(value)
    else:
        what = "missing" if is_missing(value) else f"{value!r:.80}"
        raise ValueError(
            f"{where} is {what}, expected a part of the context or a dict of text and "
            'answer_start; "" for no answer.'
        )
    if not text:
        return None
    if start < 0 or context[start : start + len(text)] != text:
        place = f" at character {start}" if start >= 0 else ""
        raise ValueError(f"{where}: {text!r:.80} does not occur{place} in its context.")
    return SquadAnswer(text, start)


def pad(rows: Sequence[np.ndarray]) -> np.ndarray:
    """Joins scores of rows; those of positions beyond a row are never the best."""
    longest = max(map(len, rows))
    return stack([np.pad(row, (0, longest - len(row)), constant_values=NO_SCORE) for row in rows])
