"""The corpus as token ids on disk: tokenised once by several processes, with random access.

There is one file per part of the corpus:

    tokens           uint16 or int32 [n], all sentences one after the other
    sentence bounds  int64 [s + 1], where each sentence begins, and n
    document bounds  int64 [d + 1], the first sentence of each document, and s
    footer           int64 [4]: bytes a token, n, s, d

Files are read with `pread` and not mapped, so that the memory of a process stays the same
whatever the size of the corpus.
"""

import array
import functools
import os
import pathlib
import shutil
import struct
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from typing import IO

import numpy as np

from bert_tf.corpus.corpus import CorpusPart, read_documents
from bert_tf.system.files import atomic_write
from bert_tf.system.processes import map_in_processes
from bert_tf.system.progress import Progress
from bert_tf.text.kinds import encode_sentences
from bert_tf.text.tokenization import Tokenizer, make_tokenizer, read_vocab

FOOTER = struct.Struct("<4q")
BOUND_BYTES = 8
TOKEN_TYPES: dict[int, np.dtype] = {2: np.dtype("<u2"), 4: np.dtype("<i4")}
FLUSH_TOKENS = 1 << 20
MAX_OPEN_FILES = 256


def token_type(vocab_size: int) -> np.dtype:
    """Returns the smallest stored type that holds the ids of a vocabulary."""
    return TOKEN_TYPES[2 if vocab_size <= 1 << 16 else 4]


def write_part(
    path: pathlib.Path, documents: Iterable[Iterable[list[int]]], token_bytes: int
) -> None:
    """Writes one file of the store; empty sentences and empty documents are skipped.

    Args:
      path: the file, which gets this name when it is complete.
      documents: documents of sentences of token ids.
      token_bytes: 2 or 4.
    """
    # Arrays, because a list of ints would take 8 bytes and more for each token.
    tokens = array.array("H" if token_bytes == 2 else "i")
    sentence_bounds = array.array("q", [0])
    document_bounds = array.array("q", [0])
    num_tokens = num_sentences = num_documents = 0
    with (
        atomic_write(path, "wb") as file,
        # Bounds come behind all tokens: they are kept here until the tokens are written.
        tempfile.TemporaryFile(dir=path.parent) as sentence_file,
        tempfile.TemporaryFile(dir=path.parent) as document_file,
    ):
        # Three buffers, each with its file; `_flush` empties them into it.
        outputs = (
            (tokens, file),
            (sentence_bounds, sentence_file),
            (document_bounds, document_file),
        )
        for document in documents:
            first_sentence = num_sentences
            for sentence in document:
                if sentence:
                    tokens.fromlist(sentence)
                    num_tokens += len(sentence)
                    num_sentences += 1
                    sentence_bounds.append(num_tokens)
            if num_sentences > first_sentence:
                num_documents += 1
                document_bounds.append(num_sentences)
            if len(tokens) >= FLUSH_TOKENS:
                _flush(outputs)
        _flush(outputs)
        for bounds in (sentence_file, document_file):
            bounds.seek(0)
            shutil.copyfileobj(bounds, file)
        file.write(FOOTER.pack(token_bytes, num_tokens, num_sentences, num_documents))


def _flush(outputs: Iterable[tuple[array.array, IO[bytes]]]) -> None:
    for values, file in outputs:
        values.tofile(file)
        del values[:]


class TokenStore:
    """The documents of all files of a store, numbered through all files.

    Attributes:
      num_documents, num_tokens: totals.
      token_type: the widest type of the files.

    Raises:
      ValueError: if a file is incomplete.
    """

    def __init__(self, paths: Sequence[str | os.PathLike]) -> None:
        self.paths = tuple(map(pathlib.Path, paths))
        footers = np.array(list(map(_read_footer, self.paths))).reshape(-1, 4)
        self._token_bytes = footers[:, 0].tolist()
        self._token_counts = footers[:, 1].tolist()
        self._sentence_counts = footers[:, 2].tolist()
        self._document_starts = np.cumsum([0, *footers[:, 3]])
        self.num_documents = int(self._document_starts[-1])
        self.num_tokens = sum(self._token_counts)
        self.token_type = TOKEN_TYPES[max(self._token_bytes, default=2)]
        self._descriptors: dict[int, int] = {}

    def spans(self) -> Iterator[tuple[pathlib.Path, int, int]]:
        """Yields each file with its first document and its number of documents."""
        starts = self._document_starts.tolist()
        yield from zip(self.paths, starts[:-1], np.diff(starts).tolist(), strict=True)

    def locate(self, document: int) -> tuple[int, int, int]:
        """Returns (file, first sentence, one past the last sentence) of a document."""
        file = int(self._document_starts.searchsorted(document, side="right")) - 1
        row = document - int(self._document_starts[file])
        # Behind the tokens and the s + 1 sentence bounds.
        offset = self._bounds_offset(file) + (self._sentence_counts[file] + 1 + row) * BOUND_BYTES
        first, last = self._read(file, offset, 2 * BOUND_BYTES).cast("q")
        return file, first, last

    def bounds(self, file: int, first: int, last: int) -> memoryview:
        """Returns the offsets of the sentences first..last-1 of a file, and the last one's end."""
        offset = self._bounds_offset(file) + first * BOUND_BYTES
        return self._read(file, offset, (last - first + 1) * BOUND_BYTES).cast("q")

    def tokens(self, file: int, start: int, end: int) -> np.ndarray:
        """Returns the tokens start..end-1 of a file."""
        size = self._token_bytes[file]
        return np.frombuffer(
            self._read(file, start * size, (end - start) * size), TOKEN_TYPES[size]
        )

    def count_cut(self, length: int) -> int:
        """Returns the number of tokens beyond the first `length` of their sentences."""
        cut = 0
        for file, count in enumerate(self._sentence_counts):
            for first in range(0, count, FLUSH_TOKENS):
                bounds = self.bounds(file, first, min(first + FLUSH_TOKENS, count))
                cut += int(np.maximum(np.diff(bounds) - length, 0).sum())
        return cut

    def document(self, document: int) -> tuple[int, memoryview, np.ndarray]:
        """Returns the file of a document, the bounds of its sentences in it, and its tokens."""
        file, first, last = self.locate(document)
        bounds = self.bounds(file, first, last)
        return file, bounds, self.tokens(file, bounds[0], bounds[-1])

    def close(self) -> None:
        """Closes the open files; reading opens them again."""
        while self._descriptors:
            os.close(self._descriptors.popitem()[1])

    def _bounds_offset(self, file: int) -> int:
        return self._token_counts[file] * self._token_bytes[file]

    def _read(self, file: int, offset: int, size: int) -> memoryview:
        if file not in self._descriptors:
            if len(self._descriptors) >= MAX_OPEN_FILES:
                # A corpus may have more parts than a process may open files.
                self.close()
            self._descriptors[file] = os.open(self.paths[file], os.O_RDONLY)
        return memoryview(os.pread(self._descriptors[file], size, offset))

    def __del__(self) -> None:
        # `__init__` may have raised before it set them.
        if hasattr(self, "_descriptors"):
            self.close()


