"""Tokenized rows of texts and pairs of texts, with their labels."""

from typing import NamedTuple

import numpy as np

from bert_tf.tasks.base.examples.rows import TokenizedDataset
from bert_tf.tasks.classification.examples import TextExample
from bert_tf.text.packing import pack, pack_windows
from bert_tf.text.tokenization import Tokenizer

LABEL_NAMES = {
    "single_label": "label_ids",
    "regression": "label_values",
    "multi_label": "label_rows",
}


class TextExamples(NamedTuple):
    """Examples with their rows."""

    examples: list[TextExample]  # E texts or pairs
    rows: TokenizedDataset  # N rows, one for each example, or one for each window of an example
    owners: np.ndarray  # int [N], the example of each row
    labels: np.ndarray  # int32 [E], float32 [E] or float32 [E, C]; see `label_array`
    is_labelled: bool = True  # whether the labels are known


def make_examples(
    examples: list[TextExample],
    labels: np.ndarray,
    kind: str,
    tokenizer: Tokenizer,
    max_seq_length: int,
    long_texts: str = "head",
    weights: np.ndarray | None = None,
    is_labelled: bool = True,
) -> TextExamples:
    """Tokenizes and packs texts or pairs, in rows of at most max_seq_length tokens.

    Args:
      labels, kind: see `label_array`.
      long_texts: `head`, `tail` or `windows`; see `ClassifierConfig`.
      weights: float32 [C], weight of each class in the loss; None: 1.
    """
    texts = []
    owners = []
    vocab = tokenizer.vocab
    for index, example in enumerate(examples):
        first = tokenizer.encode(example.text_a)
        second = None if example.text_b is None else tokenizer.encode(example.text_b)
        if long_texts == "windows":
            packed = pack_windows(vocab, first, second, max_seq_length)
        else:
            is_tail = long_texts == "tail"
            packed = [pack(vocab, first, second, max_seq_length, is_tail)]
        texts += packed
        owners += [index] * len(packed)
    # Every window of a text has the text's label.
    row_labels = labels[owners]
    columns = {LABEL_NAMES[kind]: row_labels}
    if weights is not None:
        # [N], from the weight of each class, [C].
        columns["example_weights"] = weights[row_labels].astype(np.float32)
    rows = TokenizedDataset(texts, columns, pad_id=vocab.pad_id)
    return TextExamples(examples, rows, np.array(owners), labels, is_labelled)
