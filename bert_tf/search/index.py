"""An index: a directory with the vectors of documents, their ids and their texts.

    index/
      manifest.json         the model, and every file with its size and checksum
      vectors-00000.npy     float32, float16 or int8 [n, D]; binary: uint8 [n, ceil(D / 8)]
      scales-00000.npy      int8 only: float32 [n], the length of each vector
      ranges-00000.npy      int8 only: float32 [2, D], offset and step of each dimension
      exact-00000.npy       float32 copies [n, D], read only to rescore candidates
      int8-00000.npy        int8 copies [n, D] of binary vectors, which have scales and ranges
      rows-00000.npy        int64 [documents], the row of each one's vector among those of all
                            segments; only if documents share vectors
      keys-00000.npy        uint64 [n], keys of the texts that the vectors are of, if known
      ids-00000.*, texts-00000.*    strings; see `strings.py`
      deleted-00001.npy     int64, ascending, rows of deleted documents in all segments

Vectors are stored in segments, which never change; their numbers are not used again. Files that
manifest.json does not name are ignored, and manifest.json is replaced atomically. So a build, an
addition or a deletion that is killed leaves the index unchanged, and a search that begins meanwhile
sees the index before or after it.

`quantization.py` describes int8 and binary vectors. A vector is length * (offsets + steps * codes).
The best `RESCORED` x k vectors are scored again with the copies. With float32 copies the scores are
therefore exact; only a document that is not among these candidates can be missed.
"""

import contextlib
import dataclasses
import os
import pathlib
import shutil
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from bert_tf.search.analyzer import TOKEN_RULE, check_language
from bert_tf.search.manifest import (
    DTYPES,
    RESCORING,
    SIMILARITIES,
    Manifest,
    building_folder,
    check_copies,
)
from bert_tf.search.open_index import Index
from bert_tf.search.passages import WHOLE, PassageRule, document_of
from bert_tf.search.recall import RECALL_K, RecallSample
from bert_tf.search.segments import Batch, SegmentWriter, file_entries, write_segment
from bert_tf.system.bounded_arrays import map_array
from bert_tf.system.files import exclusive, new_folder_path


def build_index(
    folder: str | os.PathLike,
    batches: Iterable[Batch],
    *,
    model: str,
    source: str = "",
    dtype: str = "float32",
    rescore: str = "",
    dimensions: int = 0,
    similarity: str = "cosine",
    pooling: str = "",
    max_seq_length: int = 0,
    language: str = "en",
    passages: PassageRule = WHOLE,
) -> Manifest:
    """Writes a new index, atomically: the directory appears when it is complete.

    Args:
      folder: the directory, new or empty.
      batches: the documents, read once; one segment is held in memory.
      model: fingerprint of the model that made the vectors.
      source: path of the model.
      dtype: `float32`, `float16`, `int8` or `binary`.
      rescore: copies that rescore candidates of int8 and binary vectors, `float32`, `int8` (binary
        only) or `none`; "": the first of `RESCORING`.
      dimensions: how many numbers of each vector are kept, the first ones; 0: all.
      similarity: `cosine` or `dot`.
      pooling: pooling requested for the model; "": the model's default.
      max_seq_length: tokens that texts were cut to; 0: not known.
      language: of the texts, for BM25; one of `analyzer.STEMMERS`.
      passages: how documents were split; their ids are then those of `passages.split`.

    Raises:
      ValueError: if the directory exists or is a mount point, there are no documents, an id is
        repeated, or a vector contains numbers that are not finite.
    """
    if dtype not in DTYPES or similarity not in SIMILARITIES:
        raise ValueError(
            f"dtype is {dtype!r} and similarity {similarity!r}; expected one of "
            f"{', '.join(DTYPES)} and of {', '.join(SIMILARITIES)}."
        )
    check_copies(dtype, rescore)
    check_language(language)
    folder = new_folder_path(folder, "add to it, or name a new one")
    building = building_folder(folder)
    with _locked(folder, building.with_suffix(".lock")):
        shutil.rmtree(building, ignore_errors=True)  # left by a build that was killed
        building.mkdir(parents=True)
        try:
            # The first batch determines dimension and texts; see `SegmentWriter`.
            manifest = Manifest(
                model=model,
                source=source,
                dimension=dimensions,
                dtype=dtype,
                rescore=rescore or RESCORING[dtype][0],
                similarity=similarity,
                has_texts=False,
                pooling=pooling,
                max_seq_length=max_seq_length,
                language=language,
                passages=passages.tokens,
                passage_overlap=passages.overlap,
                late_chunking=passages.is_late,
            )
            sample = None if dtype == "float32" and not dimensions else RecallSample()
            writer = SegmentWriter(building, manifest, set(), {}, sample)
            for batch in batches:
                writer.add(batch)
            manifest = writer.finish()
            if not manifest.segments:
                raise ValueError(
                    f"There are no documents to put into {folder}; the input is empty."
                )
            if sample:
                manifest.write(building)
                manifest = dataclasses.replace(manifest, recall=_recall(building, sample))
            manifest.write(building)
        except BaseException:
            shutil.rmtree(building, ignore_errors=True)
            raise
        building.replace(folder)  # If this fails, the error names the finished folder.
    return manifest


