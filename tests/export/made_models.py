"""Tiny models of every kind that is served, on disk as their users have them."""

import dataclasses
import functools
import pathlib
from typing import NamedTuple

from bert_tf.checkpoints.checkpoint import Checkpoint
from bert_tf.checkpoints.formats import read_checkpoint, write_checkpoint
from bert_tf.inference.serving_models import load
from bert_tf.search.embedding import SearchEmbedder
from bert_tf.search.index import build_index
from bert_tf.search.segments import Batch
from bert_tf.tasks.base.serving.model import Serving
from bert_tf.tasks.base.serving.saving.writing import save
from bert_tf.text.kinds import with_vocabulary
from tests.checkpoints.made_checkpoint import make_checkpoint
from tests.shared_data import golden_file
from tests.tiny_bpe import tiny_bpe_vocab

PURPOSE_OF_KIND = {
    "classifier": "classifier",
    "multi_label": "classifier",
    "regression": "classifier",
    "tagger": "tagger",
    "question_answering": "squad",
    "fill_mask": "masked_lm",
    "next_sentence": "pretrained",
    "splade": "masked_lm",
    "reranker": "classifier",
    "embeddings": "encoder",
    "encoder": "encoder with pooler",
}
SHAPE = {
    "vocab_size": 80,
    "hidden_size": 32,
    "num_attention_heads": 4,
    "num_hidden_layers": 1,
    "intermediate_size": 64,
    "max_position_embeddings": 48,
    "type_vocab_size": 2,
    "hidden_act": "gelu_exact",
    "do_lower_case": True,
}
# What the texts of tests are made of: words of the vocabulary, words in pieces, and others.
TEXTS = (
    "the river a b c don't",
    "The RIVER, w40 w41! w42",
    "",
    "qa ba caa the",
    "unknownwords über 中 the e\u0301te\u0301 \U0001f600",
    "w50 " * 100,
    "\x00 \u200b \ufffd\t\n the",
)


# SentencePiece's normalizer changes most of these words; others have an added token and U+2581.
ODD_TEXT = "3㎏ wait… ﬁn, e\u0301te\u0301 \u2581a<mask>b. ＨＥ  ł中 ไทย"


@functools.cache
def xlm_roberta() -> Checkpoint:
    """Returns the golden XLM-RoBERTa, whose vocabulary is SentencePiece's."""
    return read_checkpoint(golden_file("families", "xlm_roberta", "masked_lm"))


def make_model(purpose: str, is_multilingual: bool = False, **changes) -> Checkpoint:
    """Returns a tiny random model of one of `made_checkpoint.PURPOSES`.

    Args:
      purpose: names the heads.
      is_multilingual: whether it is an XLM-RoBERTa with a SentencePiece vocabulary.
      changes: fields of the configuration.
    """
    if not is_multilingual:
        return make_checkpoint(purpose, seed=5, **{**SHAPE, **changes})
    source = xlm_roberta()
    made = make_checkpoint(purpose, seed=5, **{**source.config.to_dict(), **changes})
    return dataclasses.replace(made, vocab=source.vocab, family=source.family)


def write_model(
    folder: pathlib.Path,
    kind: str,
    run: dict[str, str] | None = None,
    is_multilingual: bool = False,
    num_labels: int = 3,
    **changes,
) -> pathlib.Path:
    """Writes a tiny random model that serves as a kind; returns its folder.

    Args:
      folder: new.
      kind: of `bert_tf.inference.kinds.KINDS`.
      run: what a run would record of it, run.flags by name.
      is_multilingual: see `make_model`.
      num_labels: of a classifier, up to 3.
      changes: fields of the configuration.
    """
    made = make_model(PURPOSE_OF_KIND[kind], is_multilingual, **changes)
    if kind in ("reranker", "regression"):
        num_labels = 1
    if num_labels < 3:
        made = with_labels(made, num_labels)
    return _write(made, folder, run)


def write_byte_bpe(
    folder: pathlib.Path, kind: str, run: dict[str, str] | None = None, **changes
) -> pathlib.Path:
    """Writes a model with a vocabulary of byte-level BPE; for arguments see `write_model`."""
    vocab = tiny_bpe_vocab()
    changes = {"vocab_size": len(vocab), "do_lower_case": False, **changes}
    made = make_model(PURPOSE_OF_KIND[kind], **changes)
    config = with_vocabulary(made.config, vocab)
    made = dataclasses.replace(made, vocab=vocab, config=config, stated_casing=None)
    return _write(made, folder, run)


def _write(made: Checkpoint, folder: pathlib.Path, run: dict[str, str] | None) -> pathlib.Path:
    write_checkpoint(made, folder, "bert_tf")
    if run is not None:
        lines = [f"--{name}={value}\n" for name, value in run.items()]
        (folder / "run.flags").write_text("".join(lines), encoding="utf8")
    return folder


class Exported(NamedTuple):
    """A model in Python and its two SavedModels.

    Attributes:
      source: folder of the model.
      served: its serving functions.
      texts, ids: folders of version 3 of the SavedModels `toy` and `toy_ids`.
    """

    source: pathlib.Path
    served: Serving
    texts: pathlib.Path
    ids: pathlib.Path


def export_model(
    folder: pathlib.Path, kind: str, run: dict[str, str] | None = None, **changes
) -> Exported:
    """Writes a model and its SavedModels; for arguments see `write_model`."""
    source = write_model(folder / "run", kind, run, **changes)
    served = load(str(source), kind)
    return Exported(source, served, *save(served, folder / "serving" / "toy", 3, str(source)))


def write_search_index(folder: pathlib.Path) -> pathlib.Path:
    """Writes an index of `TEXTS`, four of each, by the golden embedder; returns its folder."""
    source = str(golden_file("families", "sentence_transformers", "mean_normalize"))
    embedder = SearchEmbedder(source)
    texts = [f"{text} {number}" for number in range(4) for text in TEXTS]
    ids = [f"d{number}" for number in range(len(texts))]
    batch = Batch(ids, embedder.documents(texts)[0], texts)
    build_index(folder, [batch], model=embedder.fingerprint, source=source)
    return folder


def with_labels(made: Checkpoint, num_labels: int) -> Checkpoint:
    """Returns a classifier with the first of its labels; a single one has no name."""
    weights = {}
    for name, value in made.weights.items():
        weights[name] = value[:num_labels] if name.startswith("cls/classifier/") else value
    labels = made.labels[:num_labels] if num_labels > 1 else ()
    return dataclasses.replace(made, weights=weights, labels=labels)
