"""Finds duplicate documents of a tokenised corpus, which are left out.

Documents are compared by their tokens, so white space does not matter, nor do sentence ends, nor
case and accents in an uncased model.

  exact  an earlier document has the same tokens
  near   it shares with an earlier document 0.8 of all runs of five tokens that occur in
         either (Jaccard similarity of the sets of their shingles)

The first of several duplicates is kept, for any number of processes. Each document gets a few
64-bit keys, and only documents that share a key are compared. The key for exact duplicates is a
hash of all tokens; the keys for near duplicates are the hashes of 20 bands of 6 minima each. For
two documents with similarity s, the minima of a hash function are equal with probability s, so the
pair is compared with probability 1 - (1 - s**6)**20: 0.997 at 0.8, 0.27 at 0.5. The comparison uses
all tokens, so chance can keep a duplicate but never remove another document.

Reference: Broder 1997, "On the resemblance and containment of documents"; Leskovec, Rajaraman,
Ullman, "Mining of Massive Datasets", section 3.4 (bands).
"""

import hashlib
import pathlib
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from absl import logging

from bert_tf.corpus.splitmix import GAMMA, hash64, mix64
from bert_tf.corpus.token_store import TokenStore
from bert_tf.system.bounded_arrays import map_array
from bert_tf.system.files import atomic_write
from bert_tf.system.processes import map_in_processes
from bert_tf.system.progress import Progress

FORMS = ("none", "exact", "near")
SHINGLE = 5  # tokens, about four words
SIMILARITY = 0.8
BANDS = 20
ROWS = 6
KEYS_AT_ONCE = 1 << 22  # sorted in memory, at about 40 bytes each
SHINGLES_AT_ONCE = 1 << 11  # their hashes under all functions stay in the cache
# Each document is compared with at most so many others that share its key.
MAX_COMPARED = 16
# Odd: multiplication by them permutes 64-bit integers. These are the hash functions of MinHash.
MULTIPLIERS = hash64(np.arange(BANDS * ROWS)) | np.uint64(1)


class Comparison(NamedTuple):
    """How documents are compared."""

    num_keys: int  # keys a document
    keys: Callable[[np.ndarray], np.ndarray]  # tokens [n] -> uint64 [num_keys]
    # Tokens [n] -> the input of `is_same` for a document.
    traits: Callable[[np.ndarray], np.ndarray]
    # Two documents' traits -> whether they are duplicates.
    is_same: Callable[[np.ndarray, np.ndarray], bool]


def kept_documents(store: TokenStore, form: str, num_workers: int) -> np.ndarray:
    """Returns the documents that are not duplicates, int64 [n], ascending.

    Keys and result are stored in the folder of the token store and used again by later calls.
    `form` is one of `FORMS`.
    """
    if form == "none":
        return np.arange(store.num_documents)
    result = store.paths[0].with_name(f"kept.{form}.npy")
    if not result.exists():
        tasks = [(path, form) for path in store.paths if not key_file(path, form).exists()]
        progress = Progress(f"keys of {form} duplicates", total=len(tasks), unit="parts")
        for documents, tokens in map_in_processes(write_keys, tasks, num_workers):
            progress.add(documents=documents, tokens=tokens)
        duplicates = find_duplicates(store, form)
        logging.info(
            "Duplicates (%s): leaving out %d of %d documents.",
            form,
            len(duplicates),
            store.num_documents,
        )
        with atomic_write(result, "wb") as file:
            np.save(file, np.setdiff1d(np.arange(store.num_documents), duplicates, True))
    return map_array(result)


def key_file(token_file: pathlib.Path, form: str) -> pathlib.Path:
    """Returns the path of the keys for a file of the store: uint64 [num_keys, documents]."""
    return token_file.with_name(f"{token_file.name}.{form}")


def write_keys(token_file: pathlib.Path, form: str) -> tuple[int, int]:
    """Writes the keys of all documents of a file; returns the numbers of documents and tokens."""
    store = TokenStore([token_file])
    comparison = COMPARISONS[form]
    with atomic_write(key_file(token_file, form), "wb+") as file:
        if store.num_documents:
            shape = (comparison.num_keys, store.num_documents)
            keys = np.memmap(file, np.uint64, "w+", shape=shape)
            for document in range(store.num_documents):
                keys[:, document] = comparison.keys(store.document(document)[-1])
            keys.flush()
    return store.num_documents, store.num_tokens


def find_duplicates(store: TokenStore, form: str) -> np.ndarray:
    """Returns the documents to leave out, int64, ascending; the files of keys must exist."""
    comparison = COMPARISONS[form]
    is_duplicate = np.zeros(store.num_documents, bool)
    num_slices = 1 + store.num_documents // KEYS_AT_ONCE
    for number in range(comparison.num_keys):
        for part in range(num_slices):
            keys, documents = _read_keys(store, form, number, num_slices, part)
            # Duplicates that an earlier key found need no second comparison.
            is_left = ~is_duplicate[documents]
            for group in _equal_keys(keys[is_left], documents[is_left]):
                for document in _later_duplicates(store, group, comparison):
                    is_duplicate[document] = True
    return is_duplicate.nonzero()[0]


