"""Labelled examples to score a LiteRT file on, with the metric of the fine-tuning programs.

The examples are read as by these programs, with the flags that the run recorded in run.flags.
"""

import glob
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from bert_tf.checkpoints.hub import record_of
from bert_tf.checkpoints.run_record import read_record
from bert_tf.config.fine_tuning_config import ClassifierConfig, TaggerConfig
from bert_tf.inference.kinds import KINDS
from bert_tf.inference.predictor import Predictor
from bert_tf.metrics.squad import evaluate_v1, evaluate_v2
from bert_tf.tasks.base.serving.model import Serving
from bert_tf.tasks.classification.examples import read_text_examples
from bert_tf.tasks.classification.glue import glue_task, read_glue
from bert_tf.tasks.classification.label_arrays import label_array
from bert_tf.tasks.classification.task import METRICS, label_metrics
from bert_tf.tasks.question_answering.questions import are_answered, read_squad
from bert_tf.tasks.question_answering.task import official_format
from bert_tf.tasks.tagging.files import column_of, read_tagged, tag_ids, with_known_tags
from bert_tf.tasks.tagging.task import are_entities, tag_metrics

Settings = dict[str, str]


class Labelled(NamedTuple):
    """Examples with labels.

    Attributes:
      source: the file or folder that they were read from.
      texts: the text or the pair of texts of each example; the second is "" without a pair.
      metric: name of the metric.
      points: takes a predictor; returns the metric of its answers, in percent.
    """

    source: str
    texts: list[tuple[str, str]]
    metric: str
    points: Callable[[Predictor], float]


def read_labelled(
    serving: Serving, model_dir: str, split: str = "dev", file: str = ""
) -> Labelled | None:
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
    settings = read_record(record_of(model_dir))
    path = file or settings.get("eval_file" if split == "dev" else "train_file", "")
    if not file:
        _check_recorded(f"{path},{settings.get('data_dir', '')}", model_dir, split)
    if KINDS[serving.kind].problem_type:
        return _read_texts(serving, settings, path, "" if file else split)
    if path and serving.kind == "tagger":
        return _read_words(serving, settings, path)
    if path and serving.kind == "question_answering":
        return _read_questions(serving, path)
    return None


def _check_recorded(files: str, model_dir: str, split: str) -> None:
    """Raises ValueError if recorded files, separated by commas, are not on this machine."""
    # A name such as tfds:NAME is not a path.
    paths = [path for path in files.split(",") if path and ":" not in path]
    missing = [path for path in paths if not glob.glob(path)]  # noqa: PTH207
    remedy = "give labelled examples as --calibration_file"
    if split == "dev":
        remedy = "give labelled examples as --eval_file, or --no_gate to compare outputs alone"
    if missing:
        raise ValueError(
            f"{', '.join(missing)}, which the record of {model_dir} names, is not here: {remedy}."
        )


def _read_texts(serving: Serving, settings: Settings, path: str, split: str) -> Labelled | None:
    """Reads a split of the recorded GLUE task; without a task or a split, the tables of `path`."""
    given = ClassifierConfig.from_texts(settings)
    kind = KINDS[serving.kind].problem_type
    glue = glue_task(given.task_name) if given.task_name else None
    metric = glue.best_metric if glue else METRICS[kind][0]
    if given.best_metric not in ("", "loss"):
        metric = given.best_metric
    if glue and split:
        path = given.data_dir if split in glue.splits else ""
    if not path:
        return None
    if glue and split:
        examples = read_glue(glue, path, split)
    else:
        examples = read_text_examples(
            path,
            given.text_column,
            given.text_b_column,
            given.label_column,
            problem_type=kind,
            label_separator=given.label_separator,
            is_needed=True,
            reading=given,
        )
    names = list(serving.labels)
    labels = label_array(examples, names, kind)
    texts = [(example.text_a, example.text_b or "") for example in examples]
    asked: Any = texts if len(serving.texts) == 2 else [first for first, _ in texts]

    def points(predictor: Predictor) -> float:
        answers: list[Any]
        if kind == "regression":
            answers = predictor.score(asked)
        elif kind == "single_label":
            answers = [names.index(str(answer["label"])) for answer in predictor.classify(asked)]
        else:
            answers = []
            for answer in predictor.classify(asked):
                answers.append([int(name in answer["labels"]) for name in names])
        return 100 * label_metrics(kind, labels, np.array(answers), names, (metric,))[metric]

    return Labelled(path, texts, metric, points)


def _read_words(serving: Serving, settings: Settings, path: str) -> Labelled:
    given = TaggerConfig.from_texts(settings)
    columns = given.word_column, column_of(given.tag_column)
    sentences = read_tagged(path, *columns, is_needed=True, reading=given)
    tag_ids(sentences, serving.labels)  # Reports tags that are unknown.
    tags = [sentence.tags or () for sentence in with_known_tags(sentences, serving.labels)]
    metric = "f1" if are_entities(serving.labels) else "accuracy"

    def points(predictor: Predictor) -> float:
        tagged = predictor.tag([list(sentence.words) for sentence in sentences])
        answers = [[word["label"] for word in words] for words in tagged]
        value = tag_metrics(serving.labels, tags, answers)[metric]
        return value if metric == "f1" else 100 * value  # F1 is in percent already.

    texts = [(" ".join(sentence.words), "") for sentence in sentences]
    return Labelled(path, texts, metric, points)


def _read_questions(serving: Any, path: str) -> Labelled:
    questions = read_squad(path, False, serving.version_2)
    if not are_answered(questions, serving.version_2):
        raise ValueError(f"{path} has no answers to score with; give another --eval_file.")
    texts = [(question.question, question.context) for question in questions]
    evaluate = evaluate_v2 if serving.version_2 else evaluate_v1

    def points(predictor: Predictor) -> float:
        answers = [answer["answer"] for answer in predictor.answer(texts)]
        ids = [question.id for question in questions]
        return evaluate(official_format(questions), dict(zip(ids, answers, strict=True)))["f1"]

    return Labelled(path, texts, "f1", points)
