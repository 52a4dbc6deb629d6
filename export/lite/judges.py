"""The examples and metric by which a LiteRT file is scored: those of its model's evaluation.

Readers, rows and metrics are those of the fine-tuning programs; what they were told stands in the
run's run.flags. A LiteRT model answers with probabilities; their logarithms serve as scores.
"""

import dataclasses
import glob
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from bert_tf.checkpoints.hub import record_of
from bert_tf.examples.rows import TokenizedDataset
from bert_tf.fine_tuning.rows_task import RowsTask
from bert_tf.fine_tuning_config import ClassifierConfig, SquadConfig, TaggerConfig
from bert_tf.inference.kinds import KINDS
from bert_tf.run_record import recorded
from bert_tf.serving.model import Serving
from bert_tf.tasks.classification import task as classification
from bert_tf.tasks.classification.examples import read_text_examples
from bert_tf.tasks.classification.glue import glue_task, read_glue
from bert_tf.tasks.classification.serving import ClassifierServing
from bert_tf.tasks.question_answering import task as squad
from bert_tf.tasks.question_answering.features import read_squad
from bert_tf.tasks.tagging import task as tagging
from bert_tf.tasks.tagging.files import column_of, read_tagged
from bert_tf.text.tokenization import Tokenizer, make_tokenizer

LEAST = 1e-30  # Of a probability whose logarithm is taken.
SAME_NUMBER = 0.02  # Numbers as near as this share of the range of all are the same answer.
RowOutputs = dict[str, list[np.ndarray]]


class Judge(NamedTuple):
    """Examples with labels and the task that judges answers to them.

    Attributes:
      source: the file or folder that the examples were read from.
      task: has metrics and answers.
      examples: of the task, with `rows`.
    """

    source: str
    task: RowsTask
    examples: Any

    @property
    def rows(self) -> TokenizedDataset:
        return self.examples.rows

    @property
    def metric(self) -> str:
        """Name of the metric that the task's best checkpoint is chosen by."""
        return self.task.best_metric

    def points(self, outputs: RowOutputs) -> float:
        """Returns the metric of a model's outputs of all rows, in points of 100."""
        found = self.task.metrics(self.examples, self._task_outputs(outputs))
        is_percent = isinstance(self.task, squad.SquadTask)
        is_percent |= isinstance(self.task, tagging.TaggingTask) and self.metric == "f1"
        return found[self.metric] * (1 if is_percent else 100)

    def agreement(self, outputs: RowOutputs, others: RowOutputs) -> float:
        """Returns the share of equal answers: of texts, words or questions."""
        first, second = (self._answers(each) for each in (outputs, others))
        if first.dtype.kind == "f":
            return float(np.mean(abs(first - second) <= SAME_NUMBER * np.ptp(second)))
        equal = first == second
        return float(np.mean(equal.reshape(len(equal), -1).all(axis=-1)))

    def _answers(self, outputs: RowOutputs) -> np.ndarray:
        answers = self.task.answers(self.examples, self._task_outputs(outputs))  # type: ignore
        if isinstance(self.task, tagging.TaggingTask):
            return np.array([tag for sentence in answers for tag in sentence])
        if isinstance(self.task, squad.SquadTask):
            return np.array(list(answers.predictions.values()), object)
        return np.asarray(answers)

    def _task_outputs(self, outputs: RowOutputs) -> RowOutputs:
        """Returns outputs as the task takes them; losses, which it wants too, are not looked at."""
        nothing = [np.zeros([])] * len(self.rows)
        if isinstance(self.task, squad.SquadTask):
            return {**outputs, "loss": nothing}
        if isinstance(self.task, tagging.TaggingTask):
            tags = [row.argmax(axis=-1) for row in outputs["probabilities"]]
            return {"tag_ids": tags, "loss": nothing, "num_words": nothing}
        if "value" in outputs:
            return {"logits": [row[None] for row in outputs["value"]], "loss": nothing}
        probabilities = np.stack(outputs["probabilities"]).astype(np.float64)
        logits = np.log(np.maximum(probabilities, LEAST))
        if self.task.kind == "multi_label":  # type: ignore[attr-defined]
            logits -= np.log(np.maximum(1 - probabilities, LEAST))
        return {"logits": list(logits), "loss": nothing}


