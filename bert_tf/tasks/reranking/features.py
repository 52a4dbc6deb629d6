"""Makes the encoder's rows from queries and documents. Loads no TensorFlow."""

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from absl import logging

from bert_tf.config.ranking_config import POINTWISE_LOSSES
from bert_tf.tasks.base.examples.known_texts import key_of
from bert_tf.tasks.base.examples.rows import TokenizedDataset
from bert_tf.tasks.reranking.examples import RankingExample
from bert_tf.text.packing import add_special_tokens, pack_pair
from bert_tf.text.tokenization import Tokenizer

DISTILLATION_LOSSES = ("mse", "margin_mse")  # learn a teacher's scores


class RankingExamples(NamedTuple):
    """Examples with their rows.

    In training a row is a list of documents. In evaluation a row is one document, and the rows of a
    query follow each other.
    """

    examples: list[RankingExample]
    rows: TokenizedDataset
    is_labelled: bool = True

    @property
    def keys(self) -> list[int]:
        """Keys of the queries, each once: another document makes a query no new one."""
        return sorted({key_of(_query_ids(ids)) for ids in self.rows.texts()})


def evaluation_examples(
    examples: list[RankingExample], tokenizer: Tokenizer, max_seq_length: int
) -> RankingExamples:
    """Packs each document after its query: [CLS] query [SEP] document [SEP]."""
    # Queries repeat for each document, and documents for many queries.
    encode = functools.cache(tokenizer.encode)
    texts = []
    for example in examples:
        for document in example.documents:
            query_ids = encode(example.query)
            texts.append(pack_pair(tokenizer.vocab, query_ids, encode(document), max_seq_length))
    rows = TokenizedDataset(texts, num_choices=1, pad_id=tokenizer.vocab.pad_id)
    return RankingExamples(examples, rows, all(example.grades for example in examples))


def training_rows(
    examples: Sequence[RankingExample],
    tokenizer: Tokenizer,
    max_seq_length: int,
    loss: str,
    list_size: int,
) -> TokenizedDataset:
    """Returns rows that are lists of L documents of a query; L is 1 for `POINTWISE_LOSSES`.

    Relevant documents come first. A list that is too long is truncated; a shorter list is padded
    with empty sequences of weight 0. For margin_mse there is a list for each relevant document,
    which is followed by irrelevant ones. An example without the needed labels is an error.
    """
    if loss not in POINTWISE_LOSSES and list_size < 2:
        raise ValueError(
            f"--list_size={list_size}: --ranking_loss={loss} compares documents; give 2 or more."
        )
    encode = functools.cache(tokenizer.encode)
    lists: list[list[_Pair]] = []
    num_left_out = 0
    for example in examples:
        distinct = _without_positives(example, encode)
        num_left_out += len(example.documents) - len(distinct.documents)
        lists.extend(_lists(distinct, loss, list_size))
    if num_left_out:
        logging.warning(
            "train: %d irrelevant documents are left out: they have the same tokens as a relevant "
            "document of their query.",
            num_left_out,
        )
    if not lists:
        needed = "a document" if loss in POINTWISE_LOSSES else "two documents to compare"
        if loss == "margin_mse":
            needed = "a relevant and an irrelevant document"
        raise ValueError(f"--ranking_loss={loss}: no query has {needed}; check the examples.")
    length = max(map(len, lists))
    vocab = tokenizer.vocab
    empty = add_special_tokens(vocab, [], [])
    texts = []  # N * L, list by list
    labels = np.zeros((len(lists), length), np.float32)  # [N, L]
    mask = np.zeros((len(lists), length), np.float32)  # [N, L]
    for number, pairs in enumerate(lists):
        for column, pair in enumerate(pairs):
            document_ids = encode(pair.document)
            texts.append(pack_pair(vocab, encode(pair.query), document_ids, max_seq_length))
            labels[number, column] = pair.label
            mask[number, column] = 1.0
        texts += [empty] * (length - len(pairs))
    columns = {"list_labels": labels, "list_mask": mask}
    return TokenizedDataset(texts, columns, num_choices=length, pad_id=vocab.pad_id)


def _query_ids(ids: np.ndarray) -> np.ndarray:
    """Returns the tokens before the first [SEP] of a pair."""
    # The last token is the second [SEP], or the class token, which occurs once.
    separator = ids[-1] if ids[-1] in ids[:-1] else ids[-2]
    return ids[: int(np.argmax(ids == separator))]


class _Pair(NamedTuple):
    query: str
    document: str
    label: float  # relevance, or the score of a teacher


def _without_positives(
    example: RankingExample, encode: Callable[[str], list[int]]
) -> RankingExample:
    """Returns an example without irrelevant documents that have the tokens of a relevant one."""
    if example.scores:  # A teacher's scores are learned as they are.
        return example
    relevant = set()
    for document, label in zip(example.documents, example.labels, strict=True):
        if label > 0:
            relevant.add(tuple(encode(document)))
    kept = []
    for index, document in enumerate(example.documents):
        if example.labels[index] > 0 or tuple(encode(document)) not in relevant:
            kept.append(index)
    if len(kept) == len(example.documents):
        return example
    return example._replace(
        documents=tuple(example.documents[index] for index in kept),
        labels=tuple(example.labels[index] for index in kept),
    )


def _lists(example: RankingExample, loss: str, list_size: int) -> list[list[_Pair]]:
    """Returns the lists of an example on which a loss trains."""
    values = example.labels if loss in ("bce", "lambda") else example.scores or example.labels
    if loss in DISTILLATION_LOSSES and not example.scores:
        raise ValueError(
            f"{example.source} has no scores, which --ranking_loss={loss} learns; give the score "
            "of a teacher for each document, or use another loss."
        )
    if loss == "bce" and not all(0 <= value <= 1 for value in values):
        raise ValueError(
            f"{example.source} has the labels {list(values)[:10]}; bce needs them between 0 and 1. "
            "Divide grades by the highest one, or use --ranking_loss=lambda."
        )
    relevant: list[_Pair] = []
    others: list[_Pair] = []
    for document, label, value in zip(example.documents, example.labels, values, strict=True):
        # The label decides which documents are relevant; the loss may learn the teacher's score.
        group = relevant if label > 0 else others
        group.append(_Pair(example.query, document, value))
    if loss in POINTWISE_LOSSES:
        return [[pair] for pair in relevant + others]
    if loss == "margin_mse":
        # The margins are between the first document and each of the others.
        return [[first, *others[: list_size - 1]] for first in relevant if others]
    pairs = (relevant + others)[:list_size]
    # A list of one document has no order to learn.
    return [pairs] if len(pairs) > 1 else []
