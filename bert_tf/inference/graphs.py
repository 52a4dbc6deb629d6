"""Predictors that run in TensorFlow: trained models and SavedModels."""

import contextlib
import functools
import pathlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from bert_tf.system.type_names import Tensor
from bert_tf.tasks.base.serving.metadata import Metadata
from bert_tf.tasks.base.serving.saved_models import (
    EXTRA,
    call_signature,
    load_signatures,
    read_card,
)
from bert_tf.text.kinds import VOCABULARY_FILES
from bert_tf.text.packing import BATCHES_AT_ONCE, ids_after_prompt, pack
from bert_tf.text.text_counts import current_counts
from bert_tf.text.tokenization import Tokenizer, make_tokenizer, read_vocab

Row = dict[str, Any]
# A function of one tensor for each input; returns the outputs by name.
Function = Callable[..., dict[str, Tensor]]


class GraphModel:
    """A SavedModel's functions of texts and its metadata; see `output_answers.TextFunction`.

    Args:
      card: kind, inputs, labels, max_seq_length.
      functions: by the signature's name; each takes and returns tensors.
      device: TensorFlow's name of the device; "": chosen by TensorFlow.
    """

    calls_at_once = BATCHES_AT_ONCE

    def __init__(self, card: Metadata, functions: dict[str, Function], device: str) -> None:
        self.card = card
        self._functions = functions
        self._device = device
        self._folder: pathlib.Path | None = None
        self._counting = threading.Lock()  # Batches are computed in several threads.

    @classmethod
    def of_saved_model(cls, folder: pathlib.Path, device: str = "") -> "GraphModel":
        """Loads a version that `export.saved_model` wrote.

        Raises:
          ValueError: if another program wrote it, or it cannot be loaded.
        """
        card = read_card(folder)
        with on_device(device):
            signatures = load_signatures(folder, card)
        input_names = {"serving_default": card["inputs"], "words": ["words"]}
        functions = {}
        for name, inputs in input_names.items():
            if name in signatures:  # Only taggers have "words".
                functions[name] = _positional(signatures[name], inputs)
        model = cls(card, functions, device)
        model._folder = folder
        return model

    @functools.cached_property
    def _tokenizer(self) -> Tokenizer | None:
        """The tokenizer of the export in plain Python; None if it has no vocabulary."""
        if self._folder is None:
            return None
        files = [self._folder / EXTRA / name for name in VOCABULARY_FILES]
        vocabulary = next((file for file in files if file.is_file()), None)
        if vocabulary is None:
            return None
        return make_tokenizer(read_vocab(vocabulary), bool(self.card["do_lower_case"]))

    def _count(self, columns: Sequence[Sequence[Any]]) -> None:
        """Counts the texts, of which the graph cuts those that are too long.

        The graph does not return the tokens, so the texts are tokenized again, which takes a small
        part of the encoder's time.
        """
        counts = current_counts()
        if counts is None or self._tokenizer is None:
            return
        vocab = self._tokenizer.vocab
        limit = int(self.card["max_seq_length"])
        has_windows = self.card.get("long_texts") == "windows" or self.card["kind"] == "tagger"
        for first, second in self._pairs(columns):
            ids_a = self._tokenizer.encode(first)
            ids_b = self._tokenizer.encode(second) if second else []
            if has_windows:
                counts.add([*ids_a, *ids_b], vocab.unk_id, 0, limit)
            elif self.card["kind"] == "question_answering":
                # The context has windows, and the question is cut.
                most = int(self.card["max_query_length"])
                counts.add([*ids_a, *ids_b], vocab.unk_id, len(ids_a), most)
            else:
                counted = ids_after_prompt(self._tokenizer, self.card.get("prompt", ""), ids_a)
                pack(vocab, ids_a, ids_b or None, limit, counted=counted)

    def _pairs(self, columns: Sequence[Sequence[Any]]) -> Iterator[tuple[str, str]]:
        """Yields the two texts of each sequence that the graph makes; the second may be ""."""
        prompt = str(self.card.get("prompt", ""))
        for row in zip(*columns, strict=True):
            second = row[1] if len(row) > 1 and self.card["kind"] != "zero_shot" else ""
            # A reranker's second column holds lists of documents.
            for text in [second] if isinstance(second, str) else second:
                yield prompt + row[0], text

    def rows(self, *columns: Sequence[Any]) -> list[Row]:
        """Returns the outputs by name for each row of texts."""
        with self._counting:
            self._count(columns)
        return self._call("serving_default", [tf.constant(list(column)) for column in columns])

    def word_rows(self, sentences: Sequence[Sequence[str]]) -> list[Row]:
        """Returns the outputs by name for each list of words."""
        with self._counting:
            self._count([[" ".join(sentence) for sentence in sentences]])
        words = tf.ragged.constant(sentences, tf.string).to_tensor("")  # [B, W]
        return self._call("words", [words])

    def _call(self, name: str, tensors: list[Tensor]) -> list[Row]:
        with on_device(self._device):
            outputs = self._functions[name](*tensors)
        arrays = {name: value.numpy() for name, value in outputs.items()}  # [B, ...] each
        count = len(next(iter(arrays.values())))
        return [{name: array[i] for name, array in arrays.items()} for i in range(count)]


def _positional(signature: Callable[..., dict[str, Tensor]], names: Sequence[str]) -> Function:
    """Returns a signature, which takes its inputs by name, as a function of positional inputs."""

    def call(*columns: Tensor) -> dict[str, Tensor]:
        return call_signature(signature, dict(zip(names, columns, strict=True)))

    return call


def on_device(device: str) -> contextlib.AbstractContextManager[None]:
    """Returns a context that puts operations on a device; for "" it does nothing."""
    if device:
        return tf.device(device)
    return contextlib.nullcontext()


def find_device(name: str) -> str:
    """Returns TensorFlow's name of a device.

    Args:
      name: "cpu", "gpu", "gpu:1" or a name of TensorFlow; "": chosen by TensorFlow.

    Raises:
      ValueError: if there is no device with this name.
    """
    if not name:
        return ""
    wanted = name.lower().removeprefix("/").removeprefix("device:")
    # "gpu" is the first GPU; TensorFlow's names end in "device:GPU:0".
    wanted = wanted if ":" in wanted else f"{wanted}:0"
    found = [device.name for device in tf.config.list_logical_devices()]
    for device in found:
        if device.lower().endswith(f"device:{wanted}"):
            return device
    raise ValueError(f"device is {name!r}; this machine has {', '.join(found)}.")


def set_threads(num_threads: int) -> None:
    """Sets TensorFlow's number of threads in this process, before its first operation.

    Raises:
      ValueError: if it has already started with another number.
    """
    threads = tf.config.threading
    try:
        # Threads share the work of one operation; those of a batch run one after the other.
        threads.set_intra_op_parallelism_threads(num_threads)
        threads.set_inter_op_parallelism_threads(min(num_threads, BATCHES_AT_ONCE))
    except RuntimeError:
        raise ValueError(
            f"num_threads is {num_threads}, but TensorFlow is already running: pass it with the "
            f"first model of a process, or set TF_NUM_INTRAOP_THREADS before the process starts."
        ) from None
