"""Writes examples to files of the user's choice, with a manifest in the same folder.

    input_file -> tokens on disk -> examples, one file per shard -> manifest

A hidden work folder has the finished results: the tokens of each part of the input, and a done
marker for each example file. A step whose result exists is skipped, whether it was made by this run
or a killed one, by processes on this machine or by an Apache Beam pipeline (`beam_examples.py`).
"""

import dataclasses
import pathlib
import re
import resource
import shutil
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from absl import logging

from bert_tf.config import DataConfig, MaskingConfig
from bert_tf.corpus import manifests
from bert_tf.corpus.corpus import CorpusPart, list_data_parts
from bert_tf.corpus.duplicates import kept_documents
from bert_tf.corpus.example_shards import (
    ShardTask,
    passes,
    plan_shards,
    write_shards,
)
from bert_tf.corpus.token_store import TokenStore, open_tokens, token_tasks, tokenize_corpus
from bert_tf.system.checksums import file_sha256
from bert_tf.system.files import exclusive
from bert_tf.system.processes import count_workers

RATES = {"documents": "documents/s", "input_mb": "MB/s", "examples": "examples/s"}


@dataclasses.dataclass(frozen=True)
class ExampleJob:
    """The input and output of a run; workers of a Beam pipeline get this object."""

    parts: tuple[CorpusPart, ...]  # the corpus
    output_files: tuple[pathlib.Path, ...]  # one TFRecord file per shard
    work: pathlib.Path  # the folder of tokens and done markers, which no other job may use
    data: DataConfig  # vocab_file and rules
    masking: MaskingConfig  # static masks are drawn here, others when the examples are read
    do_lower_case: bool  # casing of the tokenizer

    @property
    def tokens(self) -> pathlib.Path:
        return self.work / "tokens"

    def token_tasks(self) -> list[tuple[CorpusPart, pathlib.Path, str, bool]]:
        """Returns the arguments of `tokenize_part` for all parts, including finished ones."""
        return token_tasks(self.parts, self.tokens, self.data.vocab_file, self.do_lower_case)

    def missing_shards(self) -> list[ShardTask]:
        """Returns the arguments of `write_shard`, once all parts are tokenised."""
        store = open_tokens(self.parts, self.tokens)
        kept = kept_documents(store, self.data.deduplicate, 1)
        return plan_shards(store.paths, kept, self.output_files, self.work, self.data, self.masking)


def write_examples(
    output_files: Sequence[pathlib.Path],
    data: DataConfig,
    masking: MaskingConfig,
    *,
    do_lower_case: bool,
    fill_work_folder: Callable[[ExampleJob], None] | None = None,
) -> dict[str, Any]:
    """Writes all examples of a corpus to files of the user's choice; resumes a killed run.

    Tokens and done markers are in a hidden folder, next to the first file, until all examples are
    written; then `manifest_path` is written. If it already lists these files, they are kept. A
    second process with the same output waits for the first.

    Args:
      output_files, data, masking, do_lower_case: see `ExampleJob`; `data` names the input.
      fill_work_folder: makes tokens and examples elsewhere, for example
        `beam_examples.fill_work_folder`. This function then makes only the missing ones.

    Returns:
      The manifest: key, parameters, totals and one record per file.

    Raises:
      ValueError: if the input is missing, empty or too small, or the folder cannot be written.
    """
    start = time.monotonic()
    parts = list_data_parts(data, data.input_file)
    # Everything that the bytes of the files depend on.
    parameters = {
        **rules(data, masking),
        "passes": passes(data, masking),
        "do_lower_case": do_lower_case,
        "deduplicate": data.deduplicate,
        "vocabulary": manifests.vocabulary_hash(data.vocab_file),
        "input": manifests.describe_parts(parts),
        "output": list(map(str, output_files)),
    }
    key = manifests.key_of(parameters)
    manifest_file = manifest_path(output_files)
    folder = output_files[0].parent
    name = output_files[0].name
    with exclusive(folder / f".{name}.lock", flag="output_file"):
        if manifest := _made_already(output_files, key):
            return manifest
        work = folder / f".{name}.{key}.work"
        _delete_stale_work(folder, name, work)
        is_resumed = work.exists()
        job = ExampleJob(tuple(parts), tuple(output_files), work, data, masking, do_lower_case)
        if fill_work_folder:
            fill_work_folder(job)
        # After Beam nothing is left to make: this opens its tokens and reads its done markers.
        store, documents, files = make_locally(job)
        counts = {
            "documents": store.num_documents,
            "input_mb": input_megabytes(part.path for part in parts),
            "examples": sum(file["examples"] for file in files),
        }
        runner = "beam" if fill_work_folder else "local"
        report = run_report(start, counts, runner=runner, is_resumed=is_resumed)
        more = {"duplicates": store.num_documents - len(documents), "run": report}
        manifest = manifests.write_manifest(manifest_file, key, parameters, store, files, **more)
        # Only after the manifest: until it is written, a killed run resumes with this folder.
        shutil.rmtree(work)
        return manifest


