"""Configuration of the fine-tuning programs, in addition to the groups of `config/`."""

import dataclasses
import functools
import math

from bert_tf.config import Config, TeacherConfig, changeable, option

of_data = functools.partial(option, of_data=True)

BALANCED = "balanced"  # class weights inverse to the frequency of the classes


def check_class_weights(text: str) -> None:
    """Checks the form of --class_weights, before the classes are known.

    Raises:
      ValueError: naming the part that is not CLASS=WEIGHT.
    """
    if text in ("", BALANCED):
        return
    for part in text.split(","):
        name, _, value = part.rpartition("=")
        try:
            is_valid = bool(name.strip()) and 0 < float(value) < math.inf
        except ValueError:
            is_valid = False
        if not is_valid:
            raise ValueError(
                f"--class_weights: received {part!r} in {text!r}, expected {BALANCED}, or "
                "CLASS=WEIGHT,... with weights above 0."
            )


@dataclasses.dataclass(frozen=True)
class FineTuningConfig(Config):
    """Flags of all fine-tuning programs, with google-research/bert's names where they exist."""

    train_file: str = option("", "Examples to train on.")
    predict_file: str = changeable(
        "", "Examples to predict; also evaluated if all have known labels.", from_run=True
    )
    do_predict: bool = changeable(False, "Predict predict_file, or the task's test set.")
    predict_batch_size: int = changeable(8, "Examples per prediction step.", lower=1)
    num_train_epochs: float = option(
        3.0, "Passes over the examples; num_train_steps, if given, takes precedence.", lower=0.0
    )
    num_seeds: int = changeable(
        1,
        "Number of runs, with seeds random_seed, random_seed + 1, ..., each in its own folder.",
        lower=1,
    )
    frozen_layers: int = option(
        -1,
        "Freeze the embeddings and the first N layers; -1: train all.",
        lower=-1,
        from_run=True,
    )
    new_head: bool = option(
        False, "Start with a new head even if the checkpoint has one, for example of another task."
    )
    pad_to_max_length: bool = changeable(
        False,
        "Pad every batch to max_seq_length, as the original does: slower, same losses.",
        within="training_options",
    )
    use_best_checkpoint: bool = changeable(
        True,
        "After evaluations during training, use the best instead of the last checkpoint.",
        from_run=True,
    )


@dataclasses.dataclass(frozen=True)
class LabelLossConfig(Config):
    """The training loss of class labels; see `network.losses.class_losses` for the formulas."""

    label_smoothing: float = option(
        0.0,
        "Share of the training target that is spread evenly over all classes, such as 0.1.",
        lower=0.0,
        upper=0.99,
        within="loss_options",
    )
    focal_gamma: float = option(
        0.0,
        "Exponent of the focal loss, such as 2: examples that are predicted well count less.",
        lower=0.0,
        within="loss_options",
    )

    def check_kind(self, kind: str, marks: str = "") -> None:
        """Checks that labels of a kind have such a loss.

        Args:
          kind: one of `PROBLEM_TYPES`.
          marks: precedes the names in messages: -- for flags.

        Raises:
          ValueError: naming the setting.
        """
        for name in ("label_smoothing", "focal_gamma"):
            if getattr(self, name) and kind == "regression":
                raise ValueError(
                    f"{marks}{name}={getattr(self, name):g} has no effect with "
                    f"{marks}problem_type=regression, whose loss is the squared error: leave it "
                    "out."
                )


# Few-shot training: how pairs are sampled, and SetFit's settings.
SAME_LABEL_PAIRS = "in_batch"
OVERSAMPLING = "oversampling"
UNIQUE = "unique"
PAIR_SAMPLINGS = (SAME_LABEL_PAIRS, OVERSAMPLING, UNIQUE)
PAIRS_PER_EXAMPLE = 40
FEW_SHOT_RATE = 2e-5
FEW_SHOT_BATCH_SIZE = 16

