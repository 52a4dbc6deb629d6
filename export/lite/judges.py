"""The examples and metric by which a LiteRT file is scored: those of its model's evaluation.

Readers, rows and metrics are those of the fine-tuning programs, with the flags that the run
recorded in run.flags. A LiteRT model computes probabilities; their logarithms are used as scores.
"""

import dataclasses
import glob
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

from bert_tf.checkpoints.hub import record_of
from bert_tf.checkpoints.run_record import recorded
from bert_tf.config import Config
from bert_tf.config.fine_tuning_config import ClassifierConfig, SquadConfig, TaggerConfig
from bert_tf.inference.kinds import KINDS
from bert_tf.tasks.base.examples.rows import TokenizedDataset
from bert_tf.tasks.base.programs.rows_task import RowsTask
from bert_tf.tasks.base.serving.model import Serving
from bert_tf.tasks.classification import task as classification
from bert_tf.tasks.classification.examples import read_text_examples
from bert_tf.tasks.classification.glue import glue_task, read_glue
from bert_tf.tasks.classification.serving import ClassifierServing
from bert_tf.tasks.question_answering import task as squad
from bert_tf.tasks.question_answering.features import read_squad
from bert_tf.tasks.question_answering.serving import QuestionAnsweringServing
from bert_tf.tasks.tagging import task as tagging
from bert_tf.tasks.tagging.files import column_of, read_tagged
from bert_tf.text.tokenization import Tokenizer, make_tokenizer

LEAST = 1e-30  # Smaller probabilities are raised to this one before the logarithm.
SAME_NUMBER = 0.02  # Numbers are equal if they differ by at most this share of their range.
RowOutputs = dict[str, list[np.ndarray]]  # By name, an array per row.
AnyConfig = TypeVar("AnyConfig", bound=Config)


class Judge(NamedTuple):
    """Examples with labels, and the task that scores answers to them.

    Attributes:
      source: the file or folder that the examples were read from.
      task: computes metrics and answers.
      examples: the task's examples, with `rows`.
    """

    source: str
    task: RowsTask
    examples: Any

    @property
    def rows(self) -> TokenizedDataset:
        return self.examples.rows

    @property
    def metric(self) -> str:
        """Name of the metric that chooses the task's best checkpoint."""
        return self.task.best_metric

    def points(self, outputs: RowOutputs) -> float:
        """Returns the metric of a model's outputs for all rows, in percent."""
        metrics = self.task.metrics(self.examples, self._task_outputs(outputs))
        is_percent = isinstance(self.task, squad.SquadTask)
        is_percent |= isinstance(self.task, tagging.TaggingTask) and self.metric == "f1"
        return metrics[self.metric] * (1 if is_percent else 100)

    def agreement(self, outputs: RowOutputs, others: RowOutputs) -> float:
        """Returns the share of equal answers: of texts, words or questions."""
        first = self._answers(outputs)
        second = self._answers(others)
        if first.dtype.kind == "f":
            return float(np.mean(abs(first - second) <= SAME_NUMBER * np.ptp(second)))
        equal = first == second
        # An example of several labels is equal if all its labels are.
        return float(np.mean(equal.reshape(len(equal), -1).all(axis=-1)))

    def _answers(self, outputs: RowOutputs) -> np.ndarray:
        answers = self.task.answers(self.examples, self._task_outputs(outputs))  # type: ignore
        if isinstance(self.task, tagging.TaggingTask):
            return np.array([tag for sentence in answers for tag in sentence])
        if isinstance(self.task, squad.SquadTask):
            return np.array(list(answers.predictions.values()), object)
        return np.asarray(answers)

    def _task_outputs(self, outputs: RowOutputs) -> RowOutputs:
        """Returns the outputs in the form of the task."""
        # The task also expects losses and counts, but answers and metrics do not depend on them.
        nothing = [np.zeros([])] * len(self.rows)
        if isinstance(self.task, squad.SquadTask):
            return {**outputs, "loss": nothing}
        if isinstance(self.task, tagging.TaggingTask):
            tags = [row.argmax(axis=-1) for row in outputs["probabilities"]]
            return {"tag_ids": tags, "loss": nothing, "num_words": nothing}
        if "value" in outputs:
            return {"logits": [row[None] for row in outputs["value"]], "loss": nothing}
        probabilities = np.stack(outputs["probabilities"]).astype(np.float64)
        logits = np.log(np.maximum(probabilities, LEAST))  # [N, C]
        if self.task.kind == "multi_label":  # type: ignore[attr-defined]
            # The inverse of the sigmoid; for the softmax above, the logarithms are enough.
            logits -= np.log(np.maximum(1 - probabilities, LEAST))
        return {"logits": list(logits), "loss": nothing}


