"""An open index: finds the nearest documents of queries. Its files are described in `index.py`."""

import itertools
import os
import pathlib
from collections.abc import Sequence

import numpy as np

from bert_tf.metrics.candidates import best_candidates
from bert_tf.metrics.exact import (
    CHUNK_ROWS,
    BestRows,
    query_groups,
    rescore,
    rounding_margin,
)
from bert_tf.search.manifest import Manifest, check_rescoring
from bert_tf.search.segments import prepared
from bert_tf.search.stored_vectors import StoredVectors
from bert_tf.search.strings import Strings
from bert_tf.system.bounded_arrays import map_array
from bert_tf.system.checksums import file_crcs

RESCORED = 4  # candidates per requested document


class StoredStrings(Sequence):
    """The strings of some of the documents, read one at a time.

    Args:
      segments: the strings of each segment.
      rows: the stored rows of the documents, int64 [n]; None: of all.
    """

    def __init__(self, segments: Sequence[Strings], rows: np.ndarray | None) -> None:
        self._segments = segments
        self._starts = np.cumsum([0, *map(len, segments)])
        self._rows = rows

    def __len__(self) -> int:
        return int(self._starts[-1]) if self._rows is None else len(self._rows)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    def __getitem__(self, index: int) -> str:  # type: ignore[override]
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        row = int(index) % len(self)
        if self._rows is not None:
            row = int(self._rows[row])
        # The last segment that starts at or before the row.
        segment = int(np.searchsorted(self._starts, row, "right")) - 1
        return self._segments[segment][row - int(self._starts[segment])]

    def __iter__(self):  # type: ignore[no-untyped-def]
        stored = itertools.chain.from_iterable(self._segments)
        if self._rows is None:
            return stored
        is_kept = np.zeros(int(self._starts[-1]), bool)
        is_kept[self._rows] = True
        return itertools.compress(stored, is_kept)


