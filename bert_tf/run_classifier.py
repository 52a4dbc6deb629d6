"""Fine-tunes BERT to classify texts or pairs of texts, or to score them.

    python -m bert_tf.run_classifier --flagfile=configs/glue_sst2.flags --data_dir=glue/SST-2 \\
        --init_checkpoint=uncased_L-12_H-768_A-12.zip
    python -m bert_tf.run_classifier --do_train --do_eval --output_dir=runs/mine \\
        --train_file=train.csv --eval_file=dev.csv --text_column=review --label_column=stars \\
        --init_checkpoint=uncased_L-12_H-768_A-12.zip

The tasks of GLUE by name, or tables of one's own. Flags and defaults are those of
google-research/bert's run_classifier.py where it has them.
"""

import pathlib
from typing import TYPE_CHECKING, Any

import numpy as np
from absl import logging

from bert_tf import config_flags
from bert_tf.config import DataConfig
from bert_tf.files import atomic_write
from bert_tf.fine_tuning.program import (
    DATA_FLAGS,
    DEFAULT_OPTIMIZER,
    FLAG_GROUPS,
    WITHOUT_EFFECT,
    Configs,
    Examples,
    asked_files,
    is_watched,
)
from bert_tf.fine_tuning.run import run
from bert_tf.fine_tuning_config import ClassifierConfig
from bert_tf.run_record import recorded
from bert_tf.text.wordpiece import WordPiece

if TYPE_CHECKING:
    from bert_tf.tasks.classification import ClassificationTask, TextExamples
    from bert_tf.tasks.glue import GlueTask
    from bert_tf.tasks.text_examples import TextExample

config_flags.define_flags(*FLAG_GROUPS, ClassifierConfig, without=WITHOUT_EFFECT)
config_flags.define_flags(DataConfig, only=DATA_FLAGS)
config_flags.set_defaults(optimizer=DEFAULT_OPTIMIZER)

SPLITS = {"train": "train", "eval": "dev", "predict": "test"}  # GLUE's names