def _recall(folder: pathlib.Path, sample: RecallSample) -> float | None:
    """Returns the recall of an index for the vectors of a sample."""
    index = Index(folder, checks_files=False)
    return sample.recall(
        lambda queries: index.search_vectors(index.as_queries(queries), RECALL_K + 1)[1]
    )


def add_to_index(folder: str | os.PathLike, batches: Iterable[Batch], *, model: str) -> Manifest:
    """Adds documents to an index, atomically.

    Raises:
      ValueError: if the folder is not an index, the model or dimension differs, or an id exists.
    """
    with _writing(folder, model) as index:
        writer = SegmentWriter(index.folder, index.manifest, set(index.ids), _vectors_by_key(index))
        after = _write_batches(writer, batches, "add to")
        # Until this replaces the manifest, readers see the index without the new segments.
        after.write(index.folder)
    return after


def replace_in_index(
    folder: str | os.PathLike, batches: Iterable[Batch], *, model: str
) -> tuple[Manifest, int]:
    """Replaces documents of the same ids, and adds those of new ids, atomically.

    Returns:
      The manifest, and how many documents were replaced.

    Raises:
      ValueError: if the folder is not an index, or the model or dimension differs.
    """
    with _writing(folder, model) as index:
        written: set[str] = set()
        writer = SegmentWriter(index.folder, index.manifest, written, _vectors_by_key(index))
        after = _write_batches(writer, batches, "replace in")
        rows_by_id = _rows_by_id(index)
        if index.manifest.passages:
            written = {document_of(name) for name in written}
        replaced = [rows_by_id[name] for name in written if name in rows_by_id]
        if replaced:
            after = _without(index, after, replaced)
        after.write(index.folder)
        _remove_unlisted(index.folder, after)
    return after, len(replaced)


def delete_from_index(folder: str | os.PathLike, ids: Iterable[str]) -> Manifest:
    """Deletes documents with their passages, atomically. `compact_index` frees their space.

    Raises:
      ValueError: naming the first id that the index does not have, or if no document would remain.
    """
    with _writing(folder) as index:
        rows = _rows_by_id(index)
        wanted = list(dict.fromkeys(ids))
        unknown = [name for name in wanted if name not in rows]
        if unknown:
            raise ValueError(
                f"{folder} has no document {unknown[0]!r} ({len(unknown)} of {len(wanted)} ids are "
                "unknown); nothing is deleted. Leave them out."
            )
        if not wanted:
            raise ValueError(f"There are no ids to delete from {folder}; give one a line.")
        after = _without(index, index.manifest, [rows[name] for name in wanted])
        if not after.count:
            raise ValueError(
                f"All {len(index)} documents of {folder} would be deleted; delete the folder, or "
                "give fewer ids."
            )
        after.write(index.folder)
        _remove_unlisted(index.folder, after)
    return after


def compact_index(folder: str | os.PathLike) -> Manifest:
    """Writes an index without its deleted documents, atomically; codes of vectors stay.

    Its folder needs room for both until it is done.
    """
    with _writing(folder) as index:
        if not len(index.deleted):
            return index.manifest
        before = index.manifest
        manifest = dataclasses.replace(
            before,
            first_segment=before.numbers.stop,
            segments=(),
            vector_counts=(),
            deleted=0,
            files={},
        )
        is_kept = np.zeros(sum(before.segments), bool)
        is_kept[index.stored_rows(np.arange(len(index)))] = True
        vector_rows = index.vector_rows(np.arange(len(index)))
        is_used = np.zeros(sum(before.vector_counts), bool)
        is_used[vector_rows] = True
        new_rows = (np.cumsum(is_used) - 1)[vector_rows]
        first = 0  # the new row of the segment's first document
        for part in _segments(before):
            documents = np.flatnonzero(is_kept[part.documents])
            vectors = np.flatnonzero(is_used[part.vectors])
            rows = new_rows[first : first + len(documents)]
            if not len(documents) and not len(vectors):
                continue
            manifest = _copy_segment(index, manifest, part.number, documents, vectors, rows)
            first += len(documents)
        manifest.write(index.folder)
        _remove_unlisted(index.folder, manifest)
    return manifest


@dataclasses.dataclass(frozen=True)
class _Segment:
    """Where a segment is among the documents and the vectors of all."""

    number: int
    documents: slice
    vectors: slice


