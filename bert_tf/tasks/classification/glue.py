"""GLUE's nine tasks and its diagnostic set: labels, metrics, files, and the files of a submission.

Files are read as they are downloaded; quotes are characters like any other in all of them:

  CoLA             train and dev have no header: source, label, mark, sentence.
  MRPC             train.tsv, dev.tsv, test.tsv or, where these are missing, Microsoft's own files
                   msr_paraphrase_train.txt and _test.txt. With GLUE's dev_ids.tsv in the folder
                   GLUE's train and dev are made; without it train is the whole first file and dev
                   the second, which is GLUE's test set: a warning says so.
  STS-B            train.tsv, dev.tsv, test.tsv or, where these are missing, the STS benchmark's
                   sts-train.csv, sts-dev.csv, sts-test.csv: separated by tabs, without a header.
  MNLI             dev is dev_matched.tsv and test is test_matched.tsv; the splits dev_mismatched
                   and test_mismatched are also there.
  AX               diagnostic.tsv or AX.tsv, which only has a test set; also in MNLI's folder.

In GLUE's QQP some questions hold a line break, which leaves two rows with too few columns. They are
skipped and counted in train and dev, up to `MAX_BROKEN_ROWS`; in the test set, where every row
needs a prediction, and in all other files a row with a wrong number of columns is an error, as is a
label that is not the task's.
"""

import logging
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from bert_tf.tasks.base.examples.labels import LabelNames
from bert_tf.tasks.base.examples.tables import read_cells, read_table, read_tfds_table, wrong_width
from bert_tf.tasks.classification.examples import TextExample

MAX_BROKEN_ROWS = 100
_log = logging.getLogger(__name__)


class GlueTask(NamedTuple):
    """One task."""

    name: str  # its key in `GLUE`
    folder: str  # GLUE's name of the folder and of the submission's file
    # text_a, text_b, label: columns of the files; `text_b` is "" for single sentences.
    text_a: str
    text_b: str
    label: str
    # In the order of the classes, which is that of google-research/bert's `run_classifier`; () for
    # a regression.
    labels: tuple[str, ...]
    # The metrics that GLUE reports: accuracy, f1, matthews, pearson, spearman.
    metrics: tuple[str, ...]
    best_metric: str  # the metric that selects a model, that of Devlin et al. 2018, table 1
    splits: tuple[str, ...] = ("train", "dev", "test")  # the splits that `read_glue` reads


_BINARY = ("0", "1")
_ENTAILMENT = ("entailment", "not_entailment")
_NLI = ("contradiction", "entailment", "neutral")
_MNLI_SPLITS = ("train", "dev", "test", "dev_mismatched", "test_mismatched")
# Columns of pairs.
_S1 = "sentence1"
_S2 = "sentence2"
_Q1 = "question1"
_Q2 = "question2"
# Metrics.
_BOTH = ("accuracy", "f1")
_RIGHT = ("accuracy",)
_CORRELATIONS = ("pearson", "spearman")
_TASKS = (
    GlueTask(
        "cola", "CoLA", "sentence", "", "label", _BINARY, ("matthews", "accuracy"), "matthews"
    ),
    GlueTask("sst-2", "SST-2", "sentence", "", "label", _BINARY, _RIGHT, "accuracy"),
    GlueTask("mrpc", "MRPC", "#1 String", "#2 String", "Quality", _BINARY, _BOTH, "f1"),
    GlueTask("sts-b", "STS-B", _S1, _S2, "score", (), _CORRELATIONS, "spearman"),
    GlueTask("qqp", "QQP", _Q1, _Q2, "is_duplicate", _BINARY, _BOTH, "f1"),
    GlueTask("mnli", "MNLI", _S1, _S2, "gold_label", _NLI, _RIGHT, "accuracy", _MNLI_SPLITS),
    GlueTask("qnli", "QNLI", "question", "sentence", "label", _ENTAILMENT, _RIGHT, "accuracy"),
    GlueTask("rte", "RTE", _S1, _S2, "label", _ENTAILMENT, _RIGHT, "accuracy"),
    GlueTask("wnli", "WNLI", _S1, _S2, "label", _BINARY, _RIGHT, "accuracy"),
    GlueTask("ax", "AX", _S1, _S2, "label", _NLI, ("matthews",), "matthews", ("test",)),
)
GLUE: dict[str, GlueTask] = {task.name: task for task in _TASKS}

_COLA_COLUMNS = ("source", "label", "mark", "sentence")
_STS_COLUMNS = ("genre", "filename", "year", "old_index", "score", _S1, _S2)
# Names of the texts in TensorFlow Datasets and, in the order of GLUE's labels, of the classes.
_TFDS_TEXTS = {
    "mrpc": (_S1, _S2),
    "mnli": ("premise", "hypothesis"),
    "ax": ("premise", "hypothesis"),
}
_TFDS_CLASSES = {
    "cola": ("unacceptable", "acceptable"),
    "sst-2": ("negative", "positive"),
    "mrpc": ("not_equivalent", "equivalent"),
    "qqp": ("not_duplicate", "duplicate"),
    "wnli": ("not_entailment", "entailment"),
}


