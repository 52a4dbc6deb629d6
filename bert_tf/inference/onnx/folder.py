"""Writes a folder with the ONNX file of a model and the files that other programs need.

folder/onnx/model.onnx        the graph of token ids
folder/onnx/model.onnx_data   its weights, which a runtime maps into memory instead of copying them
folder/onnx/bert_tf.json      metadata for `bert_tf.load`; the vocabulary is there as well
folder/config.json, tokenizer.json, modules.json ...   as `save_pretrained` writes them
"""

import dataclasses
import pathlib
from collections.abc import Callable
from typing import Any

import onnx
from absl import logging

from bert_tf.checkpoints.hub import local_path
from bert_tf.checkpoints.sharing import form_for_others, write_for_others
from bert_tf.inference.onnx.tracing import make_model
from bert_tf.inference.serving_models import TrainedModel
from bert_tf.system.checksums import file_crc
from bert_tf.system.files import new_folder, new_folder_path, real_path, write_json
from bert_tf.tasks.base.serving.metadata import CARD_NAME
from bert_tf.tasks.base.serving.model import Serving
from bert_tf.tasks.base.serving.onnx_model import (
    FILE,
    WEIGHTS,
    settings_checksums,
    weights_beside,
    weights_file,
)

Change = Callable[[onnx.ModelProto], onnx.ModelProto]


def write_folder(
    trained: TrainedModel,
    serving: Serving,
    output: pathlib.Path,
    source: str = "",
    form: str = "none",
    change: Change | None = None,
    check: Callable[[pathlib.Path], None] | None = None,
) -> pathlib.Path:
    """Writes the folder; it is complete or absent.

    In the folder that the model was read from, only the folder `onnx` is written.

    Args:
      serving: its serving functions, made with `unpad=False`.
      output: a new folder, or that of the model.
      source: the model, for the metadata, to compare the file with later.
      form: of the weights, for the metadata.
      change: makes the weights smaller.
      check: checks the file before the folder gets its name.

    Raises:
      ValueError: if the folder has other files, or ONNX cannot hold the model.
    """
    path = real_path(output)
    checkpoint = trained.checkpoint
    if serving.kind == "reranker":
        settings = {**checkpoint.settings, "activation": serving.card()["activation"]}
        settings["max_seq_length"] = str(serving.max_seq_length)
        checkpoint = dataclasses.replace(checkpoint, settings=settings)

    def fill(folder: pathlib.Path, beside: pathlib.Path) -> None:
        _write_files(serving, folder, beside, {"source": source, "quantize": form}, change)
        if check:
            check(folder / FILE.name)

    is_held_by_others = False

    def complete(inner: pathlib.Path, _: Any) -> None:
        nonlocal is_held_by_others
        is_held_by_others = True
        for name in WEIGHTS:
            (inner / name).unlink(missing_ok=True)
        (inner / FILE.parent).mkdir()
        fill(inner / FILE.parent, inner)

    if path.is_dir() and path == real_path(local_path(trained.folder)):
        with new_folder(path / FILE.parent) as inner:
            fill(inner, path)
        return path / FILE
    new_folder_path(path)
    try:
        write_for_others(checkpoint, path, form_for_others(checkpoint), complete)
    except ValueError as error:
        if is_held_by_others:
            raise
        logging.warning("Only the folder onnx is written, without a configuration: %s", error)
        with new_folder(path) as inner:
            complete(inner, None)
    return path / FILE


def _write_files(
    serving: Serving,
    folder: pathlib.Path,
    beside: pathlib.Path,
    origin: dict[str, str],
    change: Change | None,
) -> None:
    """Writes the files of the folder `onnx`; `beside` is the folder with the weights it is of."""
    model = make_model(serving)
    if change:
        model = change(model)
    outputs = [output.name for output in model.graph.output]
    file = folder / FILE.name
    data = weights_file(file)
    onnx.save_model(model, file, save_as_external_data=True, location=data.name)
    del model
    onnx.checker.check_model(str(file))
    if data.is_file():  # Small weights are in the file itself.
        data.chmod(file.stat().st_mode)  # onnx makes it unreadable for others.
    serving.vocab.write(folder / serving.vocab.file_name)
    checksums = {path.name: file_crc(path) for path in sorted(folder.iterdir())}
    weights = {name: file_crc(one) for name, one in weights_beside(beside).items()}
    card = {**serving.card(), **origin, "outputs": outputs, "weights": weights}
    card["settings"] = settings_checksums(beside)
    write_json(folder / CARD_NAME, {**card, "checksums": checksums})