PROBLEM_TYPES = ("single_label", "regression", "multi_label")
LONG_TEXTS = ("head", "tail", "windows")


@dataclasses.dataclass(frozen=True)
class FolderConfig(Config):
    """Flags of programs whose data may be a folder."""

    data_dir: str = option(
        "",
        "Folder with the task's files: GLUE's (tfds:glue reads them from TFDS), or a BEIR "
        "collection with corpus.jsonl, queries.jsonl and qrels.",
    )


DELIMITERS = {"tab": "\t", "\\t": "\t"}  # names for characters that a shell or a flagfile drops


@dataclasses.dataclass(frozen=True)
class TableConfig(Config):
    """Format of the user's tables."""

    delimiter: str = of_data(
        "",
        "Delimiter of the cells in your .csv, .tsv and .txt files, or `tab`; empty: by the file "
        "name, or ; tab or | if the header has no other.",
        may_change=True,
    )
    column_names: str = of_data(
        "",
        "Comma-separated names of the columns of your .csv, .tsv and .txt files, if these have no "
        "header.",
        may_change=True,
    )
    skip_unlabelled: bool = of_data(
        False, "Leave out training and evaluation examples without a label."
    )

    @property
    def delimiter_sign(self) -> str:
        """The delimiter character; "" if not given."""
        return DELIMITERS.get(self.delimiter.lower(), self.delimiter)

    def check(self) -> None:
        super().check()
        if len(self.delimiter_sign) > 1 or self.delimiter_sign in ('"', "\n", "\r"):
            raise ValueError(
                f"delimiter is {self.delimiter!r}, expected one character, such as ; or |, or tab."
            )


@dataclasses.dataclass(frozen=True)
class ClassifierConfig(FolderConfig, TableConfig, TeacherConfig, LabelLossConfig):
    """Flags of `run_classifier`."""

    task_name: str = option(
        "",
        "cola, sst-2, mrpc, sts-b, qqp, mnli, qnli, rte, wnli or ax, in GLUE's files; empty: your "
        "data, from columns of CSV, TSV or JSONL files.",
    )
    text_column: str = option("text", "Column of your data with the (first) text.")
    text_b_column: str = option("", "Column of your data with the second text of a pair.")
    label_column: str = option(
        "label",
        "Column of your data with the label; with problem_type=multi_label also several "
        "comma-separated columns of 0 and 1.",
    )
    problem_type: str = option(
        "single_label",
        "Labels of your data: one class, a number (regression), or any number of classes (a|b, a "
        "list, or columns of 0 and 1).",
        choices=PROBLEM_TYPES,
    )
    label_separator: str = option(
        "",
        "Separator of several labels in a cell; empty: |.",
        needs=("problem_type", "multi_label"),
    )
    class_weights: str = option(
        "",
        "Class weights in the training loss: balanced (inverse frequency), or CLASS=WEIGHT,... ; "
        "with problem_type=multi_label, the weights of labels where they apply.",
    )
    long_texts: str = option(
        "head",
        "Part of a text longer than max_seq_length to read: its head (as in the original), its "
        "tail, or the whole text in windows, whose scores are averaged.",
        choices=LONG_TEXTS,
    )
    best_metric: str = option(
        "", "Metric that chooses the best checkpoint; empty: the task's default."
    )
    num_worst_errors: int = changeable(50, "Number of lines in worst_errors.tsv.", lower=0)
    html_report: bool = changeable(
        False,
        "After an evaluation, write report.html: results, curves, confusions, calibration, and the "
        "worst errors with the part of each token.",
    )
    folds: int = option(
        0,
        "Cross-validation: train this many times, each time without one part of the training "
        "examples, and predict that part; 0: train once, on all.",
        lower=0,
    )
    few_shot: bool = option(
        False,
        "Train on few examples: an embedder on pairs of them, and then a logistic regression on "
        "its vectors (SetFit).",
    )
    pair_sampling: str = option(
        SAME_LABEL_PAIRS,
        "in_batch: draw pairs with a common label, and compare every two texts of a batch; "
        "oversampling: as SetFit, repeat pairs until as many have a common label as have none; "
        "unique: each pair once.",
        choices=PAIR_SAMPLINGS,
        needs=("few_shot",),
        within="few_shot_options",
    )
    pairs_per_example: int = option(
        PAIRS_PER_EXAMPLE,
        "Maximum number of pairs for each training example; 0: no limit.",
        lower=0,
        needs=("few_shot",),
        within="few_shot_options",
    )
    unlabelled_file: str = option(
        "",
        "Texts without labels, which the embedder first learns to reconstruct (TSDAE).",
        needs=("few_shot",),
    )
    calibrate: bool = changeable(
        False,
        "After training, choose the temperature with the lowest loss on the development examples.",
    )
    choose_thresholds: bool = changeable(
        False,
        "After training, choose the thresholds with the highest F1 on the development examples: of "
        "each of several labels, or of the second of two classes.",
    )
    temperature: float = changeable(
        1.0, "Number that divides the scores before they become probabilities.", lower=0.001
    )
    thresholds: str = changeable(
        "",
        "Probabilities above which a text has a label, LABEL=THRESHOLD,... or a JSON object; "
        "labels left out have 0.5.",
    )

    def check(self) -> None:
        super().check()
        check_class_weights(self.class_weights)