def make_locally(job: ExampleJob) -> tuple[TokenStore, np.ndarray, list[dict[str, Any]]]:
    """Makes missing tokens and examples; returns the corpus, its used documents, and records."""
    num_workers = count_workers(job.data.num_workers)
    store = tokenize_corpus(
        job.parts,
        job.tokens,
        vocab_file=job.data.vocab_file,
        do_lower_case=job.do_lower_case,
        num_workers=num_workers,
    )
    documents = kept_documents(store, job.data.deduplicate, num_workers)
    files = write_shards(store, documents, job.output_files, job.work, job.data, job.masking)
    return store, documents, files


def rules(data: DataConfig, masking: MaskingConfig) -> dict[str, Any]:
    """Returns the parameters that the content of examples depends on."""
    names = ["max_seq_length", "short_seq_prob", "random_seed", "use_next_sentence"]
    values = {name: getattr(data, name) for name in names}
    # Absent if off, so the key is that of examples without the option.
    if data.sentence_order:
        values["sentence_order"] = True
    values["masking"] = "dynamic"
    if masking.masking == "static":
        values |= masking.to_dict()
    return values


def manifest_path(output_files: Sequence[pathlib.Path]) -> pathlib.Path:
    """Returns the path of the manifest; a folder may have several outputs, each with its own."""
    return output_files[0].with_name(f"{output_files[0].name}.{manifests.MANIFEST}")


def _made_already(output_files: Sequence[pathlib.Path], key: str) -> dict[str, Any] | None:
    """Returns the manifest if it lists exactly these files and they have its digests."""
    manifest_file = manifest_path(output_files)
    manifest = manifests.read_manifest(manifest_file, key)
    if not manifest:
        return None
    if not all(path.is_file() for path in output_files):
        return None
    changed = []
    for path, record in zip(output_files, manifest["files"], strict=True):
        # Sizes alone would miss a file that was overwritten.
        if file_sha256(path) != record["sha256"]:
            changed.append(str(path))
    if changed:
        logging.warning("Files that do not match %s: %s. Making all again.", manifest_file, changed)
        return None
    logging.info("According to %s these examples exist already.", manifest_file)
    return manifest


def _delete_stale_work(folder: pathlib.Path, name: str, work: pathlib.Path) -> None:
    """Deletes the work folders of killed runs of this output with other parameters."""
    for path in folder.iterdir():
        # The folder may also have work of other outputs, which have other names.
        if re.fullmatch(rf"\.{re.escape(name)}\.[0-9a-f]{{12}}\.work", path.name) and path != work:
            shutil.rmtree(path)


def peak_memory() -> float:
    """Returns the most memory in MB of this process or one of those it has started and joined."""
    kinds = resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN
    return max(resource.getrusage(kind).ru_maxrss for kind in kinds) / 1e3  # KB on Linux


def input_megabytes(paths: Iterable[str]) -> float:
    """Returns the size of the input files on disk; datasets are not counted."""
    files = {path for path in map(pathlib.Path, paths) if path.is_file()}
    return sum(path.stat().st_size for path in files) / 1e6


def run_report(
    start: float, counts: dict[str, float], *, runner: str, is_resumed: bool
) -> dict[str, Any]:
    """Returns the report of a run for the manifest.

    Args:
      start: time.monotonic() at the start.
      counts: the numbers of documents, input_mb and examples.
      runner: "local" or "beam".
      is_resumed: whether a killed run did a part of the work; rates would then be too high.
    """
    seconds = time.monotonic() - start
    report = {
        "runner": runner,
        "seconds": round(seconds, 1),
        "is_resumed": is_resumed,
        "peak_memory_mb": round(peak_memory()),
    }
    if not is_resumed:
        report |= {unit: round(counts[name] / seconds, 2) for name, unit in RATES.items()}
    return report


def describe(report: dict[str, Any]) -> str:
    """Returns a report in one line."""
    rates = [f"{report[unit]:,.6g} {unit}" for unit in RATES.values() if unit in report]
    rates = rates or ["no rates, because a killed run did a part"]
    return (
        f"{report['seconds']:,} s with the {report['runner']} runner: {', '.join(rates)}; largest "
        f"process {report['peak_memory_mb']:,} MB."
    )