def _read_footer(path: pathlib.Path) -> tuple[int, int, int, int]:
    size = path.stat().st_size
    with path.open("rb") as file:
        file.seek(max(0, size - FOOTER.size))
        footer = file.read()
    if len(footer) == FOOTER.size:
        token_bytes, tokens, sentences, documents = FOOTER.unpack(footer)
        # The two kinds of bounds have s + 1 and d + 1 values.
        expected = token_bytes * tokens + (sentences + documents + 2) * BOUND_BYTES + FOOTER.size
        if token_bytes in TOKEN_TYPES and size == expected:
            return token_bytes, tokens, sentences, documents
    raise ValueError(f"{path} is not a whole file of tokens; delete it and run again.")


@functools.lru_cache(maxsize=1)
def _tokenizer(vocab_file: str, do_lower_case: bool) -> Tokenizer:
    """Loads the tokenizer, once per process."""
    return make_tokenizer(read_vocab(vocab_file), do_lower_case)


def tokenize_part(
    part: CorpusPart, path: pathlib.Path, vocab_file: str, do_lower_case: bool
) -> pathlib.Path:
    """Tokenises one part of the corpus into one file of the store; runs in a worker."""
    tokenizer = _tokenizer(vocab_file, do_lower_case)
    encode = functools.partial(encode_sentences, tokenizer)
    documents = map(encode, read_documents(part))
    write_part(path, documents, token_type(len(tokenizer.vocab)).itemsize)
    return path


def tokenize_corpus(
    parts: Sequence[CorpusPart],
    folder: pathlib.Path,
    *,
    vocab_file: str,
    do_lower_case: bool,
    num_workers: int,
) -> TokenStore:
    """Tokenises the parts of a corpus that are not tokenised yet, and opens the result.

    Documents are numbered in the order of the parts. The folder must not be used with other parts,
    another vocabulary or another casing: a part with a file is not read again.

    Raises:
      ValueError: if there is no text.
    """
    folder.mkdir(parents=True, exist_ok=True)
    tasks = token_tasks(parts, folder, vocab_file, do_lower_case)
    tasks = [task for task in tasks if not task[1].exists()]
    progress = Progress("tokenising", total=len(tasks), unit="parts")
    for path in map_in_processes(tokenize_part, tasks, num_workers):
        _, tokens, _, documents = _read_footer(path)
        progress.add(documents=documents, tokens=tokens)
    return open_tokens(parts, folder)


def token_tasks(
    parts: Sequence[CorpusPart],
    folder: pathlib.Path,
    vocab_file: str | os.PathLike,
    do_lower_case: bool,
) -> list[tuple[CorpusPart, pathlib.Path, str, bool]]:
    """Returns the arguments of `tokenize_part` for all parts; see `tokenize_corpus`."""
    tasks = []
    for part, path in zip(parts, token_files(parts, folder), strict=True):
        tasks.append((part, path, str(vocab_file), do_lower_case))
    return tasks


def token_files(parts: Sequence[CorpusPart], folder: pathlib.Path) -> list[pathlib.Path]:
    """Returns the files of a tokenised corpus, one per part."""
    return [folder / f"part-{number:05d}.tokens" for number in range(len(parts))]


def open_tokens(parts: Sequence[CorpusPart], folder: pathlib.Path) -> TokenStore:
    """Opens a tokenised corpus; ValueError if it has no documents."""
    store = TokenStore(token_files(parts, folder))
    if not store.num_documents:
        names = sorted({str(part.path) for part in parts})
        raise ValueError(f"No text found in {names}; check --input_file and --input_format.")
    return store
