"""Hashes the parameters of prepared files, and writes manifests of finished files.

A manifest is written when all its files are finished: if it has the key of the current parameters,
nothing needs to be made. Its records have the hashes of the files, and so identify the examples in
any folder. Training compares given files with the manifest in their folder.
"""

import hashlib
import json
import pathlib
from collections.abc import Iterable, Sequence
from typing import Any

from absl import logging

import bert_tf
from bert_tf.config import DataConfig
from bert_tf.corpus.abbreviations import AUTO
from bert_tf.corpus.corpus import CorpusPart
from bert_tf.corpus.tfds_corpus import describe_dataset
from bert_tf.corpus.token_store import TokenStore
from bert_tf.system.checksums import file_sha256
from bert_tf.system.files import write_json
from bert_tf.text.tokenization import read_vocab

MANIFEST = "manifest.json"
HASHED_BYTES = 1 << 30  # 0.6 s at 1.7 GB/s, with SHA instructions of the processor
TOTALS = ("examples", "tokens", "bytes")


def key_of(values: dict[str, Any]) -> str:
    """Returns 12 hex digits for parameters and the version of this package."""
    return _short_hash([bert_tf.__version__, values])


def describe_parts(parts: Sequence[CorpusPart]) -> list[list[Any]]:
    """Returns name, format, size and time of each input file or data set."""
    described: list[list[Any]] = []
    stamps: dict[str, list[Any]] = {}
    for part in parts:
        path = pathlib.Path(part.path)
        if part.format == "tfds" and part.path not in stamps:
            stamps[part.path] = describe_dataset(part.path)
        status = path.stat() if path.is_file() else None
        # Size and time instead of a hash: a corpus may have many gigabytes.
        stamp = [status.st_size, status.st_mtime_ns] if status else stamps.get(part.path, [])
        file = [str(path.resolve() if status else path), part.format, part.text_field, *stamp]
        if part.language != AUTO:  # Absent where it has no effect, as in older manifests.
            file.append(part.language)
        # The parts of a file follow each other, and the file counts once.
        if not described or described[-1] != file:
            described.append(file)
    return described


def vocabulary_hash(path: str) -> str:
    """Returns the SHA-256 of the content of a vocabulary, whatever its line ends."""
    text = read_vocab(path).content + "\n"
    return hashlib.sha256(text.encode("utf8")).hexdigest()


def write_manifest(
    path: pathlib.Path,
    key: str,
    parameters: dict[str, Any],
    store: TokenStore,
    files: list[dict[str, Any]],
    **more: object,
) -> dict[str, Any]:
    """Writes and returns the manifest of finished files.

    `key` is the key of `parameters`, all those that the examples depend on; `files` are the records
    of `write_shards`, and `more` are additional fields, on which the examples do not depend.
    """
    corpus = {"documents": store.num_documents, "tokens": store.num_tokens}
    totals = {name: sum(file[name] for file in files) for name in TOTALS}
    manifest = {"key": key, "parameters": parameters, "corpus": corpus, **totals, "files": files}
    manifest |= more
    write_json(path, manifest)
    return manifest


def read_manifest(path: pathlib.Path, key: str) -> dict[str, Any] | None:
    """Returns the manifest with this key, or None if there is no file or it has another key."""
    manifest = _load(path)
    if manifest.get("key") == key:
        return manifest
    return None


def _load(path: pathlib.Path) -> dict[str, Any]:
    """Reads a manifest; {} if the file does not exist."""
    try:
        manifest = json.loads(path.read_text(encoding="utf8"))
    except (FileNotFoundError, ValueError, RecursionError):  # Missing, not UTF-8, or not JSON.
        return {}
    if isinstance(manifest, dict) and {"key", "files", *TOTALS} <= manifest.keys():
        return manifest
    return {}


def fingerprint_made(manifest: dict[str, Any]) -> str:
    """Returns 12 hex digits that are equal for equal examples."""
    return _short_hash([file["sha256"] for file in manifest["files"]])


def fingerprint_given(paths: Iterable[str]) -> str:
    """Returns 12 hex digits of the names, without folders, and the sizes of given files.

    Hashing all their bytes would take minutes at each start.
    """
    files = map(pathlib.Path, paths)
    return _short_hash([[file.name, file.stat().st_size] for file in files])


