"""Makes the encoder's rows for texts with several endings, one of which follows."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bert_tf.examples.rows import TokenizedDataset
from bert_tf.tasks.multiple_choice.examples import ChoiceExample
from bert_tf.text.packing import num_special_tokens, pack
from bert_tf.text.tokenization import Tokenizer


class ChoiceExamples(NamedTuple):
    """Examples with their rows, one of C texts each."""

    examples: list[ChoiceExample]
    rows: TokenizedDataset
    labels: np.ndarray  # int32 [E]
    num_cut: int  # texts that lost tokens
    is_labelled: bool = True
    longest: int = 0  # tokens of the longest text before it was cut, with special ones


def make_examples(
    examples: list[ChoiceExample], tokenizer: Tokenizer, max_seq_length: int
) -> ChoiceExamples:
    """Packs each choice behind the context: [CLS] context [SEP] start choice [SEP]."""
    texts, num_cut, longest, vocab = [], 0, 0, tokenizer.vocab
    for example in examples:
        first = tokenizer.encode(example.context)
        for choice in example.choices:
            # Byte-level BPE makes other tokens after a space.
            text = f"{example.start} {choice}" if example.start else choice
            second = tokenizer.encode(text)
            texts.append(pack(vocab, first, second, max_seq_length))
            num_special = num_special_tokens(bool(second), vocab.num_separators)
            size = len(first) + len(second) + num_special
            longest = max(longest, size)
            num_cut += size > max_seq_length
    labels = np.array([example.label or 0 for example in examples], np.int32)
    num_choices = len(examples[0].choices)
    rows = TokenizedDataset(
        texts, {"label_ids": labels}, num_choices=num_choices, pad_id=vocab.pad_id
    )
    known = {example.label for example in examples}  # Placeholders are all the same.
    is_labelled = None not in known and len(known) > 1
    return ChoiceExamples(examples, rows, labels, num_cut, is_labelled, longest)


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
