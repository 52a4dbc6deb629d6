"""Makes the encoder's rows for multiple-choice examples."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bert_tf.tasks.base.examples.rows import TokenizedDataset
from bert_tf.tasks.multiple_choice.examples import ChoiceExample
from bert_tf.text.packing import pack
from bert_tf.text.tokenization import Tokenizer


class ChoiceExamples(NamedTuple):
    """Examples with their rows; each row has C texts."""

    examples: list[ChoiceExample]  # N examples
    rows: TokenizedDataset  # N rows
    labels: np.ndarray  # int32 [N]; 0 for an unlabelled example
    is_labelled: bool = True  # whether the labels can be used for an evaluation


def make_examples(
    examples: list[ChoiceExample], tokenizer: Tokenizer, max_seq_length: int
) -> ChoiceExamples:
    """Packs each choice with the context: [CLS] context [SEP] start choice [SEP]."""
    vocab = tokenizer.vocab
    texts = []  # N * C, example by example
    for example in examples:
        first = tokenizer.encode(example.context)
        for choice in example.choices:
            # Tokenized together: byte-level BPE has different tokens after a space.
            text = f"{example.start} {choice}" if example.start else choice
            second = tokenizer.encode(text)
            texts.append(pack(vocab, first, second, max_seq_length))
    # 0 stands in for an unknown label; `is_labelled` tells whether labels can be used.
    labels = np.array([example.label or 0 for example in examples], np.int32)
    num_choices = len(examples[0].choices)
    rows = TokenizedDataset(
        texts, {"label_ids": labels}, num_choices=num_choices, pad_id=vocab.pad_id
    )
    # Labels that are all the same are placeholders, as in a file of which the labels are unknown.
    known = {example.label for example in examples}
    is_labelled = None not in known and len(known) > 1
    return ChoiceExamples(examples, rows, labels, is_labelled)


def pair_rows(
    contexts: Sequence[str], choices: Sequence[str], tokenizer: Tokenizer, max_seq_length: int
) -> TokenizedDataset:
    """Packs pairs of a context and a choice, each as an example with one choice."""
    vocab = tokenizer.vocab
    texts = []
    for context, choice in zip(contexts, choices, strict=True):
        first = tokenizer.encode(context)
        second = tokenizer.encode(choice)
        texts.append(pack(vocab, first, second, max_seq_length))
    return TokenizedDataset(texts, num_choices=1, pad_id=vocab.pad_id)
