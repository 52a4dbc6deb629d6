"""Puts load on a served model and checks every answer: throughput, latency, nothing mixed up.

    python -m benchmarks.serving_load --server=http://127.0.0.1:8501 --input_file=texts.txt
    python -m benchmarks.serving_load --stand_in=models/bert --input_file=texts.txt

First each text is asked for alone: these are the known answers. Then 8, and then 64, clients at
once send requests of one to eight texts drawn at random and compare each answer with the known one:
strings must be equal, numbers within 0.001, for the width of a batch may change their last digits.
There are no retries, so a request without an answer counts as failed. The exit status is 1 if any
answer failed or differed.

With --stand_in a stand-in for TensorFlow Serving (tests/export) is started for the folder of
versions: it shows what client and model do under load, and nothing of TensorFlow Serving's speed.

The clients are threads of one process: their own work, JSON above all, is part of the latency.
"""

import concurrent.futures
import contextlib
import dataclasses
import json
import math
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
from absl import flags

from benchmarks.timing import print_table
from bert_tf.config import config_flags
from export.serving_client import Row, ServingClient, answer_rows, read_input
from export.serving_rest import ServingError

SERVER = flags.DEFINE_string("server", "", "As of export.serving_client.")
MODEL = flags.DEFINE_string("model", "bert", "Name of the model.")
SIGNATURE = flags.DEFINE_string("signature", "serving_default", "Which of its signatures.")
GRPC = flags.DEFINE_bool("grpc", False, "Use gRPC.")
STAND_IN = flags.DEFINE_string("stand_in", "", "Folder of versions to start a stand-in for.")
INPUT_FILE = flags.DEFINE_string("input_file", None, "Texts, as of the client.", required=True)
SECONDS = flags.DEFINE_float("seconds", 60.0, "Time for each number of clients.")

MAX_TEXTS, TEXTS_PER_REQUEST, CLIENTS = 500, 8, (8, 64)
TIMEOUT, TOLERANCE = 60.0, 1e-3


@dataclasses.dataclass
class Tally:
    """What one client saw."""

    seconds: list[float] = dataclasses.field(default_factory=list)
    texts: int = 0
    differing: list[str] = dataclasses.field(default_factory=list)
    failed: list[str] = dataclasses.field(default_factory=list)


@contextlib.contextmanager
def stand_in(folder: str, model: str, use_grpc: bool) -> Iterator[str]:
    """Runs a stand-in for TensorFlow Serving in a process of its own; yields its address."""
    command = [sys.executable, "-m", "tests.export.serving_stand_in", f"--model_name={model}"]
    process = subprocess.Popen(
        [*command, f"--model_base_path={folder}"], stdout=subprocess.PIPE, text=True
    )
    try:
        line = process.stdout.readline()
        if not line.startswith("Stand-in at "):
            raise RuntimeError(f"The stand-in for {folder} did not start.")
        rest, grpc = line.removeprefix("Stand-in at ").strip().split(" and, for gRPC, ")
        yield grpc if use_grpc else rest
    finally:
        process.terminate()
        process.wait(30)


def connect(server: str, retries: int = 0) -> ServingClient:
    return ServingClient(
        server,
        MODEL.value,
        signature=SIGNATURE.value,
        grpc=GRPC.value,
        timeout=TIMEOUT,
        retries=retries,
    )


def is_same(known: Any, answer: Any) -> bool:
    """Says whether an output is the known one, but for the padding behind it.

    A text in a batch with longer ones comes with more columns than alone; what is behind the known
    columns is not looked at.
    """
    if isinstance(known, dict) and isinstance(answer, dict):
        return known.keys() == answer.keys() and all(is_same(known[k], answer[k]) for k in known)
    if isinstance(known, list) and isinstance(answer, list):
        return len(answer) >= len(known) and all(map(is_same, known, answer))
    if isinstance(known, float) and isinstance(answer, float):
        return bool(np.isclose(known, answer, rtol=TOLERANCE, atol=TOLERANCE, equal_nan=True))
    return known == answer


def ask(
    server: str, rows: list[Row], known: list[dict[str, Any]], end: float, seed: int, tally: Tally
) -> None:
    """Is one client: asks until `end` and compares."""
    chance = random.Random(seed)
    with connect(server) as client:
        client.spec()
        while time.monotonic() < end:
            size = chance.randint(1, TEXTS_PER_REQUEST)
            chosen = [chance.randrange(len(rows)) for _ in range(size)]
            start = time.perf_counter()
            try:
                answers = list(answer_rows(client, [rows[index] for index in chosen], size))
            except (ServingError, ValueError) as error:
                tally.failed.append(str(error))
                continue
            tally.seconds.append(time.perf_counter() - start)
            tally.texts += size
            tally.differing += [
                f"{rows[index]!r}: known {known[index]}, received {answer}"
                for index, answer in zip(chosen, answers, strict=True)
                if not is_same(known[index], answer)
            ]


def run_clients(
    server: str, rows: list[Row], known: list[dict[str, Any]], clients: int, tallies: list[Tally]
) -> list[str]:
    """Puts load on the server; returns a line of the table, adds what each client saw."""
    mine = [Tally() for _ in range(clients)]
    tallies += mine
    start = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(clients) as pool:
        end = start + SECONDS.value
        asked = [
            pool.submit(ask, server, rows, known, end, seed, tally)
            for seed, tally in enumerate(mine)
        ]
        for one in asked:
            one.result()
    taken = time.monotonic() - start
    latencies = [1000 * second for tally in mine for second in tally.seconds] or [math.nan]
    texts = sum(tally.texts for tally in mine) / taken
    differing, failed = (sum(len(getattr(t, n)) for t in mine) for n in ("differing", "failed"))
    cells = [f"{value:.0f}" for value in (texts, *np.percentile(latencies, [50, 95, 99]))]
    requests = sum(len(tally.seconds) for tally in mine)
    return [f"{clients}", f"{requests:,}", *cells, f"{differing}", f"{failed}"]


def main(_: list[str]) -> int:
    if bool(SERVER.value) == bool(STAND_IN.value):
        raise ValueError("Give either --server or --stand_in.")
    rows = read_input(INPUT_FILE.value)[:MAX_TEXTS]
    tallies: list[Tally] = []
    with contextlib.ExitStack() as stack:
        server = SERVER.value or stack.enter_context(
            stand_in(STAND_IN.value, MODEL.value, GRPC.value)
        )
        with connect(server, retries=20) as client:
            known = list(answer_rows(client, rows, batch_size=1))
        different = len({json.dumps(answer) for answer in known})
        print(
            f"{len(rows)} texts, {different} different answers known; "
            f"{'the stand-in, not TensorFlow Serving' if STAND_IN.value else server}, "
            f"{'gRPC' if GRPC.value else 'REST'}, {len(os.sched_getaffinity(0))} cores, "
            f"{SECONDS.value:g} s each"
        )
        print_table(
            [
                "clients",
                "requests",
                "texts/s",
                "p50, ms",
                "p95, ms",
                "p99, ms",
                "differing",
                "failed",
            ],
            (run_clients(server, rows, known, count, tallies) for count in CLIENTS),
        )
    wrong = [line for tally in tallies for line in tally.differing + tally.failed]
    idle = sum(not tally.seconds for tally in tallies)
    print(*(line[:300] for line in wrong[:6]), f"{idle} clients got no answer at all", sep="\n")
    return int(bool(wrong or idle))


if __name__ == "__main__":
    config_flags.run(main)
