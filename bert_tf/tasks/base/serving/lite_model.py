"""Runs a LiteRT file in Python without TensorFlow: token ids or texts in, arrays out.

model = LiteModel("sst2.tflite")
model(["a fine film", "dull"])["probabilities"]  # float32 [2, C], in the order of model.labels
"""

import functools
import os
import pathlib
import struct
import tempfile
import zipfile
from collections.abc import Sequence
from typing import Any

import google_crc32c
import numpy as np

from bert_tf.checkpoints.archives import UNPACKING_ERRORS
from bert_tf.system.bounded_files import open_zip, read_member
from bert_tf.tasks.base.serving.metadata import (
    CARD_NAME,
    ROW_OUTPUTS,
    check_outputs,
    parse_metadata,
)
from bert_tf.text.kinds import VOCABULARY_FILES
from bert_tf.text.packing import pack, pad_batch
from bert_tf.text.tokenization import AnyVocab, make_tokenizer, read_vocab
from bert_tf.text.vocab import options_file

Arrays = dict[str, np.ndarray]
TEXT_SIGNATURE = "text"
CHECKSUM_NAME = "model.crc32c"  # In the archive.


class LiteModel:
    """A LiteRT file of `export.tflite`.

    Args:
      path: the file.
      num_threads: number of threads that compute.

    Attributes:
      card: the content of bert_tf.json: kind, labels, inputs, max_seq_length, do_lower_case,
        outputs.
      labels: names of the classes, if there are any.

    Raises:
      ValueError: if the file is not an export of this package, or ai-edge-litert is not installed.
    """

    def __init__(self, path: str | os.PathLike, num_threads: int = 1) -> None:
        try:
            with open_zip(path) as archive:
                content = read_member(archive, CARD_NAME, path)
                self.card = parse_metadata(content, CARD_NAME)
                self.vocab = _read_vocab(archive, path)
                check_model_part(archive, path)
        except FileNotFoundError:
            raise
        except (*UNPACKING_ERRORS, KeyError, struct.error) as error:
            reason = str(error).rstrip(".")
            raise ValueError(f"{path} was not written by export.tflite: {reason}.") from None
        if self.card.get("vocab_size", len(self.vocab)) != len(self.vocab):
            raise ValueError(
                f"{path} contains a vocabulary of {len(self.vocab)}, but bert_tf.json says "
                f"{self.card['vocab_size']}; export it again."
            )
        self.labels = tuple(self.card["labels"])
        self.tokenizer = make_tokenizer(self.vocab, self.card["do_lower_case"])
        self._path = path
        self._num_threads = num_threads
        try:
            interpreter = _load_interpreter(path, num_threads)
            self._run = interpreter.get_signature_runner("serving_default")
            shapes = {}
            for name, details in self._run.get_output_details().items():
                shapes[name] = details["shape_signature"].tolist()
        except (RuntimeError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{path} cannot be loaded: {error}.") from None
        check_outputs(self.card, shapes, ROW_OUTPUTS, path)

    @property
    def long_texts(self) -> str:
        """The part of a long text that is read: `head`, `tail` or `windows`."""
        return self.card.get("long_texts", "head")

    def pack(self, texts: Sequence[str], second_texts: Sequence[str] = ()) -> Arrays:
        """Packs texts or pairs into a batch, int32 [B, T], padded to the longest example."""
        seconds: Sequence[str | None] = second_texts or [None] * len(texts)
        prompt = self.card.get("prompt", "")
        is_lower = self.card.get("lower_case_texts")
        rows = []
        for first, second in zip(texts, seconds, strict=True):
            first = (prompt + first)[: self.card.get("max_characters")]
            if is_lower:
                first = first.lower()
            row = pack(
                self.vocab,
                self.tokenizer.encode(first),
                None if second is None else self.tokenizer.encode(second),
                self.card["max_seq_length"],
                self.long_texts == "tail",
            )
            rows.append(row)
        return pad_batch(rows, self.vocab.pad_id)

    def from_ids(self, batch: Arrays) -> Arrays:
        """Returns the outputs for a batch of token ids, int32 [B, T], as new arrays.

        Raises:
          ValueError: if the model cannot compute them, for example if a sequence is too long.
        """
        try:
            return self._run(**batch)
        except RuntimeError as error:
            raise ValueError(f"{self._path} cannot compute this batch: {error}.") from None

    def from_texts(self, texts: Sequence[str]) -> Arrays:
        """Returns the outputs for single texts, tokenized inside the file.

        Raises:
          ValueError: if it was written without --text_input, or tensorflow-text is not installed.
        """
        return self._run_texts(text=np.array([text.encode("utf8") for text in texts], object))

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

    def __call__(self, texts: Sequence[str], second_texts: Sequence[str] = ()) -> Arrays:
        """Returns the outputs for texts or pairs.

        Raises:
          ValueError: if the model reads long texts in windows, several examples per text.
        """
        if self.long_texts == "windows":
            raise ValueError(
                f"{self._path} reads long texts in windows (long_texts=windows): "
                f"use bert_tf.load({str(self._path)!r}), which answers for whole texts."
            )
        return self.from_ids(self.pack(texts, second_texts))

    def rows(self, *columns: Sequence[str]) -> list[Arrays]:
        """Returns the outputs by name for each text or pair; see `__call__`."""
        outputs = self(*columns)  # [B, ...] each
        return [{name: array[i] for name, array in outputs.items()} for i in range(len(columns[0]))]


def model_checksum(content: bytes) -> str:
    """Returns the checksum of the model, the part of a LiteRT file before the zip archive."""
    return f"{google_crc32c.value(content):08x}"


def check_model_part(archive: zipfile.ZipFile, path: str | os.PathLike) -> None:
    """Checks the model, the part of a LiteRT file that zip checksums do not cover.

    Raises:
      ValueError: if the model has changed since the file was written.
    """
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
