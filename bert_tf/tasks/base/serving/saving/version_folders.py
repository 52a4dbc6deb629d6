"""Folders of models for TensorFlow Serving, NAME/VERSION, which appear atomically."""

import contextlib
import os
import pathlib
from collections.abc import Iterator

from bert_tf.system.temporaries import temporary
from bert_tf.tasks.base.serving.saved_models import MAX_VERSION, versions


def ids_folder(folder: pathlib.Path) -> pathlib.Path:
    """Returns the folder of a text model's ids model: serving/sst2 -> serving/sst2_ids."""
    # The path "." has no name.
    folder = folder if folder.name else folder.absolute()
    return folder.with_name(f"{folder.name}_ids")


def next_version(folder: pathlib.Path) -> int:
    """Returns the version after the highest one of a text model and its ids model."""
    models = (folder, ids_folder(folder))
    version = 1 + max([0, *versions(models[0]), *versions(models[1])])
    while any(os.path.lexists(model / str(version)) for model in models):  # by a file
        version += 1
    return version


def check_new(folder: pathlib.Path, version: int) -> None:
    """Raises ValueError if a version already exists, or a model's folder is something else."""
    if version > MAX_VERSION:
        raise ValueError(f"version is {version}, expected at most {MAX_VERSION}.")
    for model in (folder, ids_folder(folder)):
        if os.path.lexists(model) and not model.is_dir():
            raise ValueError(f"{model} is not a folder; name another folder for the model.")
        path = model / str(version)
        if os.path.lexists(path):
            raise ValueError(
                f"{path} already exists, and a version never changes; leave --version out for the "
                f"next one."
            )


@contextlib.contextmanager
def hidden_folder(path: pathlib.Path) -> Iterator[pathlib.Path]:
    """Creates a temporary folder on the disk of `path`, deleted at the end unless it was renamed.

    It is created next to the model's folder, so that no server reads it. If the model's folder is a
    mount point, its parent is on another disk; then the temporary folder is created inside, with a
    name that is not a version. Files that a killed process left for the same version are deleted.
    """
    model = path.parent.resolve()
    parent = model if model.is_mount() else model.parent
    parent.mkdir(parents=True, exist_ok=True)
    with temporary(parent / f"{model.name}.{path.name}", is_folder=True) as hidden:
        yield hidden


def flush(folder: pathlib.Path) -> None:
    """Waits until all files of a folder are on the disk."""
    for path in [*folder.rglob("*"), folder]:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
