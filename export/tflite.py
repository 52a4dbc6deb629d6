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

from bert_tf.config import Config, config_flags, option
from bert_tf.config.given_flags import check_needs, check_new_file
from bert_tf.system.printable import show
from bert_tf.tasks.base.serving.metadata import ROW_OUTPUTS


@dataclasses.dataclass(frozen=True)
class FileConfig(Config):
    """Flags of the programs that write a file of a model of token ids."""

    model_dir: str = option("", "Run directory, .keras file, or checkpoint in any form.")
    side: str = option(
        "",
        "Embed texts with the prompt of this side; empty: the model's default prompt.",
        choices=("", "query", "document"),
    )
    max_seq_length: int = option(
        0,
        "Maximum tokens of an example; 0: as in training, or as the folder of an embedder states, "
        "or all positions (embedders: 256).",
        lower=0,
    )
    eval_file: str = option(
        "", "Labelled examples to score on; empty: the run's dev set.", conflicts=("no_gate",)
    )
    max_loss: float = option(
        -1.0,
        "Points (of 100) that the score may lose; -1: see above.",
        lower=-1,
        conflicts=("no_gate",),
    )
    no_gate: bool = option(False, "Only compare outputs on sample texts, if there is no dev set.")


@dataclasses.dataclass(frozen=True)
class LiteConfig(FileConfig):
    """Flags of this program."""

    output_file: str = option("", "File to write, .tflite; it must not exist.")
    quantize: str = option("dynamic", "See above.", choices=("none", "float16", "dynamic", "int8"))
    kind: str = option(
        "", "Kind of answers; empty: determined by the heads.", choices=("", *ROW_OUTPUTS)
    )
    calibration_file: str = option(
        "", "Examples, or lines of text, for int8; empty: the run's training set."
    )
    text_input: bool = option(
        False, "Add a signature for texts; needs a runtime with tensorflow-text's kernels."
    )


def main(_: list[str]) -> None:
    config = config_flags.from_flags(LiteConfig)
    if not config.model_dir or not config.output_file:
        raise ValueError("Give a trained model as --model_dir and a file as --output_file.")

    check_new_file("output_file")
    check_needs({"calibration_file": "quantize=int8"})

    from export.lite.writing import write

    show(write(config).table())


if __name__ == "__main__":
    config_flags.define_flags(LiteConfig)
    config_flags.run(main)
