"""Cross-validation: a prediction for each training example by a model that did not learn it.

    training examples --assign_folds--> K parts of the same size and share of labels
        --for each part: train on the others, predict it--> fold-1 .. fold-K
        --> out_of_fold.tsv: a line per example; folds.json: mean and spread of the metrics

A fold that is done leaves fold.json in its directory and is not run again; one that was interrupted
resumes from its checkpoint.
"""

import dataclasses
import hashlib
import json
import pathlib
from collections.abc import Sequence

import numpy as np
from absl import logging

from bert_tf.system.files import read_json, write_json
from bert_tf.system.type_names import Outputs
from bert_tf.tasks.base.programs.program import Configs
from bert_tf.tasks.base.programs.results import table_text, write_texts
from bert_tf.tasks.base.programs.run import Run
from bert_tf.tasks.classification.examples import TextExample
from bert_tf.tasks.classification.features import TextExamples
from bert_tf.tasks.classification.inputs import LabelledTexts
from bert_tf.tasks.classification.program import Classifier, answer_texts
from bert_tf.training.seeds import write_summary

TABLE = "out_of_fold.tsv"
DONE = "fold.json"


def assign_folds(
    examples: Sequence[TextExample], num_folds: int, seed: int, is_number: bool = False
) -> np.ndarray:
    """Returns the fold of each example, int [E] from 0, with nearly the same labels in each.

    The examples are shuffled, sorted by their labels, numbers by value, and dealt out in turn.
    """
    if len(examples) < num_folds:
        raise ValueError(
            f"--folds={num_folds}: there are only {len(examples)} training examples; give a number "
            f"from 2 to {len(examples)}."
        )
    order = np.random.default_rng(seed).permutation(len(examples))
    labels = [examples[index].label or "" for index in order]
    keys = np.array(list(map(float, labels)) if is_number else labels)
    # Stable, so that the order within a label stays that of the shuffle.
    dealt = order[np.argsort(keys, kind="stable")]
    folds = np.empty(len(examples), int)
    # Every fold gets each K-th example of a label.
    folds[dealt] = np.arange(len(examples)) % num_folds
    return folds


class FoldTexts(LabelledTexts):
    """The examples of one fold: one part of the training examples is predicted.

    Args:
      whole: all examples; those of evaluations during training stay the same.
      is_held_out: bool [E], which training examples are predicted.
    """

    def __init__(self, whole: LabelledTexts, is_held_out: np.ndarray) -> None:
        # Not `super().__init__`, which would read the files again.
        vars(self).update(vars(whole))
        self._whole = whole
        examples = whole.splits["train"]
        self.splits = dict(whole.splits)
        self.splits["train"] = [examples[i] for i in np.flatnonzero(~is_held_out)]
        self.splits["test"] = [examples[i] for i in np.flatnonzero(is_held_out)]

    def choose_labels(self, labels: tuple[str, ...]) -> tuple[str, ...]:
        """Returns the labels of all folds: a rare one may be missing from a part."""
        return self._whole.choose_labels(labels)

    def is_labelled(
        self,
        examples: list[TextExample],
        names: tuple[str, ...],
        is_predicted: bool,
        is_quiet: bool = False,
    ) -> bool:
        """See `LabelledTexts`; examples of the fold are labelled, even if all are of one class."""
        return super().is_labelled(examples, names, False, is_quiet)


