"""Text of --help: the everyday flags of a program, then the names of the others by section."""

import inspect
from collections.abc import Iterable

from absl import flags

# Flags that most runs give, in the order of --help.
EVERYDAY = (
    "init_checkpoint",
    "input_file",
    "train_file",
    "eval_file",
    "predict_file",
    "output_dir",
    "do_train",
    "do_eval",
    "do_predict",
    "text_column",
    "label_column",
    "train_for",
    "learning_rate",
    "num_train_epochs",
    "train_batch_size",
    "max_seq_length",
)
# Titles of groups of fields; the flags of other groups belong to the program alone.
TITLES = {
    "ModelConfig": "Model",
    "DataConfig": "Data",
    "MaskingConfig": "Masking",
    "ObjectiveConfig": "Objective",
    "OptimizerConfig": "Optimizer",
    "TrainingConfig": "Training",
    "FineTuningConfig": "Fine-tuning",
}
OWN = "This program"


def help_text(description: str, names: Iterable[str], groups: dict[str, str]) -> str:
    """Returns the text of --help.

    Args:
      description: the docstring of the program.
      names: the flags of the program.
      groups: the name of the group of fields by flag; a flag of no group is the program's own.
    """
    names = set(names) & set(flags.FLAGS)
    everyday = [name for name in EVERYDAY if name in names]
    own = sorted(name for name in names if name not in groups and name not in everyday)
    if len(everyday) + len(own) <= 2 * len(EVERYDAY):
        everyday += own
    sections: dict[str, list[str]] = {}
    for name in sorted(names - set(everyday)):
        title = TITLES.get(groups.get(name, ""), OWN)
        sections.setdefault(title, []).append(name)
    lines = [inspect.cleandoc(description), "", "Everyday flags:", ""]
    lines += list(map(describe_flag, everyday))
    if sections:
        lines += ["", "More flags (--helpfull describes all):"]
    for title, members in sorted(sections.items()):
        text = flags.text_wrap(", ".join(members), length=100, indent="    ", firstline_indent="")
        lines += ["", f"  {title}:", f"    {text}"]
    return "\n".join(lines)


def describe_flag(name: str) -> str:
    """Returns the lines of a flag: name, help, default."""
    flag = flags.FLAGS[name]
    shown = f"[no]{name}" if flag.boolean else name
    default = f" (default: {flag.default_as_str})" if flag.default not in (None, "") else ""
    text = " ".join(f"{flag.help}{default}".split())
    return flags.text_wrap(f"--{shown}: {text}", length=100, indent="    ", firstline_indent="  ")
