"""TFRecord files of tf.train.Example, written and read without TensorFlow.

A file is a sequence of frames: uint64 length, its CRC, the data, the CRC of the data
(little-endian; CRC-32C, rotated and shifted so that a CRC of data with CRCs stays meaningful). The
writer makes the protobuf bytes directly from NumPy arrays. The reader maps the files into memory
and reads all lengths at the start, which gives random access to the records: the training order
(example_order.py) needs no shuffle buffer, and resuming takes no longer than starting.

Reference: tensorflow/core/lib/io/record_writer.h, tensorflow/core/example/example.proto.
"""

import contextlib
import errno
import functools
import mmap
import os
import pathlib
import resource
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import google_crc32c
import numpy as np

from bert_tf.system.files import atomic_write, matching_files

HEADER = struct.Struct("<QI")
FOOTER = struct.Struct("<I")
FEW_FILES = 64  # Every system allows so many open files.
SPARE_FILES = 256  # Other files that a training process opens.


def masked_crc(data: bytes) -> int:
    """Returns the CRC-32C of `data` as TFRecord files store it."""
    crc = google_crc32c.value(data)
    # A rotation by 15 bits, and kMaskDelta of TensorFlow's crc32c.h.
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def encode_varint(value: int) -> bytes:
    """Returns protobuf's variable-length form of a non-negative integer: 7 bits a byte."""
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


@functools.lru_cache(maxsize=4096)
def field_header(tag: int, size: int) -> bytes:
    """Returns the tag and length in front of a protobuf field of `size` bytes."""
    return bytes([tag]) + encode_varint(size)


