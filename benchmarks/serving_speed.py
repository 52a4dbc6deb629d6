"""Texts to vectors: our exports beside other runtimes, one embedder for all.

    python -m benchmarks.serving_speed --model_dir=all-MiniLM-L6-v2 --texts=wikipedia.txt

--model_dir is an embedder in the form of sentence-transformers. It is exported as a SavedModel, as
LiteRT files and as an ONNX file, which OpenVINO computes as well; sentence-transformers computes
the folder itself, in PyTorch. Each engine runs in a process of its own, on as many cores as
threads, tokenizer included. Rounds of all engines alternate. Shown are, for three kinds of calls,
the median milliseconds of a call, and in brackets those of processor time, of the fastest round:

    one    a text of 8 to 16 words
    docs   32 texts of about 100 words
    mixed  32 texts of 3 to 100 words

"first answer" is the time from loading the model to the first vector, without the imports;
"cosine" the lowest between a vector and that of the first engine.

Needs `pip install -r benchmarks/requirements.txt`.
"""

import collections
import itertools
import json
import os
import pathlib
import random
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from absl import flags

from benchmarks.timing import print_table, times_in_turn
from bert_tf.config import config_flags

MODEL_DIR = flags.DEFINE_string("model_dir", "", "Folder of an embedder.")
TEXTS = flags.DEFINE_string("texts", "", "A text file, whose words are cut into texts.")
OUTPUT_DIR = flags.DEFINE_string(
    "output_dir", "runs/serving_speed", "Folder of models and results."
)
ROUNDS = flags.DEFINE_integer("rounds", 3, "Runs of each engine.", lower_bound=1)
THREADS = flags.DEFINE_list("threads", ["1", "2"], "Numbers of threads.")
ENGINES = flags.DEFINE_list(
    "engines",
    ["saved_model", "litert", "litert_dynamic", "onnx", "openvino", "torch"],
    "What is measured.",
)
# What the parent tells its children.
ENGINE = flags.DEFINE_string("engine", "", "Set by the program for its processes.")

FILES = {
    "saved_model": "served",
    "litert": "none.tflite",
    "litert_dynamic": "dynamic.tflite",
    "onnx": "onnx",
}
CALLS = {"one": 40, "docs": 2, "mixed": 4}  # measured, after one that is not
MIXED_LENGTHS = (3, 5, 8, 8, 10, 12, 12, 15, 20, 25, 40, 60, 100)
BATCH_SIZE = 32
LENGTH = 256
Encode = Callable[[list[str]], np.ndarray]


def start_bert_tf(engine: str, folder: pathlib.Path, threads: int) -> Encode:
    import bert_tf

    if engine == "saved_model":
        import tensorflow_text  # noqa: F401
    began()
    return bert_tf.load(folder / FILES[engine], num_threads=threads).encode


def start_openvino(folder: pathlib.Path, threads: int) -> Encode:
    import openvino
    import tokenizers

    began()
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "onnx" / "tokenizer.json"))
    tokenizer.enable_truncation(LENGTH)
    tokenizer.enable_padding(pad_id=tokenizer.token_to_id("[PAD]"))
    options = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": threads}
    file = folder / "onnx" / "onnx" / "model.onnx"
    model = openvino.Core().compile_model(str(file), "CPU", options)

    def encode(texts: list[str]) -> np.ndarray:
        rows = tokenizer.encode_batch_fast(texts)
        columns = {
            "input_ids": np.array([row.ids for row in rows]),
            "attention_mask": np.array([row.attention_mask for row in rows]),
            "token_type_ids": np.array([row.type_ids for row in rows]),
        }
        return model(columns)["sentence_embedding"]

    return encode


def start_torch(folder: pathlib.Path, threads: int) -> Encode:
    import sentence_transformers
    import torch

    torch.set_num_threads(threads)
    began()
    model = sentence_transformers.SentenceTransformer(MODEL_DIR.value, device="cpu")
    model.max_seq_length = LENGTH
    return lambda texts: model.encode(texts, batch_size=BATCH_SIZE, show_progress_bar=False)


STARTS = {"openvino": start_openvino, "torch": start_torch}
_began = [0.0]


def began() -> None:
    """Notes that the imports are over and loading begins."""
    _began[0] = time.perf_counter()


