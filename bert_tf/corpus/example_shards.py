"""Writes examples of a tokenised corpus to TFRecord files ("shards") in several processes.

The documents are shuffled and distributed over the shards. The content of a shard is a pure
function of its documents and the configuration, so neither the number of processes nor a restart
changes a byte, and finished shards are not made again.
"""

import dataclasses
import functools
import json
import pathlib
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from absl import logging

from bert_tf.config import DataConfig, MaskingConfig
from bert_tf.corpus.sentence_pairs import (
    SentencePair,
    document_generator,
    full_sentences,
    sentence_pairs,
)
from bert_tf.corpus.splitmix import hash64
from bert_tf.corpus.static_masks import mask_rows
from bert_tf.corpus.tfrecords import encode_examples, open_records
from bert_tf.corpus.token_store import TokenStore
from bert_tf.system.bounded_arrays import map_array
from bert_tf.system.checksums import file_sha256
from bert_tf.system.files import atomic_write, write_json
from bert_tf.system.processes import count_workers, map_in_processes
from bert_tf.system.progress import Progress
from bert_tf.text.packing import num_special_tokens
from bert_tf.text.tokenization import AnyVocab, read_vocab

# Examples are shuffled in blocks of so many tokens, which bounds the memory of a worker.
TOKENS_PER_BLOCK = 1 << 20
MAX_CUT_SHARE = 0.01  # The share of all tokens that may be left out without a warning.


@dataclasses.dataclass(frozen=True)
class ShardTask:
    """The task of writing one shard."""

    token_files: tuple[pathlib.Path, ...]  # the tokenised corpus
    # int64 [n] (.npy), all documents of the set (training or evaluation), in random order; random
    # partners come from these.
    documents_file: pathlib.Path
    # The shard's range of these documents.
    first: int
    last: int
    path: pathlib.Path  # the file to write
    marker: pathlib.Path  # the JSON file to write when the shard is finished
    # The configuration; `data` names the vocabulary.
    data: DataConfig
    masking: MaskingConfig


def write_shards(
    store: TokenStore,
    documents: np.ndarray,
    paths: Sequence[pathlib.Path],
    markers: pathlib.Path,
    data: DataConfig,
    masking: MaskingConfig,
) -> list[dict[str, Any]]:
    """Writes the shards that are not finished.

    Args:
      documents: int64 [n], the documents to use, also as random partners.
      markers: folder of the done markers, one per finished shard; it must not be used with another
        store, other documents or another configuration.
      data, masking: the configuration; `data.vocab_file` is the vocabulary of the store.

    Returns:
      One record per shard: file, bytes, sha256, documents, examples, tokens.

    Raises:
      ValueError: if there are too few documents for pairs or for the shards.
    """
    tasks = plan_shards(store.paths, documents, paths, markers, data, masking)
    if data.use_next_sentence:
        num_special = num_special_tokens(True, read_vocab(data.vocab_file).num_separators)
        _warn_of_long_sentences(store, data.max_seq_length, num_special)
    progress = Progress("making examples", total=len(tasks), unit="files")
    num_workers = count_workers(data.num_workers)
    for record in map_in_processes(write_shard, [(task,) for task in tasks], num_workers):
        progress.add(documents=record["documents"], tokens=record["tokens"])
    records = [read_done_record(markers, number, path) for number, path in enumerate(paths)]
    if None in records:
        raise OSError(f"{paths[records.index(None)]} has disappeared; run the same command again.")
    return list(filter(None, records))


def passes(data: DataConfig, masking: MaskingConfig) -> int:
    """Returns the number of passes over the documents: 1, unless masks are static."""
    return data.dupe_factor if masking.masking == "static" else 1


def plan_shards(
    token_files: Sequence[pathlib.Path],
    documents: np.ndarray,
    paths: Sequence[pathlib.Path],
    markers: pathlib.Path,
    data: DataConfig,
    masking: MaskingConfig,
) -> list[ShardTask]:
    """Shuffles the documents, distributes them and returns the tasks of unfinished shards.

    Arguments and errors are those of `write_shards`.
    """
    check_documents(len(documents), len(paths), data.use_next_sentence)
    # Each document has its hash: more documents do not reorder the others.
    order = hash64(data.random_seed, documents).argsort(kind="stable")
    documents_file = markers / "documents.npy"
    _open.cache_clear()  # The files of an earlier call may have been written again.
    with atomic_write(documents_file, "wb") as file:
        np.save(file, np.asarray(documents, np.int64)[order])
    # Contiguous ranges of the shuffled documents, of equal size up to rounding.
    limits = np.linspace(0, len(documents), len(paths) + 1).astype(np.int64).tolist()
    tasks = []
    for number, path in enumerate(paths):
        if read_done_record(markers, number, path) is not None:
            continue
        task = ShardTask(
            token_files=tuple(token_files),
            documents_file=documents_file,
            first=limits[number],
            last=limits[number + 1],
            path=path,
            marker=marker_path(markers, number),
            data=data,
            masking=masking,
        )
        tasks.append(task)
    return tasks


