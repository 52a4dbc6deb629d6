"""Exact search over the token vectors of documents, in float16 or int8.

    index = TokenIndex.of(model.encode_documents(texts), dtype="int8")
    scores, rows = index.search(model.encode_queries(queries), k=10)

An int8 vector is its values times a scale, the largest number of the vector divided by 127. Scores
are computed in float32: the first search decodes the vectors, if they fit in `MOST_DECODED` bytes;
each search of a larger index decodes a part of the documents after the other.
"""

import dataclasses
import functools
import itertools
import json
import math
import os
import pathlib
import zipfile
from collections.abc import Sequence
from typing import Self

import numpy as np

from bert_tf.checkpoints.token_vectors import check_types
from bert_tf.metrics.candidates import best_of_queries, check_k
from bert_tf.metrics.maxsim import MAXSIM, TokenMatrix, maxsim
from bert_tf.system.bounded_files import open_zip
from bert_tf.system.files import atomic_write
from bert_tf.system.printable import first_line

DTYPES = ("float16", "int8")
HIGHEST = 65504.0  # of float16
MOST_DECODED = 1 << 30  # bytes


@dataclasses.dataclass(frozen=True)
class TokenOrigin:
    """The model that made token vectors, and its settings.

    Args:
      source: path of the model; "": not known.
      model: fingerprint of the model; "": not known.
      max_seq_length: tokens that documents were cut to; 0: not known.
      pool_factor, protected_tokens: see `LateInteractionAnswers.encode_documents`.
    """

    source: str = ""
    model: str = ""
    max_seq_length: int = 0
    pool_factor: float = 1.0
    protected_tokens: int = 1

    def __post_init__(self) -> None:
        check_types(self)


