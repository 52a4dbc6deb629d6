"""TensorFlow's checkpoint format: a PREFIX.index with names, PREFIX.data-* with tensors.

Both hold CRC-32C sums of every tensor and of every block of names; reading checks them. They do not
cover a few unused bytes of the index and bytes after the last tensor: a damaged checkpoint is
either refused or gives the values that were written.
"""

import contextlib
import glob
import os
import pathlib
import re
import tempfile
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf.checkpoints.run_record import recorded
from bert_tf.system.bounded_files import check_regular, read_text

STEP = re.compile(r"-\d+$")
READING_ERRORS = (tf.errors.OpError, ValueError, IndexError, RuntimeError)


def read_bundle(prefix: str, *names: str) -> dict[str, np.ndarray]:
    """Reads the tensors of a TensorFlow checkpoint by name: all, or those of some names.

    Raises:
      ValueError: if it is no readable checkpoint.
    """
    with _reader(prefix) as reader:
        return {
            name: np.asarray(reader.get_tensor(name))
            for name in names or reader.get_variable_to_shape_map()
        }


def bundle_names(prefix: str) -> list[str]:
    """Returns the names of the tensors, without reading them; ValueError if it is not readable."""
    with _reader(prefix) as reader:
        return sorted(reader.get_variable_to_shape_map())


@contextlib.contextmanager
def _reader(prefix: str) -> Iterator[Any]:
    """Opens a checkpoint; ValueError if it is not readable, or one of its files is no file."""
    path = pathlib.Path(prefix).absolute()
    with tempfile.TemporaryDirectory() as folder:
        opened = prefix
        # TensorFlow takes a prefix for a pattern: one with its signs is read by another name.
        if glob.escape(prefix) != prefix:
            opened = os.path.join(folder, "model")  # noqa: PTH118
        for file in path.parent.glob(f"{glob.escape(path.name)}.*"):
            ending = file.name.removeprefix(path.name)
            # The files that TensorFlow opens; a read of a pipe would never end.
            if ending.startswith((".index", ".data-")):
                check_regular(file)
                pathlib.Path(folder, f"model{ending}").symlink_to(file)
        try:
            yield tf.train.load_checkpoint(opened)
        except READING_ERRORS as error:
            raise ValueError(f"{prefix} is not a readable TensorFlow checkpoint: {error}") from None


def host_copies(variables: Mapping[str, tf.Variable]) -> dict[str, tf.Tensor]:
    """Returns the current values of variables, in host memory.

    Later steps do not change them: a variable whose value is still referenced gets a new buffer.
    """
    with tf.device("CPU:0"):
        return {name: tf.identity(variable) for name, variable in variables.items()}


def write_bundle(prefix: str, tensors: dict[str, tf.Tensor]) -> None:
    """Writes tensors by name; tf.errors.OpError if writing fails."""
    prefix.encode()  # TensorFlow takes names in UTF-8 alone: the error shows this one.
    names = list(tensors)
    with tf.device("CPU:0"):
        tf.raw_ops.SaveV2(
            prefix=prefix,
            tensor_names=names,
            shape_and_slices=[""] * len(names),
            # Copied to the CPU, where SaveV2 runs.
            tensors=[tf.identity(tensors[name]) for name in names],
        )


def bundle_prefix(path: pathlib.Path) -> str | None:
    """Returns the checkpoint prefix for a path; in a folder, one is chosen.

    For a run with evaluations during training it is the best checkpoint, which best_checkpoint.json
    names, unless the run used its last one (--nouse_best_checkpoint); otherwise it is the newest.
    The file `checkpoint` names the newest; without it, the newest has the highest step. A folder
    with neither must have only one checkpoint.

    Raises:
      ValueError: if a folder holds several and the newest is unknown.
    """
    if not path.is_dir():
        prefix = str(path).removesuffix(".index")
        if pathlib.Path(f"{prefix}.index").is_file():
            return prefix
        return None
    files = [file for file in path.glob("*.index") if not file.name.startswith(".")]
    prefixes = sorted(str(file).removesuffix(".index") for file in files)
    missing: tuple[pathlib.Path, str] | None = None
    best = path / "best_checkpoint.json"
    if best.is_file() and recorded(str(path), "use_best_checkpoint") != "false":
        named = re.search(r'"step": (\d+)', read_text(best, errors="replace"))
        chosen = str(path / f"model.ckpt-{named[1]}") if named else ""
        if chosen in prefixes:
            return chosen
        if chosen:  # The run may have been copied without this checkpoint.
            missing = (best, chosen)
    state = path / "checkpoint"
    if state.is_file():
        named = re.match(r'model_checkpoint_path: "(.*)"', read_text(state, errors="replace"))
        # Only the name counts, because the folder may have been moved.
        newest = str(path / pathlib.PurePath(named[1]).name) if named else ""
        if newest in prefixes:
            return _in_place_of(missing, newest)
        if newest and not missing:
            missing = (state, newest)
    # The step is the number at the end, as in model.ckpt-1000.
    steps = {int(prefix.rpartition("-")[2]): prefix for prefix in prefixes if STEP.search(prefix)}
    if steps:
        return _in_place_of(missing, steps[max(steps)])
    if len(prefixes) > 1:
        names = [pathlib.PurePath(prefix).name for prefix in prefixes]
        raise ValueError(f"{path} holds several checkpoints: {names}; give the path of one.")
    if prefixes:
        return prefixes[0]
    return None


def _in_place_of(missing: tuple[pathlib.Path, str] | None, chosen: str) -> str:
    """Returns the chosen prefix, with a warning if a file names another one that is not there."""
    if missing:
        file, named = missing
        logging.warning("%s names %s, which is not there: %s is read.", file, named, chosen)
    return chosen
