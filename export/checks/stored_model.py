"""Describes a SavedModel from its files, without loading or running it."""

import dataclasses
import pathlib
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow.core.protobuf import meta_graph_pb2, saved_model_pb2

from bert_tf.system.printable import escaped
from bert_tf.tasks.base.serving.metadata import Metadata
from bert_tf.tasks.base.serving.model import IDS
from bert_tf.tasks.base.serving.saved_models import check_files, read_card, size_of
from bert_tf.tasks.base.serving.saving.warmup import read_warmup
from bert_tf.text.kinds import VOCABULARY_FILES, find_vocabulary
from bert_tf.text.tokenization import AnyVocab, read_vocab

TAG = "serve"
INIT_OP = "__saved_model_init_op"  # TensorFlow lists it among the signatures.

SignatureDefs = dict[str, meta_graph_pb2.SignatureDef]


class Request(NamedTuple):
    """A signature's name, and its inputs by name; strings are object arrays of bytes."""

    signature: str
    inputs: dict[str, np.ndarray]

    def tensors(self) -> dict[str, tf.Tensor]:
        """Returns the inputs as tensors."""
        tensors = {}
        for name, value in self.inputs.items():
            tensors[name] = tf.constant(value, tf.string if value.dtype == object else value.dtype)
        return tensors


@dataclasses.dataclass(frozen=True)
class StoredModel:
    """A SavedModel that `export.saved_model` wrote.

    Attributes:
      folder: folder of the version.
      card: content of its bert_tf.json.
      vocab: vocabulary.
      meta_graph: graph of the functions.
      warmup: warm-up requests.
    """

    folder: pathlib.Path
    card: Metadata
    vocab: AnyVocab
    meta_graph: meta_graph_pb2.MetaGraphDef
    warmup: list[Request]

    @property
    def signatures(self) -> SignatureDefs:
        """The signatures by name."""
        return read_signatures(self.meta_graph)

    @property
    def takes_texts(self) -> bool:
        """Whether the model takes texts; otherwise it takes ids."""
        return set(self.signatures["serving_default"].inputs) != set(IDS)

    def table(self) -> str:
        """Returns a description of the model, one line per property."""
        card = self.card
        labels = f" ({escaped(', '.join(card['labels']))})" if card["labels"] else ""
        casing = "uncased" if card["do_lower_case"] else "cased"
        lines = [
            f"kind        {escaped(card['kind'])}{labels}",
            f"takes       {escaped(', '.join(card['inputs'])) if self.takes_texts else 'ids'}",
            f"rows        at most {card['max_seq_length']} tokens, {casing}, vocabulary of "
            f"{len(self.vocab)}",
            f"source      {escaped(card.get('source', ''))}",
            f"written by  TensorFlow {escaped(self.meta_graph.meta_info_def.tensorflow_version)}",
            f"size        {size_of(self.folder) / 1e6:.1f} MB",
            f"warm-up     {len(self.warmup)} request{'' if len(self.warmup) == 1 else 's'}",
        ]
        for name, signature in sorted(self.signatures.items()):
            for arrow, tensors in (("in", signature.inputs), ("out", signature.outputs)):
                for key, tensor in sorted(tensors.items()):
                    dims = [dim.size for dim in tensor.tensor_shape.dim]
                    # -1 is any size.
                    sizes = ", ".join("?" if size < 0 else str(size) for size in dims)
                    form = f"{tf.as_dtype(tensor.dtype).name} [{sizes}]"
                    lines.append(f"{escaped(name):16}  {arrow:3}  {escaped(key):16}  {form}")
        return "\n".join(lines)


def read(folder: pathlib.Path) -> StoredModel:
    """Reads the files of a version.

    Raises:
      ValueError: if a file is missing or damaged, or they contradict each other.
    """
    meta_graph = read_meta_graph(folder)
    card = read_card(folder)
    extra = folder / "assets.extra"
    vocab_file = find_vocabulary(extra) or extra / VOCABULARY_FILES[0]
    vocab = read_vocab(vocab_file)
    signatures = sorted(read_signatures(meta_graph))
    recorded = sorted(card.get("signatures", []))
    if signatures != recorded:
        raise ValueError(
            f"{folder} has the signatures {signatures}, but bert_tf.json says {recorded}; export "
            "it again."
        )
    if len(vocab) != card.get("vocab_size"):
        raise ValueError(
            f"{vocab_file} has {len(vocab)} tokens, but bert_tf.json says "
            f"{card.get('vocab_size')}; export it again."
        )
    warmup = read_warmup(extra / "tf_serving_warmup_requests")
    check_files(folder)
    return StoredModel(folder, card, vocab, meta_graph, [Request(*request) for request in warmup])


def read_meta_graph(folder: pathlib.Path) -> meta_graph_pb2.MetaGraphDef:
    """Returns the graph for serving.

    Raises:
      ValueError: if the folder has no such graph, or the file is damaged.
    """
    path = folder / "saved_model.pb"
    if not path.is_file():
        raise ValueError(
            f"{folder} has no saved_model.pb; give the folder of a version, such as serving/sst2/1."
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


def read_signatures(meta_graph: meta_graph_pb2.MetaGraphDef) -> SignatureDefs:
    """Returns the signatures of a graph by name."""
    return {key: value for key, value in meta_graph.signature_def.items() if key != INIT_OP}
