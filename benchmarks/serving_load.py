"""Puts load on a served model and checks every answer: throughput, latency, nothing mixed up.

    python -m benchmarks.serving_load --server=http://127.0.0.1:8501 --input_file=texts.txt
    python -m benchmarks.serving_load --stand_in=models/bert --input_file=texts.txt

First each text is asked for alone: these are the known answers (or those of --answers_file, which
the client writes with --batch_size=1). Then 8, and then 64, clients at once send requests of one to
eight texts drawn at random and compare each answer with the known one: strings must be equal,
numbers within --tolerance, for the width of a batch may change their last digits. There are no
retries, so a request without an answer counts as failed. The exit status is 1 if any answer failed
or differed.

With --stand_in a stand-in for TensorFlow Serving (tests/export) is started for the folder of
versions: it shows what client and model do under load, and nothing of TensorFlow Serving's speed.

The clients are threads of one process: their own work, JSON above all, is part of the latency.
"""

import contextlib
import dataclasses
import json
import os
import pathlib
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
from absl import flags

from bert_tf import config_flags
from export.client.protocol import ServingError
from export.client.rows import Row, read_input
from export.serving_client import ServingClient, answer_rows

SERVER = flags.DEFINE_string("server", "", "As of export.serving_client.")
MODEL = flags.DEFINE_string("model", "bert", "Name of the model.")
SIGNATURE = flags.DEFINE_string("signature", "serving_default", "Which of its signatures.")
GRPC = flags.DEFINE_bool("grpc", False, "Use gRPC.")
STAND_IN = flags.DEFINE_string("stand_in", "", "Folder of versions to start a stand-in for.")
INPUT_FILE = flags.DEFINE_string("input_file", None, "Texts, as of the client.", required=True)
ANSWERS_FILE = flags.DEFINE_string("answers_file", "", "Known answers, of --batch_size=1.")
MAX_TEXTS = flags.DEFINE_integer("max_texts", 500, "Texts of the file to use.", lower_bound=1)
CLIENTS = flags.DEFINE_multi_integer("clients", [8, 64], "Clients at once; may repeat.")
SECONDS = flags.DEFINE_float("seconds", 60.0, "Time for each number of clients.")
TEXTS_PER_REQUEST = flags.DEFINE_integer("texts_per_request", 8, "At most.", lower_bound=1)
TIMEOUT = flags.DEFINE_float("timeout", 60.0, "Seconds for a request.")
TOLERANCE = flags.DEFINE_float("tolerance", 1e-3, "Most by which a number may differ.")

READY_SECONDS = 120.0


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


def connect(server: str, timeout: float, retries: int = 0) -> ServingClient:
    return ServingClient(
        server,
        MODEL.value,
        signature=SIGNATURE.value,
        grpc=GRPC.value,
        timeout=timeout,
        deadline=max(timeout, READY_SECONDS),
        retries=retries,
    )


def is_same(known: Any, answer: Any, tolerance: float) -> bool:
    """Says whether an output is the known one, but for the padding behind it.

    A text in a batch with longer ones comes with more columns than alone; what is behind the known
    columns is not looked at.
    """
    if isinstance(known, list) and isinstance(answer, list):
        return len(answer) >= len(known) and all(
            is_same(a, b, tolerance) for a, b in zip(known, answer, strict=False)
        )
    if isinstance(known, float) and isinstance(answer, float):
        return bool(np.isclose(known, answer, rtol=tolerance, atol=tolerance, equal_nan=True))
    return known == answer


