"""Runs the ONNX file of a folder that `export.onnx` wrote, without TensorFlow.

    folder/onnx/model.onnx     the graph of token ids, with its weights in model.onnx_data
    folder/onnx/bert_tf.json   metadata; the vocabulary is there as well
    folder/*                   configuration and tokenizer in the form of other programs

model = OnnxModel(pathlib.Path("folder/onnx/model.onnx"))
model(["a fine film", "dull"])["logits"]  # float32 [2, C], in the order of model.labels
"""

import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from absl import logging

from bert_tf.system.bounded_files import read_bytes
from bert_tf.system.checksums import file_crc
from bert_tf.system.extras import install_hint
from bert_tf.system.printable import first_line
from bert_tf.tasks.base.serving.metadata import (
    CARD_NAME,
    ONNX_OUTPUTS,
    Metadata,
    check_outputs,
    parse_metadata,
)
from bert_tf.tasks.base.serving.row_model import Arrays, RowModel
from bert_tf.text.kinds import read_vocabulary_in
from bert_tf.text.packing import INPUTS

FILE = pathlib.Path("onnx", "model.onnx")
INPUT_NAMES = ("input_ids", "attention_mask", "token_type_ids")
# Outputs that LiteRT files name differently.
NAMES = {"sentence_embedding": "embedding", "token_embeddings": "vectors", "scoring_mask": "scored"}
WEIGHTS = ("model.safetensors", "pytorch_model.bin", "tf_model.h5")
# Those of the model and its shards, of its modules, of an adapter, and of a run.
WEIGHT_PATTERNS = (
    *("model*.safetensors", "pytorch_model*.bin", "tf_model*.h5", "adapter_model.*"),
    *("[0-9]*_*/model.safetensors", "[0-9]*_*/pytorch_model.bin", "*.ckpt*.index"),
)
# Files beside them that decide about tokens, labels and poolings.
SETTINGS = (
    *("config.json", "bert_config.json", "labels.txt", "vocab.txt", "vocab.options.json"),
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"),
    *("embedder.json", "modules.json", "1_Pooling/config.json", "sentence_bert_config.json"),
    *("config_sentence_transformers.json", "run.flags", "inputs.flags", "calibration.flags"),
)


def find_onnx(path: pathlib.Path) -> pathlib.Path | None:
    """Returns the ONNX file that a path names, itself or as a folder of `export.onnx`."""
    if path.suffix == ".onnx":
        return path
    file = path / FILE
    return file if file.is_file() and (file.parent / CARD_NAME).is_file() else None


def weights_file(path: pathlib.Path) -> pathlib.Path:
    """Returns the file of the weights of an ONNX file, which a small model does not have."""
    return path.with_name(f"{path.name}_data")


def weights_beside(folder: pathlib.Path) -> dict[str, pathlib.Path]:
    """Returns the files of weights in a folder that holds the folder `onnx`, by relative names."""
    found = {}
    for pattern in WEIGHT_PATTERNS:
        for path in folder.glob(pattern):
            found[path.relative_to(folder).as_posix()] = path
    return found


def settings_checksums(folder: pathlib.Path) -> dict[str, str]:
    """Returns the checksums of those files of `SETTINGS` that a folder has."""
    return {name: file_crc(folder / name) for name in SETTINGS if (folder / name).is_file()}


def num_bytes(path: pathlib.Path) -> int:
    """Returns the size of a file with that of its weights."""
    return sum(file.stat().st_size for file in (path, weights_file(path)) if file.is_file())


class OnnxModel(RowModel):
    """An ONNX file of `export.onnx`.

    Args:
      path: the file, onnx/model.onnx in its folder.
      num_threads: number of threads that compute; 0: all cores.

    Raises:
      ValueError: if the file is not an export of this package or has changed, the folder has newer
        weights, or onnxruntime is not installed.
    """

    has_logits = True

    def __init__(self, path: pathlib.Path, num_threads: int = 0) -> None:
        card_file = path.parent / CARD_NAME
        if not path.is_file() or not card_file.is_file():
            raise ValueError(
                f"{path} was not written by export.onnx, which writes {CARD_NAME} beside it; "
                "export the model, or give the folder of its weights."
            )
        card = parse_metadata(read_bytes(card_file), card_file)
        check_is_current(path, card)
        super().__init__(path, card, read_vocabulary_in(path.parent))
        self._session = open_session(path, num_threads)
        shapes: dict[str, Sequence[int | None]] = {}
        for output in self._session.get_outputs():
            # Sizes that are not known have names.
            shapes[str(output.name)] = [one if isinstance(one, int) else -1 for one in output.shape]
        check_outputs(card, shapes, ONNX_OUTPUTS, path)
        self._outputs = list(shapes)

    def from_ids(self, batch: Arrays) -> Arrays:
        inputs = {}
        for name, column in zip(INPUT_NAMES, INPUTS, strict=True):
            inputs[name] = batch[column].astype(np.int64)
        try:
            values = self._session.run(self._outputs, inputs)
        except Exception as error:  # The runtime has types of its own.
            reason = first_line(error)
            raise ValueError(f"{self._path} cannot compute this batch: {reason}.") from None
        outputs = dict(zip(self._outputs, values, strict=True))
        return {NAMES.get(name, name): value for name, value in outputs.items()}


def open_session(path: pathlib.Path, num_threads: int = 0) -> Any:
    """Opens a file in ONNX Runtime, on the CPU."""
    try:
        import onnxruntime
    except ImportError:
        raise ValueError(f"ONNX files need onnxruntime: {install_hint('onnx')}.") from None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = num_threads
    options.log_severity_level = 4  # Errors are raised.
    try:
        return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # The runtime has types of its own.
        raise ValueError(f"{path} cannot be loaded: {first_line(error)}.") from None


def check_is_current(path: pathlib.Path, card: Metadata) -> None:
    """Checks that a file, its data and vocabulary are the exported ones, of their folder's weights.

    Settings beside it that have changed since are not read, which a warning says.

    Raises:
      ValueError: if the file has changed, or the folder has other weights that are newer.
    """
    checksums = _checksums(path, card, "checksums")
    for name in dict.fromkeys([path.name, weights_file(path).name, *checksums]):
        file = path.with_name(name)
        checksum = checksums.get(name)
        if file.is_file() and file_crc(file) != checksum:
            raise ValueError(f"{file} was changed after it was written; export the model again.")
        if checksum and not file.is_file():
            raise ValueError(f"{file} is missing; export the model again.")
    written = path.stat().st_mtime
    for name, weights in weights_beside(path.parent.parent).items():
        # The time alone would refuse copies, whose files have new times.
        if not weights.is_file() or weights.stat().st_mtime <= written:
            continue
        if file_crc(weights) != _checksums(path, card, "weights").get(name):
            raise ValueError(
                f"{path} is older than the weights {weights}; export the model again by "
                "export.onnx, or remove the folder onnx to use the weights."
            )
    changed = []
    for name, checksum in settings_checksums(path.parent.parent).items():
        if _checksums(path, card, "settings").get(name, checksum) != checksum:
            changed.append(name)
    if changed:
        logging.warning(
            "%s was written before %s changed: it answers with the tokens, labels and poolings of "
            "its export. Export the model again for the new ones.",
            path,
            " and ".join(changed),
        )


def _checksums(path: pathlib.Path, card: Metadata, key: str) -> dict[str, str]:
    """Returns the checksums of files by name; ValueError if the metadata have something else."""
    checksums = card.get(key, {})
    if not isinstance(checksums, dict):
        raise ValueError(f"{path.parent / CARD_NAME}: {key} is {checksums!r}, expected an object.")
    return checksums