class Classifier:
    """The program; see `fine_tuning.program.Program`."""

    head = "classifier"
    needs_pooler = True
    panels = {
        "loss": "loss",
        "accuracy": "accuracy",
        "f1": "F1",
        "macro_f1": "macro F1",
        "micro_f1": "micro F1",
        "matthews": "Matthews' correlation",
        "pearson": "Pearson's correlation",
        "spearman": "Spearman's correlation",
    }

    def files(self, configs: Configs) -> dict[str, str]:
        """GLUE's tasks name their files themselves."""
        if not configs.task.task_name:
            return asked_files(configs)
        if not configs.task.data_dir:
            raise ValueError(
                f"--task_name={configs.task.task_name} needs its files; give --data_dir."
            )
        return {}

    def read(self, configs: Configs, tokenizer: WordPiece, labels: tuple[str, ...]) -> Examples:
        """Reads the splits that the flags ask for."""
        from bert_tf.tasks.classification import class_weights, label_array, make_examples

        given, training = configs.task, configs.training
        glue, kind = find_glue(given), given.label_kind
        if glue:
            kind = "class" if glue.labels else "number"
        check_kind(configs, kind)
        splits = read_splits(configs, glue, self.files(configs))
        names = choose_labels(splits, glue, kind, labels)

        def make(name: str, is_labelled: bool) -> "TextExamples":
            examples = splits[name]
            logging.info("%s: %s", name, describe_split(examples, names))
            values = np.zeros([len(examples), len(names)] if kind == "several" else len(examples))
            values = values.astype(np.int32 if kind == "class" else np.float32)
            if is_labelled:
                check_labelled(examples, name)
                values = label_array(examples, names, kind)
            weights = None
            if name == "train" and kind == "class":
                weights = class_weights(given.class_weights, values, names)
            length = configs.data.max_seq_length
            made = make_examples(
                examples, values, kind, tokenizer, length, given.long_texts, weights
            )
            log_lengths(made, length)
            return made

        evaluated = [name for name in splits if name.startswith("dev")]
        predicted = [name for name in splits if name.startswith("test")]
        return Examples(
            make("train", True) if training.do_train else None,
            {name.partition("_")[2]: make(name, True) for name in evaluated},
            {name.partition("_")[2]: make(name, False) for name in predicted},
            names,
        )

    def make_task(
        self, configs: Configs, examples: Examples, buckets: list[int], **options: Any
    ) -> "ClassificationTask":
        """Makes the classifier and its task."""
        from bert_tf.modeling.models import BertClassifier
        from bert_tf.tasks.classification import METRICS, ClassificationTask

        given = configs.task
        glue, kind = find_glue(given), given.label_kind
        metrics = METRICS[kind]
        if glue:
            kind = "class" if glue.labels else "number"
            metrics = (glue.best_metric, *(m for m in glue.metrics if m != glue.best_metric))
        best = given.best_metric or metrics[0]
        known = ("loss", *metrics)
        if best not in known:
            raise ValueError(f"--best_metric={best}: expected one of {list(known)}.")
        task = ClassificationTask(
            BertClassifier(configs.model, max(1, len(examples.labels)), **options),
            examples.train.rows if examples.train else None,
            next(iter(examples.eval.values()), None),
            buckets,
            configs.data.random_seed,
            kind=kind,
            labels=examples.labels,
            metric_names=metrics,
        )
        task.best_metric = best
        if kind == "number" and examples.train:
            # From 0 a few hundred small steps do not reach numbers of another size. A checkpoint
            # that has a head replaces this.
            task.model.head.output_bias.assign([examples.train.labels.mean()])
        self.num_worst_errors, self.glue = given.num_worst_errors, glue
        return task

    def report(
        self,
        folder: pathlib.Path,
        task: "ClassificationTask",
        name: str,
        examples: "TextExamples",
        outputs: Any,
    ) -> None:
        """Writes report.txt (with classes) and worst_errors.tsv."""
        from bert_tf.tasks import classification_report as reports

        end = f"_{name}" if name else ""
        answers, true = task.answers(examples, outputs), examples.labels
        if task.kind != "number":
            is_class = task.kind == "class"
            make = reports.class_report_text if is_class else reports.several_report_text
            with atomic_write(folder / f"report{end}.txt") as file:
                file.write(make(true.astype(int), answers, task.labels))
        is_wrong = (true != answers).reshape(len(true), -1).any(axis=-1)
        counts = np.bincount(examples.owners)
        losses = np.bincount(examples.owners, np.array(outputs["loss"])) / counts
        texts = answer_texts(task, answers)
        table = reports.worst_errors_text(
            examples.examples, losses, texts, is_wrong, self.num_worst_errors
        )
        with atomic_write(folder / f"worst_errors{end}.tsv") as file:
            file.write(table)

    def write_predictions(
        self,
        folder: pathlib.Path,
        task: "ClassificationTask",
        name: str,
        examples: "TextExamples",
        outputs: Any,
    ) -> None:
        """Writes Google's test_results.tsv, predictions.tsv with names, GLUE's submission file."""
        from bert_tf.tasks.glue import glue_submission_name, glue_submission_rows

        end = f"_{name}" if name else ""
        probabilities = task.probabilities(examples, outputs)
        classes = task.answers(examples, outputs)
        answers = answer_texts(task, classes)
        ids = [example.id for example in examples.examples]
        with atomic_write(folder / f"test_results{end}.tsv") as file:
            for row in probabilities:
                file.write("\t".join(str(value) for value in row) + "\n")
        with atomic_write(folder / f"predictions{end}.tsv") as file:
            file.write("id\tanswer\tscore\n")
            for identity, answer, row in zip(ids, answers, probabilities, strict=True):
                file.write(f"{identity}\t{answer}\t{row.max():.6f}\n")
        logging.info("Wrote %s", folder / f"predictions{end}.tsv")
        if self.glue:
            path = folder / glue_submission_name(self.glue, f"test{end}")
            lines = glue_submission_rows(self.glue, ids, classes)
            with atomic_write(path) as file:
                file.writelines(f"{line}\n" for line in lines)


def find_glue(given: ClassifierConfig) -> "GlueTask | None":
    """Returns the task of --task_name; None for own data."""
    from bert_tf.tasks.glue import glue_task

    return glue_task(given.task_name) if given.task_name else None