def _segments(manifest: Manifest) -> Iterator[_Segment]:
    documents = vectors = 0
    for number, count, vector_count in zip(
        manifest.numbers, manifest.segments, manifest.vector_counts, strict=True
    ):
        yield _Segment(
            number,
            slice(documents, documents + count),
            slice(vectors, vectors + vector_count),
        )
        documents += count
        vectors += vector_count


def _copy_segment(
    index: Index,
    manifest: Manifest,
    number: int,
    documents: np.ndarray,
    vectors: np.ndarray,
    rows: np.ndarray,
) -> Manifest:
    """Writes a part of a segment as a new one; returns the manifest with it.

    Args:
      number: of the segment that is read.
      documents, vectors: indices in that segment.
      rows: the new row of each document's vector.
    """
    before = index.manifest
    segment = index.segments[number - before.first_segment]
    arrays = {}
    for name, values in segment.arrays.items():
        arrays[name] = np.asarray(values) if name == "ranges" else values[vectors]
    if f"keys-{number:05}.npy" in before.files:
        arrays["keys"] = map_array(index.folder / f"keys-{number:05}.npy")[vectors]
    start = sum(manifest.vector_counts)
    if not np.array_equal(rows, np.arange(start, start + len(vectors))):
        arrays["rows"] = rows
    ids = index.load_strings("ids", number)
    texts = index.load_strings("texts", number) if before.has_texts else ()
    return write_segment(
        index.folder,
        manifest,
        [ids[row] for row in documents],
        [texts[row] for row in documents] if texts else (),
        arrays,
    )


def _rows_by_id(index: Index) -> dict[str, list[int]]:
    """Returns the rows of each id, and those of its passages for the id of a document."""
    rows: dict[str, list[int]] = {}
    for row, name in enumerate(index.ids):
        rows.setdefault(name, []).append(row)
        document = document_of(name)
        if index.manifest.passages and document != name:
            rows.setdefault(document, []).append(row)
    return rows


def _without(index: Index, manifest: Manifest, rows: Sequence[list[int]]) -> Manifest:
    """Writes which documents are deleted, with those of more rows; returns the manifest."""
    more = index.stored_rows(np.concatenate([np.array(part, np.int64) for part in rows]))
    deleted = np.union1d(index.deleted, more)
    files = dict(manifest.files)
    files.pop(manifest.deleted_file, None)
    manifest = dataclasses.replace(manifest, deletions=manifest.deletions + 1, deleted=len(deleted))
    path = index.folder / f"deleted-{manifest.deletions:05}.npy"
    np.save(path, deleted)
    return dataclasses.replace(manifest, files={**files, **file_entries([path])})


def _vectors_by_key(index: Index) -> dict[int, int]:
    """Returns the row of the vector of each text key that the index records."""
    rows: dict[int, int] = {}
    for part in _segments(index.manifest):
        name = f"keys-{part.number:05}.npy"
        if name in index.manifest.files:
            keys = map_array(index.folder / name).tolist()
            rows.update(zip(keys, range(part.vectors.start, part.vectors.stop), strict=True))
    return rows


def _write_batches(writer: SegmentWriter, batches: Iterable[Batch], purpose: str) -> Manifest:
    """Writes documents; returns the manifest with them. ValueError if there are none."""
    before = writer.manifest
    for batch in batches:
        writer.add(batch)
    after = writer.finish()
    if after.segments == before.segments:
        raise ValueError(f"There are no documents to {purpose} the index; the input is empty.")
    return after


@contextlib.contextmanager
def _writing(folder: str | os.PathLike, model: str = "") -> Iterator[Index]:
    """Yields an index, locked against other writers; an error leaves no new files."""
    folder = pathlib.Path(folder).expanduser()
    with _locked(folder, folder / ".lock"):
        index = Index(folder, model)
        _remove_unlisted(folder, index.manifest)  # left by a change that was killed
        try:
            yield index
        except BaseException:
            _remove_unlisted(folder, Manifest.read(folder))
            raise


def record_language(folder: str | os.PathLike, language: str) -> Manifest:
    """Records a language and the present word rule in an index; vectors and texts stay."""
    check_language(language)
    with _writing(folder) as index:
        manifest = dataclasses.replace(index.manifest, token_rule=TOKEN_RULE, language=language)
        manifest.write(index.folder)
    return manifest


def _remove_unlisted(folder: pathlib.Path, manifest: Manifest) -> None:
    """Deletes the files of segments that the manifest does not name."""
    for path in folder.iterdir():
        if path.suffix in (".npy", ".utf8") and path.name not in manifest.files:
            path.unlink()


@contextlib.contextmanager
def _locked(folder: pathlib.Path, path: pathlib.Path) -> Iterator[None]:
    """Locks an index against other writers."""
    with exclusive(path) as has_lock:
        if not has_lock:
            raise ValueError(f"Another process is writing {folder}; wait until it has finished.")
        yield
