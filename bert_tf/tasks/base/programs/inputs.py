"""What the readers of all fine-tuning programs share: files by use, and the labels of a run."""

import pathlib
from collections.abc import Callable
from typing import Any

from bert_tf.checkpoints.run_identity import read_labels
from bert_tf.tasks.base.programs.program import Configs, source_of
from bert_tf.text.text_counts import Remedy, counting_texts


def read_inputs(
    files: dict[str, str], read: Callable[[str, str], Any], remedy: Remedy | None = None
) -> dict[str, Any]:
    """Returns `read(use, file)` of each file by use.

    A file that is both evaluated and predicted is read once. A line is logged about texts that are
    cut, empty or unknown; `remedy` is its advice.
    """
    found: dict[str, Any] = {}
    for use, file in files.items():
        is_again = use == "predict" and file == files.get("eval")
        if is_again:
            found[use] = found["eval"]
            continue
        with counting_texts(use, remedy=remedy):
            found[use] = read(use, file)
    return found


def labels_of_run(configs: Configs) -> tuple[str, ...]:
    """Returns the labels of the run whose weights are used, if these are in a run directory."""
    training = configs.training
    # A training resumes from its own folder only; other sources may have to be downloaded.
    folder = training.output_dir if training.do_train else source_of(training)
    return read_labels(pathlib.Path(folder).expanduser())
