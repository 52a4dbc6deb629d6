"""Texts as vectors for an index: a bi-encoder with what its folder says of pooling and prompts."""

import hashlib
import json
import pathlib
from collections.abc import Sequence

import numpy as np

from bert_tf.checkpoints.checkpoint import Checkpoint
from bert_tf.checkpoints.formats import read_checkpoint
from bert_tf.files import json_field, read_json
from bert_tf.modeling.pooling import POOLINGS
from bert_tf.modeling.text_model import TextEmbedder

TYPES = ("Transformer", "Pooling", "Normalize")


class SearchEmbedder:
    """Embeds queries and documents.

    Args:
      path: a checkpoint in any form; of a folder of sentence-transformers its modules are followed.
      pooling: `cls`, `mean` or `max`; "": what the folder says, else mean.
      max_seq_length: pieces a text is cut to; 0: what the folder says, else 256 or all positions.
      batch_size: texts computed at once.

    Attributes:
      pooling, normalize, max_seq_length: what it does.
      prompts: what stands before a text, by `query` and `document`.
      fingerprint: changes with any weight, piece of the vocabulary, or the pooling.
      dimension: of the vectors.

    Raises:
      ValueError: if it cannot be read, or has modules that are not known here.
    """

    def __init__(
        self, path: str, pooling: str = "", max_seq_length: int = 0, batch_size: int = 32
    ) -> None:
        checkpoint = read_checkpoint(path)
        checkpoint.check(may_ignore=(), may_miss=("cls/",))
        folder = pathlib.Path(path)
        stated, normalize = _stated_pooling(folder)
        pooling = pooling or stated or "mean"
        length = max_seq_length or _stated_length(folder) or min(256, checkpoint.config.longest_row)
        self._embedder = TextEmbedder.from_checkpoint(
            checkpoint, pooling, normalize, max_seq_length=length, batch_size=batch_size
        )
        self.pooling, self.normalize, self.max_seq_length = pooling, normalize, length
        self.prompts = _prompts(folder)
        self.fingerprint = fingerprint(checkpoint, pooling, str(normalize))
        self.dimension = checkpoint.config.hidden_size

    def queries(self, texts: Sequence[str]) -> np.ndarray:
        """Returns float32 [Q, D]."""
        return self._embedder.embed([self.prompts.get("query", "") + text for text in texts])

    def documents(self, texts: Sequence[str]) -> np.ndarray:
        """Returns float32 [N, D]."""
        return self._embedder.embed([self.prompts.get("document", "") + text for text in texts])


def fingerprint(checkpoint: Checkpoint, *settings: str) -> str:
    """Returns a digest of an encoder: its weights, its vocabulary, and settings.

    Heads and pooler do not count: the vectors of pieces do not depend on them.
    """
    digest = hashlib.sha256()
    for name, value in sorted(checkpoint.weights.items()):
        if name.startswith("bert/") and not name.startswith("bert/pooler/"):
            digest.update(f"{name} {value.shape}\n".encode())
            digest.update(np.ascontiguousarray(value).tobytes())
    tokens = checkpoint.vocab.tokens if checkpoint.vocab else ()
    act, casing = checkpoint.config.hidden_act, checkpoint.config.do_lower_case
    digest.update(json.dumps([list(tokens), act, casing, *settings]).encode())
    return digest.hexdigest()[:16]


def _stated_pooling(folder: pathlib.Path) -> tuple[str, bool]:
    """Returns pooling and normalisation of a folder of sentence-transformers; ("", False) without.

    Raises:
      ValueError: if it has other modules or another pooling.
    """
    path = folder / "modules.json"
    if not path.is_file():
        return "", False
    modules = json.loads(path.read_text(encoding="utf8"))
    kinds = [str(module.get("type", "")).rpartition(".")[2] for module in modules]
    if unknown := sorted(set(kinds) - set(TYPES)):
        raise ValueError(f"{path} has the modules {unknown}; an index knows {', '.join(TYPES)}.")
    pooling = ""
    for module, kind in zip(modules, kinds, strict=True):
        if kind == "Pooling":
            config = folder / module.get("path", "1_Pooling") / "config.json"
            values = read_json(config)
            found = [name for name in POOLINGS if _has_pooling(values, name)]
            if len(found) != 1:
                raise ValueError(f"{config}: expected one pooling of {list(POOLINGS)}: {values}.")
            pooling = found[0]
    return pooling, "Normalize" in kinds


def _has_pooling(values: dict, name: str) -> bool:
    old = {"cls": "cls_token"}.get(name, f"{name}_tokens")
    return values.get("pooling_mode") == name or values.get(f"pooling_mode_{old}") is True


def _stated_length(folder: pathlib.Path) -> int:
    path = folder / "sentence_bert_config.json"
    return json_field(read_json(path), "max_seq_length", int, path) or 0 if path.is_file() else 0


def _prompts(folder: pathlib.Path) -> dict[str, str]:
    path = folder / "config_sentence_transformers.json"
    return json_field(read_json(path), "prompts", dict, path) or {} if path.is_file() else {}
