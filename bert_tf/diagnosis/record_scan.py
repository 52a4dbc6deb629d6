"""Reads TFRecords of examples as far as they can be read, and notes where they cannot.

Training refuses a damaged file at once (`data/tfrecords.py`); here the rest of it is of interest.
All frames are walked; of the records `MAX_RECORDS`, drawn evenly, are read and checked.
"""

import collections
import dataclasses
import hashlib
import mmap
import pathlib
from collections.abc import Iterator, Sequence

import numpy as np

from bert_tf.data import features
from bert_tf.data.tfrecords import FOOTER, HEADER, length_crc, masked_crc

MAX_RECORDS = 20_000
Form = tuple[bool, int, int]  # masked, T, P


@dataclasses.dataclass
class Scan:
    """What was found in record files.

    Attributes:
      num_records: frames found in all files.
      rows: by the library's feature name, arrays of the records read: int64 [N, T], [N, P], [N];
        weights float32 [N, P].
      form: masked or not, T, P.
      digests: uint64 [N], equal for equal records.
      places: N names, "record R of FILE".
      damage: what cannot be read, with file, record and byte.
      others: records of another form than most.
    """

    num_records: int
    rows: dict[str, np.ndarray]
    form: Form
    digests: np.ndarray
    places: list[str]
    damage: list[str]
    others: list[str]


def scan_records(paths: Sequence[pathlib.Path], max_records: int = MAX_RECORDS) -> Scan:
    """Walks all frames of some files and reads records drawn evenly.

    Raises:
      ValueError: if no record of a known form is found at all.
    """
    damage: list[str] = []
    starts = [_walk(path, damage) for path in paths]  # of the frames, int64 [n] a file
    file_starts = np.cumsum([0, *map(len, starts)])
    total = int(file_starts[-1])
    step = max(1.0, total / max_records)
    read: dict[Form, list[tuple[str, int, dict[str, np.ndarray]]]] = collections.defaultdict(list)
    others: list[str] = []
    for index in (int(i * step) for i in range(min(total, max_records))):
        file = int(np.searchsorted(file_starts, index, side="right")) - 1
        number = index - int(file_starts[file])
        start = int(starts[file][number])
        place = f"record {number} of {paths[file]}"
        record = _read(paths[file], start)
        if record is None:
            damage.append(f"{place} (byte {start}): the checksum of its data differs")
            continue
        row = _parse(record)
        if row is None:
            others.append(f"{place} (byte {start}) holds no pre-training example")
            continue
        digest = int.from_bytes(hashlib.blake2b(record, digest_size=8).digest(), "little")
        read[_form(row)].append((place, digest, row))
    if not read:
        said = "; ".join([*damage, *others][:3]) or "they are empty"
        raise ValueError(f"No example can be read of {', '.join(map(str, paths[:3]))}: {said}.")
    form = max(read, key=lambda form: len(read[form]))
    for other in set(read) - {form}:
        others += [f"{place} has (masked, T, P) {other}, not {form}" for place, _, _ in read[other]]
    kept = read[form]
    rows = {name: np.stack([row[name] for _, _, row in kept]) for name in kept[0][2]}
    digests = np.array([digest for _, digest, _ in kept], np.uint64)
    return Scan(total, rows, form, digests, [p for p, _, _ in kept], damage, others)


def _walk(path: pathlib.Path, damage: list[str]) -> np.ndarray:
    """Returns where each frame begins, int64 [n]; stops at a damaged length."""
    size = path.stat().st_size
    if not size:
        damage.append(f"{path} is empty")
        return np.zeros([0], np.int64)
    starts: list[int] = []
    start = 0
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
        while start < size:
            place = f"record {len(starts)} of {path} (byte {start})"
            length, crc = HEADER.unpack_from(view, start) if start + HEADER.size <= size else (0, 0)
            if crc != length_crc(length) and start + HEADER.size <= size:
                damage.append(f"{place}: the checksum of its length differs; the rest is not read")
                break
            end = start + HEADER.size + length + FOOTER.size
            if end > size:
                damage.append(f"{place}: the file ends within it")
                break
            starts.append(start)
            start = end
    return np.array(starts, np.int64)


def read_frames(path: pathlib.Path) -> Iterator[bytes]:
    """Yields the whole records of a file, up to the first damaged length."""
    for start in _walk(path, []).tolist():
        record = _read(path, start)
        if record is not None:
            yield record


def _read(path: pathlib.Path, start: int) -> bytes | None:
    """Returns the data of the frame that begins there; None if its checksum differs."""
    with path.open("rb") as file:
        file.seek(start)
        length, _ = HEADER.unpack(file.read(HEADER.size))
        record = file.read(length)
        (crc,) = FOOTER.unpack(file.read(FOOTER.size))
    return record if masked_crc(record) == crc else None


def _parse(record: bytes) -> dict[str, np.ndarray] | None:
    """Returns the features of a serialized example; None if it is none, or lacks one."""
    # TensorFlow takes seconds to load: a corpus alone is looked at without it.
    from tensorflow.core.example import example_pb2

    try:
        given = example_pb2.Example.FromString(record).features.feature
    except Exception:  # DecodeError: its package, protobuf, is TensorFlow's matter
        return None
    expected = features.MASKED_FEATURES if "masked_lm_ids" in given else features.UNMASKED_FEATURES
    row = {}
    for feature in expected:
        name = feature.file_name if feature.file_name in given else feature.name
        if name not in given:
            return None
        kind = given[name].WhichOneof("kind")
        if kind != ("float_list" if feature.file_dtype is np.float32 else "int64_list"):
            return None
        values: np.ndarray = np.array(getattr(given[name], kind).value, feature.file_dtype)
        if not feature.axis and len(values) != 1:
            return None
        row[feature.name] = values if feature.axis else values[0]
    axes = {"T": features.INPUT_FEATURES, "P": features.MASKED_LM_FEATURES}
    for names in axes.values():
        if len({len(row[feature.name]) for feature in names if feature.name in row}) > 1:
            return None
    return row


def _form(row: dict[str, np.ndarray]) -> Form:
    is_masked = "masked_lm_ids" in row
    return is_masked, len(row["input_word_ids"]), len(row["masked_lm_ids"]) if is_masked else 0