class Index:
    """An open index; vectors, ids and texts are memory-mapped.

    Documents are added and deleted while it is open without effect on it.

    Args:
      model: fingerprint of the model that embeds queries; "" skips the comparison.
      checks_files: whether to compare the checksum of every file; sizes are always compared.

    Attributes:
      manifest: the content of manifest.json.
      ids: the ids of all documents; a document's row is its index here.

    Raises:
      ValueError: if the folder is not an index, belongs to another model, or is damaged.
    """

    def __init__(
        self, folder: str | os.PathLike, model: str = "", checks_files: bool = True
    ) -> None:
        self.folder = pathlib.Path(folder).expanduser()
        while True:
            self.manifest = Manifest.read(self.folder)
            if model and self.manifest.model != model:
                raise ValueError(
                    f"{folder} was built with another model: its fingerprint is "
                    f"{self.manifest.model} (of {self.manifest.source}), this model's is {model}. "
                    "Search with the original model, or build the index again."
                )
            try:
                self._open(checks_files)
                return
            except (ValueError, OSError):
                # Files that another process has replaced meanwhile are not damaged.
                if Manifest.read(self.folder) == self.manifest:
                    raise

    def _open(self, checks_files: bool) -> None:
        """Maps the files that the manifest names."""
        manifest = self.manifest
        _check_files(self.folder, manifest, checks_files)
        ids = []
        texts = []
        self.segments: list[StoredVectors] = []
        self._vector_rows: np.ndarray | None = None  # of stored documents; None: their own rows
        vector_rows = []
        start = 0
        for number, count, vectors in zip(
            manifest.numbers, manifest.segments, manifest.vector_counts, strict=True
        ):
            ids.append(self.load_strings("ids", number))
            if manifest.has_texts:
                texts.append(self.load_strings("texts", number))
            self.segments.append(StoredVectors(self.folder, manifest, number, vectors))
            name = f"rows-{number:05}.npy"
            if name in manifest.files:
                vector_rows.append(map_array(self.folder / name))
            else:
                vector_rows.append(np.arange(start, start + count))
            start += vectors
        # The row of each segment's first vector, and the number of all vectors.
        self._starts = np.cumsum([0, *manifest.vector_counts])
        if any(f"rows-{number:05}.npy" in manifest.files for number in manifest.numbers):
            self._vector_rows = np.concatenate(vector_rows)
            self._check_vector_rows(self._vector_rows)
        self.deleted = np.zeros([0], np.int64)
        self._rows: np.ndarray | None = None
        if manifest.deleted_file:
            self.deleted = np.array(map_array(self.folder / manifest.deleted_file))
            self._rows = np.delete(np.arange(sum(manifest.segments)), self.deleted)
        self.ids = StoredStrings(ids, self._rows)
        self._texts = StoredStrings(texts, self._rows)
        self._find_documents()

    def _check_vector_rows(self, rows: np.ndarray) -> None:
        if (
            len(rows) != sum(self.manifest.segments)
            or not ((rows >= 0) & (rows < self._starts[-1])).all()
        ):
            raise ValueError(
                f"{self.folder} has documents without a vector; build the index again."
            )

    def _find_documents(self) -> None:
        """Finds the documents of each vector, where they are not the rows themselves."""
        self._is_dead: np.ndarray | None = None  # vectors of deleted documents alone
        if self._vector_rows is None and self._rows is None:
            return
        vector_rows = self.vector_rows(np.arange(len(self)))
        counts = np.bincount(vector_rows, minlength=int(self._starts[-1]))
        self._is_dead = counts == 0
        # The documents of vector v are _documents[_ends[v] - counts[v]:_ends[v]], ascending.
        self._documents = np.argsort(vector_rows, kind="stable")
        self._ends = np.cumsum(counts)

    def __len__(self) -> int:
        return len(self.ids)

    def stored_rows(self, rows: np.ndarray) -> np.ndarray:
        """Returns the rows of documents among all that are stored, deleted ones included."""
        return rows if self._rows is None else self._rows[rows]

    def vector_rows(self, rows: np.ndarray) -> np.ndarray:
        """Returns the rows of the vectors of documents."""
        stored = self.stored_rows(rows)
        return stored if self._vector_rows is None else self._vector_rows[stored]

    def text(self, row: int) -> str:
        """Returns the text of a document; "" if the index stores no texts."""
        return self._texts[row] if self.manifest.has_texts else ""

    def search(
        self, queries: np.ndarray, k: int, chunk_rows: int = CHUNK_ROWS, rescore_with: str = ""
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns the k most similar documents of each query.

        Args:
          queries: float [Q, D].
          chunk_rows: see `top_k`.
          rescore_with: copies that score the best 4 k vectors again: float32, int8 or none. "":
            the most exact ones of the index.

        Returns:
          scores float32 [Q, k], descending, and rows int64 [Q, k]; equal scores are ordered by row.
        """
        self.check_k(k)
        queries = self.as_queries(queries)
        scores, rows = self.search_vectors(queries, k, chunk_rows, rescore_with)
        if self._is_dead is None:
            return scores, rows
        found = [self._documents_of(*pair, k) for pair in zip(scores, rows, strict=True)]
        return np.stack([pair[0] for pair in found]), np.stack([pair[1] for pair in found])

    def _documents_of(
        self, scores: np.ndarray, rows: np.ndarray, k: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns the k best documents for vectors and their scores."""
        starts = np.where(rows > 0, self._ends[rows - 1], 0)
        documents = [
            self._documents[start:end] for start, end in zip(starts, self._ends[rows], strict=True)
        ]
        repeated = np.repeat(scores, list(map(len, documents)))
        best = best_candidates(repeated[None], np.concatenate(documents)[None], k)
        return best[0][0], best[1][0]

    def search_vectors(
        self, queries: np.ndarray, k: int, chunk_rows: int = CHUNK_ROWS, rescore_with: str = ""
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns scores and rows of the k best vectors, or of all that documents have.

        The arguments are those of `search`, with the result of `as_queries`.
        """
        check_rescoring(self.manifest, rescore_with)
        living = int(self._starts[-1])
        if self._is_dead is not None:
            living -= int(self._is_dead.sum())
        k = min(k, living)
        is_rounded = self.manifest.dtype in ("int8", "binary")
        # More candidates than k: rounding may change the order of near equals.
        wanted = min(living, RESCORED * k) if is_rounded and rescore_with != "none" else k
        scores = np.empty([len(queries), k], np.float32)
        rows = np.empty([len(queries), k], np.int64)
        for part in query_groups(len(queries)):
            best = self._scan(queries[part], wanted, chunk_rows)
            if is_rounded and rescore_with == "none":
                scores[part], rows[part] = best.best()
            else:
                found = rescore(queries[part], best.candidates(), k, self._restore)
                scores[part], rows[part] = found
        return scores, rows

    def _scan(self, queries: np.ndarray, wanted: int, chunk_rows: int) -> BestRows:
        """Scores all vectors, without their copies; returns the best ones."""
        margin = np.zeros(len(queries), np.float32)
        if self.manifest.dtype in ("float32", "float16"):
            sample = next(part for part in self.segments if len(part))
            margin = rounding_margin(queries, sample.arrays["vectors"])
        best = BestRows(wanted, margin)
        for segment, start in zip(self.segments, self._starts[:-1].tolist(), strict=True):
            if not len(segment):
                continue
            for first, scores in segment.scores(queries, chunk_rows):
                first += start
                if self._is_dead is not None:
                    scores[:, self._is_dead[first : first + scores.shape[1]]] = -np.inf
                best.add(scores, first)
        return best

    def check_k(self, k: int) -> None:
        """Raises ValueError if k is below 1 or above the number of documents."""
        if not 1 <= k <= len(self):
            raise ValueError(
                f"k is {k}; it must be between 1 and {len(self)}, the number of documents in "
                f"{self.folder}."
            )

    def as_queries(self, queries: np.ndarray) -> np.ndarray:
        """Returns queries prepared for the index's similarity, float32 [Q, D]."""
        queries = np.asarray(queries)
        size = self.manifest.model_dimension or self.manifest.dimension
        if queries.ndim != 2:
            raise ValueError(
                f"queries have shape {queries.shape}; expected [Q, {size}], one row per query."
            )
        if queries.shape[1] != size:
            raise ValueError(
                f"queries have shape {queries.shape}, but the vectors of {self.folder} have "
                f"{size} dimensions; both must come from one model."
            )
        if not np.isfinite(queries).all():
            bad = int(np.argmin(np.isfinite(queries).all(axis=1)))
            raise ValueError(
                f"Query {bad} contains numbers that are not finite; was its text embedded?"
            )
        return prepared(queries, self.manifest.similarity, self.manifest.dimension)

    def vectors(self, rows: np.ndarray) -> np.ndarray:
        """Returns the most exact vectors of documents, float32 [n, D].

        Raises:
          ValueError: naming the document, if its vector contains numbers that are not finite.
        """
        return self._restore(self.vector_rows(np.asarray(rows)))

    def _restore(self, rows: np.ndarray) -> np.ndarray:
        """Returns the vectors of vector rows; see `vectors`."""
        segments = np.searchsorted(self._starts, rows, "right") - 1
        vectors = np.empty([len(rows), self.manifest.dimension], np.float32)
        for i in np.unique(segments):
            in_segment = segments == i
            chosen = rows[in_segment] - self._starts[i]
            vectors[in_segment] = self.segments[i].restore(chosen, self.manifest.rescore)
        is_finite = np.isfinite(vectors).all(axis=1)
        if not is_finite.all():
            bad = int(rows[int(np.argmin(is_finite))])
            is_of_bad = self.vector_rows(np.arange(len(self))) == bad
            name = self.ids[int(np.argmax(is_of_bad))]
            raise ValueError(
                f"{self.folder}: the vector of document {name!r} contains numbers that are not "
                "finite; build the index again."
            )
        return vectors

    def load_strings(self, name: str, number: int) -> Strings:
        """Maps the ids or the texts of a segment."""
        count = self.manifest.segments[number - self.manifest.first_segment]
        values = Strings(self.folder, f"{name}-{number:05}")
        if len(values) != count:
            raise ValueError(
                f"{self.folder / name}-{number:05} has {len(values)} strings, but the manifest "
                f"says {count} documents; build the index again."
            )
        return values


def _check_files(folder: pathlib.Path, manifest: Manifest, checks_all: bool) -> None:
    """Raises ValueError naming the first file that is missing or damaged."""
    for name, (size, _) in manifest.files.items():
        path = folder / name
        if not path.is_file():
            raise ValueError(f"{path} is missing: the index is damaged; build it again.")
        if path.stat().st_size != size:
            raise ValueError(
                f"{path} has {path.stat().st_size} bytes instead of {size}: the index is damaged; "
                "build it again."
            )
    if checks_all:
        crcs = file_crcs(folder / name for name in manifest.files)
        for (name, (_, recorded_crc)), crc in zip(manifest.files.items(), crcs, strict=True):
            if crc != recorded_crc:
                raise ValueError(
                    f"{folder / name} is damaged: its checksum is {crc} instead of {recorded_crc}; "
                    "build the index again."
                )