def _warn_of_long_sentences(store: TokenStore, max_seq_length: int, num_special: int) -> None:
    """Warns if pairs truncate many sentences, as google-research/bert's program also does."""
    cut = store.count_cut(max_seq_length - num_special)
    if cut > MAX_CUT_SHARE * store.num_tokens:
        logging.warning(
            "%s of %s tokens are left out, because their sentences are longer than "
            "--max_seq_length=%d. Put each sentence on its own line, let --input_format=prose find "
            "sentence ends, or use whole texts with --pairs=none.",
            f"{cut:,}",
            f"{store.num_tokens:,}",
            max_seq_length,
        )


def check_documents(num_documents: int, num_shards: int, use_next_sentence: bool) -> None:
    """Raises ValueError if there are too few documents for pairs and shards."""
    if use_next_sentence and num_documents < 2:
        raise ValueError(
            f"Next sentence prediction needs at least 2 documents, received {num_documents}: "
            f"separate documents by blank lines, give more of them, or pass "
            f"--pairs=none."
        )
    if num_documents < num_shards:
        raise ValueError(
            f"{num_documents} documents cannot fill {num_shards} files; name fewer in "
            "--output_file, or pass a smaller --num_shards."
        )


def marker_path(markers: pathlib.Path, number: int) -> pathlib.Path:
    """Returns the path of a shard's done marker."""
    return markers / f"shard-{number:05d}.json"


def read_done_record(
    markers: pathlib.Path, number: int, path: pathlib.Path
) -> dict[str, Any] | None:
    """Returns the record in a shard's done marker, or None if the shard is not finished."""
    marker = marker_path(markers, number)
    if not (marker.exists() and path.exists()):
        return None
    record = json.loads(marker.read_text(encoding="utf8"))
    # Another size: the file was truncated or replaced after it was finished.
    if record["bytes"] == path.stat().st_size:
        return record
    return None


@functools.lru_cache(maxsize=8)
def _open(
    token_files: tuple[pathlib.Path, ...],
    vocab_file: str,
    documents_file: pathlib.Path,
    thread: int,
) -> tuple[TokenStore, AnyVocab, np.ndarray]:
    """Opens the store, the vocabulary and the list of documents, once per thread.

    A store opens and closes files as it is read: threads of a Beam worker must not share one.
    """
    # Mapped, as all workers read the same list; a plain array is faster to index than np.memmap.
    documents = map_array(documents_file).view(np.ndarray)
    return TokenStore(token_files), read_vocab(vocab_file), documents


def write_shard(task: ShardTask) -> dict[str, Any]:
    """Writes one shard and its done marker, and returns the record; runs in a worker."""
    store, vocab, documents = _open(
        task.token_files, task.data.vocab_file, task.documents_file, threading.get_ident()
    )
    rows = Rows(task, store.token_type, vocab)
    record: dict[str, Any] = {"file": task.path.name, "documents": task.last - task.first}
    record |= {"examples": 0, "tokens": 0}
    with open_records(task.path) as write:
        for examples, num_tokens in rows.blocks(shard_sequences(task, store, vocab, documents)):
            for example in examples:
                write(example)
            record["examples"] += len(examples)
            record["tokens"] += num_tokens
    record |= {"bytes": task.path.stat().st_size, "sha256": file_sha256(task.path)}
    # The marker is written last: a shard without one was interrupted and is made again.
    write_json(task.marker, record)
    return record


