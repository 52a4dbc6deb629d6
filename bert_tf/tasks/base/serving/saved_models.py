"""Reads SavedModels of `export.saved_model`: the metadata and the functions of texts.

NAME/VERSION/  saved_model.pb  variables/  assets.extra/bert_tf.json
"""

import pathlib
from collections.abc import Callable
from typing import Any

from bert_tf.system.bounded_files import read_bytes
from bert_tf.system.checksums import file_crc
from bert_tf.system.files import read_json, write_json
from bert_tf.system.printable import first_line
from bert_tf.tasks.base.serving.metadata import (
    CARD_NAME,
    TEXT_OUTPUTS,
    Metadata,
    check_outputs,
    parse_metadata,
)

EXTRA = "assets.extra"
CHECKSUMS = f"{EXTRA}/checksums.json"
MODEL_NAME = "saved_model.pb"
MAX_VERSION = (1 << 63) - 1  # of TensorFlow Serving, which overlooks folders of larger numbers


def versions(folder: pathlib.Path) -> dict[int, pathlib.Path]:
    """Returns the folders in a model's folder whose names TensorFlow Serving reads as versions."""
    paths = {}
    for path in folder.glob("[0-9]*"):
        is_number = path.name.isascii() and path.name.isdecimal()
        if is_number and int(path.name) <= MAX_VERSION and path.is_dir():
            paths[int(path.name)] = path
    return dict(sorted(paths.items()))


def find_saved_model(folder: pathlib.Path) -> pathlib.Path | None:
    """Returns the folder of a SavedModel, or None if there is no SavedModel.

    Args:
      folder: the folder of a version, or of a model, whose newest version is returned.
    """
    if (folder / MODEL_NAME).is_file():
        return folder
    paths = versions(folder)
    if not paths:
        return None
    newest = paths[max(paths)]
    return newest if (newest / MODEL_NAME).is_file() else None


def size_of(folder: pathlib.Path) -> int:
    """Returns the bytes of all files of a version."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def read_card(folder: pathlib.Path) -> Metadata:
    """Reads the metadata of a SavedModel, bert_tf.json."""
    path = folder / EXTRA / CARD_NAME
    if not path.is_file():
        raise ValueError(f"{folder} has no {EXTRA}/{CARD_NAME}; export it again.")
    return parse_metadata(read_bytes(path), path)


def write_checksums(folder: pathlib.Path) -> None:
    """Writes the checksums of all files but the weights, which contain checksums."""
    checksums = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_file() and not name.startswith("variables/"):
            checksums[name] = file_crc(path)
    write_json(folder / CHECKSUMS, checksums)


def check_files(folder: pathlib.Path) -> None:
    """Compares the files of a version with their checksums.

    Without the file of checksums, nothing is compared: delete it after a change on purpose.

    Raises:
      ValueError: naming the file that is missing or has changed.
    """
    path = folder / CHECKSUMS
    if not path.is_file():
        return
    for name, expected in read_json(path).items():
        file = folder / name
        if not file.is_file():
            raise ValueError(f"{folder} lacks {name}, which {CHECKSUMS} names; export it again.")
        if file_crc(file) != expected:
            raise ValueError(
                f"{file} is damaged or was changed: its checksum differs from {CHECKSUMS}. Export "
                "the model again; if you changed the file on purpose, delete the checksums."
            )


def load_signatures(folder: pathlib.Path, metadata: Metadata) -> dict[str, Any]:
    """Loads a SavedModel of texts; returns its functions by the signature's name."""
    check_files(folder)

    import tensorflow as tf

    from bert_tf.tasks.base.serving.model import IDS

    try:
        signatures = tf.saved_model.load(str(folder)).signatures
        function = signatures["serving_default"]
        inputs = set(function.structured_input_signature[1])
        shapes = {}
        for name, spec in function.structured_outputs.items():
            shapes[name] = spec.shape.as_list() if spec.shape.rank is not None else []
    except MemoryError:
        # The file is not damaged.
        raise
    except Exception as error:  # TensorFlow raises many types for damaged files.
        raise ValueError(f"{folder} cannot be loaded: {first_line(error)}") from None
    if inputs == set(IDS):
        raise ValueError(f"{folder} takes ids; give the folder of the text model next to it.")
    expected = {*metadata["inputs"], *metadata.get("numbers", {})}
    if inputs != expected:
        raise ValueError(
            f"{folder} takes {sorted(inputs)}, but its bert_tf.json says {sorted(expected)}; "
            "export it again."
        )
    check_outputs(metadata, shapes, TEXT_OUTPUTS, folder)
    return dict(signatures)


def call_signature(signature: Callable[..., Any], inputs: dict[str, Any]) -> dict[str, Any]:
    """Calls a loaded function; returns its outputs by name."""
    import tensorflow as tf

    try:
        return signature(**inputs)
    except tf.errors.ResourceExhaustedError:
        raise
    except (tf.errors.OpError, TypeError) as error:
        raise ValueError(f"The model cannot answer: {first_line(error)}") from None
