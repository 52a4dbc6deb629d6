"""Folders of models as TensorFlow Serving watches them: NAME/VERSION, whole or absent."""

import contextlib
import os
import pathlib
import shutil
from collections.abc import Iterator

from bert_tf.serving.saved_models import versions


def ids_folder(folder: pathlib.Path) -> pathlib.Path:
    """Returns where the ids model of a text model stands: serving/sst2 -> serving/sst2_ids."""
    folder = folder if folder.name else folder.absolute()
    return folder.with_name(f"{folder.name}_ids")


def next_version(folder: pathlib.Path) -> int:
    """Returns the version after the highest one of a text model and its ids model."""
    return 1 + max([0, *versions(folder), *versions(ids_folder(folder))])


def check_new(folder: pathlib.Path, version: int) -> None:
    """Raises ValueError if a version is there already."""
    for path in (folder / str(version), ids_folder(folder) / str(version)):
        if path.exists():
            raise ValueError(
                f"{path} exists already, and a version never changes; leave --version out for the "
                f"next one."
            )


@contextlib.contextmanager
def hidden_folder(path: pathlib.Path) -> Iterator[pathlib.Path]:
    """Makes a folder to write in on the disk of `path`, gone again unless it was renamed.

    It stands beside the model's folder, not in it, so that no server ever looks at it. What is
    beside a mount point lies on another disk: there it stands in it, by a name that is no version.
    """
    model = path.parent.resolve()
    place = model if model.is_mount() else model.parent
    hidden = place / f".{model.name}.{path.name}.{os.getpid()}.tmp"
    shutil.rmtree(hidden, ignore_errors=True)
    hidden.mkdir(parents=True)
    try:
        yield hidden
    finally:
        shutil.rmtree(hidden, ignore_errors=True)


def flush(folder: pathlib.Path) -> None:
    """Waits until all that is in a folder is on the disk."""
    for path in [*folder.rglob("*"), folder]:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
