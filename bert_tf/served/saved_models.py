"""Reads SavedModels that `export.saved_model` wrote: the card and the functions of texts.

NAME/VERSION/  saved_model.pb  variables/  assets.extra/bert_tf.json
"""

import pathlib
from typing import Any

from bert_tf.files import read_json

CARD_NAME = "bert_tf.json"  # in assets.extra
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


def read_card(folder: pathlib.Path) -> dict[str, Any]:
    """Reads what a SavedModel says of itself in bert_tf.json.

    Raises:
      ValueError: if it has none.
    """
    path = folder / "assets.extra" / CARD_NAME
    if not path.is_file():
        raise ValueError(f"{folder} has no assets.extra/{CARD_NAME}; export it again.")
    return read_json(path)


def load_signatures(folder: pathlib.Path) -> dict[str, Any]:
    """Loads a SavedModel of texts; returns its functions by the signature's name.

    Raises:
      ValueError: if it takes ids, or cannot be loaded.
    """
    import tensorflow as tf

    from bert_tf.served.model import IDS

    try:
        signatures = tf.saved_model.load(str(folder)).signatures
    except (OSError, tf.errors.OpError, RuntimeError, ValueError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ValueError(f"{folder} cannot be loaded: {reason}") from None
    if set(signatures["serving_default"].structured_input_signature[1]) == set(IDS):
        raise ValueError(f"{folder} takes ids; give the text model beside it.")
    return signatures