def shard_sequences(
    task: ShardTask, store: TokenStore, vocab: AnyVocab, documents: np.ndarray
) -> Iterator[tuple[int, int, int, SentencePair]]:
    """Yields (duplicate, document, number in the document, pair) of a shard's sequences.

    Full sentences may come from several documents; their document is the shard's first one.
    """
    data = task.data
    shard_documents = documents[task.first : task.last]
    for duplicate in range(passes(data, task.masking)):
        if not data.use_next_sentence:
            # No duplicate numbers enter here: passes differ only in their masks.
            sequences = full_sentences(
                store, shard_documents, max_seq_length=data.max_seq_length, sep_id=vocab.sep_id
            )
            for number, sequence in enumerate(sequences):
                yield duplicate, int(shard_documents[0]), number, sequence
            continue
        for index in range(task.first, task.last):
            document = int(documents[index])
            pairs = sentence_pairs(
                store,
                documents,
                index,
                document_generator(data.random_seed, duplicate, document),
                max_seq_length=data.max_seq_length,
                short_seq_prob=data.short_seq_prob,
                num_separators=vocab.num_separators,
                swaps=data.sentence_order,
            )
            for number, pair in enumerate(pairs):
                yield duplicate, document, number, pair


class Rows:
    """Collects sequences in arrays and serializes them as examples, block by block.

    The special tokens, the number of separators and the type ids are those of the vocabulary, and
    the same in fine-tuning.
    """

    def __init__(self, task: ShardTask, token_type: np.dtype, vocab: AnyVocab) -> None:
        length = task.data.max_seq_length
        self._task = task
        self._vocab = vocab
        self._capacity = max(1, TOKENS_PER_BLOCK // length)
        self._ids = np.zeros((self._capacity, length), token_type)
        self._lengths = np.zeros((self._capacity, 2), np.int64)  # up to the first [SEP]; of all
        self._labels = np.zeros((self._capacity, 1), np.int64)
        self._origins = np.zeros((self._capacity, 3), np.int64)  # duplicate, document, number

    def blocks(
        self, sequences: Iterator[tuple[int, int, int, SentencePair]]
    ) -> Iterator[tuple[list[bytes], int]]:
        """Yields (shuffled examples, number of their tokens) for each block."""
        block = count = 0
        cls_id = self._vocab.cls_id
        sep_id = self._vocab.sep_id
        start_a = self._vocab.text_start
        between = self._vocab.num_separators - 1
        for *origin, (ids_a, ids_b, is_random_next) in sequences:
            # [CLS] a [SEP] b [SEP] [PAD] ..., with two [SEP] in the middle for RoBERTa; XLNet's
            # class token is at the end instead of the start. Each block overwrites the same arrays.
            row = self._ids[count]
            end_a = start_a + len(ids_a) + 1
            end = end_a
            row[:start_a] = cls_id
            row[start_a : end_a - 1] = ids_a
            row[end_a - 1] = sep_id
            if len(ids_b):
                start_b = end_a + between
                end = start_b + len(ids_b) + 1
                row[end_a:start_b] = sep_id
                row[start_b : end - 1] = ids_b
                row[end - 1] = sep_id
            if self._vocab.class_at_end:
                row[end] = cls_id
                end += 1
            row[end:] = self._vocab.pad_id
            # Types and masks follow from the two lengths, for the whole block at once.
            self._lengths[count] = end_a, end
            self._labels[count] = is_random_next
            self._origins[count] = origin
            count += 1
            if count == self._capacity:
                yield self._encode(count, block), int(self._lengths[:count, 1].sum())
                block += 1
                count = 0
        if count:
            yield self._encode(count, block), int(self._lengths[:count, 1].sum())

    def _encode(self, count: int, block: int) -> list[bytes]:
        """Returns the first `count` rows as shuffled examples."""
        task = self._task
        seed = task.data.random_seed
        # Seeded with the shard's first document and the block, so a restart gives the same file.
        order = np.random.default_rng([seed, task.first, block]).permutation(count)
        ids = self._ids[order]  # [n, T]
        lengths = self._lengths[order]
        end_a = lengths[:, :1]  # [n, 1]
        end = lengths[:, 1:]  # [n, 1]
        positions = np.arange(ids.shape[1])
        # [n, T], 1 after the first [SEP]; 0 everywhere if the vocabulary has no second type.
        types = (positions >= end_a) & (positions < end) & bool(self._vocab.second_type)
        if self._vocab.class_at_end:
            types = np.where(positions == end - 1, self._vocab.class_type, types)
        masked_lm = {}
        if task.masking.masking == "static":
            # One key per sequence, from (seed, duplicate, document, number).
            keys = hash64(seed, *self._origins[order].T)
            masked = mask_rows(ids, lengths[:, 1], keys, task.masking, self._vocab)
            masked_lm = masked._asdict()
            ids = masked.ids
            del masked_lm["ids"]
        features = {
            "input_ids": ids,
            "input_mask": positions < end,
            "segment_ids": types,
            **masked_lm,
            "next_sentence_labels": self._labels[order],
        }
        return encode_examples(features)