def reads_pairs(settings: Mapping[str, str]) -> bool:
    """Returns whether a classifier was trained on pairs of texts, by its recorded settings."""
    if task := settings.get("task_name"):
        return bool(glue_task(task).text_b)
    return bool(settings.get("text_b_column")) or settings.get("pair") == "true"


def glue_task(name: str) -> GlueTask:
    """Returns the task with a name, in any case and with or without the hyphen: SST-2, sst2."""
    plain = {key.replace("-", ""): task for key, task in GLUE.items()}
    task = plain.get(name.strip().lower().replace("-", "").replace("_", ""))
    if task is None:
        raise ValueError(f"{name!r} is not a GLUE task; expected one of {', '.join(GLUE)}.")
    return task


def read_glue(task: GlueTask, data_dir: str, split: str) -> list[TextExample]:
    """Reads a split of a task.

    Args:
      data_dir: the task's folder, or the one that holds it under GLUE's name (`glue_data/SST-2`),
        or "tfds:glue" for TensorFlow Datasets.
      split: one of `task.splits`.

    Returns:
      The examples; those of a test set without labels have None.

    Raises:
      ValueError: if there is no such split, no file of it (listing the names tried) or no row
        in it; naming file and line, if a row or a label is not as expected, see above.
    """
    if split not in task.splits:
        raise ValueError(f"{task.folder} has no split {split!r}; it has {', '.join(task.splits)}.")
    if task.name == "mnli" and split in ("dev", "test"):
        split += "_matched"
    if data_dir.startswith("tfds:"):
        examples = _read_tfds(task, data_dir.removeprefix("tfds:"), split)
    else:
        path = _find_file(task, pathlib.Path(data_dir), split)
        examples = _read_file(task, path, split)
    if not examples:
        raise ValueError(f"{data_dir}: {task.folder}'s {split} has no rows; download it again.")
    if task.labels:
        known = LabelNames(task.labels)
        examples = [
            example._replace(label=example.label and known.name_of(example.label))
            for example in examples
        ]
    for example in examples:
        if task.labels and example.label not in (None, *task.labels):
            raise ValueError(
                f"{example.source}: label {example.label!r}, expected one of {task.folder}'s: "
                f"{', '.join(task.labels)}."
            )
    return examples


# Files ------------------------------------------------------------------------------------------


def _find_file(task: GlueTask, data_dir: pathlib.Path, split: str) -> pathlib.Path:
    """Returns the first file that exists; GLUE's format has precedence."""
    names = {
        "ax": ("diagnostic.tsv", "AX.tsv"),
        # Microsoft's first file contains GLUE's dev set as well; see `_mrpc_rows`.
        "mrpc": (f"{split}.tsv", f"msr_paraphrase_{'test' if split == 'test' else 'train'}.txt"),
        "sts-b": (f"{split}.tsv", f"sts-{split}.csv"),
    }.get(task.name, (f"{split}.tsv",))
    folders = [data_dir, data_dir / task.folder]
    if task.name == "ax":
        folders += [data_dir / "diagnostic", data_dir / "MNLI"]
    paths = [folder / name for folder in folders for name in names]
    for path in paths:
        if path.is_file():
            return path
    raise ValueError(
        f"no file of {task.folder}'s {split}; looked for {', '.join(map(str, paths))}. Give the "
        f"folder with these files, or its parent folder, or tfds:glue."
    )


def _read_file(task: GlueTask, path: pathlib.Path, split: str) -> list[TextExample]:
    examples = []
    for number, (where, row) in enumerate(_file_rows(task, path, split)):
        wanted = [task.text_a, *filter(None, [task.text_b])]
        if not split.startswith("test"):
            wanted.append(task.label)
        if missing := [column for column in wanted if column not in row]:
            raise ValueError(
                f"{where}: no column {missing[0]!r} but {', '.join(row)}; is this the {split} set "
                f"of GLUE's {task.folder}?"
            )
        # A submission names examples by this index, which QQP calls id.
        index = row.get("index", row.get("id", str(number)))
        text_b = row[task.text_b] if task.text_b else None
        examples.append(TextExample(row[task.text_a], text_b, row.get(task.label), index, where))
    return examples


def _file_rows(
    task: GlueTask, path: pathlib.Path, split: str
) -> Iterator[tuple[str, dict[str, str]]]:
    """Yields the rows of a file in any of the formats of its task."""
    if task.name == "cola" and split != "test":
        return read_table(str(path), _COLA_COLUMNS)
    if task.name == "qqp" and split != "test":
        return _qqp_rows(str(path))
    if path.name.startswith("sts-"):
        return read_sts_benchmark(str(path))
    if path.name.startswith("msr_"):
        return _mrpc_rows(path, split)
    return read_table(str(path), None)


