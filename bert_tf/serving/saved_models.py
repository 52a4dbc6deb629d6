"""Reads SavedModels that `export.saved_model` wrote: the card and the functions of texts.

NAME/VERSION/  saved_model.pb  variables/  assets.extra/bert_tf.json
"""

import pathlib
from collections.abc import Callable
from typing import Any

from bert_tf.bounded_files import read_bytes
from bert_tf.corpus.checksums import file_crc
from bert_tf.files import read_json, write_json
from bert_tf.printable import first_line
from bert_tf.serving.metadata import (
    CARD_NAME,
    TEXT_OUTPUTS,
    Metadata,
    check_outputs,
    parse_metadata,
)

EXTRA = "assets.extra"
CHECKSUMS = f"{EXTRA}/checksums.json"
MODEL_NAME = "saved_model.pb"


def versions(folder: pathlib.Path) -> list[int]:
    """Returns the versions in a model's folder, ascending: its folders that are numbers."""
    names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    return sorted(int(name) for name in names if name.isdecimal())


def find_saved_model(folder: pathlib.Path) -> pathlib.Path | None:
    """Returns a version's folder, of a model's folder the newest; None if there is none."""
    if not (folder / MODEL_NAME).is_file() and (found := versions(folder)):
        folder = folder / str(found[-1])
    return folder if (folder / MODEL_NAME).is_file() else None


def read_card(folder: pathlib.Path) -> Metadata:
    """Reads what a SavedModel says of itself in bert_tf.json.

    Raises:
      ValueError: if it is missing, or no export wrote it.
    """
    path = folder / EXTRA / CARD_NAME
    if not path.is_file():
        raise ValueError(f"{folder} has no {EXTRA}/{CARD_NAME}; export it again.")
    return parse_metadata(read_bytes(path), path)


def write_checksums(folder: pathlib.Path) -> None:
    """Writes the checksums of a finished version; files of weights have checksums inside."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    names = [path.relative_to(folder).as_posix() for path in files]
    checksums = {
        name: file_crc(folder / name) for name in names if not name.startswith("variables/")
    }
    write_json(folder / CHECKSUMS, checksums)


def check_files(folder: pathlib.Path) -> None:
    """Checks that the files of a version are as they were written.

    Versions of older releases have no checksums; they are accepted.

    Raises:
      ValueError: naming the file that has changed or is missing.
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
    """Loads a SavedModel of texts; returns its functions by the signature's name.

    Args:
      folder: of the version.
      metadata: its bert_tf.json.

    Raises:
      ValueError: if it takes ids, is damaged, or is another model than the metadata say.
    """
    check_files(folder)

    import tensorflow as tf

    from bert_tf.serving.model import IDS

    try:
        signatures = tf.saved_model.load(str(folder)).signatures
        function = signatures["serving_default"]
        inputs = set(function.structured_input_signature[1])
        shapes = {
            name: spec.shape.as_list() if spec.shape.rank is not None else []
            for name, spec in function.structured_outputs.items()
        }
    except MemoryError:
        raise
    except Exception as error:  # TensorFlow has no class of errors for damaged files.
        raise ValueError(f"{folder} cannot be loaded: {first_line(error)}") from None
    if inputs == set(IDS):
        raise ValueError(f"{folder} takes ids; give the text model beside it.")
    expected = {*metadata["inputs"], *metadata.get("numbers", {})}
    if inputs != expected:
        raise ValueError(
            f"{folder} takes {sorted(inputs)}, but its bert_tf.json says {sorted(expected)}; "
            "export it again."
        )
    check_outputs(metadata, shapes, TEXT_OUTPUTS, folder)
    return dict(signatures)


def call_signature(signature: Callable[..., Any], inputs: dict[str, Any]) -> dict[str, Any]:
    """Returns the outputs of a loaded function by name.

    Raises:
      ValueError: if the model refuses the inputs.
    """
    import tensorflow as tf

    try:
        return signature(**inputs)
    except tf.errors.ResourceExhaustedError:
        raise
    except (tf.errors.OpError, TypeError) as error:
        raise ValueError(f"The model cannot answer: {first_line(error)}") from None
