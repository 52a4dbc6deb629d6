"""TensorFlow's checkpoint format: a PREFIX.index with names, PREFIX.data-* with tensors."""

import pathlib

import numpy as np
import tensorflow as tf

READING_ERRORS = (tf.errors.OpError, ValueError, IndexError, RuntimeError)


def read_bundle(prefix: str) -> dict[str, np.ndarray]:
    """Reads every tensor of a TensorFlow checkpoint by name.

    Raises:
      ValueError: if it is no readable checkpoint.
    """
    try:
        reader = tf.train.load_checkpoint(prefix)
        return {
            name: np.asarray(reader.get_tensor(name)) for name in reader.get_variable_to_shape_map()
        }
    except READING_ERRORS as error:
        raise ValueError(f"{prefix} is not a readable TensorFlow checkpoint: {error}") from None


def bundle_names(prefix: str) -> list[str]:
    """Returns the names of the tensors, without reading them.

    Raises:
      ValueError: if it is no readable checkpoint.
    """
    try:
        return [name for name, _ in tf.train.list_variables(prefix)]
    except READING_ERRORS as error:
        raise ValueError(f"{prefix} is not a readable TensorFlow checkpoint: {error}") from None


def write_bundle(prefix: str, tensors: dict[str, tf.Tensor]) -> None:
    """Writes tensors by name.

    Raises:
      tf.errors.OpError: if the disk refuses.
    """
    names = list(tensors)
    with tf.device("CPU:0"):
        tf.raw_ops.SaveV2(
            prefix=prefix,
            tensor_names=names,
            shape_and_slices=[""] * len(names),
            tensors=[tf.identity(tensors[name]) for name in names],
        )


def bundle_prefix(path: pathlib.Path) -> str | None:
    """Returns the prefix that a path means: itself, its newest checkpoint, or its only one."""
    if path.is_dir():
        found = tf.train.latest_checkpoint(str(path))
        if found:
            return found
        prefixes = sorted(path.glob("*.index"))
        return str(prefixes[0]).removesuffix(".index") if len(prefixes) == 1 else None
    prefix = str(path).removesuffix(".index")
    return prefix if pathlib.Path(f"{prefix}.index").exists() else None
