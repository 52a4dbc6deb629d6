"""Makes the encoder's rows of queries with their documents. Loads no TensorFlow."""

import functools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bert_tf.examples.rows import TokenizedDataset
from bert_tf.fine_tuning_config import POINTWISE_LOSSES
from bert_tf.tasks.reranking.examples import RankingExample
from bert_tf.text.packing import pack_pair
from bert_tf.text.tokenization import Tokenizer

OF_SCORES = ("mse", "margin_mse")  # learn a teacher's scores


class RankingExamples(NamedTuple):
    """Examples with their rows.

    In examples to evaluate a row is one document, query by query.
    """

    examples: list[RankingExample]
    rows: TokenizedDataset
    is_labelled: bool = True


def judged_examples(
    examples: list[RankingExample], tokenizer: Tokenizer, max_seq_length: int
) -> RankingExamples:
    """Packs each document after its query: [CLS] query [SEP] document [SEP]."""
    encode = functools.cache(tokenizer.encode)
    texts = [
        pack_pair(tokenizer.vocab, encode(example.query), encode(text), max_seq_length)
        for example in examples
        for text in example.documents
    ]
    rows = TokenizedDataset(texts, num_choices=1, pad_id=tokenizer.vocab.pad_id)
    return RankingExamples(examples, rows, all(example.grades for example in examples))


def training_rows(
    examples: Sequence[RankingExample],
    tokenizer: Tokenizer,
    max_seq_length: int,
    loss: str,
    list_size: int,
) -> TokenizedDataset:
    """Returns rows of lists: L documents of a query; of `POINTWISE_LOSSES` one.

    Relevant documents come first. A list that is too long loses its end; one that is shorter is
    filled with sequences of weight 0. For margin_mse a list has one relevant document, and there is
    a list for each of them.

    Raises:
      ValueError: naming the example, if it lacks what the loss needs.
    """
    if loss not in POINTWISE_LOSSES and list_size < 2:
        raise ValueError(
            f"--list_size={list_size}: --ranking_loss={loss} compares documents; give 2 or more."
        )
    lists = [part for example in examples for part in _lists(example, loss, list_size)]
    if not lists:
        raise ValueError("No query has a document to train on; check the training file.")
    length = max(len(part) for part in lists)
    encode, vocab = functools.cache(tokenizer.encode), tokenizer.vocab
    empty = pack_pair(vocab, [], [], max_seq_length)
    texts, shape = [], (len(lists), length)
    labels, mask = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
    for number, part in enumerate(lists):
        for place, (query, text, label) in enumerate(part):
            texts.append(pack_pair(vocab, encode(query), encode(text), max_seq_length))
            labels[number, place], mask[number, place] = label, 1.0
        texts += [empty] * (length - len(part))
    columns = {"list_labels": labels, "list_mask": mask}
    return TokenizedDataset(texts, columns, num_choices=length, pad_id=vocab.pad_id)


def _lists(example: RankingExample, loss: str, list_size: int) -> list[list[tuple]]:
    """Returns lists of (query, document, label) of an example."""
    values = example.labels if loss in ("bce", "lambda") else example.scores or example.labels
    if loss in OF_SCORES and not example.scores:
        raise ValueError(
            f"{example.source} has no scores, which --ranking_loss={loss} learns; give a teacher's "
            "for each document, or another loss."
        )
    if loss == "bce" and not all(0 <= value <= 1 for value in values):
        raise ValueError(
            f"{example.source} has the labels {list(values)[:10]}; bce needs them between 0 and 1. "
            "Divide grades by the highest one, or use --ranking_loss=lambda."
        )
    every = list(zip(example.documents, example.labels, values, strict=True))
    relevant = [(example.query, text, value) for text, label, value in every if label > 0]
    others = [(example.query, text, value) for text, label, value in every if label <= 0]
    if loss in POINTWISE_LOSSES:
        return [[pair] for pair in relevant + others]
    if loss == "margin_mse":
        return [[first, *others[: list_size - 1]] for first in relevant if others]
    both = (relevant + others)[:list_size]
    return [both] if len(both) > 1 else []
