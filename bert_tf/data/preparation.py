"""From whatever the user has to ready TFRecord files; every step is kept for the next run.

    input_file -> vocabulary -> pieces on disk -> examples for training and for evaluation

A step's results lie in a folder of cache_dir whose name holds a hash of all they depend on: the
input files' names, sizes and times, the parameters, the version of this package. The next run
finds them; a changed parameter makes a new folder; a killed run goes on with what is missing.
"""

import contextlib
import fcntl
import hashlib
import json
import pathlib
import shutil
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from absl import logging

import bert_tf
from bert_tf.config import DataConfig, MaskingConfig
from bert_tf.data.corpus import CorpusPart, list_parts, read_documents
from bert_tf.data.embedded_corpus import gather_embedded_corpus
from bert_tf.data.example_shards import check_documents, read_receipt, write_shards
from bert_tf.data.splitmix import uniform
from bert_tf.data.tfrecords import list_record_files
from bert_tf.data.token_store import TokenStore, tokenize_corpus
from bert_tf.files import atomic_write
from bert_tf.processes import count_workers
from bert_tf.text.vocab import Vocab
from bert_tf.text.vocab_training import train_vocab_on_parts

PIECES_PER_SHARD = 1 << 19
MAX_SHARDS = 256  # readers keep all files open
HELD_OUT_STREAM = 0x68656C64  # parts this draw from the others of the same seed
MANIFEST = "manifest.json"


class PreparedData(NamedTuple):
    """Ready input of pre-training.

    Attributes:
      train_files, eval_files: TFRecord files; no eval_files if nothing is to be held out.
      vocab_file: the vocabulary of their ids; "" if TFRecords came without one.
    """

    train_files: list[str]
    eval_files: list[str]
    vocab_file: str


def prepare_pretraining_data(
    data: DataConfig,
    masking: MaskingConfig,
    *,
    vocab_size: int,
    do_lower_case: bool,
    cache_dir: str,
) -> PreparedData:
    """Makes what is missing between the input and TFRecord files.

    Args:
      data: input and rules; an empty input_file means the embedded corpus.
      masking: how pieces are masked; only static masks are drawn here.
      vocab_size: size of a vocabulary that is to be trained, and the most a given one may have.
      do_lower_case: casing of the vocabulary and the tokenizer.
      cache_dir: where everything is kept.

    Raises:
      ValueError: if the input is missing, empty, of mixed kinds, or too small.
    """
    cache = pathlib.Path(cache_dir)
    with _locked(cache):
        input_file = data.input_file or str(_embedded_corpus(cache))
        parts = list_parts(input_file, data.input_format, data.text_field)
        if _are_records(parts):
            return _use_records(data, parts)
        vocab_file = data.vocab_file or str(
            _trained_vocabulary(cache, parts, vocab_size, do_lower_case, data.num_workers)
        )
        if len(Vocab.read(vocab_file)) > vocab_size:
            raise ValueError(
                f"{vocab_file} has {len(Vocab.read(vocab_file))} pieces, but the model's "
                f"vocab_size is {vocab_size}; pass --vocab_size or another --vocab_file."
            )
        store = _tokens(cache, parts, vocab_file, do_lower_case, data.num_workers)
        train, held_out = np.arange(store.num_documents), np.arange(0)
        if not data.eval_file:
            train, held_out = split_documents(store.num_documents, data)
        train_files = _examples(
            cache, "train", store, train, vocab_file, passes(data, masking), data, masking
        )
        if not data.eval_file:
            eval_files = train_files if len(held_out) == store.num_documents else []
            if len(held_out) and not eval_files:
                eval_files = _examples(cache, "eval", store, held_out, vocab_file, 1, data, masking)
            return PreparedData(train_files, eval_files, vocab_file)
        eval_parts = list_parts(data.eval_file, data.input_format, data.text_field)
        if _are_records(eval_parts):
            eval_files = _record_paths(eval_parts)
        else:
            store = _tokens(cache, eval_parts, vocab_file, do_lower_case, data.num_workers)
            everything = np.arange(store.num_documents)
            eval_files = _examples(cache, "eval", store, everything, vocab_file, 1, data, masking)
        return PreparedData(train_files, eval_files, vocab_file)


def passes(data: DataConfig, masking: MaskingConfig) -> int:
    """Returns how often each document is used: once, unless masks are drawn beforehand."""
    return data.dupe_factor if masking.masking == "static" else 1


