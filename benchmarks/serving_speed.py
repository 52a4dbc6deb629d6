"""Texts to vectors or scores: our exports beside other runtimes, one model for all.

    python -m benchmarks.serving_speed --model_dir=all-MiniLM-L6-v2 --texts=wikipedia.txt
    python -m benchmarks.serving_speed --pairs --model_dir=reranker --texts=wikipedia.txt

--model_dir is an embedder, or with --pairs a reranker, in the form of sentence-transformers. It is
exported as SavedModels, as LiteRT files and as ONNX files, of which OpenVINO computes one as well,
with its weights in int8 too; CTranslate2 and sentence-transformers compute the folder itself.
Each engine runs in a process of its own, on as many cores as threads, tokenizer included. Rounds
of all engines alternate. Shown are, for three kinds of calls, the median milliseconds of a call,
and in brackets those of processor time, of the fastest round:

    one    a text of 8 to 16 words
    docs   32 texts of about 100 words
    mixed  32 texts of 3 to 100 words

With --pairs each text is a pair of a query of 8 to 16 words and such a text.
"first answer" is the time from loading the model to the first vector, without the imports;
"cosine" the lowest between a vector and that of the first engine (of pairs: of the 32 scores).

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
    ["saved_model", "saved_model_bfloat16", "litert", "litert_dynamic", "onnx", "onnx_int8"]
    + ["openvino", "openvino_bfloat16", "openvino_int8"]
    + ["ctranslate2", "ctranslate2_int8", "torch"],
    "What is measured. CTranslate2 has no ModernBERT and no rerankers.",
)
PAIRS = flags.DEFINE_bool("pairs", False, "--model_dir is a reranker.")
# What the parent tells its children.
ENGINE = flags.DEFINE_string("engine", "", "Set by the program for its processes.")

FILES = {
    "saved_model": "served",
    "saved_model_bfloat16": "served_bfloat16",
    "litert": "none.tflite",
    "litert_dynamic": "dynamic.tflite",
    "onnx": "onnx",
    "onnx_int8": "onnx_int8",
}
CALLS = {"one": 40, "docs": 2, "mixed": 4}  # measured, after one that is not
MIXED_LENGTHS = (3, 5, 8, 8, 10, 12, 12, 15, 20, 25, 40, 60, 100)
BATCH_SIZE = 32
LENGTH = 256
Inputs = list[str] | list[tuple[str, str]]
Encode = Callable[[Inputs], np.ndarray]


def start_bert_tf(engine: str, folder: pathlib.Path, threads: int) -> Encode:
    import bert_tf

    if engine.startswith("saved_model"):
        import tensorflow_text  # noqa: F401
    began()
    model = bert_tf.load(folder / FILES[engine], num_threads=threads)
    return model.score if PAIRS.value else model.encode


def start_tokenizer(path: pathlib.Path) -> Any:
    import tokenizers

    tokenizer = tokenizers.Tokenizer.from_file(str(path / "tokenizer.json"))
    tokenizer.enable_truncation(LENGTH)
    tokenizer.no_padding()
    return tokenizer


def start_openvino(engine: str, folder: pathlib.Path, threads: int) -> Encode:
    import openvino

    if engine == "openvino_int8":
        import nncf
    began()
    tokenizer = start_tokenizer(folder / "onnx")
    tokenizer.enable_padding(pad_id=tokenizer.token_to_id("[PAD]"))
    precision = "bf16" if engine == "openvino_bfloat16" else "f32"
    options = {"INFERENCE_PRECISION_HINT": precision, "INFERENCE_NUM_THREADS": threads}
    core = openvino.Core()
    network = core.read_model(str(folder / "onnx" / "onnx" / "model.onnx"))
    if engine == "openvino_int8":
        network = nncf.compress_weights(network)
    model = core.compile_model(network, "CPU", options)
    wanted = {name for column in model.inputs for name in column.names}

    def encode(texts: Inputs) -> np.ndarray:
        rows = tokenizer.encode_batch_fast(texts)
        columns = {
            "input_ids": np.array([row.ids for row in rows]),
            "attention_mask": np.array([row.attention_mask for row in rows]),
            "token_type_ids": np.array([row.type_ids for row in rows]),
        }
        columns = {name: values for name, values in columns.items() if name in wanted}
        return model(columns)["scores" if PAIRS.value else "sentence_embedding"]

    return encode


def start_ctranslate2(engine: str, folder: pathlib.Path, threads: int) -> Encode:
    import ctranslate2

    began()
    tokenizer = start_tokenizer(pathlib.Path(MODEL_DIR.value))
    kind = "int8" if engine == "ctranslate2_int8" else "float32"
    path = str(folder / "ctranslate2")
    model = ctranslate2.Encoder(path, device="cpu", intra_threads=threads, compute_type=kind)

    def encode(texts: Inputs) -> np.ndarray:
        ids = [row.ids for row in tokenizer.encode_batch_fast(texts)]
        states = np.array(model.forward_batch(ids).last_hidden_state)
        means = [state[: len(row)].mean(axis=0) for state, row in zip(states, ids, strict=True)]
        return np.stack(means) / np.linalg.norm(means, axis=1, keepdims=True)

    return encode


def start_torch(engine: str, folder: pathlib.Path, threads: int) -> Encode:
    import sentence_transformers
    import torch

    torch.set_num_threads(threads)
    began()
    options = {"batch_size": BATCH_SIZE, "show_progress_bar": False}
    if PAIRS.value:
        reranker = sentence_transformers.CrossEncoder(MODEL_DIR.value, device="cpu")
        reranker.max_length = LENGTH
        return lambda pairs: reranker.predict(pairs, **options)
    model = sentence_transformers.SentenceTransformer(MODEL_DIR.value, device="cpu")
    model.max_seq_length = LENGTH
    return lambda texts: model.encode(texts, **options)


STARTS = {
    "openvino": start_openvino,
    "openvino_bfloat16": start_openvino,
    "openvino_int8": start_openvino,
    "ctranslate2": start_ctranslate2,
    "ctranslate2_int8": start_ctranslate2,
    "torch": start_torch,
}
_began = [0.0]


def began() -> None:
    """Notes that the imports are over and loading begins."""
    _began[0] = time.perf_counter()


def make_calls() -> dict[str, list[Inputs]]:
    """Returns the texts of each call, by its kind; the same ones in each process."""
    words = pathlib.Path(TEXTS.value).read_text(encoding="utf8").split()
    source = random.Random(1)

    def cut(num_words: int) -> str:
        start = source.randrange(len(words) - num_words)
        return " ".join(words[start : start + num_words])

    mixed = [source.choice(MIXED_LENGTHS) for _ in range(BATCH_SIZE)]
    calls: dict[str, list[Inputs]] = {
        "one": [[cut(source.randint(8, 16))] for _ in range(CALLS["one"])],
        "docs": [[cut(source.randint(90, 110)) for _ in range(BATCH_SIZE)]],
        "mixed": [[cut(num_words) for num_words in mixed]],
    }
    if PAIRS.value:
        query = cut(source.randint(8, 16))
        for kind, batches in calls.items():
            calls[kind] = [[(query, text) for text in batch] for batch in batches]
    return calls


def measure(engine: str, folder: pathlib.Path) -> dict[str, Any]:
    """Runs an engine in this process: the median of a call in milliseconds, by its kind."""
    threads = len(os.sched_getaffinity(0))
    calls = make_calls()
    if engine in FILES:
        encode = start_bert_tf(engine, folder, threads)
    else:
        encode = STARTS[engine](engine, folder, threads)
    encode(calls["one"][0])
    result: dict[str, Any] = {"first answer": time.perf_counter() - _began[0]}
    for kind, texts in calls.items():
        source = itertools.cycle(texts)
        taken = times_in_turn({kind: lambda source=source: encode(next(source))}, CALLS[kind])
        wall, processor = 1e3 * np.median(taken[kind], axis=0)
        result[kind] = f"{wall:.3g} ({processor:.3g})"
    vectors = np.asarray(encode(calls["mixed"][0]))
    if PAIRS.value:
        vectors = vectors.reshape(1, -1) / np.linalg.norm(vectors)
    result["vectors"] = vectors.tolist()
    return result


def run_apart(engine: str, threads: int) -> dict[str, Any]:
    """Runs an engine in a process of its own."""
    cores = sorted(os.sched_getaffinity(0))[-threads:]
    command = [sys.executable, "-m", "benchmarks.serving_speed", f"--engine={engine}"]
    command += [f"--texts={TEXTS.value}", f"--output_dir={OUTPUT_DIR.value}"]
    command += [f"--model_dir={MODEL_DIR.value}", f"--pairs={PAIRS.value}"]
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
        "served_bfloat16": ["export.saved_model", "--precision=bfloat16", "--output_dir={}"],
        "onnx": ["export.onnx", "--output_dir={}"],
        "onnx_int8": ["export.onnx", "--no_gate", "--quantize=int8", "--output_dir={}"],
        "none.tflite": [*lite, "--quantize=none"],
        "dynamic.tflite": [*lite, "--quantize=dynamic"],
    }
    for name, command in made.items():
        if not (folder / name).exists():
            command += [f"--model_dir={MODEL_DIR.value}", f"--max_seq_length={LENGTH}"]
            command = [part.format(folder / name) for part in command]
            subprocess.run([sys.executable, "-m", *command], check=True)
    if any(engine.startswith("ctranslate2") for engine in ENGINES.value):
        import ctranslate2

        converter = ctranslate2.converters.TransformersConverter(MODEL_DIR.value)
        converter.convert(str(folder / "ctranslate2"), force=True)


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
