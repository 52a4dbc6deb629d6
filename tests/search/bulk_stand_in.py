"""Shards with a stand-in for the model, which takes no time to load.

python -m tests.search.bulk_stand_in FOLDER FILE ...    # both steps, in two processes
"""

import dataclasses
import pathlib
import types
from collections.abc import Sequence

import numpy as np

from bert_tf.search.bulk import Job, embed_shard, read_file


class Stand:
    """A vector is the number of times that each letter comes."""

    fingerprint = "m"
    model = types.SimpleNamespace(config=types.SimpleNamespace(longest_row=48))

    def __init__(self, *_: object) -> None:
        self.calls: list[int] = []

    def documents(self, texts: Sequence[str]) -> tuple[np.ndarray, list[int]]:
        self.calls.append(len(texts))
        counts = [[text.count(letter) for letter in "abcd"] for text in texts]
        return np.array(counts, np.float32), [hash(text) % (1 << 64) for text in texts]


def make(base: pathlib.Path, *files: pathlib.Path, **changes: object) -> Job:
    inputs = tuple((str(f), f.stat().st_size, f.stat().st_mtime_ns) for f in files)
    job = Job(str(base / "out"), str(base), "model", inputs, "m", "", 32, 4, shard_size=3)
    job = dataclasses.replace(job, **changes)  # type: ignore[arg-type]
    pathlib.Path(job.folder).mkdir(parents=True, exist_ok=True)
    return job


def embed_all(job: Job) -> None:
    """Reads all input files and embeds their shards, in this process."""
    for number in range(len(job.inputs)):
        read_file(job, number)
    for name in job.shards():
        embed_shard(job, name, Stand())  # type: ignore[arg-type]
