"""Describes an exported model and what a server needs to run it, and checks its answers.

    python -m export.check serving/sst2/1
    python -m export.check serving/sst2/1 --model_dir=runs/sst2

The checks, in order; the first that fails ends the program with status 1 and one line:

    files       signatures, vocabulary, metadata and warm-up requests are complete and consistent
    operations  no Python, and no operation that a server lacks
    answers     loads, answers its warm-up requests and unusual texts with finite numbers, also one
                that is not UTF-8, and keeps working
    source      same answers as the model in Python: strings and integers equal, floats to 1e-5

The folder of `export.onnx` is checked in the same order, on token ids.

TensorFlow's `saved_model_cli run --dir=... --tag_set=serve` sends a custom request.
"""

import pathlib
import sys
from collections.abc import Sequence

from absl import flags

from bert_tf.config import config_flags
from bert_tf.system.extras import check_installed
from bert_tf.system.printable import show
from bert_tf.tasks.base.serving.onnx_model import find_onnx
from bert_tf.tasks.base.serving.saved_models import read_card

FLAGS = flags.FLAGS
flags.DEFINE_string(
    "saved_model", "", "Folder of a version, such as serving/sst2/1; also without --saved_model=."
)
flags.DEFINE_string(
    "model_dir",
    "",
    "Model that was exported; empty: the model that the export recorded, if it still exists.",
)


def main(_: list[str]) -> None:
    if not FLAGS.saved_model:
        raise ValueError("Give the folder of a version: python -m export.check serving/sst2/1")
    folder = pathlib.Path(FLAGS.saved_model).expanduser()
    if not folder.is_dir():
        raise ValueError(
            f"{folder} is not a folder; give the folder of a version, such as serving/sst2/1."
        )

    onnx_file = find_onnx(folder)
    if onnx_file:
        check_installed("onnx", "onnx", "onnxruntime")

        from export.checks import onnx_check

        parts = onnx_check.check(onnx_file, FLAGS.model_dir)
    else:
        read_card(folder)  # Before TensorFlow is loaded.

        from export.checks.model_check import check

        parts = check(folder, FLAGS.model_dir)
    for part in parts:
        show(part)


def name_folder(arguments: Sequence[str]) -> list[str]:
    """Returns the program's arguments, with a folder as the first argument turned into a flag."""
    program, *given = arguments
    if given and not given[0].startswith("-"):
        given[0] = f"--saved_model={given[0]}"
    return [program, *given]


if __name__ == "__main__":
    sys.argv = name_folder(sys.argv)
    config_flags.run(main)
