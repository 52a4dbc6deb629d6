"""Writes a trained model as an ONNX file, in a folder that other programs load.

    python -m export.onnx --model_dir=runs/sst2 --output_dir=onnx/sst2

The file, onnx/model.onnx, takes input_ids, attention_mask and token_type_ids of any batch and
length; pooling, dense layers and normalization are inside. Configuration and tokenizer are beside
it, and `bert_tf.load("onnx/sst2")` answers without TensorFlow. The folder appears after the file
has passed: float32 equals the model on sample texts, and smaller weights lose at most --max_loss
points on the run's dev set or --eval_file.

    --quantize  weights  loses at most
    none        float32  nothing but rounding
    float16     float16  0.5 points     computed in float32
    int8        int8     2.0            products in int8, by ONNX Runtime
"""

import dataclasses

from bert_tf.config import config_flags, option
from bert_tf.system.extras import check_installed
from bert_tf.system.printable import show
from bert_tf.tasks.base.serving.metadata import ONNX_OUTPUTS
from export.tflite import FileConfig


@dataclasses.dataclass(frozen=True)
class OnnxConfig(FileConfig):
    """Flags of this program."""

    output_dir: str = option("", "New folder, or --model_dir itself: then its folder onnx is new.")
    quantize: str = option("none", "See above.", choices=("none", "float16", "int8"))
    kind: str = option(
        "", "Kind of answers; empty: determined by the heads.", choices=("", *ONNX_OUTPUTS)
    )


def main(_: list[str]) -> None:
    config = config_flags.from_flags(OnnxConfig)
    if not config.model_dir or not config.output_dir:
        raise ValueError("Give a trained model as --model_dir and a folder as --output_dir.")
    check_installed("onnx", "onnx", "onnxruntime")

    from export.onnx_files.writing import write

    show(write(config).table())


if __name__ == "__main__":
    config_flags.define_flags(OnnxConfig)
    config_flags.run(main)