def ask(
    server: str, rows: list[Row], known: list[dict[str, Any]], end: float, seed: int, tally: Tally
) -> None:
    """Is one client: asks until `end` and compares."""
    chance = random.Random(seed)
    with connect(server, TIMEOUT.value) as client:
        client.find_inputs()
        while time.monotonic() < end:
            size = chance.randint(1, TEXTS_PER_REQUEST.value)
            chosen = [chance.randrange(len(rows)) for _ in range(size)]
            start = time.perf_counter()
            try:
                answers = list(answer_rows(client, [rows[index] for index in chosen], size))
            except (ServingError, ValueError) as error:
                tally.failed.append(str(error))
                continue
            tally.seconds.append(time.perf_counter() - start)
            tally.texts += size
            for index, answer in zip(chosen, answers, strict=True):
                expected = known[index]
                same = expected.keys() == answer.keys() and all(
                    is_same(expected[name], answer[name], TOLERANCE.value) for name in expected
                )
                if not same:
                    tally.differing.append(f"{rows[index]!r}: known {expected}, received {answer}")


def run_clients(
    server: str, rows: list[Row], known: list[dict[str, Any]], clients: int, seconds: float
) -> bool:
    """Puts load on the server, prints a row of the table, says whether all went well."""
    tallies = [Tally() for _ in range(clients)]
    start = time.monotonic()
    threads = [
        threading.Thread(target=ask, args=(server, rows, known, start + seconds, seed, tally))
        for seed, tally in enumerate(tallies)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    taken = time.monotonic() - start
    latencies = [1000 * second for tally in tallies for second in tally.seconds] or [float("nan")]
    p50, p95, p99 = np.percentile(latencies, [50, 95, 99])
    texts = sum(tally.texts for tally in tallies)
    requests = sum(len(tally.seconds) for tally in tallies)
    differing = [line for tally in tallies for line in tally.differing]
    failed = [line for tally in tallies for line in tally.failed]
    idle = sum(not tally.seconds for tally in tallies)
    print(
        f"{clients:7} {requests:9,} {requests / taken:11.1f} {texts / taken:8.1f} "
        f"{p50:7.0f} {p95:7.0f} {p99:7.0f} {len(differing):10} {len(failed):7}",
        flush=True,
    )
    for line in [*differing[:3], *failed[:3]]:
        print(f"    {line[:300]}")
    if idle:
        print(f"    {idle} clients got no answer at all")
    return not (differing or failed or idle)


def read_known(server: str, rows: list[Row]) -> list[dict[str, Any]]:
    """Returns the answers that are right: of a file, or of the server to each text alone."""
    if ANSWERS_FILE.value:
        lines = pathlib.Path(ANSWERS_FILE.value).read_text(encoding="utf8").splitlines()
        known = [json.loads(line) for line in lines[: len(rows)]]
        if len(known) < len(rows):
            raise ValueError(f"{ANSWERS_FILE.value}: {len(known)} answers, {len(rows)} texts.")
        return known
    with connect(server, TIMEOUT.value, retries=20) as client:
        return list(answer_rows(client, rows, batch_size=1))


def main(_: list[str]) -> int:
    if bool(SERVER.value) == bool(STAND_IN.value):
        raise ValueError("Give either --server or --stand_in.")
    rows = read_input(INPUT_FILE.value)[: MAX_TEXTS.value]
    with contextlib.ExitStack() as stack:
        server = SERVER.value or stack.enter_context(
            stand_in(STAND_IN.value, MODEL.value, GRPC.value)
        )
        start = time.monotonic()
        known = read_known(server, rows)
        print(
            f"{len(rows)} texts, {len({json.dumps(answer) for answer in known})} different answers "
            f"known after {time.monotonic() - start:.1f} s; "
            f"{'the stand-in, not TensorFlow Serving' if STAND_IN.value else server}, "
            f"{'gRPC' if GRPC.value else 'REST'}, {len(os.sched_getaffinity(0))} cores, "
            f"{SECONDS.value:g} s each"
        )
        print("clients  requests  requests/s  texts/s  p50 ms  p95 ms  p99 ms  differing  failed")
        results = [run_clients(server, rows, known, n, SECONDS.value) for n in CLIENTS.value]
    return 0 if all(results) else 1


if __name__ == "__main__":
    config_flags.run(main)
