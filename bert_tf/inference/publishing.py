"""Writes a model that is in memory: a folder to share, or SavedModels to serve.

This module implements the methods `save_pretrained` and `export` of the models, which correspond to
`convert_checkpoint` and `export.saved_model` for runs.
"""

import os
import pathlib
import tempfile
from typing import Any

from bert_tf.checkpoints.formats import WRITERS, left_out, write_checkpoint
from bert_tf.checkpoints.hub import local_path
from bert_tf.checkpoints.sharing import WITH_CARD, form_for_others, write_for_others
from bert_tf.inference.model_card import write_model_card
from bert_tf.inference.serving_models import load, make_serving, read_model
from bert_tf.system.extras import check_installed
from bert_tf.system.files import new_folder_path
from bert_tf.system.type_names import Model
from bert_tf.tasks.base.serving.saving.version_folders import check_new, next_version
from bert_tf.tasks.base.serving.saving.writing import save

# Heads that may be lost: in formats without a pooler, the heads of tasks do not need it.
SPARE_HEADS = ("pooler",)


def save_pretrained(model: Model, folder: str | os.PathLike, form: str = "") -> None:
    """Writes a model into a new folder; see `FromPretrained.save_pretrained`.

    Args:
      model: a model of this package.
      folder: a new or empty folder.
      form: one of `WRITERS`; "": sentence-transformers' for an embedder, Model2Vec's for one that
        came from there, otherwise Hugging Face's.

    Raises:
      ValueError: if the folder is not empty, or the form cannot represent the model.
    """
    if form not in ("", *WRITERS):
        raise ValueError(f"form is {form!r}, expected one of {', '.join(WRITERS)}.")
    checkpoint = model.to_checkpoint("both" if form == "google" else "")
    form = form or form_for_others(checkpoint)
    name = type(model).__name__
    alternatives = (
        f'save_pretrained({os.fspath(folder)!r}, form="bert_tf") and save("mine.keras") can, and '
        "all programs read both."
    )
    try:
        lost = [head for head in left_out(checkpoint, form) if head not in SPARE_HEADS]
    except ValueError as error:
        raise ValueError(f"{name}: {error} {alternatives}") from None
    if lost:
        raise ValueError(
            f"{name}: {form} has no counterpart of its heads {', '.join(lost)}; {alternatives}"
        )
    path = local_path(folder)
    complete = write_model_card if form in WITH_CARD else None
    write_for_others(checkpoint, path, form, complete)


def export(
    model: Model, folder: str | os.PathLike, version: int = 0, kind: str = "", **options: Any
) -> list[pathlib.Path]:
    """Writes a model as `export.saved_model` does; see `FromPretrained.export`.

    Args:
      model: a model of this package, with a tokenizer.
      folder: the folder of the model; each export is a new version in it.
      version: number of the version; 0: the next free number.
      kind: a kind of `inference.kinds`; "": determined by the heads.
      options: options of `inference.serving_models.load`: max_seq_length, precision, top_k and
        others.

    Returns:
      The folders of the versions: of the model that takes texts, and of the model that takes ids.

    Raises:
      ValueError: if the model has no tokenizer or lacks the head of the kind, or the version
        exists.
    """
    path = pathlib.Path(folder).expanduser()
    check_has_vocabulary(model)
    version = version or next_version(path)
    check_new(path, version)
    # `load` reads folders, so the model is first written to one.
    with tempfile.TemporaryDirectory() as temporary:
        source = pathlib.Path(temporary, "model")
        write_checkpoint(model.to_checkpoint(), source, "bert_tf")
        serving = load(str(source), kind, **options)
    # The texts are part of the metadata already, as its inputs.
    recorded_options = {name: value for name, value in options.items() if name != "texts"}
    return save(serving, path, version, "", recorded_options)


def export_onnx(
    model: Model, folder: str | os.PathLike, kind: str = "", max_seq_length: int = 0, **options: Any
) -> pathlib.Path:
    """Writes a model as `export.onnx` does; returns the file. See `FromPretrained.export`.

    Raises:
      ValueError: if the model has no tokenizer, ONNX cannot hold it, or the folder has files.
    """
    check_has_vocabulary(model)
    path = new_folder_path(folder)
    check_installed("onnx", "onnx")
    from bert_tf.inference.onnx.folder import write_folder

    with tempfile.TemporaryDirectory() as temporary:
        source = pathlib.Path(temporary, "model")
        write_checkpoint(model.to_checkpoint(), source, "bert_tf")
        trained = read_model(str(source), kind)
        serving = make_serving(trained, max_seq_length, unpad=False, **options)
        return write_folder(trained, serving, path)


def check_has_vocabulary(model: Model) -> None:
    """Raises ValueError if a model cannot be served on texts."""
    if model.to_checkpoint().vocab is None:
        raise ValueError(
            f"{type(model).__name__}.export: the model has no tokenizer, so it cannot be served on "
            "texts. Set model.preprocessor = bert_tf.BertPreprocessor(...), or give Keras' own "
            "arguments for a model of ids: export(folder, input_signature=...)."
        )