def encode_varints(rows: np.ndarray) -> list[bytes]:
    """Returns each row of an int array [n, T] as its concatenated varints.

    Example: [[1, 300]] -> [b"\\x01\\xac\\x02"].
    """
    values = rows.astype(np.int64).view(np.uint64)  # negative numbers take ten bytes
    largest = int(values.max(initial=0))
    if largest < 0x80:
        return [row.tobytes() for row in values.astype(np.uint8)]
    width = -(-largest.bit_length() // 7)
    shifts = 7 * np.arange(width, dtype=np.uint64)
    # Still with the bits above: so a group is used if it or a higher one has a bit.
    groups = values[:, :, None] >> shifts  # [n, T, width]
    used = groups > 0  # [n, T, width]
    # Zero is one byte.
    used[:, :, 0] = True
    encoded = (groups & np.uint64(0x7F)).astype(np.uint8)
    encoded[:, :, :-1] |= used[:, :, 1:].astype(np.uint8) << 7  # more bytes follow
    ends = np.cumsum(used.sum(axis=(1, 2)))
    stream = encoded[used].tobytes()
    return [stream[start:end] for start, end in zip([0, *ends[:-1]], ends, strict=True)]


def encode_examples(features: Mapping[str, np.ndarray]) -> list[bytes]:
    """Returns n serialized tf.train.Examples.

    Args:
      features: name -> int or float [n, length]; ints become an Int64List, floats a FloatList.

    Raises:
      ValueError: if an array is not of that form or the arrays disagree in n.
    """
    shapes = {name: np.shape(values) for name, values in features.items()}
    if len({shape[:1] for shape in shapes.values()}) != 1 or {*map(len, shapes.values())} != {2}:
        raise ValueError(f"Expected arrays [n, length] with one n, received shapes {shapes}.")
    columns = [_encode_column(name, np.asarray(values)) for name, values in features.items()]
    bodies = map(b"".join, zip(*columns, strict=True))
    return [field_header(0x0A, len(body)) + body for body in bodies]


def _encode_column(name: str, rows: np.ndarray) -> list[bytes]:
    """Returns the map entry `name: values` of each row, nested as in example.proto."""
    if rows.dtype.kind in "iub":
        # Protobuf tags are field << 3 | 2: here field 3 of Feature, and field 2 for floats.
        list_tag = 0x1A
        packed = encode_varints(rows)
    elif rows.dtype.kind == "f":
        list_tag = 0x12
        packed = [row.tobytes() for row in rows.astype("<f4")]
    else:
        raise ValueError(f"Feature {name}: expected ints or floats, received {rows.dtype}.")
    encoded_name = name.encode("utf8")
    key = field_header(0x0A, len(encoded_name)) + encoded_name
    entries = []
    for values in packed:
        # Outwards: packed values, Int64List or FloatList, Feature, map entry.
        numbers = field_header(0x0A, len(values)) + values
        feature = field_header(list_tag, len(numbers)) + numbers
        entry = key + field_header(0x12, len(feature)) + feature
        entries.append(field_header(0x0A, len(entry)) + entry)
    return entries


@contextlib.contextmanager
def open_records(path: str | os.PathLike) -> Iterator[Callable[[bytes], None]]:
    """Yields the function that appends a record to a new TFRecord file; see `atomic_write`."""
    with atomic_write(path, "wb") as file:

        def write(record: bytes) -> None:
            length = len(record)
            header = HEADER.pack(length, length_crc(length))
            file.write(b"".join((header, record, FOOTER.pack(masked_crc(record)))))

        yield write


@functools.lru_cache(maxsize=65536)
def length_crc(length: int) -> int:
    """Returns the stored CRC of a length; records of one file share few lengths."""
    return masked_crc(length.to_bytes(8, "little"))


def write_records(path: str | os.PathLike, records: Iterable[bytes]) -> None:
    """Writes serialized records to one TFRecord file."""
    with open_records(path) as write:
        for record in records:
            write(record)


def list_record_files(input_file: str) -> list[pathlib.Path]:
    """Returns the files of a comma-separated list of paths and globs, each glob sorted.

    Raises:
      ValueError: if one of them matches nothing.
    """
    paths: list[pathlib.Path] = []
    for pattern in filter(None, map(str.strip, input_file.split(","))):
        paths += map(pathlib.Path, matching_files(pattern, "input_file"))
    return paths


class RecordFiles:
    """The records of several TFRecord files, numbered through all files.

    Args:
      paths: local files. They stay mapped into memory as long as the object exists, and must not
        change during that time.

    Raises:
      ValueError: if there is no file or no record, or a file is missing, empty, compressed,
        truncated or not a TFRecord file; the message names file and record.
      OSError: if the process cannot open so many files.
    """

    def __init__(self, paths: Sequence[str | os.PathLike]) -> None:
        if not paths:
            raise ValueError("Expected at least one TFRecord file, received an empty list.")
        self.paths = tuple(map(pathlib.Path, paths))
        self._maps = _map_files(self.paths)
        offsets = [_find_records(*pair) for pair in zip(self.paths, self._maps, strict=True)]
        # Number of the first record of each file, and one past the last: int64 [files + 1].
        self.file_starts = np.cumsum([0, *map(len, offsets)])
        self._offsets = np.concatenate(offsets)  # int64 [N], where each frame begins in its file

    def __len__(self) -> int:
        return len(self._offsets)

    def locate(self, index: int) -> str:
        """Returns "record R of FILE" (R from 0) for error messages."""
        file = int(np.searchsorted(self.file_starts, index, side="right")) - 1
        return f"record {index - self.file_starts[file]} of {self.paths[file]}"

    def read(self, indices: np.ndarray) -> list[bytes]:
        """Returns the records of the given numbers, after a check of their CRC.

        Raises:
          ValueError: if a record's data are corrupt, naming file and record.
        """
        files = np.searchsorted(self.file_starts, indices, side="right") - 1
        frames = zip(files.tolist(), self._offsets[indices].tolist(), strict=True)
        records = []
        for row, (file, start) in enumerate(frames):
            mapped = self._maps[file]
            # The CRC of the length was checked when the file was opened.
            length, _ = HEADER.unpack_from(mapped, start)
            start += HEADER.size
            record = mapped[start : start + length]
            if masked_crc(record) != FOOTER.unpack_from(mapped, start + length)[0]:
                raise ValueError(
                    f"Corrupt data in {self.locate(indices[row])}: the checksum differs. "
                    "Write or copy the file again."
                )
            records.append(record)
        return records


def _map_files(paths: Sequence[pathlib.Path]) -> list[mmap.mmap]:
    """Maps all files; each mapped file needs a descriptor (until Python 3.13)."""
    if len(paths) > FEW_FILES:
        _allow_more_files(len(paths))
    try:
        return list(map(_map_file, paths))
    except OSError as error:
        if error.errno != errno.EMFILE:
            raise
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        raise OSError(
            f"There are {len(paths)} TFRecord files to be kept open, but the limit of this process "
            f"is {limit} open files. Raise it (ulimit -n {len(paths) + SPARE_FILES}), or write "
            "fewer, larger files."
        ) from None


def _allow_more_files(count: int) -> None:
    """Raises this process's limit of open files by `count`, up to the hard limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = soft + count
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft != resource.RLIM_INFINITY and wanted > soft:
        with contextlib.suppress(ValueError, OSError):  # Some systems allow less than they report.
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _map_file(path: pathlib.Path) -> mmap.mmap:
    """Maps a TFRecord file into memory for reading."""
    if not path.is_file():
        raise ValueError(f"TFRecord file {path} does not exist.")
    if not path.stat().st_size:
        raise ValueError(f"TFRecord file {path} is empty; delete it or write it again.")
    with path.open("rb") as file:
        if file.read(2) == b"\x1f\x8b":
            raise ValueError(
                f"{path} is compressed with gzip, but records are read in random order; "
                f"decompress it first: gunzip {path}"
            )
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def _find_records(path: pathlib.Path, mapped: mmap.mmap) -> np.ndarray:
    """Returns the offset of each frame, int64 [n]; it checks the CRCs of the lengths."""
    offsets: list[int] = []
    start = 0
    size = len(mapped)
    unpack = HEADER.unpack_from
    # Without the record itself.
    frame_size = HEADER.size + FOOTER.size
    while start + HEADER.size <= size:
        length, crc = unpack(mapped, start)
        if crc != length_crc(length):
            raise ValueError(
                f"Corrupt length in record {len(offsets)} of {path} (byte {start}): the checksum "
                "differs. Not a TFRecord file, or damaged: write or copy it again."
            )
        offsets.append(start)
        start += length + frame_size
    if start != size:
        # Either the last frame reaches past the end of the file, or a part of a header is left.
        broken = len(offsets) - 1 if start > size else len(offsets)
        raise ValueError(
            f"Truncated TFRecord file {path}: record {broken} ends after {size} bytes, in the "
            "middle. Write or copy the file again."
        )
    return np.array(offsets, np.int64)