def _qqp_rows(path: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Yields the rows that have all columns; the others are counted and skipped."""
    rows = read_cells(path)
    _, columns = next(rows)
    broken = []
    for where, cells in rows:
        if len(cells) == len(columns):
            yield where, dict(zip(columns, cells, strict=True))
            continue
        broken.append(where)
        if len(broken) > MAX_BROKEN_ROWS:
            raise ValueError(
                f"{wrong_width(where, cells, columns)} It is one of more than {MAX_BROKEN_ROWS} "
                "such rows, too many for GLUE's QQP."
            )
    if broken:
        _log.warning(
            "%s: %d rows skipped, because their number of columns is wrong, a known problem of "
            "GLUE's QQP; the first is %s.",
            path,
            len(broken),
            broken[0],
        )


def read_sts_benchmark(path: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Yields the rows of the STS benchmark; some name the sources of the texts after them."""
    for where, cells in read_cells(path, delimiter="\t", is_quoted=False):
        if len(cells) < len(_STS_COLUMNS):
            raise wrong_width(where, cells, _STS_COLUMNS)
        # Not strict: the columns after the texts, their sources, are left out.
        yield where, dict(zip(_STS_COLUMNS, cells, strict=False))


def _mrpc_rows(path: pathlib.Path, split: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Yields the rows of a split of Microsoft's files; GLUE's dev set is a part of their train set.

    GLUE's `download_glue_data.py` makes the same split.
    """
    ids = path.with_name("dev_ids.tsv")
    if split == "test":
        yield from read_table(str(path), None)
    elif ids.is_file():
        in_dev = {tuple(cells) for _, cells in read_cells(str(ids))}
        for where, row in read_table(str(path), None):
            # dev has the pairs that are listed, train all others.
            if ((row.get("#1 ID"), row.get("#2 ID")) in in_dev) == (split == "dev"):
                yield where, row
    else:
        _log.warning(
            "%s: there is no dev_ids.tsv in its folder, so train is this whole file and dev is "
            "Microsoft's test set, which is also GLUE's: a score on it is not a GLUE dev score.",
            path,
        )
        name = "msr_paraphrase_train.txt" if split == "train" else "msr_paraphrase_test.txt"
        yield from read_table(str(path.with_name(name)), None)


# TensorFlow Datasets ----------------------------------------------------------------------------


def _read_tfds(task: GlueTask, dataset: str, split: str) -> list[TextExample]:
    name = f"{dataset}/{task.name.replace('-', '')}:{split.replace('dev', 'validation')}"
    columns = _TFDS_TEXTS.get(task.name, (task.text_a, task.text_b))
    classes = dict(zip(_TFDS_CLASSES.get(task.name, task.labels), task.labels, strict=True))
    examples = []
    for where, row in read_tfds_table(name):
        if missing := [column for column in (*columns, "label", "idx") if column not in ("", *row)]:
            raise ValueError(f"{where}: no feature {missing[0]!r} but {', '.join(row)}.")
        text_a = row[columns[0]]
        text_b = row[columns[1]] if columns[1] else None
        label = None
        if row["label"] not in (None, -1):  # A test set has -1 for a class and for a score.
            label = classes.get(str(row["label"]), str(row["label"]))
        examples.append(TextExample(text_a, text_b, label, str(row["idx"]), where))
    return examples


# Submission -------------------------------------------------------------------------------------


def glue_submission_name(task: GlueTask, split: str = "test") -> str:
    """Returns the name of a test set's file in a submission: RTE.tsv, MNLI-m.tsv, MNLI-mm.tsv."""
    if task.name == "mnli":
        if split.endswith("_mismatched"):
            return "MNLI-mm.tsv"
        return "MNLI-m.tsv"
    return f"{task.folder}.tsv"


def glue_submission_rows(
    task: GlueTask, ids: Sequence[str], predictions: Sequence[int] | np.ndarray
) -> list[str]:
    """Returns the lines of a file of a submission, the header first, without line ends.

    Args:
      predictions: [n], indices into `task.labels`; of STS-B scores, which are cut to GLUE's range,
        0 to 5, and written with 3 decimals.

    Reference: the FAQ of gluebenchmark.com: a header, "index" and "prediction" separated by a tab,
    labels as in the training files.
    """
    if task.labels:
        texts = [task.labels[index] for index in predictions]
    else:
        texts = [f"{value:.3f}" for value in np.clip(predictions, 0, 5)]
    return ["index\tprediction", *(f"{i}\t{text}" for i, text in zip(ids, texts, strict=True))]
