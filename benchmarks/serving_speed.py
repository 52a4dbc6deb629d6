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

import collections
import itertools
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
from benchmarks.timing import print_table
from bert_tf.config import config_flags

MODEL_DIR = flags.DEFINE_string("model_dir", "", "Run or checkpoint of a classifier.")
TEXTS = flags.DEFINE_string("texts", "", "A text a line; of a .tsv its first column.")
OUTPUT_DIR = flags.DEFINE_string(
    "output_dir", "runs/serving_speed", "Folder of models and results."
)
ROUNDS = flags.DEFINE_integer("rounds", 5, "Runs of each engine.", lower_bound=1)
ENGINES = flags.DEFINE_list(
    "engines",
    ["bert_tf", "bert_tf_lite", "torch", "onnxruntime", "keras_hub"],
    "What is measured.",
)
# What the parent tells its children.
ENGINE = flags.DEFINE_string("engine", "", "Set by the program for its processes.")

BATCH_SIZES = (1, 32)
WARM = 16  # batches before the measured ones
MAX_TEXTS, LENGTH, THREADS = 512, 128, (1, 2)
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
    from bert_tf.tasks.base.serving.lite_model import LiteModel

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
                texts, padding=True, truncation=True, max_length=LENGTH, return_tensors="pt"
            )
            return torch.softmax(model(**batch).logits, -1).numpy()

    return score


def start_onnxruntime(folder: pathlib.Path, threads: int) -> Score:
    import onnxruntime  # noqa: F401
    import tokenizers

    began()
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "huggingface" / "tokenizer.json"))
    tokenizer.enable_truncation(LENGTH)
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
    model.preprocessor.sequence_length = LENGTH
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
    first_answer = time.perf_counter() - _began[0]
    scores = np.concatenate([score(texts[i : i + 32]) for i in range(0, 128, 32)])
    result: dict[str, Any] = {"scores": scores.tolist()}
    for size in BATCH_SIZES:
        batches = [texts[i : i + size] for i in range(0, len(texts) - size + 1, size)]
        # keras-hub's predict takes a tenth of a second for a text: some are enough.
        batches = (batches[:WARM] + batches)[: WARM + (60 if size == 1 else 16)]
        seconds = []
        for batch in batches:
            start = time.perf_counter()
            score(batch)
            seconds.append(time.perf_counter() - start)
        result[str(size)] = 1e3 * statistics.median(seconds[WARM:])
    result["first answer"] = first_answer
    return result


def run_apart(engine: str, threads: int) -> dict[str, Any]:
    """Runs an engine in a process of its own."""
    cores = sorted(os.sched_getaffinity(0))[-threads:]
    command = [sys.executable, "-m", "benchmarks.serving_speed", f"--engine={engine}"]
    command += [f"--texts={TEXTS.value}", f"--output_dir={OUTPUT_DIR.value}"]
    # As export/serving's files set it for TensorFlow Serving: weights of a server never change.
    environment = {
        **os.environ,
        "TF_ONEDNN_ASSUME_FROZEN_WEIGHTS": "1",
        "OMP_NUM_THREADS": f"{threads}",
    }
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
    model, length = f"--model_dir={MODEL_DIR.value}", f"--max_seq_length={LENGTH}"
    convert = ["bert_tf.convert_checkpoint", f"--input={MODEL_DIR.value}"]
    lite = ["--quantize=none", "--no_gate", length]
    made = {
        "served": ["export.saved_model", model, length, "--output_dir={}"],
        "huggingface": [*convert, "--to=huggingface", "--output={}"],
        "keras_hub": [*convert, "--to=keras_hub", "--output={}"],
        "model.tflite": ["export.tflite", model, *lite, "--output_file={}"],
    }
    for name, (*command, target) in made.items():
        if not (folder / name).exists():
            command += [target.format(folder / name)]
            subprocess.run([sys.executable, "-m", *command], check=True)
    if not (folder / "model.onnx").exists():
        write_onnx(folder / "huggingface", folder / "model.onnx")


def read_texts() -> list[str]:
    """Returns the first texts of the file; of a table without its header."""
    lines = pathlib.Path(TEXTS.value).read_text(encoding="utf8").split("\n")
    if TEXTS.value.endswith(".tsv"):
        lines = [line.split("\t")[0] for line in lines[1:]]
    return [line for line in lines if line][:MAX_TEXTS]


def main(_: list[str]) -> None:
    if not TEXTS.value or not (MODEL_DIR.value or ENGINE.value):
        raise ValueError("Give --model_dir and --texts.")
    folder, texts = pathlib.Path(OUTPUT_DIR.value), read_texts()
    if ENGINE.value:
        print(json.dumps(measure(ENGINE.value, folder, texts)))
        return
    make_models(folder)
    results: dict[tuple[str, int], list[dict[str, Any]]] = collections.defaultdict(list)
    reference = None
    for number, threads, engine in itertools.product(range(ROUNDS.value), THREADS, ENGINES.value):
        result = run_apart(engine, threads)
        scores = np.array(result.pop("scores"))
        reference = scores if reference is None else reference
        np.testing.assert_allclose(scores, reference, atol=1e-3, err_msg=engine)
        results[engine, threads].append(result)
        print(f"round {number + 1}: {engine}, {threads} threads: {result}", flush=True)
    print_table(
        ["threads", "engine", "batch 1, ms", "batch 32, ms", "first answer, s"],
        (
            [threads, engine, *(f"{statistics.median(r[n] for r in rows):.2f}" for n in rows[0])]
            for (engine, threads), rows in sorted(results.items(), key=lambda item: item[0][1])
        ),
    )


if __name__ == "__main__":
    config_flags.run(main)
