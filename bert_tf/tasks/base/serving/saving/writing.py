"""Writes a model for serving: two SavedModels with metadata, vocabulary and warm-up requests.

NAME/VERSION/       text in                   NAME_ids/VERSION/   ids in
  saved_model.pb  variables/
  assets.extra/   bert_tf.json  vocab.txt (or tokenizer.json)  tf_serving_warmup_requests
"""

import contextlib
import os
import pathlib
from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from absl import logging

from bert_tf.system.files import write_json
from bert_tf.system.startup_lines import hidden_lines
from bert_tf.system.type_names import Tensor
from bert_tf.tasks.base.serving.metadata import CARD_NAME
from bert_tf.tasks.base.serving.model import IDS, Serving, Signatures
from bert_tf.tasks.base.serving.saved_models import EXTRA, write_checksums
from bert_tf.tasks.base.serving.saving.version_folders import (
    check_new,
    flush,
    hidden_folder,
    ids_folder,
)
from bert_tf.tasks.base.serving.saving.warmup import Requests, write_warmup

# A short and a longer request, to warm up the server for both lengths.
SAMPLES = {
    "text": ("A short text with a [MASK] in it.", "word " * 50),
    "text_b": ("And a second one.", "piece " * 50),
    "candidates": (("politics", "sport"), ("music", "")),
    "question": ("What is short?", "Which word is there fifty times?"),
    "context": ("This text is short.", "word " * 50),
    "query": ("What is short?", "Which word is there fifty times?"),
    "documents": (("This text is short.", "word " * 50), ("word " * 50, "")),
}


def save(
    serving: Serving,
    folder: pathlib.Path,
    version: int,
    source: str,
    options: dict[str, Any] | None = None,
) -> list[pathlib.Path]:
    """Writes a new version of both SavedModels; returns their folders, the text model first.

    A search has only one. `folder` is that of the text model, next to that of the ids model.
    """
    check_new(folder, version)
    samples = {name: tf.constant(SAMPLES[name]) for name in serving.texts}
    metadata = {**serving.card(), "source": source, "options": options or {}}
    ids = dict(zip(IDS, serving.sample_ids(*samples.values()), strict=True))
    serving.share_model()  # All signatures call one graph of the model.
    text_request = dict(samples)
    for name, number in serving.numbers.items():
        text_request[name] = tf.constant(number)
    # The text model appears last: its version shows that both models are complete.
    models = [
        (ids_folder(folder), serving.id_signatures(), [("serving_default", ids)]),
        (folder, serving.text_signatures(), [("serving_default", text_request)]),
    ]
    with contextlib.ExitStack() as stack:
        hidden_folders = {}
        for model, signatures, requests in models:
            if not signatures:  # A search takes no ids.
                continue
            path = model / str(version)
            # A server reads every folder whose name is a number, so write under another name.
            hidden = stack.enter_context(hidden_folder(path))
            hidden_folders[path] = hidden
            try:
                _write(serving, hidden, model.name, signatures, requests, metadata)
            except (OSError, tf.errors.OpError) as error:
                reason = getattr(error, "message", None) or str(error)
                raise OSError(f"{path} could not be written: {reason.splitlines()[0]}") from error
        # Both models are complete, so only a rename can still fail.
        for path, hidden in hidden_folders.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            hidden.rename(path)
    return list(hidden_folders)[::-1]


def _write(
    serving: Serving,
    folder: pathlib.Path,
    name: str,
    signatures: Signatures,
    requests: Requests,
    metadata: dict[str, Any],
) -> None:
    """Writes one SavedModel into a folder that no server reads yet."""
    functions = {name: call.get_concrete_function() for name, call in signatures.items()}
    # The tables of byte-level BPE and of added tokens are resources, as weights are.
    tokenizers: list[Any] = []
    for part in serving.parts():
        tokenizers.extend(part.tokenizer.resources)
    save_functions(folder, functions, tokenizers)
    extra = folder / EXTRA
    extra.mkdir()
    serving.vocab.write(extra / serving.vocab.file_name)
    write_warmup(extra / "tf_serving_warmup_requests", name, requests)
    write_json(extra / CARD_NAME, {**metadata, "signatures": sorted(signatures)})
    write_checksums(folder)
    flush(folder)


def save_functions(
    folder: str | os.PathLike, functions: dict[str, Any], tokenizers: Sequence[Any] = ()
) -> None:
    """Writes a SavedModel of functions and the objects they use, without gradients and layers."""
    variables: list[Tensor] = []
    for function in functions.values():
        variables.extend(function.variables)
    module = tf.Module()
    module.weights = variables
    module.tokenizers = list(tokenizers)
    options = tf.saved_model.SaveOptions(experimental_custom_gradients=False)
    before = logging.get_verbosity()
    logging.set_verbosity(logging.WARNING)  # TensorFlow logs every file that it writes.
    try:
        with hidden_lines():  # The graph optimizer speaks of oneDNN.
            tf.saved_model.save(module, str(folder), functions, options)
    finally:
        logging.set_verbosity(before)
