"""Reads HDF5 files of weights as NumPy arrays by their path in the file."""

import itertools
import math
import pathlib

import h5py
import numpy as np

from bert_tf.system.bounded_files import check_regular

MAX_H5_RATIO = 4  # bytes of all arrays together, to those of the file
# The library takes time for each object, and for each group above it.
MAX_OBJECTS = 50_000
MAX_DEPTH = 30


def read_h5(path: pathlib.Path) -> dict[str, np.ndarray]:
    """Returns all arrays of a file by path, without the optimizer's.

    Anything but plain floating-point arrays is an error.
    """
    check_regular(path)
    datasets: dict[str, h5py.Dataset] = {}
    counter = itertools.count(1)

    def add(name: str, item: h5py.Group | h5py.Dataset) -> None:
        if next(counter) > MAX_OBJECTS or name.count("/") > MAX_DEPTH:
            raise ValueError(
                f"it has more than {MAX_OBJECTS} objects, or {MAX_DEPTH} groups inside each other"
            )
        if not isinstance(item, h5py.Dataset) or name.startswith("optimizer/"):
            return
        # Keras writes plain arrays; others may name numbers that lie elsewhere or nowhere.
        if item.dtype.kind != "f" or item.external or item.is_virtual:
            raise ValueError(f"{name} is not a plain array of floating-point numbers")
        datasets[name] = item

    try:
        with h5py.File(path, "r") as file:
            file.visititems(add)
            sizes = []
            for dataset in datasets.values():
                # A compressed chunk is read completely, even if the array uses a part of it.
                chunk_bytes = dataset.dtype.itemsize * math.prod(dataset.chunks or ())
                sizes.append(max(dataset.nbytes, chunk_bytes))
            most = MAX_H5_RATIO * path.stat().st_size
            if sum(sizes) > most:
                raise ValueError(
                    f"its arrays have {sum(sizes)} bytes, expected at most {most}, {MAX_H5_RATIO} "
                    "times the file; save the weights with Keras again, which does not compress"
                )
            return {name: np.asarray(dataset) for name, dataset in datasets.items()}
    except (OSError, RuntimeError, ValueError, TypeError) as error:
        raise ValueError(f"{path} is not a readable Keras weights file: {error}.") from None
