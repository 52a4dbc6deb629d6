"""Texts to scores: our exports beside PyTorch, ONNX Runtime and keras-hub, one model for all.

    python -m benchmarks.serving_speed --model_dir=runs/sst2 --texts=dev.tsv

--model_dir is a run or checkpoint of a classifier. It is exported as a SavedModel and as a float32
LiteRT file, and converted to the others' forms: Hugging Face's folder, from that an ONNX file, and
keras-hub's preset. Each engine runs in a process of its own, on as many cores as threads, tokenizer
included; batches of 1 and 32 texts follow each other in the file's order, so their lengths are
mixed. Rounds of all engines alternate; shown are medians over the rounds of the median of a batch.
Scores of all engines must agree to 1e-3 before anything is measured.

"first answer" is the time from loading the model to the first scores, without the imports.

Needs `pip install -r benchmarks/requirements.txt`.
"""

import functools
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from absl import flags

from benchmarks.onnx_runtime import onnx_call, softmax, write_onnx
from bert_tf import config_flags

MODEL_DIR = flags.DEFINE_string("model_dir", "", "Run or checkpoint of a classifier.")
TEXTS = flags.DEFINE_string("texts", "", "A text a line; of a .tsv its first column.")
OUTPUT_DIR = flags.DEFINE_string(
    "output_dir", "runs/serving_speed", "Folder of models and results."
)
ROUNDS = flags.DEFINE_integer("rounds", 5, "Runs of each engine.", lower_bound=1)
MAX_TEXTS = flags.DEFINE_integer("max_texts", 512, "First texts of the file.", lower_bound=32)
LENGTH = flags.DEFINE_integer("max_seq_length", 128, "Most pieces of a text.", lower_bound=4)
ENGINES = flags.DEFINE_list(
    "engines",
    ["bert_tf", "bert_tf_lite", "torch", "onnxruntime", "keras_hub"],
    "What is measured.",
)
THREADS = flags.DEFINE_list("threads", ["1", "2"], "Threads and cores of each engine.")
# What the parent tells its children.
ENGINE = flags.DEFINE_string("engine", "", "Set by the program for its processes.")

OURS = ("bert_tf", "bert_tf_lite")
BATCH_SIZES = (1, 32)
WARM = 16  # batches before the measured ones
Score = Callable[[list[str]], np.ndarray]


def start_bert_tf(folder: pathlib.Path, threads: int) -> Score:
    import tensorflow as tf
    import tensorflow_text  # noqa: F401

    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    began()
    call = tf.saved_model.load(str(folder / "served" / "1")).signatures["serving_default"]
    return lambda texts: call(text=tf.constant(texts))["probabilities"].numpy()


def start_bert_tf_lite(folder: pathlib.Path, threads: int) -> Score:
    from export.lite.model import LiteModel

    began()
    model = LiteModel(folder / "model.tflite", num_threads=threads)
    return lambda texts: model(texts)["probabilities"]


def start_torch(folder: pathlib.Path, threads: int) -> Score:
    import torch
    import transformers

    torch.set_num_threads(threads)
    began()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder / "huggingface")
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder / "huggingface")
    model.eval()

    def score(texts: list[str]) -> np.ndarray:
        with torch.inference_mode():
            batch = tokenizer(
                texts, padding=True, truncation=True, max_length=LENGTH.value, return_tensors="pt"
            )
            return torch.softmax(model(**batch).logits, -1).numpy()

    return score


def start_onnxruntime(folder: pathlib.Path, threads: int) -> Score:
    import onnxruntime  # noqa: F401
    import tokenizers

    began()
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "huggingface" / "tokenizer.json"))
    tokenizer.enable_truncation(LENGTH.value)
    tokenizer.enable_padding(pad_id=tokenizer.token_to_id("[PAD]"))
    call = onnx_call(folder / "model.onnx", threads)

    def score(texts: list[str]) -> np.ndarray:
        rows = tokenizer.encode_batch(texts)
        columns = [[row.ids, row.attention_mask, row.type_ids] for row in rows]
        return call(*np.array(columns).transpose(1, 0, 2))

    return score


def start_keras_hub(folder: pathlib.Path, threads: int) -> Score:
    os.environ["KERAS_BACKEND"] = "tensorflow"
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    import keras_hub

    began()
    preset = str(folder / "keras_hub")
    model = keras_hub.models.BertTextClassifier.from_preset(preset)
    model.preprocessor.sequence_length = LENGTH.value
    return lambda texts: softmax(model.predict(texts, batch_size=len(texts), verbose=0))


STARTS = {
    "bert_tf": start_bert_tf,
    "bert_tf_lite": start_bert_tf_lite,
    "torch": start_torch,
    "onnxruntime": start_onnxruntime,
    "keras_hub": start_keras_hub,
}
_began = [0.0]


def began() -> None:
    """Notes that the imports are over and loading begins."""
    _began[0] = time.perf_counter()


