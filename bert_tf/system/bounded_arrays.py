"""Opens arrays of files: only plain numbers, whose size is that of the file."""

import os
import pathlib

import numpy as np

from bert_tf.system.bounded_files import check_regular

MAX_HEADER_BYTES = 10_000  # NumPy's own limit, which it applies after reading the header.


def map_array(path: str | os.PathLike) -> np.ndarray:
    """Maps a .npy file into memory.

    Nothing of it is executed, and no archive of arrays is taken for one array.

    Raises:
      ValueError: if it is no array of numbers, or has another size than its header says.
      OSError: if there is no such file.
    """
    path = pathlib.Path(path)
    check_regular(path)
    try:
        _check_header(path)
        array = np.lib.format.open_memmap(path, mode="r")
        size = array.offset + array.nbytes
        if size != path.stat().st_size:
            raise ValueError(f"its header says {size} bytes, but it has {path.stat().st_size}")
    except OSError:
        raise
    # The header decides which error it leads to: those of a parser of Python, of types, of NumPy.
    except Exception as error:
        reason = str(error).split("\n")[0][:200] or type(error).__name__
        raise ValueError(f"{path} is not a readable array: {reason}; write it again.") from None
    return array


def _check_header(path: pathlib.Path) -> None:
    with path.open("rb") as file:
        version, _ = np.lib.format.read_magic(file)
        # Version 1 has 2 bytes for the length of the header, later ones have 4.
        size = int.from_bytes(file.read(2 if version == 1 else 4), "little")
        if size > MAX_HEADER_BYTES:
            raise ValueError(f"its header has {size} bytes, expected at most {MAX_HEADER_BYTES}")
