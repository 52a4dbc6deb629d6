"""Tiny models of every kind that is served, on disk as their users have them."""

import dataclasses
import pathlib

from bert_tf.checkpoints.formats import write_checkpoint
from tests.checkpoints.made_checkpoint import make_checkpoint

PURPOSE_OF_KIND = {
    "classifier": "classifier",
    "multi_label": "classifier",
    "regression": "classifier",
    "tagger": "tagger",
    "question_answering": "squad",
    "fill_mask": "masked_lm",
    "next_sentence": "pretrained",
    "reranker": "classifier",
    "embeddings": "encoder",
    "encoder": "encoder with pooler",
}
SHAPE = {
    "vocab_size": 80,
    "hidden_size": 32,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
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


def write_model(
    folder: pathlib.Path,
    kind: str,
    run: dict[str, str] | None = None,
    num_labels: int = 3,
    **changes,
):
    """Writes a tiny random model that serves as a kind; returns its folder.

    Args:
      folder: new.
      kind: of `bert_tf.inference.kinds.KINDS`.
      run: what a run would record of it, run.flags by name.
      num_labels: of a classifier, up to 3.
      changes: fields of the configuration.
    """
    made = make_checkpoint(PURPOSE_OF_KIND[kind], seed=5, **{**SHAPE, **changes})
    if kind in ("reranker", "regression"):
        num_labels = 1
    if num_labels < 3:
        weights = {
            n: v[:num_labels] if n.startswith("cls/classifier/") else v
            for n, v in made.weights.items()
        }
        labels = made.labels[:num_labels] if num_labels > 1 else ()
        made = dataclasses.replace(made, weights=weights, labels=labels)
    write_checkpoint(made, folder, "bert_tf")
    if run is not None:
        lines = [f"--{name}={value}\n" for name, value in run.items()]
        (folder / "run.flags").write_text("".join(lines), encoding="utf8")
    return folder