def make_judge(served: Serving, model_dir: str, split: str = "dev", file: str = "") -> Judge | None:
    """Reads the examples that a model was trained for.

    Args:
      served: the model, of `bert_tf.inference.serving_models.load`.
      model_dir: its run directory, or a file in it.
      split: dev or train.
      file: examples in the form of the run's files; "": those that the run names.

    Returns:
      None if the kind is not judged, or there is no file.

    Raises:
      ValueError: if the examples cannot be read, or have no labels.
    """
    folder = str(record_of(model_dir))
    tokenizer = make_tokenizer(served.vocab, served.do_lower_case)
    own = file or recorded(folder, "eval_file" if split == "dev" else "train_file")
    if not file:
        check_recorded_files(folder, own, split)
    if KINDS[served.kind].problem_type:
        return _judge_texts(served, folder, split, file, own, tokenizer)
    if not own:
        return None
    if served.kind == "tagger":
        return _judge_words(served, folder, own, tokenizer)
    return _judge_answers(served, own, tokenizer) if served.kind == "question_answering" else None


def check_recorded_files(folder: str, own: str, split: str) -> None:
    """Checks that the examples that a run recorded are on this machine.

    Raises:
      ValueError: naming those that are missing, and the flags that take the place of them.
    """
    sources = [path for path in (*own.split(","), recorded(folder, "data_dir")) if path]
    # A name such as tfds:NAME is found by its reader.
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
    served: Serving, folder: str, split: str, file: str, own: str, tokenizer: Tokenizer
) -> Judge | None:
    given = _config(ClassifierConfig, folder)
    kind = KINDS[served.kind].problem_type
    glue = glue_task(given.task_name) if given.task_name else None
    if glue and not file:
        if split not in glue.splits or not given.data_dir:
            return None
        source, examples = given.data_dir, read_glue(glue, given.data_dir, split)
    elif own:
        columns = given.text_column, given.text_b_column, given.label_column
        source = own
        examples = read_text_examples(
            own,
            *columns,
            problem_type=kind,
            label_separator=given.label_separator,
            reading=given if own != file else None,
        )
    else:
        return None
    if bare := [example.source for example in examples if example.label is None]:
        raise ValueError(f"{bare[0]}: no label to score with; label it, or leave it out.")
    values = classification.label_array(examples, served.labels, kind)
    made = classification.make_examples(
        examples, values, kind, tokenizer, served.max_seq_length, given.long_texts
    )
    metrics = classification.METRICS[kind]
    if glue:
        metrics = (glue.best_metric, *(m for m in glue.metrics if m != glue.best_metric))
    if given.best_metric not in ("", "loss"):
        metrics = (given.best_metric, *(m for m in metrics if m != given.best_metric))
    task = classification.ClassificationTask(
        *_UNUSED, kind=kind, labels=served.labels, metric_names=metrics
    )
    if isinstance(served, ClassifierServing):
        # The probabilities of the file already have the temperature.
        task.decisions = dataclasses.replace(served.decisions, temperature=1.0)
    return Judge(source, task, made)


def _judge_words(served: Serving, folder: str, file: str, tokenizer: Tokenizer) -> Judge:
    given = _config(TaggerConfig, folder)
    sentences = read_tagged(file, given.word_column, column_of(given.tag_column))
    length = served.max_seq_length
    made = tagging.make_examples(sentences, served.labels, tokenizer, length, is_labelled=True)
    return Judge(file, tagging.TaggingTask(*_UNUSED, labels=served.labels), made)


def _judge_answers(served: Any, file: str, tokenizer: Tokenizer) -> Judge:
    config = SquadConfig(
        doc_stride=served.doc_stride,
        max_query_length=served.max_query_length,
        n_best_size=served.n_best_size,
        max_answer_length=served.max_answer_length,
        version_2_with_negative=served.version_2,
        null_score_diff_threshold=served.threshold,
    )
    questions = read_squad(file, False, served.version_2)
    made = squad.make_examples(questions, tokenizer, served.max_seq_length, config)
    if not made.is_labelled:
        raise ValueError(f"{file} has no answers to score with; give another --eval_file.")
    return Judge(file, squad.SquadTask(*_UNUSED, config=config), made)


# No model, nothing to train on or to evaluate while training: only answers are judged.
_UNUSED: Sequence[Any] = (None, None, None, [], 0)


def _config(cls: Any, folder: str) -> Any:
    """Makes a configuration of texts and numbers as a run recorded them."""
    before = {name: (recorded(folder, name), value) for name, value in cls().to_dict().items()}
    return cls.from_dict(
        {
            name: type(value)(text)
            for name, (text, value) in before.items()
            if text and isinstance(value, str | int)
        }
    )
