"""What a SavedModel on disk is, read from its files alone: nothing of it is loaded or run."""

import dataclasses
import pathlib
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow.core.protobuf import saved_model_pb2

from bert_tf.text.vocab import Vocab
from export.checks.warmup_reading import read_warmup
from export.saving.writing import read_card
from export.served.model import IDS

TAG = "serve"
INIT_OP = "__saved_model_init_op"  # Stands among the signatures, and is none.


class Tensor(NamedTuple):
    """An input or output of a signature.

    Attributes:
      tensor: name in the graph, as "StatefulPartitionedCall:0".
      dtype: name.
      shape: -1 for what is open.
    """

    tensor: str
    dtype: str
    shape: tuple[int, ...]

    def __str__(self) -> str:
        sizes = ", ".join("?" if size < 0 else str(size) for size in self.shape)
        return f"{self.dtype} [{sizes}]"


class Signature(NamedTuple):
    """Inputs and outputs of a function by name."""

    inputs: dict[str, Tensor]
    outputs: dict[str, Tensor]


class Request(NamedTuple):
    """A signature's name, and its inputs by name; strings are object arrays of bytes."""

    signature: str
    inputs: dict[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class StoredModel:
    """A SavedModel that `export.saved_model` wrote.

    Attributes:
      folder: of the version.
      card: its bert_tf.json.
      vocab: its vocabulary.
      meta_graph: a `MetaGraphDef`.
      signatures: by name.
      warmup: its warm-up requests.
      num_bytes: size of all files.
    """

    folder: pathlib.Path
    card: dict[str, Any]
    vocab: Vocab
    meta_graph: Any
    signatures: dict[str, Signature]
    warmup: list[Request]
    num_bytes: int

    @property
    def takes_texts(self) -> bool:
        """Whether it takes texts; else ids."""
        return set(self.signatures["serving_default"].inputs) != set(IDS)

    def table(self) -> str:
        """Returns what it is, in lines for people."""
        card, info = self.card, self.meta_graph.meta_info_def
        casing = "uncased" if card["do_lower_case"] else "cased"
        labels = ", ".join(card["labels"])
        lines = [
            f"kind        {card['kind']}{f' ({labels})' if labels else ''}",
            f"takes       {', '.join(card['inputs']) if self.takes_texts else 'ids'}",
            f"rows        at most {card['max_seq_length']} pieces, {casing}, vocabulary of "
            f"{len(self.vocab)}",
            f"source      {card['source']}",
            f"written by  TensorFlow {info.tensorflow_version}",
            f"size        {self.num_bytes / 1e6:.1f} MB",
            f"warm-up     {len(self.warmup)} request{'' if len(self.warmup) == 1 else 's'}",
        ]
        for name, signature in sorted(self.signatures.items()):
            for arrow, tensors in (("in", signature.inputs), ("out", signature.outputs)):
                for key, tensor in sorted(tensors.items()):
                    lines.append(f"{name:16}  {arrow:3}  {key:16}  {tensor}")
        return "\n".join(lines)


def read(folder: pathlib.Path) -> StoredModel:
    """Reads the files of a version.

    Raises:
      ValueError: if a file is missing or damaged, or they contradict each other.
    """
    meta_graph = read_meta_graph(folder)
    card = read_card(folder)
    signatures = read_signatures(meta_graph)
    if sorted(signatures) != sorted(card["signatures"]):
        raise ValueError(
            f"{folder} has the signatures {sorted(signatures)}, but its bert_tf.json says "
            f"{sorted(card['signatures'])}; export it again."
        )
    extra = folder / "assets.extra"
    vocab = Vocab.read(extra / "vocab.txt")
    if len(vocab) != card["vocab_size"]:
        raise ValueError(
            f"{extra / 'vocab.txt'} has {len(vocab)} pieces, but bert_tf.json says "
            f"{card['vocab_size']}; export it again."
        )
    warmup = extra / "tf_serving_warmup_requests"
    return StoredModel(
        folder=folder,
        card=card,
        vocab=vocab,
        meta_graph=meta_graph,
        signatures=signatures,
        warmup=[Request(*request) for request in read_warmup(warmup)],
        num_bytes=sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()),
    )


def read_meta_graph(folder: pathlib.Path) -> Any:
    """Returns the `MetaGraphDef` for serving.

    Raises:
      ValueError: if there is none.
    """
    path = folder / "saved_model.pb"
    if not path.is_file():
        raise ValueError(
            f"{folder} has no saved_model.pb; give the folder of a version, as serving/sst2/1."
        )
    stored = saved_model_pb2.SavedModel()
    try:
        stored.ParseFromString(path.read_bytes())
    except DecodeError:
        raise ValueError(f"{path} is damaged: it cannot be parsed; export it again.") from None
    found = [graph for graph in stored.meta_graphs if TAG in graph.meta_info_def.tags]
    if len(found) != 1:
        raise ValueError(f"{path} has {len(found)} graphs for {TAG}, expected 1; export it again.")
    return found[0]


def read_signatures(meta_graph: Any) -> dict[str, Signature]:
    """Returns the signatures of a `MetaGraphDef` by name."""
    return {
        name: Signature(_tensors(signature.inputs), _tensors(signature.outputs))
        for name, signature in meta_graph.signature_def.items()
        if name != INIT_OP
    }


def _tensors(infos: Any) -> dict[str, Tensor]:
    return {
        key: Tensor(
            info.name,
            tf.as_dtype(info.dtype).name,
            tuple(dim.size for dim in info.tensor_shape.dim),
        )
        for key, info in infos.items()
    }