def _short_hash(value: object) -> str:
    text = json.dumps(value, sort_keys=True)
    return hashlib.sha256(text.encode("utf8")).hexdigest()[:12]


# Checking -------------------------------------------------------------------------------------


def check_records(
    paths: Iterable[str], data: DataConfig, vocab_file: str, do_lower_case: bool
) -> None:
    """Compares record files with the manifests in their folders; a file without one passes.

    Sizes are compared always, contents where all files of a manifest have at most 1 GiB together:
    more would take too long at each start. (Each record has a checksum that is compared when it is
    read; the hash is for files that are whole, but not the ones that were made.)

    `data` tells whether pairs are wanted, and of which kind; an unknown `vocab_file` is "".

    Raises:
      ValueError: if a file that a manifest names together with one of these is missing or has
        another size or content, or vocabulary or casing differ, or pairs are wanted and there are
        none, or of the other kind.
    """
    given = {pathlib.Path(path).absolute() for path in paths}
    for folder in sorted({path.parent for path in given}):
        for manifest_file in sorted(folder.glob(f"*{MANIFEST}")):
            manifest = _load(manifest_file)
            files = _files_beside(manifest, folder)
            # A folder may also have manifests of files that are not read.
            if not given.isdisjoint(files):
                parameters = manifest.get("parameters", {})
                _check_rules(manifest_file, parameters, data, vocab_file, do_lower_case)
                _check_files(manifest_file, files)


def _files_beside(manifest: dict[str, Any], folder: pathlib.Path) -> dict[pathlib.Path, Any]:
    """Returns the records of the manifest's files by path, if they are in its folder."""
    records = manifest.get("files", [])
    output = manifest.get("parameters", {}).get("output", [r["file"] for r in records])
    parents = [pathlib.Path(path).parent for path in output]
    files = {}
    for record, parent in zip(records, parents, strict=True):
        # The manifest is in the folder of the first file; files of other folders are not compared.
        if parent == parents[0]:
            files[folder / record["file"]] = record
    return files


def _check_rules(
    manifest_file: pathlib.Path,
    parameters: dict[str, Any],
    data: DataConfig,
    vocab_file: str,
    do_lower_case: bool,
) -> None:
    made_with = parameters.get("vocabulary")
    if made_with and vocab_file and vocabulary_hash(vocab_file) != made_with:
        raise ValueError(
            f"The examples of {manifest_file} were made with another vocabulary than {vocab_file} "
            f"(SHA-256 {made_with[:12]}..., received {vocabulary_hash(vocab_file)[:12]}...); give "
            f"that vocabulary as --vocab_file, or make the examples again."
        )
    wanted = {"do_lower_case": do_lower_case}
    # The kind of pairs does not show in the records themselves.
    if data.use_next_sentence:
        wanted |= {"use_next_sentence": True, "sentence_order": data.sentence_order}
    for name, value in wanted.items():
        # A manifest without the option passes; `sentence_order` is recorded only where it was on.
        made_with = parameters.get(name, name != "sentence_order" and value)
        if made_with != value:
            other = str(made_with).lower()
            raise ValueError(
                f"The examples of {manifest_file} were made with --{name}={other}, but the run has "
                f"--{name}={str(value).lower()}; pass --{name}={other}, or make the examples again."
            )


def _check_files(manifest_file: pathlib.Path, files: dict[pathlib.Path, Any]) -> None:
    remedy = "copy or make the examples again; to use the existing files, delete the manifest."
    for path, record in files.items():
        if not path.is_file():
            raise ValueError(f"{path} is missing, but {manifest_file} names it; {remedy}")
        if path.stat().st_size != record["bytes"]:
            raise ValueError(
                f"{path} has {path.stat().st_size} bytes, but {record['bytes']} according to "
                f"{manifest_file}; {remedy}"
            )
    if sum(record["bytes"] for record in files.values()) > HASHED_BYTES:
        logging.info("%s: sizes are correct; contents were not compared.", manifest_file)
        return
    for path, record in files.items():
        if file_sha256(path) != record["sha256"]:
            raise ValueError(
                f"{path} has changed since it was made: its SHA-256 differs from that in "
                f"{manifest_file}; {remedy}"
            )
