"""The identity of a run in its checkpoints, compared with the files of its folder.

A checkpoint holds a tensor whose name has the run's id and whose value has the digests of the run's
files: `run/3f..` = {"labels.txt": "9a..", ..}. The id is in the name because names are in the index
file: the data files of two equal runs have the same bytes.
"""

import contextlib
import json
import pathlib
from collections.abc import Collection

import tensorflow as tf

from bert_tf.checkpoints.run_identity import RunIdentity, check_files, new_identity
from bert_tf.checkpoints.run_record import has_checkpoints, list_checkpoints
from bert_tf.checkpoints.tf_bundle import bundle_names, read_bundle

NAME_START = "run/"


def identity_tensors(identity: RunIdentity) -> dict[str, tf.Tensor]:
    """Returns the tensor of a checkpoint that holds the identity, by its name."""
    text = json.dumps(identity.sha256, sort_keys=True)
    return {f"{NAME_START}{identity.run_id}": tf.constant(text)}


def read_identity(prefix: str) -> RunIdentity | None:
    """Returns the identity in a checkpoint; None if no run wrote it."""
    names = [name for name in bundle_names(prefix) if name.startswith(NAME_START)]
    if not names:
        return None
    text = read_bundle(prefix, names[0])[names[0]].item()
    return RunIdentity.from_values(names[0].removeprefix(NAME_START), json.loads(text))


def check_checkpoint(prefix: str, without: Collection[str] = ()) -> None:
    """Checks that a checkpoint and the files in its folder belong together; see `check_files`."""
    identity = read_identity(prefix)
    path = pathlib.Path(prefix)
    check_files(path.parent, {path.name: identity} if identity else {}, without)


def check_run_directory(folder: pathlib.Path, without: Collection[str] = ()) -> None:
    """Checks that all checkpoints of a run directory and its files belong together."""
    check_files(folder, _identities(folder), without)


def record_identity(folder: pathlib.Path) -> None:
    """Writes run.json once all files of a run are recorded.

    A resumed run keeps its id: that of its record, else that of its checkpoints.
    """
    is_begun = has_checkpoints(folder)
    # A resumed run: the record is complete.
    if is_begun and RunIdentity.read(folder):
        return
    # Checkpoints keep the id of a run whose record is missing.
    known = [identity.run_id for identity in _identities(folder).values()]
    new_identity(folder, known[0] if known else "").write(folder)


def _identities(folder: pathlib.Path) -> dict[str, RunIdentity]:
    """Returns the identities in the checkpoints of a run directory by the checkpoint's name."""
    found: dict[str, RunIdentity] = {}
    for prefix in list_checkpoints(folder):
        with contextlib.suppress(ValueError):  # Restoring reports those that cannot be read.
            if identity := read_identity(str(prefix)):
                found[prefix.name] = identity
    return found