def split_documents(num_documents: int, data: DataConfig) -> tuple[np.ndarray, np.ndarray]:
    """Returns the documents for training and those held out, int64 each, ascending.

    A document is held out if its hash falls below eval_fraction; pairs need two documents on
    each side, so two are held out at least. With too few for that, both sets are all documents.
    """
    documents = np.arange(num_documents)
    if not data.eval_fraction:
        return documents, documents[:0]
    fewest = 2 if data.use_next_sentence else 1
    if num_documents < 2 * fewest:
        logging.warning(
            "%d documents are too few to hold some out: the evaluation sees the training data.",
            num_documents,
        )
        return documents, documents
    draws = uniform(data.random_seed, HELD_OUT_STREAM, documents)
    count = max(fewest, int((draws < data.eval_fraction).sum()))
    count = min(count, num_documents - fewest)
    is_held_out = np.zeros(num_documents, bool)
    is_held_out[draws.argsort(kind="stable")[:count]] = True
    return documents[~is_held_out], documents[is_held_out]


def write_examples(
    output_files: Sequence[pathlib.Path],
    data: DataConfig,
    masking: MaskingConfig,
    *,
    do_lower_case: bool,
) -> dict[str, Any]:
    """Makes all examples of a corpus in files of the user's choice; a killed run is taken up.

    Pieces and receipts lie in a hidden folder beside the first file until all is done; then
    `manifest.json` is written there. If it says that these very files are made, they are kept.

    Args:
      output_files: one TFRecord file a shard.
      data: input, vocab_file and rules.
      masking: static masks are drawn here, others when the examples are read.
      do_lower_case: casing of the tokenizer.

    Returns:
      The manifest: key, parameters, totals and a record a file.

    Raises:
      ValueError: if the input is missing, empty or too small.
    """
    folder, name = output_files[0].parent, output_files[0].name
    parts = list_parts(data.input_file, data.input_format, data.text_field)
    parameters = {
        **_rules(data, masking),
        "passes": passes(data, masking),
        "do_lower_case": do_lower_case,
        "vocabulary": _file_hash(data.vocab_file),
        "input": _describe_parts(parts),
        "output": [str(path) for path in output_files],
    }
    key, manifest_file = _key(parameters), folder / MANIFEST
    if manifest_file.exists():
        manifest = json.loads(manifest_file.read_text(encoding="utf8"))
        sizes = [path.stat().st_size if path.exists() else -1 for path in output_files]
        if manifest.get("key") == key and [f["bytes"] for f in manifest["files"]] == sizes:
            logging.info("%s says that these examples are made already.", manifest_file)
            return manifest
    work = folder / f".{name}.{key}.work"
    for stale in {*folder.glob(f".{name}.*.work")} - {work}:
        shutil.rmtree(stale)
    num_workers = count_workers(data.num_workers)
    store = tokenize_corpus(
        parts,
        work / "tokens",
        vocab_file=data.vocab_file,
        do_lower_case=do_lower_case,
        num_workers=num_workers,
    )
    files = write_shards(
        store,
        np.arange(store.num_documents),
        output_files,
        work,
        vocab_file=data.vocab_file,
        num_duplicates=passes(data, masking),
        data=data,
        masking=masking,
        num_workers=num_workers,
    )
    manifest = _write_manifest(manifest_file, key, parameters, store, files)
    shutil.rmtree(work)
    return manifest


# Steps ----------------------------------------------------------------------------------------


def _embedded_corpus(cache: pathlib.Path) -> pathlib.Path:
    path = cache / f"embedded-{bert_tf.__version__}.txt"
    logging.info(
        "No --input_file: taking the embedded corpus, the documentation of Python and of the "
        "installed packages (%s).",
        path,
    )
    return path if path.exists() else gather_embedded_corpus(path)


def _are_records(parts: Sequence[CorpusPart]) -> bool:
    formats = {part.format for part in parts}
    if "tfrecord" in formats and len(formats) > 1:
        raise ValueError(f"The input mixes TFRecords and text ({sorted(formats)}); give one kind.")
    return formats == {"tfrecord"}


def _record_paths(parts: Sequence[CorpusPart]) -> list[str]:
    return list(dict.fromkeys(str(part.path) for part in parts))


def _use_records(data: DataConfig, parts: Sequence[CorpusPart]) -> PreparedData:
    """Passes TFRecord files through; without eval_file the last of several is held out."""
    train_files = _record_paths(parts)
    if data.eval_file:
        eval_files = [str(path) for path in list_record_files(data.eval_file)]
    elif not data.eval_fraction:
        eval_files = []
    elif len(train_files) > 1:
        eval_files = [train_files.pop()]
        logging.info("No --eval_file: %s is held out of the training.", eval_files[0])
    else:
        eval_files = train_files
        logging.warning("One record file and no --eval_file: the evaluation sees training data.")
    return PreparedData(train_files, eval_files, data.vocab_file)