def make_calls() -> dict[str, list[list[str]]]:
    """Returns the texts of each call, by its kind; the same ones in each process."""
    words = pathlib.Path(TEXTS.value).read_text(encoding="utf8").split()
    source = random.Random(1)

    def cut(num_words: int) -> str:
        start = source.randrange(len(words) - num_words)
        return " ".join(words[start : start + num_words])

    mixed = [source.choice(MIXED_LENGTHS) for _ in range(BATCH_SIZE)]
    return {
        "one": [[cut(source.randint(8, 16))] for _ in range(CALLS["one"])],
        "docs": [[cut(source.randint(90, 110)) for _ in range(BATCH_SIZE)]],
        "mixed": [[cut(num_words) for num_words in mixed]],
    }


def measure(engine: str, folder: pathlib.Path) -> dict[str, Any]:
    """Runs an engine in this process: the median of a call in milliseconds, by its kind."""
    threads = len(os.sched_getaffinity(0))
    calls = make_calls()
    if engine in FILES:
        encode = start_bert_tf(engine, folder, threads)
    else:
        encode = STARTS[engine](folder, threads)
    encode(calls["one"][0])
    result: dict[str, Any] = {"first answer": time.perf_counter() - _began[0]}
    for kind, texts in calls.items():
        source = itertools.cycle(texts)
        taken = times_in_turn({kind: lambda source=source: encode(next(source))}, CALLS[kind])
        wall, processor = 1e3 * np.median(taken[kind], axis=0)
        result[kind] = f"{wall:.3g} ({processor:.3g})"
    result["vectors"] = encode(calls["mixed"][0]).tolist()
    return result


def run_apart(engine: str, threads: int) -> dict[str, Any]:
    """Runs an engine in a process of its own."""
    cores = sorted(os.sched_getaffinity(0))[-threads:]
    command = [sys.executable, "-m", "benchmarks.serving_speed", f"--engine={engine}"]
    command += [f"--texts={TEXTS.value}", f"--output_dir={OUTPUT_DIR.value}"]
    command += [f"--model_dir={MODEL_DIR.value}"]
    done = subprocess.run(
        command,
        env={**os.environ, "OMP_NUM_THREADS": f"{threads}"},
        check=True,
        stdout=subprocess.PIPE,
        preexec_fn=lambda: os.sched_setaffinity(0, cores),
    )
    return json.loads(done.stdout.splitlines()[-1])


def make_models(folder: pathlib.Path) -> None:
    """Writes the model in the form of each engine, where it is not there yet."""
    folder.mkdir(parents=True, exist_ok=True)
    lite = ["export.tflite", "--no_gate", "--output_file={}"]
    made = {
        "served": ["export.saved_model", "--output_dir={}"],
        "onnx": ["export.onnx", "--output_dir={}"],
        "none.tflite": [*lite, "--quantize=none"],
        "dynamic.tflite": [*lite, "--quantize=dynamic"],
    }
    for name, command in made.items():
        if not (folder / name).exists():
            command += [f"--model_dir={MODEL_DIR.value}", f"--max_seq_length={LENGTH}"]
            command = [part.format(folder / name) for part in command]
            subprocess.run([sys.executable, "-m", *command], check=True)


def main(_: list[str]) -> None:
    if not TEXTS.value or not MODEL_DIR.value:
        raise ValueError("Give --model_dir and --texts.")
    folder = pathlib.Path(OUTPUT_DIR.value)
    if ENGINE.value:
        print(json.dumps(measure(ENGINE.value, folder)))
        return
    make_models(folder)
    results: dict[tuple[str, str], list[dict[str, Any]]] = collections.defaultdict(list)
    reference = None
    for number, threads, engine in itertools.product(
        range(ROUNDS.value), THREADS.value, ENGINES.value
    ):
        result = run_apart(engine, int(threads))
        vectors = np.array(result.pop("vectors"))
        reference = vectors if reference is None else reference
        result["cosine"] = float((vectors * reference).sum(axis=1).min())
        results[engine, threads].append(result)
        print(f"round {number + 1}: {engine}, {threads} threads: {result}", flush=True)
    names = ["one", "docs", "mixed"]
    rows = []
    for (engine, threads), found in sorted(results.items(), key=lambda item: item[0][1]):
        fastest = [min((one[n] for one in found), key=milliseconds) for n in names]
        answer = min(one["first answer"] for one in found)
        rows.append([threads, engine, *fastest, f"{answer:.2g}", f"{found[0]['cosine']:.3f}"])
    print_table(["threads", "engine", *names, "first answer, s", "cosine"], rows)


def milliseconds(times: str) -> float:
    """Returns the first number of "wall (processor)"."""
    return float(times.split()[0])


if __name__ == "__main__":
    config_flags.run(main)
