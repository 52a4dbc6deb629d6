"""The flags of `run_classifier` that contradict each other."""

from bert_tf.config.rules import Exclusion, Rule, is_set

CLASSIFIER_RULES = (
    Rule(
        lambda c: c.task.folds == 1,
        "--folds=1 holds out everything; give 2 or more, or 0 for none.",
    ),
    Exclusion(
        "folds",
        "trains, and predicts parts of the training examples",
        "do_train=false do_predict num_seeds teacher",
    ),
    Rule(
        lambda c: c.task.folds and c.task.html_report and not c.training.do_eval,
        "--html_report shows the evaluation of a file, but --folds={c.task.folds} alone evaluates "
        "none; give --do_eval and --eval_file, or leave --html_report out.",
    ),
    Rule(
        lambda c: c.task.few_shot and not c.training.do_train,
        "--few_shot trains: give --do_train, or leave --few_shot out.",
    ),
    Rule(
        lambda c: c.task.few_shot and not c.training.init_checkpoint,
        "--few_shot starts from an embedder, such as a folder of all-MiniLM-L6-v2; give one as "
        "--init_checkpoint.",
    ),
    Exclusion(
        "few_shot",
        "trains an embedder on pairs of single texts",
        "task_name text_b_column problem_type=regression teacher folds class_weights "
        "label_smoothing focal_gamma num_seeds eval_steps early_stopping_evaluations pack_rows",
    ),
)
ZERO_SHOT_RULES = (
    Exclusion(
        "zero_shot",
        "trains no model, and classifies single texts of your tables",
        "do_train task_name text_b_column problem_type=regression",
    ),
    Rule(
        lambda groups: not any(is_set(groups, use) for use in ("do_eval", "do_predict")),
        "--zero_shot needs --do_predict, --do_eval, or both.",
    ),
    Rule(
        lambda groups: not all(is_set(groups, name) for name in ("init_checkpoint", "output_dir")),
        "Give a model of natural language inference as --init_checkpoint, and a folder for the "
        "results as --output_dir.",
    ),
)