SPAN_HEADS = ("independent", "joint")


@dataclasses.dataclass(frozen=True)
class SquadConfig(Config):
    """Flags of `run_squad`: google-research/bert's, and the head of google-research/electra."""

    doc_stride: int = option(128, "Tokens between the starts of two windows.", lower=1)
    max_query_length: int = option(64, "Maximum length of a question, in tokens.", lower=1)
    n_best_size: int = option(20, "Number of answers in nbest_predictions.json.", lower=1)
    max_answer_length: int = option(30, "Maximum length of an answer, in tokens.", lower=1)
    version_2_with_negative: bool = option(False, "SQuAD 2.0: questions may have no answer.")
    null_score_diff_threshold: float = option(
        0.0, "Predict no answer if its score exceeds the best answer's by more than this."
    )
    span_head: str = option(
        "independent",
        "independent: the end is scored without the start, as in google-research/bert; joint: the "
        "end given the start, and a class for no answer, as in google-research/electra.",
        choices=SPAN_HEADS,
    )
    beam_size: int = option(
        20,
        "With the joint head, number of starts and of ends for each start.",
        lower=1,
        needs=("span_head", "joint"),
    )


def reading_of_rows(length: int) -> SquadConfig:
    """Returns the defaults for a sequence length: those of run_squad, or shorter ones if needed."""
    return SquadConfig(
        doc_stride=max(1, min(128, length // 3)), max_query_length=min(64, length // 4)
    )


@dataclasses.dataclass(frozen=True)
class SquadRunConfig(SquadConfig, TeacherConfig):
    """All flags of `run_squad`'s task."""

    def check(self) -> None:
        super().check()
        if self.teacher and self.span_head == "joint":
            raise ValueError(
                "span_head=joint learns only from labels, because its ends depend on labelled "
                "starts; leave --teacher out, or give span_head=independent."
            )


@dataclasses.dataclass(frozen=True)
class TaggerConfig(TableConfig, TeacherConfig, LabelLossConfig):
    """Flags of `run_tagger`."""

    word_column: int = option(
        0, "Column of the words, counted from 0; ignored for CoNLL-U.", lower=0
    )
    tag_column: str = option(
        "-1", "Column of the tags: a number (-1: the last), for CoNLL-U also a name such as upos."
    )


@dataclasses.dataclass(frozen=True)
class ChoiceConfig(TableConfig, TeacherConfig, LabelLossConfig):
    """Flags of `run_multiple_choice`."""