class FoldClassifier(Classifier):
    """`Classifier` that predicts one part of the training examples.

    Args:
      fold: number of the fold, from 1.
      rows: the held-out training examples, numbers from 0.
    """

    def __init__(
        self, configs: Configs, files: dict[str, str], texts: FoldTexts, fold: int, rows: np.ndarray
    ) -> None:
        super().__init__(configs, files, texts)
        self.fold = fold
        self.rows = rows
        self.results: dict[str, float] = {}

    def write_predictions(self, name: str, examples: TextExamples, outputs: Outputs) -> None:
        """Writes the part of the fold in out_of_fold.tsv."""
        task = self.task
        self.results = task.metrics(examples, outputs)
        probabilities = task.probabilities(examples, outputs)
        answers = answer_texts(task, task.answers(examples, outputs))
        columns = ["row", "fold", "source", "label", "answer"]
        if task.kind != "regression":
            columns += [f"p({label})" for label in task.labels]
        # Not by this fold's part alone, so that the tables of all folds have the same columns.
        has_pairs = bool(self.configs.task.text_b_column) or any(
            example.text_b for example in self.texts.splits["train"]
        )
        columns += ["text", "text_b"] if has_pairs else ["text"]
        rows = []
        for row, example, answer, chances in zip(
            self.rows, examples.examples, answers, probabilities, strict=True
        ):
            cells = [str(row), str(self.fold), example.source, example.label or "", answer]
            if task.kind != "regression":
                cells += [f"{chance:.6g}" for chance in chances]
            cells += [example.text_a, example.text_b or ""] if has_pairs else [example.text_a]
            rows.append(cells)
        write_texts(self.folder, {TABLE: table_text(columns, rows)})


def run_folds(configs: Configs, files: dict[str, str], texts: LabelledTexts) -> int:
    """Trains and predicts each fold that is not done; returns the exit status."""
    num_folds = configs.task.folds
    folder = pathlib.Path(configs.training.output_dir)
    examples = texts.splits["train"]
    folds = assign_folds(examples, num_folds, configs.data.random_seed, texts.kind == "regression")
    results: dict[int, dict[str, float]] = {}
    strategy = None  # All folds share one; see `tasks.base.programs.run.run_program`.
    for fold in range(1, num_folds + 1):
        is_held_out = folds == fold - 1
        rows = np.flatnonzero(is_held_out)
        fold_folder = folder / f"fold-{fold}"
        digest = digest_of(examples, rows)
        done = read_done(fold_folder, digest)
        if done is not None:
            logging.info("Fold %d of %d is done.", fold, num_folds)
            results[fold] = done
            continue
        logging.info("Fold %d of %d: %d examples to predict.", fold, num_folds, len(rows))
        fold_configs = configs._replace(
            training=dataclasses.replace(configs.training, output_dir=str(fold_folder)),
            tuning=dataclasses.replace(configs.tuning, do_predict=True),
        )
        held_out = f"{files['train']} (fold {fold} of {num_folds})"
        program = FoldClassifier(
            fold_configs, {**files, "predict": held_out}, FoldTexts(texts, is_held_out), fold, rows
        )
        fold_run = Run(program, fold_configs)
        if status := fold_run.execute(strategy):
            return status
        strategy = fold_run.strategy
        if program.results:  # Only the worker that writes has them.
            write_json(fold_folder / DONE, {"sha256": digest, "results": program.results})
            results[fold] = program.results
    if len(results) == num_folds:
        write_texts(folder, {TABLE: joined_table(folder, num_folds)})
        write_summary(folder, results, "fold")
    return 0


def digest_of(examples: Sequence[TextExample], rows: np.ndarray) -> str:
    """Returns a digest of all training examples and of those that a fold holds out."""
    content = [[one.text_a, one.text_b, one.label] for one in examples]
    text = json.dumps([content, rows.tolist()])
    return hashlib.sha256(text.encode()).hexdigest()


def read_done(folder: pathlib.Path, digest: str) -> dict[str, float] | None:
    """Returns the metrics of a fold that is done; None if it is not."""
    if not (folder / DONE).exists() or not (folder / TABLE).exists():
        return None
    done = read_json(folder / DONE)
    if done.get("sha256") != digest:
        raise ValueError(
            f"{folder} was trained with other examples, or with another --folds or --random_seed; "
            "give another --output_dir."
        )
    return done["results"]


def joined_table(folder: pathlib.Path, num_folds: int) -> str:
    """Returns the lines of all folds in the order of the training examples."""
    header = ""
    lines: list[str] = []
    for fold in range(1, num_folds + 1):
        text = (folder / f"fold-{fold}" / TABLE).read_text(encoding="utf8")
        # Not `splitlines`: texts may contain other line separators, such as U+2028.
        header, *of_fold = text.removesuffix("\n").split("\n")
        lines += of_fold
    # By the number of the example, in the first cell.
    lines.sort(key=lambda line: int(line.partition("\t")[0]))
    return "\n".join([header, *lines]) + "\n"
