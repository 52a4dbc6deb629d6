"""Writes a trained model as a LiteRT (TFLite) file if its score is good enough.

    python -m export.tflite --model_dir=runs/sst2 --output_file=sst2.tflite --quantize=dynamic

The file takes ids of any batch and length, and includes its metadata and vocabulary: `LiteModel`
runs it without TensorFlow. Before it is renamed, its score on the run's dev set or --eval_file is
compared with the float32 model; a file that loses more than --max_loss points is not written.

    --quantize  weights  loses at most
    none        float32  0.1 points
    float16     float16  0.5
    dynamic     int8     0.5   the smallest and fastest
    int8        int8     2.0   all in int8, measured on --calibration_file or the training set
"""

import dataclasses
from typing import Any

from absl import flags

from bert_tf.config import config_flags
from bert_tf.system.printable import show
from bert_tf.tasks.base.serving.metadata import ROW_OUTPUTS

FLAGS = flags.FLAGS
flags.DEFINE_string("model_dir", "", "Run directory, .keras file, or checkpoint in any format.")
flags.DEFINE_string("output_file", "", "File to write, .tflite; it must not exist.")
flags.DEFINE_enum("quantize", "dynamic", ["none", "float16", "dynamic", "int8"], "See above.")
flags.DEFINE_enum(
    "kind", "", ["", *ROW_OUTPUTS], "Kind of answers; empty: determined by the heads."
)
flags.DEFINE_enum(
    "side",
    "",
    ["", "query", "document"],
    "Embed texts with the prompt of this side; empty: the model's default prompt.",
)
flags.DEFINE_integer(
    "max_seq_length",
    0,
    "Maximum tokens of an example; 0: as in training, or as the folder of an embedder states, or "
    "all positions (embedders: 256).",
    lower_bound=0,
)
flags.DEFINE_string("eval_file", "", "Labelled examples to score on; empty: the run's dev set.")
flags.DEFINE_float(
    "max_loss", None, "Points (of 100) that the score may lose; default: see above.", lower_bound=0
)
flags.DEFINE_bool("no_gate", False, "Only compare outputs on sample texts, if there is no dev set.")
flags.DEFINE_string(
    "calibration_file", "", "Examples, or lines of text, for int8; empty: the run's training set."
)
flags.DEFINE_bool(
    "text_input",
    False,
    "Add a signature for texts; needs a runtime with tensorflow-text's kernels.",
)


def main(_: list[str]) -> None:
    if not FLAGS.model_dir or not FLAGS.output_file:
        raise ValueError("Give a trained model as --model_dir and a file as --output_file.")

    from export.lite.writing import Request, write

    arguments: dict[str, Any] = {}
    for field in dataclasses.fields(Request):
        arguments[field.name] = FLAGS[field.name].value
    show(write(Request(**arguments)).table())


if __name__ == "__main__":
    config_flags.run(main)