class TokenIndex:
    """The token vectors of N documents, in the order in which they were given.

    Args:
      vectors: float16 or int8 [T, D].
      starts: int64 [N + 1], see `TokenMatrix`.
      scales: float32 [T], factors of int8 vectors; ones for float16.
      ids: names of the documents, which a search returns; (): their rows.
      texts: texts of the documents, to show and to rerank them; (): not stored.
      origin: how the vectors were made.

    Raises:
      ValueError: if the arrays do not belong together.
    """

    def __init__(
        self,
        vectors: np.ndarray,
        starts: np.ndarray,
        scales: np.ndarray,
        ids: Sequence[str] = (),
        texts: Sequence[str] = (),
        origin: TokenOrigin = TokenOrigin(),
    ) -> None:
        has_order = starts.ndim == 1 and len(starts) > 0 and bool((np.diff(starts) >= 0).all())
        ends = has_order and starts[0] == 0 and starts[-1] == len(vectors)
        if vectors.ndim != 2 or vectors.dtype.name not in DTYPES or not ends:
            raise ValueError(
                f"vectors are {vectors.dtype} {list(vectors.shape)} and starts {list(starts.shape)}"
                f"; expected [T, D] of {' or '.join(DTYPES)}, and starts that rise from 0 to T."
            )
        if scales.shape != (len(vectors),):
            raise ValueError(f"scales are {list(scales.shape)}, expected [{len(vectors)}].")
        if len(ids) not in (0, len(starts) - 1) or len(set(ids)) < len(ids):
            raise ValueError(
                f"There are {len(set(ids))} different ids of {len(ids)} for {len(starts) - 1} "
                "documents; give each document its own, or none."
            )
        if len(texts) not in (0, len(starts) - 1):
            raise ValueError(f"There are {len(texts)} texts of {len(starts) - 1} documents.")
        self.vectors = vectors
        self.starts = starts
        self.scales = scales
        self.ids = list(ids) or list(map(str, range(len(self))))
        self.texts = list(texts)
        self.origin = origin

    @classmethod
    def of(
        cls,
        documents: Sequence[np.ndarray],
        dtype: str = "float16",
        ids: Sequence[str] = (),
        texts: Sequence[str] = (),
        origin: TokenOrigin = TokenOrigin(),
    ) -> Self:
        """Makes an index of the vectors of documents, float32 [t, D] each.

        Raises:
          ValueError: if a vector contains numbers that are not finite, or beyond `HIGHEST`.
        """
        if dtype not in DTYPES:
            raise ValueError(f"dtype is {dtype!r}, expected {' or '.join(DTYPES)}.")
        joined = TokenMatrix.of(documents)
        largest = np.abs(joined.vectors).max(axis=1, initial=0)
        if not (largest <= HIGHEST).all():
            raise ValueError(
                f"The vectors have numbers up to {largest.max()}, expected at most {HIGHEST:g}."
            )
        scales = np.ones([len(joined.vectors)], np.float32)
        values = joined.vectors
        if dtype == "int8":
            scales[largest > 0] = largest[largest > 0] / np.float32(127)
            values = np.rint(values / scales[:, None])
        return cls(values.astype(dtype), joined.starts, scales, ids, texts, origin)

    @classmethod
    def joined(cls, parts: Sequence["TokenIndex"]) -> Self:
        """Makes an index of the documents of indexes, whose dtype and origin are the same."""
        parts = [part for part in parts if len(part)]
        lengths = np.concatenate([np.diff(part.starts) for part in parts])
        return cls(
            np.concatenate([part.vectors for part in parts]),
            np.cumsum([0, *lengths], dtype=np.int64),
            np.concatenate([part.scales for part in parts]),
            list(itertools.chain.from_iterable(part.ids for part in parts)),
            list(itertools.chain.from_iterable(part.texts for part in parts)),
            parts[-1].origin,
        )

    def without(self, rows: Sequence[int]) -> "TokenIndex":
        """Returns an index without the documents of these rows."""
        is_kept = np.ones(len(self), bool)
        is_kept[list(rows)] = False
        lengths = np.diff(self.starts)
        has_token = np.repeat(is_kept, lengths)  # [T]
        return TokenIndex(
            self.vectors[has_token],
            np.cumsum([0, *lengths[is_kept]], dtype=np.int64),
            self.scales[has_token],
            list(itertools.compress(self.ids, is_kept)),
            list(itertools.compress(self.texts, is_kept)),
            self.origin,
        )

    def __len__(self) -> int:
        return len(self.starts) - 1

    def text(self, row: int) -> str:
        """Returns the text of a document; "" if the index stores no texts."""
        return self.texts[row] if self.texts else ""

    def score(self, queries: Sequence[np.ndarray], similarity: str = MAXSIM[0]) -> np.ndarray:
        """Scores all documents, float32 [Q, N]; a query is float32 [t, D].

        Raises:
          ValueError: if a query has vectors of another size.
        """
        size = self.vectors.shape[1]
        wrong = [query.shape for query in queries if query.ndim != 2 or query.shape[1] != size]
        if wrong and len(self.vectors):
            raise ValueError(
                f"A query has the shape {list(wrong[0])}, but the index has vectors of {size} "
                "numbers: both must come from one model."
            )
        return maxsim(queries, self._matrix, similarity)

    @functools.cached_property
    def _matrix(self) -> TokenMatrix:
        """The vectors to compare, which are decoded once if they fit in memory."""
        scales = self.scales if self.vectors.dtype == np.int8 else None
        matrix = TokenMatrix(self.vectors, self.starts, scales)
        if 4 * self.vectors.size > MOST_DECODED:
            return matrix
        return matrix.with_decoded()

    def search(
        self, queries: Sequence[np.ndarray], k: int, similarity: str = MAXSIM[0]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns the k best documents of each query: scores float32 and rows int64, both [Q, k].

        Of equal scores the lower row comes first.

        Raises:
          ValueError: if k is not 1 .. N, or a query has vectors of another size.
        """
        check_k(k, len(self))
        return best_of_queries(self.score(queries, similarity), k)

    def save(self, path: str | os.PathLike) -> None:
        """Writes the index into a file, atomically."""
        origin = {"texts": self.texts, **dataclasses.asdict(self.origin)}
        with atomic_write(pathlib.Path(path), "wb") as file:
            np.savez(
                file,
                vectors=self.vectors,
                starts=self.starts,
                scales=self.scales,
                ids=np.array(self.ids, np.str_),
                # An array of strings would have the longest text's length for each.
                origin=np.frombuffer(json.dumps(origin).encode(), np.uint8),
            )

    @classmethod
    def load(cls, path: str | os.PathLike) -> Self:
        """Reads a file that `save` wrote; ValueError if it is not one."""
        path = pathlib.Path(path).expanduser()
        try:
            with open_zip(path) as archive:
                for info in archive.infolist():
                    _check_array(archive, info, path.stat().st_size)
            # NumPy leaves a file open that it cannot read.
            with path.open("rb") as file, np.load(file) as arrays:
                ids = np.asarray(arrays.get("ids", ())).tolist()
                origin = json.loads(arrays["origin"].tobytes()) if "origin" in arrays else {}
                texts = origin.pop("texts", ())
                parts = arrays["vectors"], arrays["starts"], arrays["scales"]
                return cls(*parts, ids, texts, TokenOrigin(**origin))
        # Headers decide which error they lead to.
        except Exception as error:
            raise ValueError(f"{path} is no index of token vectors: {first_line(error)}.") from None


def _check_array(archive: zipfile.ZipFile, info: zipfile.ZipInfo, most: int) -> None:
    """Raises ValueError if an array of a file is compressed or has more bytes than the file."""
    with archive.open(info) as member:
        version = np.lib.format.read_magic(member)
        shape, _, dtype = np.lib.format.read_array_header_1_0(member)
    size = math.prod(shape) * dtype.itemsize
    if version != (1, 0) or info.compress_type != zipfile.ZIP_STORED or size > most:
        raise ValueError(f"{info.filename} is compressed, or larger than the file")
