"""The configuration in a Keras file, read without TensorFlow.

    mine.keras    a zip of config.json (classes, arguments, vocabulary) and model.weights.h5

The model is one of this package, or a functional model of Keras around it. Settings of the inputs
have the names of the programs' flags, so that they are read like those of a run.
"""

import functools
import json
import pathlib
from collections.abc import Iterator
from typing import Any, NamedTuple

from bert_tf.config.fine_tuning_config import reading_of_rows
from bert_tf.system.bounded_files import check_keras_file, open_zip, parse_json, read_member
from bert_tf.text.kinds import vocab_from_config
from bert_tf.text.tokenization import AnyVocab

ENDING = ".keras"
CONFIG_NAME = "config.json"
PACKAGE = "bert_tf>"
PREPROCESSOR = "BertPreprocessor"
OF_PAIRS = ("BertMultipleChoice", "BertReranker")
# Arguments of classes that are settings of the inputs.
ARGUMENTS = ("problem_type", "long_texts", "pair", "activation", "temperature", "thresholds")
DEFAULTS = {"temperature": 1.0}


class SavedObject(NamedTuple):
    """A class of this package in a Keras configuration, with its arguments."""

    name: str
    arguments: dict[str, Any]


def is_keras_file(path: pathlib.Path) -> bool:
    """Returns whether a path is that of a Keras file, by its name."""
    return path.suffix == ENDING


def read_config(path: pathlib.Path) -> dict[str, Any]:
    """Reads the config.json of a Keras file; ValueError if it does not exist or is damaged."""
    if not path.exists():
        raise ValueError(f"{path} does not exist; expected a file that model.save wrote.")
    check_keras_file(path)
    try:
        with open_zip(path) as archive:
            values = parse_json(read_member(archive, CONFIG_NAME, path), f"{path}: {CONFIG_NAME}")
    except KeyError:
        raise ValueError(f"{path} is not a readable Keras model: it has no {CONFIG_NAME}") from None
    if not isinstance(values, dict):
        raise ValueError(f"{path} is not a readable Keras model: {CONFIG_NAME} is not an object.")
    return values


def read_settings(path: pathlib.Path) -> dict[str, str]:
    """Returns the settings of the inputs in a Keras file, by the names of flags."""
    stamp = path.stat() if path.is_file() else None
    # The cache is for this state of the file: it may be written again.
    key = (stamp.st_mtime_ns, stamp.st_size, stamp.st_ino) if stamp else None
    return dict(_read_settings(path, key))


@functools.lru_cache(maxsize=4)
def _read_settings(path: pathlib.Path, _: object) -> dict[str, str]:
    settings: dict[str, str] = {}
    for saved in saved_objects(read_config(path)):
        for name, value in settings_of(*saved).items():
            # The outermost object comes first, and its settings count.
            settings.setdefault(name, value)
        if saved.name == PREPROCESSOR:
            settings.setdefault("max_seq_length", str(saved.arguments["max_seq_length"]))
    return settings


def read_tokenizer(path: pathlib.Path) -> tuple[AnyVocab, bool] | None:
    """Returns the vocabulary in a Keras file and whether texts are lower-cased, or None."""
    for saved in saved_objects(read_config(path)):
        try:
            if saved.name == PREPROCESSOR:
                vocab = vocab_from_config(saved.arguments["vocab"])
                return vocab, bool(saved.arguments["do_lower_case"])
            if saved.arguments.get("vocab") is not None:  # An embedder has no preprocessor.
                vocab = vocab_from_config(saved.arguments["vocab"])
                return vocab, bool(saved.arguments["config"]["do_lower_case"])
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{path}: the vocabulary is damaged: {error!r:.200}") from None
    return None


def saved_objects(values: dict[str, Any] | list[Any]) -> Iterator[SavedObject]:
    """Yields the classes of this package in a Keras configuration, from the outside in."""
    if isinstance(values, list):
        for value in values:
            if isinstance(value, dict | list):
                yield from saved_objects(value)
        return
    name = str(values.get("registered_name"))
    arguments = values.get("config")
    if name.startswith(PACKAGE) and isinstance(arguments, dict):
        yield SavedObject(name.removeprefix(PACKAGE), arguments)
    for value in values.values():
        if isinstance(value, dict | list):
            yield from saved_objects(value)


def settings_of(name: str, arguments: dict[str, Any]) -> dict[str, str]:
    """Returns the settings of the inputs of a model, from its class and its `get_config`."""
    settings = {}
    for key in ARGUMENTS:
        value = arguments.get(key)
        # Defaults are left out, as in the record of a run.
        if value and value != DEFAULTS.get(key):
            settings[key] = value
    if name in OF_PAIRS:
        settings["pair"] = True
    preprocessor = arguments.get("preprocessor")
    length = preprocessor["config"]["max_seq_length"] if isinstance(preprocessor, dict) else 0
    if length:
        settings["max_seq_length"] = length
    if "reading" in arguments and (arguments["reading"] or length):
        settings |= arguments["reading"] or reading_of_rows(length).to_dict()
    return {key: _as_flag(value) for key, value in settings.items()}


def _as_flag(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return json.dumps(value)
    return str(value)
