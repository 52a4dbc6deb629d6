"""Predictors that run in TensorFlow: trained models and SavedModels."""

import contextlib
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from bert_tf.serving.saved_models import call_signature, load_signatures, read_card

Row = dict[str, Any]


class GraphModel:
    """Functions of texts with the card that describes them; see `predictor.TextModel`.

    Args:
      card: kind, inputs, labels, max_seq_length.
      functions: by the signature's name; each takes and returns tensors.
      device: of TensorFlow; "": its own choice.
    """

    def __init__(
        self, card: Row, functions: dict[str, Callable[..., dict[str, tf.Tensor]]], device: str
    ) -> None:
        self.card, self._functions, self._device = card, functions, device

    @classmethod
    def of_saved_model(cls, folder: pathlib.Path, device: str = "") -> "GraphModel":
        """Makes it of a version that `export.saved_model` wrote.

        Raises:
          ValueError: if it is of another program, or cannot be loaded.
        """
        card = read_card(folder)
        with on_device(device):
            signatures = load_signatures(folder, card)
        names = {"serving_default": card["inputs"], "words": ["words"]}

        def positional(signature: Any, names: Sequence[str]) -> Callable[..., Any]:
            return lambda *columns: call_signature(
                signature, dict(zip(names, columns, strict=True))
            )

        functions = {
            name: positional(signatures[name], inputs)
            for name, inputs in names.items()
            if name in signatures
        }
        return cls(card, functions, device)

    def rows(self, *columns: Sequence[Any]) -> list[Row]:
        """Returns the outputs by name for each row of texts."""
        return self._call("serving_default", [tf.constant(list(column)) for column in columns])

    def word_rows(self, sentences: Sequence[Sequence[str]]) -> list[Row]:
        """Returns the outputs by name for each list of words."""
        return self._call("words", [tf.ragged.constant(sentences, tf.string).to_tensor("")])

    def _call(self, name: str, tensors: list[tf.Tensor]) -> list[Row]:
        with on_device(self._device):
            outputs = self._functions[name](*tensors)
        arrays = {name: value.numpy() for name, value in outputs.items()}
        count = len(next(iter(arrays.values())))
        return [{name: array[i] for name, array in arrays.items()} for i in range(count)]


def on_device(device: str) -> contextlib.AbstractContextManager[Any]:
    """Returns a context that puts operations on a device; for "" it does nothing."""
    return tf.device(device) if device else contextlib.nullcontext()


def find_device(name: str) -> str:
    """Returns TensorFlow's name of a device.

    Args:
      name: "cpu", "gpu", "gpu:1" or TensorFlow's own; "": its own choice.

    Raises:
      ValueError: if there is no device with this name.
    """
    if not name:
        return ""
    wanted = name.lower().removeprefix("/").removeprefix("device:")
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
    threading = tf.config.threading
    try:
        threading.set_intra_op_parallelism_threads(num_threads)
        threading.set_inter_op_parallelism_threads(1)
    except RuntimeError:
        raise ValueError(
            f"num_threads is {num_threads}, but TensorFlow is already running: pass it with the "
            f"first model of a process, or set TF_NUM_INTRAOP_THREADS before the process starts."
        ) from None
