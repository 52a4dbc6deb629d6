"""Checks the flags and examples of `run_classifier --few_shot`, without TensorFlow."""

from bert_tf.tasks.base.programs.program import Configs
from bert_tf.tasks.classification.inputs import LabelledTexts
from bert_tf.tasks.classification.label_arrays import label_ids, label_rows
from bert_tf.tasks.classification.pairs import check_counts
from bert_tf.tasks.embedding.examples import EmbeddingExample, read_embedding_examples


def check_few_shot_flags(configs: Configs) -> None:
    """Raises ValueError if --few_shot contradicts another flag, or has no embedder."""
    task, training, tuning = configs.task, configs.training, configs.tuning
    if not training.do_train:
        raise ValueError("--few_shot trains: give --do_train, or leave --few_shot out.")
    if not training.init_checkpoint:
        raise ValueError(
            "--few_shot starts from an embedder, such as a folder of all-MiniLM-L6-v2; give one as "
            "--init_checkpoint."
        )
    wrong = {
        f"--task_name={task.task_name}": bool(task.task_name),
        f"--text_b_column={task.text_b_column}": bool(task.text_b_column),
        "--problem_type=regression": task.problem_type == "regression",
        "--teacher": bool(task.teacher),
        f"--folds={task.folds}": task.folds > 0,
        f"--class_weights={task.class_weights}": bool(task.class_weights),
        f"--loss_options=label_smoothing={task.label_smoothing:g}": task.label_smoothing > 0,
        f"--loss_options=focal_gamma={task.focal_gamma:g}": task.focal_gamma > 0,
        f"--num_seeds={tuning.num_seeds}": tuning.num_seeds > 1,
        f"--eval_steps={training.eval_steps}": training.eval_steps > 0,
        "--early_stopping_evaluations": training.early_stopping_evaluations > 0,
        "--pack_rows": training.pack_rows,
    }
    for flag, is_given in wrong.items():
        if is_given:
            raise ValueError(
                f"--few_shot trains an embedder on pairs of single texts; it does not go together "
                f"with {flag}."
            )


def check_few_shot_labels(texts: LabelledTexts) -> None:
    """Raises ValueError if there are no pairs to learn from; see `check_counts`."""
    examples = texts.splits["train"]
    names = texts.choose_labels(())
    read = label_rows if texts.kind == "multi_label" else label_ids
    check_counts(read(examples, names), names)


def read_unlabelled(configs: Configs) -> list[EmbeddingExample]:
    """Returns the texts of --unlabelled_file, whose labels do not count; none without it."""
    file = configs.task.unlabelled_file
    if not file:
        return []
    task = configs.task
    column = task.text_column
    return read_embedding_examples(file, "--unlabelled_file", reading=task, text_column=column)