def _trained_vocabulary(
    cache: pathlib.Path,
    parts: Sequence[CorpusPart],
    vocab_size: int,
    do_lower_case: bool,
    num_workers: int,
) -> pathlib.Path:
    key = _key(
        {"input": _describe_parts(parts), "size": vocab_size, "do_lower_case": do_lower_case}
    )
    path = cache / f"vocabulary-{key}" / "vocab.txt"
    if not path.exists():
        logging.info("No --vocab_file: training a vocabulary of %d pieces.", vocab_size)
        tokens = train_vocab_on_parts(
            parts, read_documents, vocab_size, do_lower_case, count_workers(num_workers)
        )
        Vocab(tuple(tokens)).write(path)
    return path


def _tokens(
    cache: pathlib.Path,
    parts: Sequence[CorpusPart],
    vocab_file: str,
    do_lower_case: bool,
    num_workers: int,
) -> TokenStore:
    key = _key(
        {
            "input": _describe_parts(parts),
            "vocabulary": _file_hash(vocab_file),
            "do_lower_case": do_lower_case,
        }
    )
    return tokenize_corpus(
        parts,
        cache / f"tokens-{key}",
        vocab_file=vocab_file,
        do_lower_case=do_lower_case,
        num_workers=count_workers(num_workers),
    )


def _examples(
    cache: pathlib.Path,
    name: str,
    store: TokenStore,
    documents: np.ndarray,
    vocab_file: str,
    num_duplicates: int,
    data: DataConfig,
    masking: MaskingConfig,
) -> list[str]:
    """Makes one set of examples in a folder of the cache and returns its files."""
    check_documents(len(documents), 1, data.use_next_sentence)
    parameters = {
        **_rules(data, masking),
        "passes": num_duplicates,
        "tokens": store.paths[0].parent.name,
        "documents": hashlib.sha256(np.asarray(documents, "<i8").tobytes()).hexdigest(),
    }
    key = _key(parameters)
    folder = cache / f"{name}-{key}"
    share = store.num_pieces * len(documents) / store.num_documents
    count = min(MAX_SHARDS, len(documents), 1 + int(share / PIECES_PER_SHARD))
    paths = [folder / f"{name}-{i:05d}-of-{count:05d}.tfrecord" for i in range(count)]
    if not (folder / MANIFEST).exists() or any(
        read_receipt(folder / "receipts", number, path) is None for number, path in enumerate(paths)
    ):
        files = write_shards(
            store,
            documents,
            paths,
            folder / "receipts",
            vocab_file=vocab_file,
            num_duplicates=num_duplicates,
            data=data,
            masking=masking,
            num_workers=count_workers(data.num_workers),
        )
        _write_manifest(folder / MANIFEST, key, parameters, store, files)
    return [str(path) for path in paths]


# Keys -----------------------------------------------------------------------------------------


def _rules(data: DataConfig, masking: MaskingConfig) -> dict[str, Any]:
    """Returns the parameters that the content of examples depends on."""
    names = ["max_seq_length", "short_seq_prob", "random_seed", "use_next_sentence"]
    rules = {name: getattr(data, name) for name in names}
    rules["masking"] = "static" if masking.masking == "static" else "dynamic"
    return rules | (masking.to_dict() if masking.masking == "static" else {})


def _describe_parts(parts: Sequence[CorpusPart]) -> list[list[Any]]:
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


def _file_hash(path: str) -> str:
    with pathlib.Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _key(values: dict[str, Any]) -> str:
    text = json.dumps([bert_tf.__version__, values], sort_keys=True)
    return hashlib.sha256(text.encode("utf8")).hexdigest()[:12]


def _write_manifest(
    path: pathlib.Path,
    key: str,
    parameters: dict[str, Any],
    store: TokenStore,
    files: list[dict[str, Any]],
) -> dict[str, Any]:
    corpus = {"documents": store.num_documents, "tokens": store.num_pieces}
    totals = {name: sum(file[name] for file in files) for name in ("examples", "tokens", "bytes")}
    manifest = {"key": key, "parameters": parameters, "corpus": corpus, **totals, "files": files}
    with atomic_write(path) as file:
        json.dump(manifest, file, indent=1)
    return manifest


@contextlib.contextmanager
def _locked(folder: pathlib.Path) -> Iterator[None]:
    """Lets one process at a time work in a folder; the system frees the lock of a killed one."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            logging.info("Another process prepares data in %s; waiting for it.", folder)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
