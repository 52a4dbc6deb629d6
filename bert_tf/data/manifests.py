"""What prepared files depend on, hashed, and the manifest that says what was made.

A manifest is written when all its files are finished: where one stands with the key of the wanted
parameters, nothing is to be made. Its records of the files hold their hashes, and so identify the
examples wherever they lie.
"""

import hashlib
import json
import pathlib
from collections.abc import Iterable, Sequence
from typing import Any

import bert_tf
from bert_tf.data.corpus import CorpusPart
from bert_tf.data.token_store import TokenStore
from bert_tf.files import atomic_write

TOTALS = ("examples", "tokens", "bytes")


def key_of(values: dict[str, Any]) -> str:
    """Returns 12 hex digits for parameters and the version of this package."""
    return _short_hash([bert_tf.__version__, values])


def describe_parts(parts: Sequence[CorpusPart]) -> list[list[Any]]:
    """Returns name, size and time of each input file, and how it is read."""
    described: list[list[Any]] = []
    for part in parts:
        path = pathlib.Path(part.path)
        status = path.stat() if path.is_file() else None
        stamp = [status.st_size, status.st_mtime_ns] if status else []
        file = [str(path.resolve() if status else path), part.format, part.text_field, *stamp]
        if not described or described[-1] != file:
            described.append(file)
    return described


def file_hash(path: str) -> str:
    """Returns the SHA-256 of a file's content in hex digits."""
    with pathlib.Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_manifest(
    path: pathlib.Path,
    key: str,
    parameters: dict[str, Any],
    store: TokenStore,
    files: list[dict[str, Any]],
) -> dict[str, Any]:
    """Writes and returns the manifest of finished files: `write_shards` gave their records."""
    corpus = {"documents": store.num_documents, "tokens": store.num_pieces}
    totals = {name: sum(file[name] for file in files) for name in TOTALS}
    manifest = {"key": key, "parameters": parameters, "corpus": corpus, **totals, "files": files}
    with atomic_write(path) as file:
        json.dump(manifest, file, indent=1)
    return manifest


def read_manifest(path: pathlib.Path, key: str) -> dict[str, Any] | None:
    """Returns the manifest with this key; None if there is none, or a file of somebody else."""
    try:
        manifest = json.loads(path.read_text(encoding="utf8"))
    except (FileNotFoundError, ValueError):  # ValueError: neither UTF-8 nor JSON
        return None
    is_ours = isinstance(manifest, dict) and {"key", "files", *TOTALS} <= manifest.keys()
    return manifest if is_ours and manifest["key"] == key else None


def fingerprint_made(manifest: dict[str, Any]) -> str:
    """Returns 12 hex digits that are equal for equal examples, wherever and whenever made."""
    return _short_hash([file["sha256"] for file in manifest["files"]])


def fingerprint_given(paths: Iterable[str]) -> str:
    """Returns 12 hex digits of the names, without folders, and the sizes of the user's records.

    Hashing all their bytes would take minutes at each start.
    """
    files = map(pathlib.Path, paths)
    return _short_hash([[file.name, file.stat().st_size] for file in files])


def _short_hash(value: Any) -> str:
    text = json.dumps(value, sort_keys=True)
    return hashlib.sha256(text.encode("utf8")).hexdigest()[:12]
