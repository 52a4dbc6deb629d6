"""An open index: finds the nearest documents of queries. Its files are described in `index.py`."""

import itertools
import os
import pathlib
from collections.abc import Iterator, Sequence

import numpy as np

from bert_tf.metrics import exact
from bert_tf.metrics.candidates import best_candidates, check_k
from bert_tf.search.manifest import Manifest, check_fingerprint, check_rescoring
from bert_tf.search.segments import prepared
from bert_tf.search.stored_vectors import Segment
from bert_tf.system.bounded_arrays import map_array
from bert_tf.system.checksums import file_crcs

RESCORED = 4  # candidates per requested document


class StoredStrings(Sequence):
    """The strings of some of the documents, read one at a time.

    Args:
      rows: the stored rows of the documents, int64 [n]; None: of all.
    """

    def __init__(self, segments: Sequence[Sequence[str]], rows: np.ndarray | None) -> None:
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
            if model:
                check_fingerprint(folder, self.manifest.model, self.manifest.source, model)
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
        self.segments = [Segment(self.folder, manifest, number) for number in manifest.numbers]
        self.deleted = np.zeros([0], np.int64)
        # The stored rows of documents, and those of their vectors; None: their own rows.
        self._stored_rows: np.ndarray | None = None
        self._vector_rows: np.ndarray | None = None
        if manifest.deleted_file:
            rows = self.deleted = np.array(map_array(self.folder / manifest.deleted_file))
            ascend = np.diff(rows, prepend=-1, append=sum(manifest.segments)) > 0
            if rows.dtype != np.int64 or rows.shape != (manifest.deleted,) or not ascend.all():
                raise ValueError(
                    f"{self.folder / manifest.deleted_file} holds other rows than the "
                    f"{manifest.deleted} that are deleted; build the index again."
                )
            self._stored_rows = np.delete(np.arange(sum(manifest.segments)), self.deleted)
        shares_vectors = any("rows" in segment.arrays for segment in self.segments)
        if manifest.deleted_file or shares_vectors:
            rows = np.concatenate([segment.vector_rows() for segment in self.segments])
            self._find_documents(np.delete(rows, self.deleted))
        self.ids = StoredStrings([part.ids for part in self.segments], self._stored_rows)
        self._texts = StoredStrings([part.texts for part in self.segments], self._stored_rows)

    def _find_documents(self, vector_rows: np.ndarray) -> None:
        """Finds the documents of each vector, from the row of each document's vector."""
        count = sum(self.manifest.vector_counts)
        if not ((vector_rows >= 0) & (vector_rows < count)).all():
            raise ValueError(
                f"{self.folder} has documents without a vector; build the index again."
            )
        self._vector_rows = vector_rows
        counts = np.bincount(vector_rows, minlength=count)
        self._is_dead = counts == 0  # vectors of deleted documents alone
        # The documents of vector v are _documents[_ends[v] - counts[v]:_ends[v]], ascending.
        self._documents = np.argsort(vector_rows, kind="stable")
        self._ends = np.cumsum(counts)

    def __len__(self) -> int:
        return len(self.ids)

    def stored_rows(self, rows: np.ndarray) -> np.ndarray:
        """Returns the rows of documents among all that are stored, deleted ones included."""
        return rows if self._stored_rows is None else self._stored_rows[rows]

    def vector_rows(self, rows: np.ndarray) -> np.ndarray:
        """Returns the rows of the vectors of documents."""
        return rows if self._vector_rows is None else self._vector_rows[rows]

    def text(self, row: int) -> str:
        """Returns the text of a document; "" if the index stores no texts."""
        return self._texts[row] if self.manifest.has_texts else ""

    def search(
        self, queries: np.ndarray, k: int, rescore_with: str = ""
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns the k most similar documents of each query.

        Args:
          queries: float [Q, D].
          rescore_with: copies that score the best 4 k vectors again: float32, int8 or none. "":
            the most exact ones of the index.

        Returns:
          scores float32 [Q, k], descending, and rows int64 [Q, k]; equal scores are ordered by row.
        """
        check_k(k, len(self))
        queries = self.as_queries(queries)
        scores, rows = self.search_vectors(queries, k, rescore_with)
        if self._vector_rows is None:
            return scores, rows
        found = [self._documents_of(*pair, k) for pair in zip(scores, rows, strict=True)]
        return np.stack([pair[0] for pair in found]), np.stack([pair[1] for pair in found])

    def _documents_of(
        self, scores: np.ndarray, rows: np.ndarray, k: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns the k best documents for vectors and their scores."""
        starts = np.where(rows > 0, self._ends[rows - 1], 0)
        ends = self._ends[rows]
        parts = [self._documents[start:end] for start, end in zip(starts, ends, strict=True)]
        return best_candidates(np.repeat(scores, ends - starts), np.concatenate(parts), k)

    def search_vectors(
        self, queries: np.ndarray, k: int, rescore_with: str = ""
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns scores and rows of the k best vectors, or of all that documents have.

        The arguments are those of `search`, with the result of `as_queries`.
        """
        check_rescoring(self.manifest, rescore_with)
        living = sum(self.manifest.vector_counts)
        if self._vector_rows is not None:
            living -= int(self._is_dead.sum())
        k = min(k, living)
        is_rounded = self.manifest.dtype in ("int8", "binary")
        is_rescored = not is_rounded or rescore_with != "none"
        # More candidates than k: rounding may change the order of near equals.
        wanted = min(living, RESCORED * k) if is_rounded and is_rescored else k
        scores = np.empty([len(queries), k], np.float32)
        rows = np.empty([len(queries), k], np.int64)
        for part in exact.query_groups(len(queries)):
            margins = np.zeros(len(queries[part]), np.float32)
            if not is_rounded:
                sample = next(one for one in self.segments if len(one.arrays["vectors"]))
                margins = exact.rounding_margin(queries[part], sample.arrays["vectors"])
            found = exact.best_rows(self._chunks(queries[part]), wanted, margins)
            if is_rescored:
                scores[part], rows[part] = exact.rescore(queries[part], found, k, self._restore)
            else:
                scores[part] = [best.scores for best in found]
                rows[part] = [best.rows for best in found]
        return scores, rows

    def _chunks(self, queries: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
        """Yields (first row, scores float32 [Q, n]) for each chunk of all vectors."""
        for segment in self.segments:
            for first, scores in segment.scores(queries):
                first += segment.vectors.start
                if self._vector_rows is not None:
                    scores[:, self._is_dead[first : first + scores.shape[1]]] = -np.inf
                yield first, scores

    def as_queries(self, queries: np.ndarray) -> np.ndarray:
        """Returns queries prepared for the index's similarity, float32 [Q, D]."""
        queries = np.asarray(queries)
        manifest = self.manifest
        size = manifest.model_dimension or manifest.dimension
        exact.check_queries(queries, size, f"the vectors of {self.folder}")
        return prepared(queries, manifest.similarity, manifest.dimension)

    def vectors(self, rows: np.ndarray) -> np.ndarray:
        """Returns the most exact vectors of documents, float32 [n, D].

        Raises:
          ValueError: naming the document, if its vector contains numbers that are not finite.
        """
        return self._restore(self.vector_rows(np.asarray(rows)))

    def _restore(self, rows: np.ndarray) -> np.ndarray:
        """Returns the vectors of vector rows; see `vectors`."""
        vectors = np.empty([len(rows), self.manifest.dimension], np.float32)
        for segment in self.segments:
            part = segment.vectors
            in_segment = (rows >= part.start) & (rows < part.stop)
            if in_segment.any():
                vectors[in_segment] = segment.restore(rows[in_segment] - part.start)
        is_finite = np.isfinite(vectors).all(axis=1)
        if not is_finite.all():
            bad = rows[int(np.argmin(is_finite))]
            document = int(np.argmax(self.vector_rows(np.arange(len(self))) == bad))
            raise ValueError(
                f"{self.folder}: the vector of document {self.ids[document]!r} contains numbers "
                "that are not finite; build the index again."
            )
        return vectors


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
