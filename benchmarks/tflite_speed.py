"""Times a LiteRT file against ONNX Runtime on the same classifier, one thread, real texts.

    python -m export.tflite --model_dir=runs/sst2 --output_file=sst2.tflite --quantize=dynamic
    python -m benchmarks.tflite_speed --model_dir=runs/sst2 --lite_file=sst2.tflite \\
        --input_file=glue/SST-2/dev.tsv --text_column=sentence

ONNX Runtime's file is Hugging Face's model of the same weights by `torch.onnx.export`, then
`quantize_dynamic`: int8 weights, products of rows quantized as they come, as LiteRT's dynamic form.
Batches of 32 are of texts in the file's order, padded to their longest; both see the same arrays.
The two take turns, batch by batch, so that a busy machine slows both; times are sums of medians.
It needs `pip install -r benchmarks/requirements.txt`.
"""

import contextlib
import functools
import pathlib
import tempfile
from collections.abc import Callable, Sequence

import numpy as np
from absl import app, flags

from benchmarks.onnx_runtime import onnx_call, write_onnx
from benchmarks.timing import in_turn, print_table
from bert_tf.checkpoints.formats import read_checkpoint, write_checkpoint
from bert_tf.tasks.base.serving.lite_model import LiteModel
from bert_tf.tasks.classification.examples import read_text_examples

with contextlib.suppress(ImportError):  # --help does not need it.
    from onnxruntime.quantization import QuantType, quantize_dynamic

MODEL_DIR = flags.DEFINE_string("model_dir", "", "Run of run_classifier.")
LITE_FILE = flags.DEFINE_string("lite_file", "", "File that export.tflite made of it.")
INPUT_FILE = flags.DEFINE_string("input_file", "", "Table of texts.")
TEXT_COLUMN = flags.DEFINE_string("text_column", "text", "Its column.")
ROUNDS = flags.DEFINE_integer("rounds", 5, "Times that all batches are timed.")
BATCH_SIZES = (1, 32)  # texts
NUM_TEXTS = 192  # the first ones

Batch = dict[str, np.ndarray]
Call = Callable[[Batch], np.ndarray]


def make_calls(folder: pathlib.Path) -> tuple[dict[str, Call], dict[str, float]]:
    """Returns the model in ONNX Runtime, in float32 and in int8, and the files' megabytes."""
    hub = folder / "huggingface"
    write_checkpoint(read_checkpoint(MODEL_DIR.value), hub, "huggingface")
    files = {"float32": folder / "float32.onnx", "int8": folder / "int8.onnx"}
    write_onnx(hub, files["float32"])
    quantize_dynamic(files["float32"], files["int8"], weight_type=QuantType.QInt8)
    sizes = {name: path.stat().st_size / 1e6 for name, path in files.items()}
    models = {name: onnx_call(path, 1) for name, path in files.items()}
    names = ("input_word_ids", "input_mask", "input_type_ids")
    return {
        f"ONNX Runtime {name}": lambda batch, model=model: model(*(batch[n] for n in names))
        for name, model in models.items()
    }, sizes


def measure(calls: dict[str, Call], batches: Sequence[Batch]) -> dict[str, float]:
    """Returns the milliseconds a text of each model, batch by batch in turn."""
    pairs = {(n, name): (call, b) for n, b in enumerate(batches) for name, call in calls.items()}
    taken = in_turn({k: functools.partial(call, b) for k, (call, b) in pairs.items()}, ROUNDS.value)
    num_texts = sum(len(batch["input_mask"]) for batch in batches)
    seconds = {name: sum(taken[n, name][0] for n in range(len(batches))) for name in calls}
    return {name: 1e3 * value / num_texts for name, value in seconds.items()}


def main(_: list[str]) -> None:
    lite = LiteModel(LITE_FILE.value, num_threads=1)
    examples = read_text_examples(INPUT_FILE.value, TEXT_COLUMN.value)[:NUM_TEXTS]
    texts = [example.text_a for example in examples]
    with tempfile.TemporaryDirectory() as folder:
        calls, sizes = make_calls(pathlib.Path(folder))
    calls[f"LiteRT {lite.card['quantize']}"] = lambda batch: lite.from_ids(batch)["probabilities"]
    *_, onnx, ours = calls
    everything = lite.pack(texts)
    exact, peer, own = (call(everything) for call in calls.values())
    print(f"ONNX: float32 {sizes['float32']:.1f} MB, int8 {sizes['int8']:.1f} MB")
    lengths = everything["input_mask"].sum(axis=1)
    spread = f"{lengths.min()} to {lengths.max()} pieces, {lengths.mean():.1f} on average"
    print(f"{len(texts)} texts of {spread}")
    for name, found in ((onnx, peer), (ours, own)):
        same = np.mean(found.argmax(axis=-1) == exact.argmax(axis=-1))
        print(f"{name}: {same:.1%} of the answers of ONNX Runtime float32")
    heads = ["batch", *(f"{name}, ms a text" for name in calls), "int8 ratio"]
    print_table(heads, (row(calls, lite, texts, size) for size in BATCH_SIZES))


def row(calls: dict[str, Call], lite: LiteModel, texts: list[str], size: int) -> list[str]:
    """Returns the line of a size of batches."""
    starts = range(0, len(texts) - size + 1, size)
    times = measure(calls, [lite.pack(texts[start : start + size]) for start in starts])
    *_, onnx, ours = times.values()
    return [f"{size}", *(f"{value:.2f}" for value in times.values()), f"{onnx / ours:.2f}"]


if __name__ == "__main__":
    app.run(main)
