"""Stores many strings in two files, read one at a time: the UTF-8 bytes and the string ends."""

import pathlib
from collections.abc import Iterator, Sequence

import numpy as np

from bert_tf.system.bounded_arrays import map_array


class Strings(Sequence):
    """A sequence of strings in files of `write`, NAME.utf8 and NAME.ends.npy, memory-mapped.

    Raises:
      ValueError: if the two files do not match.
    """

    def __init__(self, folder: pathlib.Path, name: str) -> None:
        path = folder / f"{name}.utf8"
        self._ends = map_array(folder / f"{name}.ends.npy")
        size = path.stat().st_size
        if self._ends.ndim != 1 or self._ends.dtype != np.int64:
            raise ValueError(
                f"{folder / name}.ends.npy contains {self._ends.dtype} {self._ends.shape}, "
                "expected int64, one number per string."
            )
        if (np.diff(self._ends, prepend=0) < 0).any():
            raise ValueError(f"{folder / name}.ends.npy does not ascend.")
        last = int(self._ends[-1]) if len(self._ends) else 0
        if last != size:
            raise ValueError(f"{path} has {size} bytes, but its .ends.npy says {last}.")
        # NumPy cannot map an empty file.
        self._bytes = np.memmap(path, np.uint8, "r") if size else np.zeros([0], np.uint8)

    def __len__(self) -> int:
        return len(self._ends)

    def __getitem__(self, index: int) -> str:  # type: ignore[override]
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        # Negative indices count from the end.
        index %= len(self)
        start = self._ends[index - 1] if index else 0
        return self._bytes[start : self._ends[index]].tobytes().decode("utf8")

    def __iter__(self) -> Iterator[str]:
        # All bytes at once: reading a memory map string by string is slower.
        content = self._bytes.tobytes()
        start = 0
        for end in self._ends.tolist():
            yield content[start:end].decode("utf8")
            start = end


def write(folder: pathlib.Path, name: str, strings: Sequence[str]) -> list[pathlib.Path]:
    """Writes strings for `Strings`; returns the paths of the two files."""
    encoded = [text.encode("utf8") for text in strings]
    paths = [folder / f"{name}.utf8", folder / f"{name}.ends.npy"]
    paths[0].write_bytes(b"".join(encoded))
    # Ends and not lengths, so that one string is found without a sum.
    np.save(paths[1], np.cumsum(list(map(len, encoded)), dtype=np.int64))
    return paths