def read_splits(
    configs: Configs, glue: "GlueTask | None", files: dict[str, str]
) -> dict[str, list["TextExample"]]:
    """Reads what is asked for, by the name of the split.

    Raises:
      ValueError: if the task has no such split.
    """
    from bert_tf.tasks.glue import read_glue
    from bert_tf.tasks.text_examples import read_text_examples

    given, training = configs.task, configs.training
    if not glue:
        columns = given.text_column, given.text_b_column
        return {
            SPLITS[name]: read_text_examples(
                file, *columns, "" if name == "predict" else given.label_column
            )
            for name, file in files.items()
        }
    asked = {
        "train": training.do_train,
        "dev": training.do_eval or training.do_train and is_watched(training),
        "test": configs.tuning.do_predict,
    }
    wanted = [split for split in glue.splits if asked[split.partition("_")[0]]]
    if not wanted:
        raise ValueError(f"{glue.name} has only the splits {list(glue.splits)}.")
    return {split: read_glue(glue, given.data_dir, split) for split in wanted}


def choose_labels(
    splits: dict[str, list["TextExample"]],
    glue: "GlueTask | None",
    kind: str,
    labels: tuple[str, ...],
) -> tuple[str, ...]:
    """Returns the names of the classes in the order of the head; () for numbers.

    Those of the weights, unless the training examples have others.

    Raises:
      ValueError: if no example has a label, or all training examples the same.
    """
    from bert_tf.tasks.text_examples import label_names

    if kind == "number":
        return ()
    if glue:
        return glue.labels
    if "train" not in splits and labels:
        return labels
    source = splits.get("train") or next(iter(splits.values()))
    found = label_names(source, kind == "several")
    if "train" in splits and kind == "class" and len(found) == 1:
        raise ValueError(
            f"--train_file: all training examples have the label {found[0]!r}; there is nothing to "
            f"tell apart."
        )
    return labels if sorted(found) == sorted(labels) else found


def check_kind(configs: Configs, kind: str) -> None:
    """Raises ValueError if a run that is used alone was trained on labels of another kind."""
    from bert_tf.tasks.glue import glue_task

    training, folders = configs.training, [configs.training.output_dir]
    if start := training.init_checkpoint:
        folders += [start, str(pathlib.Path(start).parent)]
    for folder in folders:
        before, name = recorded(folder, "label_kind"), recorded(folder, "task_name")
        if name:
            before = "class" if glue_task(name).labels else "number"
        if before and before != kind and not training.do_train:
            raise ValueError(f"{folder} was trained with --label_kind={before}; give it again.")


def describe_split(examples: list["TextExample"], labels: tuple[str, ...]) -> str:
    """Returns how many examples there are, of which class."""
    from bert_tf.tasks.text_examples import describe

    return describe(examples, labels)


def check_labelled(examples: list["TextExample"], split: str) -> None:
    """Raises ValueError naming an example without label."""
    bare = [example.source for example in examples if example.label is None]
    if bare:
        raise ValueError(
            f"{split}: {len(bare)} of {len(examples)} examples have no label, the first is "
            f"{bare[0]}; label them, or leave them out."
        )


def log_lengths(made: "TextExamples", max_seq_length: int) -> None:
    """Logs how long the texts are and how many were cut."""
    rows, count = made.rows, len(made.examples)
    logging.info(
        "  %d rows, %.1f pieces on average, the longest %d; %d examples (%.1f %%) cut to %d.",
        len(rows),
        rows.num_pieces / max(1, len(rows)),
        rows.lengths.max(initial=0),
        made.num_cut,
        100.0 * made.num_cut / max(1, count),
        max_seq_length,
    )


def answer_texts(task: "ClassificationTask", answers: np.ndarray) -> list[str]:
    """Returns the answers by name; several are parted by |."""
    if task.kind == "number":
        return [f"{value:.6g}" for value in answers]
    if task.kind == "class":
        return [task.labels[answer] for answer in answers]
    names = np.array(task.labels, object)
    return ["|".join(names[row == 1]) for row in answers]


def main(_: list[str]) -> int:
    return run(Classifier(), ClassifierConfig)


if __name__ == "__main__":
    config_flags.run(main)