def measure(engine: str, folder: pathlib.Path, texts: list[str]) -> dict[str, Any]:
    """Runs an engine in this process: the median of a batch in milliseconds, by its size."""
    threads = len(os.sched_getaffinity(0))
    score = STARTS[engine](folder, threads)
    score(texts[:1])
    result: dict[str, Any] = {"first answer": time.perf_counter() - _began[0]}
    result["scores"] = np.concatenate(
        [score(texts[i : i + 32]) for i in range(0, 128, 32)]
    ).tolist()
    for size in BATCH_SIZES:
        batches = [texts[i : i + size] for i in range(0, len(texts) - size + 1, size)]
        # keras-hub's predict takes a tenth of a second for a text: some are enough.
        batches = (batches[:WARM] + batches)[: WARM + (60 if size == 1 else 16)]
        seconds = [timed(functools.partial(score, batch)) for batch in batches]
        result[str(size)] = 1e3 * statistics.median(seconds[WARM:])
    return result


def timed(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def run_apart(engine: str, threads: str) -> dict[str, Any]:
    """Runs an engine in a process of its own."""
    count = int(threads)
    cores = sorted(os.sched_getaffinity(0))[-count:]
    command = [sys.executable, "-m", "benchmarks.serving_speed", f"--engine={engine}"]
    for name in ("texts", "output_dir", "max_texts", "max_seq_length"):
        command.append(f"--{name}={flags.FLAGS[name].value}")
    # As export/serving's files set it for TensorFlow Serving: weights of a server never change.
    environment = {**os.environ, "TF_ONEDNN_ASSUME_FROZEN_WEIGHTS": "1", "OMP_NUM_THREADS": threads}
    done = subprocess.run(
        command,
        env=environment,
        check=True,
        stdout=subprocess.PIPE,
        preexec_fn=lambda: os.sched_setaffinity(0, cores),
    )
    return json.loads(done.stdout.splitlines()[-1])


def make_models(folder: pathlib.Path) -> None:
    """Writes the model in the form of each engine, where it is not there yet."""
    folder.mkdir(parents=True, exist_ok=True)
    made = {
        "served": ("export.saved_model", f"--model_dir={MODEL_DIR.value}", "--output_dir={}"),
        "huggingface": ("bert_tf.convert_checkpoint", f"--input={MODEL_DIR.value}", "--output={}"),
        "keras_hub": ("bert_tf.convert_checkpoint", f"--input={MODEL_DIR.value}", "--output={}"),
    }
    for name, (program, source, target) in made.items():
        if (folder / name).exists():
            continue
        more = [f"--max_seq_length={LENGTH.value}"] if name == "served" else [f"--to={name}"]
        command = [sys.executable, "-m", program, source, target.format(folder / name), *more]
        subprocess.run(command, check=True)
    if not (folder / "model.onnx").exists():
        write_onnx(folder / "huggingface", folder / "model.onnx")
    lite = folder / "model.tflite"
    if not lite.exists():
        command = [sys.executable, "-m", "export.tflite", f"--model_dir={MODEL_DIR.value}"]
        command += [f"--output_file={lite}", "--quantize=none", "--no_gate"]
        subprocess.run([*command, f"--max_seq_length={LENGTH.value}"], check=True)


def read_texts() -> list[str]:
    """Returns the first texts of the file; of a table without its header."""
    lines = pathlib.Path(TEXTS.value).read_text(encoding="utf8").split("\n")
    if TEXTS.value.endswith(".tsv"):
        lines = [line.split("\t")[0] for line in lines[1:]]
    return [line for line in lines if line][: MAX_TEXTS.value]


def main(_: list[str]) -> None:
    if not TEXTS.value or not (MODEL_DIR.value or ENGINE.value):
        raise ValueError("Give --model_dir and --texts.")
    folder, texts = pathlib.Path(OUTPUT_DIR.value), read_texts()
    if ENGINE.value:
        print(json.dumps(measure(ENGINE.value, folder, texts)))
        return
    make_models(folder)
    results: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for number in range(ROUNDS.value):
        for threads in THREADS.value:
            for engine in ENGINES.value:
                result = run_apart(engine, threads)
                scores = np.array(result.pop("scores"))
                reference = results.setdefault(("scores", ""), [{"": scores}])[0][""]
                np.testing.assert_allclose(scores, reference, atol=1e-3, err_msg=engine)
                results.setdefault((engine, threads), []).append(result)
                print(f"round {number + 1}: {engine}, {threads} threads: {result}", flush=True)
    results.pop(("scores", ""))
    print_table(results)


def print_table(results: dict[tuple[str, str], list[dict[str, Any]]]) -> None:
    """Prints the medians, and the best peer's time divided by ours."""
    columns = ("1", "32", "first answer")
    table = {
        key: {name: statistics.median(row[name] for row in rows) for name in columns}
        for key, rows in results.items()
    }
    print("| threads | engine | batch 1, ms | batch 32, ms | first answer, s |")
    print("| --- | --- | --- | --- | --- |")
    for (engine, threads), row in sorted(table.items(), key=lambda item: item[0][1]):
        print(
            f"| {threads} | {engine} | {row['1']:.1f} | {row['32']:.1f} | {row[columns[2]]:.2f} |"
        )
    for threads in THREADS.value:
        here = {name: row for (name, count), row in table.items() if count == threads}
        peers = [row for name, row in here.items() if name not in OURS]
        for name in OURS:
            if peers and name in here:
                ratios = [min(row[n] for row in peers) / here[name][n] for n in columns[:2]]
                shown = f"batch 1: {ratios[0]:.2f}, batch 32: {ratios[1]:.2f}"
                print(f"Best peer's time / {name}'s, {threads} threads: {shown}")


if __name__ == "__main__":
    config_flags.run(main)
