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
import itertools
import os
import pathlib
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence

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
      rescore: copies that rescore candidates, one of `RESCORING`; "": the first one for the dtype.
      dimensions: how many numbers of each vector are kept, the first ones; 0: all.
      passages: how documents were split; their ids are then those of `passages.split`.

    The others are fields of `Manifest`.

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
    with exclusive(building.with_suffix(".lock"), f"writing {folder}"):
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
            manifest = _write_batches(folder, writer, batches)
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
        after = _write_batches(folder, writer, batches)
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
        after = _write_batches(folder, writer, batches)
        rows_by_id = _rows_by_id(index)
        if index.manifest.passages:
            written = set(map(document_of, written))
        replaced = [rows_by_id[name] for name in written if name in rows_by_id]
        if replaced:
            after = _without(index, after, list(itertools.chain(*replaced)))
        after.write(index.folder)
    return after, len(replaced)


def delete_from_index(folder: str | os.PathLike, ids: Iterable[str]) -> Manifest:
    """Deletes documents with their passages, atomically. `compact_index` frees their space.

    Raises:
      ValueError: naming the first id that the index does not have, or if no document would remain.
    """
    with _writing(folder) as index:
        rows = rows_to_delete(folder, ids, _rows_by_id(index), len(index))
        after = _without(index, index.manifest, rows)
        after.write(index.folder)
    return after


def rows_to_delete(
    path: str | os.PathLike, ids: Iterable[str], known: Mapping[str, Sequence[int]], count: int
) -> list[int]:
    """Returns the rows of the documents to delete; see `delete_from_index`.

    `known` are the rows of each id, among those of `count` documents.
    """
    wanted = list(dict.fromkeys(ids))
    unknown = [name for name in wanted if name not in known]
    if unknown:
        raise ValueError(
            f"{path} has no document {unknown[0]!r} ({len(unknown)} of {len(wanted)} ids are "
            "unknown); nothing is deleted. Leave them out."
        )
    if not wanted:
        raise ValueError(f"There are no ids to delete from {path}; give one a line.")
    rows: set[int] = set()
    for name in wanted:
        rows.update(known[name])
    if len(rows) == count:
        raise ValueError(
            f"All {count} documents of {path} would be deleted; delete {path} itself, or give "
            "fewer ids."
        )
    return sorted(rows)


def compact_index(folder: str | os.PathLike) -> Manifest:
    """Writes an index without its deleted documents, atomically; codes of vectors stay.

    Its folder needs room for both until it is done.
    """
    with _writing(folder) as index:
        if not len(index.deleted):
            return index.manifest
        manifest = dataclasses.replace(
            index.manifest,
            first_segment=index.manifest.numbers.stop,
            segments=(),
            vector_counts=(),
            deleted=0,
            files={},
        )
        is_kept = np.ones(sum(index.manifest.segments), bool)
        is_kept[index.deleted] = False
        vector_rows = index.vector_rows(np.arange(len(index)))
        is_used = np.zeros(sum(index.manifest.vector_counts), bool)
        is_used[vector_rows] = True
        new_rows = (np.cumsum(is_used) - 1)[vector_rows]
        first = 0  # the new row of the segment's first document
        for segment in index.segments:
            documents = np.flatnonzero(is_kept[segment.documents]).tolist()
            vectors = np.flatnonzero(is_used[segment.vectors])
            last = first + len(documents)
            if len(documents) or len(vectors):
                manifest = write_segment(
                    index.folder,
                    manifest,
                    [segment.ids[row] for row in documents],
                    [segment.texts[row] for row in documents] if segment.texts else (),
                    segment.arrays_of(vectors),
                    new_rows[first:last],
                )
            first = last
        manifest.write(index.folder)
    return manifest


def _rows_by_id(index: Index) -> dict[str, list[int]]:
    """Returns the rows of each id, and those of its passages for the id of a document."""
    rows: dict[str, list[int]] = {}
    for row, name in enumerate(index.ids):
        rows.setdefault(name, []).append(row)
        document = document_of(name)
        if index.manifest.passages and document != name:
            rows.setdefault(document, []).append(row)
    return rows


def _without(index: Index, manifest: Manifest, rows: Sequence[int]) -> Manifest:
    """Writes which documents are deleted, with those of more rows; returns the manifest."""
    deleted = np.union1d(index.deleted, index.stored_rows(np.array(rows, np.int64)))
    files = dict(manifest.files)
    files.pop(manifest.deleted_file, None)
    manifest = dataclasses.replace(manifest, deletions=manifest.deletions + 1, deleted=len(deleted))
    path = index.folder / f"deleted-{manifest.deletions:05}.npy"
    np.save(path, deleted)
    return dataclasses.replace(manifest, files={**files, **file_entries([path])})


def _vectors_by_key(index: Index) -> dict[int, int]:
    """Returns the row of the vector of each text key that the index records."""
    rows: dict[int, int] = {}
    for segment in index.segments:
        if "keys" in segment.arrays:
            keys = segment.arrays["keys"].tolist()
            rows.update(zip(keys, range(segment.vectors.start, segment.vectors.stop), strict=True))
    return rows


def _write_batches(
    folder: str | os.PathLike, writer: SegmentWriter, batches: Iterable[Batch]
) -> Manifest:
    """Writes documents; returns the manifest with them. ValueError without documents."""
    before = writer.manifest.segments
    for batch in batches:
        writer.add(batch)
    after = writer.finish()
    if after.segments == before:
        raise ValueError(f"There are no documents to put into {folder}; the input is empty.")
    return after


@contextlib.contextmanager
def _writing(folder: str | os.PathLike, model: str = "") -> Iterator[Index]:
    """Yields an index, locked against other writers; removes files that its manifest lacks."""
    folder = pathlib.Path(folder).expanduser()
    with exclusive(folder / ".lock", f"writing {folder}"):
        index = Index(folder, model)
        _remove_unlisted(folder, index.manifest)  # left by a change that was killed
        try:
            yield index
        finally:
            _remove_unlisted(folder, Manifest.read(folder))


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
