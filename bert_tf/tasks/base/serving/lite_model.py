"""Runs a LiteRT file in Python without TensorFlow: token ids or texts in, arrays out.

model = LiteModel("sst2.tflite")
model(["a fine film", "dull"])["probabilities"]  # float32 [2, C], in the order of model.labels
"""

import functools
import os
import pathlib
import struct
import tempfile
import threading
import zipfile
from collections.abc import Sequence
from typing import Any

import google_crc32c
import numpy as np

from bert_tf.checkpoints.archives import UNPACKING_ERRORS
from bert_tf.system.bounded_files import open_zip, read_member
from bert_tf.system.printable import first_line
from bert_tf.tasks.base.serving.metadata import (
    CARD_NAME,
    ROW_OUTPUTS,
    check_outputs,
    parse_metadata,
)
from bert_tf.tasks.base.serving.row_model import Arrays, RowModel
from bert_tf.text.kinds import VOCABULARY_FILES
from bert_tf.text.tokenization import AnyVocab, read_vocab
from bert_tf.text.vocab import options_file

TEXT_SIGNATURE = "text"
CHECKSUM_NAME = "model.crc32c"  # In the archive.


class LiteModel(RowModel):
    """A LiteRT file of `export.tflite`.

    Args:
      num_threads: number of threads that compute.

    Raises:
      ValueError: if the file is not an export of this package, or ai-edge-litert is not installed.
    """

    def __init__(self, path: str | os.PathLike, num_threads: int = 1) -> None:
        os.fspath(path).encode()  # LiteRT takes names in UTF-8 alone: the error shows this one.
        try:
            with open_zip(path) as archive:
                content = read_member(archive, CARD_NAME, path)
                card = parse_metadata(content, CARD_NAME)
                vocab = _read_vocab(archive, path)
                check_model_part(archive, path)
        except FileNotFoundError:
            raise
        except (*UNPACKING_ERRORS, KeyError, struct.error) as error:
            reason = str(error).rstrip(".")
            raise ValueError(f"{path} was not written by export.tflite: {reason}.") from None
        super().__init__(path, card, vocab)
        self._num_threads = num_threads
        self._computing = threading.Lock()  # An interpreter has one memory for all calls.
        try:
            interpreter = _load_interpreter(path, num_threads)
            self._run = interpreter.get_signature_runner("serving_default")
            shapes = {}
            for name, details in self._run.get_output_details().items():
                shapes[name] = details["shape_signature"].tolist()
        except (RuntimeError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{path} cannot be loaded: {first_line(error)}.") from None
        check_outputs(self.card, shapes, ROW_OUTPUTS, path)
        self._output_shapes = shapes

    def from_ids(self, batch: Arrays) -> Arrays:
        """Returns the outputs for a batch of token ids, int32 [B, T], as new arrays.

        Each row is computed alone, without its padding: that is faster than LiteRT's product of a
        whole block, and an answer does not depend on the other rows. Outputs of tokens are 0 at
        padding.

        Raises:
          ValueError: if the model cannot compute them, for example if a sequence is too long.
        """
        num_rows, length = batch["input_mask"].shape
        outputs: Arrays = {}
        for row in range(num_rows):
            columns = np.flatnonzero(batch["input_mask"][row])
            cells = np.ix_(np.array([row]), columns)
            computed = self._compute({name: array[cells] for name, array in batch.items()})
            for name, values in computed.items():
                if self._output_shapes[name][1:2] == [-1]:  # an output of each token
                    whole = np.zeros((num_rows, length, *values.shape[2:]), values.dtype)
                    outputs.setdefault(name, whole)[row, columns] = values[0]
                else:
                    whole = np.zeros((num_rows, *values.shape[1:]), values.dtype)
                    outputs.setdefault(name, whole)[row] = values[0]
        return outputs

    def _compute(self, batch: Arrays) -> Arrays:
        """Returns the outputs for a batch, which LiteRT computes as one block."""
        try:
            with self._computing:
                return self._run(**batch)
        except RuntimeError as error:
            reason = first_line(error)
            raise ValueError(f"{self._path} cannot compute this batch: {reason}.") from None

    def from_texts(self, texts: Sequence[str]) -> Arrays:
        """Returns the outputs for single texts, tokenized inside the file.

        Raises:
          ValueError: if it was written without --text_input, or tensorflow-text is not installed.
        """
        encoded = np.array([text.encode("utf8") for text in texts], object)
        with self._computing:
            return self._run_texts(text=encoded)

    @functools.cached_property
    def _run_texts(self) -> Any:
        if not self.card.get("text_input"):
            raise ValueError(
                f"{self._path} was written without --text_input; pass ids, or export it again."
            )
        try:
            import tensorflow_text as tf_text
        except ImportError:
            raise ValueError(
                "The tokenizer of a LiteRT file needs tensorflow-text: pip install tensorflow-text"
            ) from None
        kernels = tf_text.tflite_registrar.SELECT_TFTEXT_OPS
        interpreter = _load_interpreter(self._path, self._num_threads, kernels)
        return interpreter.get_signature_runner(TEXT_SIGNATURE)


def model_checksum(content: bytes) -> str:
    """Returns the checksum of the model, the part of a LiteRT file before the zip archive."""
    return f"{google_crc32c.value(content):08x}"


def check_model_part(archive: zipfile.ZipFile, path: str | os.PathLike) -> None:
    """Checks the model, the part of a LiteRT file that zip checksums do not cover."""
    # The archive follows the model, which ends where the first member begins.
    end = min(member.header_offset for member in archive.infolist())
    with pathlib.Path(path).open("rb") as file:
        checksum = model_checksum(file.read(end))
    if checksum.encode() != read_member(archive, CHECKSUM_NAME, path).strip():
        raise ValueError("the model was changed after it was written, its checksum differs")


def _read_vocab(archive: zipfile.ZipFile, path: str | os.PathLike) -> AnyVocab:
    name = next((n for n in VOCABULARY_FILES if n in archive.namelist()), VOCABULARY_FILES[0])
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder, name)
        options = options_file(file).name
        # The tokenizer's options are a second file, which only some vocabularies have.
        for member in (name, options) if options in archive.namelist() else (name,):
            pathlib.Path(folder, member).write_bytes(read_member(archive, member, path))
        return read_vocab(file)


def _load_interpreter(
    path: str | os.PathLike, num_threads: int, kernels: Sequence[Any] = ()
) -> Any:
    try:
        from ai_edge_litert.interpreter import InterpreterWithCustomOps
    except ImportError:
        raise ValueError(
            "LiteRT files need ai-edge-litert: pip install ai-edge-litert==2.3.0"
        ) from None
    return InterpreterWithCustomOps(list(kernels), model_path=str(path), num_threads=num_threads)
