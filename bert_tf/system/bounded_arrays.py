"""Opens arrays of files: only plain numbers, whose size is that of the file."""

import math
import os
import pathlib
import zipfile
from collections.abc import Sequence
from typing import IO

import numpy as np

from bert_tf.system.bounded_files import check_regular, open_zip

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


def read_arrays(path: str | os.PathLike, names: Sequence[str]) -> dict[str, np.ndarray]:
    """Reads arrays of a file that `numpy.savez` wrote, by name; those that it lacks are left out.

    Raises:
      ValueError: if it is no such file, or an array is compressed, holds objects or has another
        size than its header says.
      OSError: if there is no such file.
    """
    arrays = {}
    try:
        with open_zip(path) as archive:
            for name in {*names} & {member.removesuffix(".npy") for member in archive.namelist()}:
                info = archive.getinfo(f"{name}.npy")
                if info.compress_type != zipfile.ZIP_STORED:
                    raise ValueError(f"{name} is compressed")
                with archive.open(info) as member:
                    _check_size(member, name, pathlib.Path(path).stat().st_size)
                with archive.open(info) as member:
                    arrays[name] = np.lib.format.read_array(member, allow_pickle=False)
    except OSError:
        raise
    except Exception as error:
        reason = str(error).split("\n")[0][:200] or type(error).__name__
        raise ValueError(
            f"{path} is no readable file of arrays: {reason}; write it again."
        ) from None
    return arrays


def _check_size(member: IO[bytes], name: str, most: int) -> None:
    """Raises ValueError if a header promises more bytes than the whole file has."""
    version, _ = np.lib.format.read_magic(member)
    read_header = np.lib.format.read_array_header_1_0
    if version != 1:
        read_header = np.lib.format.read_array_header_2_0
    shape, _, dtype = read_header(member, MAX_HEADER_BYTES)
    if math.prod(shape) * dtype.itemsize > most or min(shape, default=0) < 0:
        raise ValueError(f"{name} has the shape {list(shape)}, more than the file holds")