def _read_keys(
    store: TokenStore, form: str, number: int, num_slices: int, part: int
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the keys with this number that are in this slice of all keys, and their documents."""
    slice_keys = []
    slice_documents = []
    for path, first, count in store.spans():
        # Row `number` of the file's keys, [num_keys, documents].
        keys = np.fromfile(key_file(path, form), np.uint64, count, offset=8 * number * count)
        # Equal keys are in the same slice, so each slice can be sorted without the others.
        (rows,) = (keys % np.uint64(num_slices) == part).nonzero()
        slice_keys.append(keys[rows])
        slice_documents.append(first + rows)
    return np.concatenate(slice_keys), np.concatenate(slice_documents)


def _equal_keys(keys: np.ndarray, documents: np.ndarray) -> Iterator[list[int]]:
    """Yields, for each key that several documents share, these documents, ascending."""
    order = keys.argsort(kind="stable")
    keys = keys[order]
    documents = documents[order]
    # The inverted first key differs from it, so the first group also has a start.
    starts = np.flatnonzero(np.diff(keys, prepend=~keys[:1]))
    ends = np.append(starts[1:], len(keys))
    several = ends - starts > 1
    for start, end in zip(starts[several].tolist(), ends[several].tolist(), strict=True):
        yield documents[start:end].tolist()


def _later_duplicates(
    store: TokenStore, documents: list[int], comparison: Comparison
) -> Iterator[int]:
    """Yields the documents that duplicate an earlier, kept document of the list."""
    kept: list[np.ndarray] = []
    for document in documents:
        traits = comparison.traits(store.document(document)[-1])
        if any(comparison.is_same(other, traits) for other in kept):
            yield document
        # A limit, because a key that thousands share would need millions of comparisons.
        elif len(kept) < MAX_COMPARED:
            kept.append(traits)


# Comparisons ----------------------------------------------------------------------------------


def hash_tokens(tokens: np.ndarray) -> np.ndarray:
    """Returns a hash of all tokens, uint64 [1]."""
    digest = hashlib.blake2b(tokens.tobytes(), digest_size=8).digest()
    return np.frombuffer(digest, np.uint64)


def shingles(tokens: np.ndarray) -> np.ndarray:
    """Returns the unique hashes of all runs of five tokens, uint64 [m], ascending.

    Fewer than five tokens are a single run.
    """
    values = tokens.astype(np.uint64)
    count = max(1, len(values) - SHINGLE + 1)
    hashes = np.zeros(count, np.uint64)
    for start in range(min(SHINGLE, len(values))):
        # A polynomial in the token ids of each run; 1 is added because id 0 would have no effect.
        hashes = hashes * np.uint64(GAMMA) + values[start : start + count] + np.uint64(1)
    return np.unique(mix64(hashes))


def minimum_hashes(hashes: np.ndarray) -> np.ndarray:
    """Returns the least value of shingles [m] under each hash function, uint64 [BANDS * ROWS]."""
    minima = np.full(len(MULTIPLIERS), np.iinfo(np.uint64).max, np.uint64)
    for start in range(0, len(hashes), SHINGLES_AT_ONCE):
        # In blocks, because the products of all shingles would take gigabytes for a book.
        block = np.multiply.outer(MULTIPLIERS, hashes[start : start + SHINGLES_AT_ONCE])
        np.minimum(minima, block.min(axis=1), out=minima)
    return minima


def band_keys(tokens: np.ndarray) -> np.ndarray:
    """Returns one key per band, uint64 [BANDS]; keys are equal if all minima of the band are."""
    # [BANDS, ROWS]
    minima = minimum_hashes(shingles(tokens)).reshape(BANDS, ROWS)
    return hash64(*minima.T)


def similarity(a: np.ndarray, b: np.ndarray) -> float:
    """Returns the Jaccard similarity of two sets, ascending arrays without repetitions."""
    shared = len(np.intersect1d(a, b, assume_unique=True))
    return shared / (len(a) + len(b) - shared)


def is_similar(a: np.ndarray, b: np.ndarray) -> bool:
    """Returns whether two sets of shingles are those of near duplicates."""
    # Sets of unequal sizes cannot be similar: |a & b| / |a | b| <= min / max.
    if min(len(a), len(b)) < SIMILARITY * max(len(a), len(b)):
        return False
    return similarity(a, b) >= SIMILARITY


COMPARISONS = {
    "exact": Comparison(1, hash_tokens, lambda tokens: tokens, np.array_equal),
    "near": Comparison(BANDS, band_keys, shingles, is_similar),
}