def make_judge(
    serving: Serving, model_dir: str, split: str = "dev", file: str = ""
) -> Judge | None:
    """Reads the examples that a model was trained for.

    Args:
      serving: the result of `bert_tf.inference.serving_models.load`.
      model_dir: the model's run directory, or a file in it.
      split: dev or train.
      file: examples in the form of the run's files; "": the files that the run recorded.

    Returns:
      None if models of this kind have no metric, or there is no file.

    Raises:
      ValueError: if the examples cannot be read, or have no labels.
    """
    folder = str(record_of(model_dir))
    tokenizer = make_tokenizer(serving.vocab, serving.do_lower_case)
    path = file or recorded(folder, "eval_file" if split == "dev" else "train_file")
    if not file:
        check_recorded_files(folder, path, split)
    if KINDS[serving.kind].problem_type:
        return _judge_texts(serving, folder, split, file, path, tokenizer)
    if not path:
        return None
    if serving.kind == "tagger":
        return _judge_words(serving, folder, path, tokenizer, is_recorded=not file)
    if isinstance(serving, QuestionAnsweringServing):
        return _judge_answers(serving, path, tokenizer)
    return None


def check_recorded_files(folder: str, files: str, split: str) -> None:
    """Checks that the examples that a run recorded are on this machine.

    Args:
      folder: folder of the run's record.
      files: recorded files, separated by commas.
      split: dev or train.

    Raises:
      ValueError: naming the missing files, and the flag that replaces them.
    """
    sources = [path for path in (*files.split(","), recorded(folder, "data_dir")) if path]
    # A name such as tfds:NAME is not a path.
    missing = [path for path in sources if ":" not in path and not glob.glob(path)]  # noqa: PTH207
    if not missing:
        return
    remedy = "give labelled examples as --calibration_file"
    if split == "dev":
        remedy = "give labelled examples as --eval_file, or --no_gate to compare outputs alone"
    raise ValueError(
        f"{', '.join(missing)}, which {folder}/run.flags names, is not here: {remedy}."
    )


def _judge_texts(
    serving: Serving, folder: str, split: str, file: str, path: str, tokenizer: Tokenizer
) -> Judge | None:
    given = recorded_config(ClassifierConfig, folder)
    kind = KINDS[serving.kind].problem_type
    glue = glue_task(given.task_name) if given.task_name else None
    if glue and not file:
        if split not in glue.splits or not given.data_dir:
            return None
        source = given.data_dir
        examples = read_glue(glue, given.data_dir, split)
    elif path:
        source = path
        examples = read_text_examples(
            path,
            given.text_column,
            given.text_b_column,
            given.label_column,
            problem_type=kind,
            label_separator=given.label_separator,
            # The run's own files are read as in its evaluation; `file` has none of its settings.
            is_needed=path != file,
            reading=given if path != file else None,
        )
    else:
        return None
    if bare := [example.source for example in examples if example.label is None]:
        raise ValueError(f"{bare[0]}: no label to score with; label it, or leave it out.")
    values = classification.label_array(examples, serving.labels, kind)
    made = classification.make_examples(
        examples, values, kind, tokenizer, serving.max_seq_length, given.long_texts
    )
    metrics = classification.METRICS[kind]
    if glue:
        metrics = (glue.best_metric, *(m for m in glue.metrics if m != glue.best_metric))
    if given.best_metric not in ("", "loss"):
        metrics = (given.best_metric, *(m for m in metrics if m != given.best_metric))
    task = classification.ClassificationTask(
        *_UNUSED, kind=kind, labels=serving.labels, metric_names=metrics
    )
    if isinstance(serving, ClassifierServing):
        # The file has applied the temperature already.
        task.decisions = dataclasses.replace(serving.decisions, temperature=1.0)
    return Judge(source, task, made)


def _judge_words(
    serving: Serving, folder: str, file: str, tokenizer: Tokenizer, is_recorded: bool
) -> Judge:
    given = recorded_config(TaggerConfig, folder)
    sentences = read_tagged(
        file,
        given.word_column,
        column_of(given.tag_column),
        is_needed=is_recorded,
        reading=given if is_recorded else None,
    )
    length = serving.max_seq_length
    made = tagging.make_examples(sentences, serving.labels, tokenizer, length, is_labelled=True)
    return Judge(file, tagging.TaggingTask(*_UNUSED, labels=serving.labels), made)


def _judge_answers(serving: QuestionAnsweringServing, file: str, tokenizer: Tokenizer) -> Judge:
    config = SquadConfig(
        doc_stride=serving.doc_stride,
        max_query_length=serving.max_query_length,
        n_best_size=serving.n_best_size,
        max_answer_length=serving.max_answer_length,
        version_2_with_negative=serving.version_2,
        null_score_diff_threshold=serving.threshold,
    )
    questions = read_squad(file, False, serving.version_2)
    made = squad.make_examples(questions, tokenizer, serving.max_seq_length, config)
    if not made.is_labelled:
        raise ValueError(f"{file} has no answers to score with; give another --eval_file.")
    return Judge(file, squad.SquadTask(*_UNUSED, config=config), made)


# Model, training rows, examples to evaluate, buckets and seed: here a task only scores answers.
_UNUSED: Sequence[Any] = (None, None, None, [], 0)


def recorded_config(cls: type[AnyConfig], folder: str) -> AnyConfig:
    """Makes a configuration from the texts, integers and booleans that a run recorded."""
    values: dict[str, Any] = {}
    for name, default in cls().to_dict().items():
        text = recorded(folder, name)
        # Settings are recorded as text, and bool("false") is True.
        if text and isinstance(default, bool):
            values[name] = text == "true"
        elif text and isinstance(default, str | int):
            values[name] = type(default)(text)
    return cls.from_dict(values)
