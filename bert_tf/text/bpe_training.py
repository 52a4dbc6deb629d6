"""Trains a byte-level BPE vocabulary with Hugging Face's `tokenizers`.

A text is read as if it started with a space, so that its first word has the same tokens as in the
middle of a text. Special tokens have the ids of RoBERTa: <s> <pad> </s> <unk> are the first four,
<mask> is the last. Two texts are packed like RoBERTa's, `<s> A </s></s> B </s>` with type 0
throughout.
"""

import itertools
import json
from collections.abc import Iterable

from absl import logging

from bert_tf.text.bpe_vocab import AddedToken, BpeVocab

FIRST_TOKENS = ("<s>", "<pad>", "</s>", "<unk>")
LAST_TOKEN = "<mask>"
# The special tokens and the bytes, without any merge.
MIN_VOCAB_SIZE = len(FIRST_TOKENS) + 256 + 1
# Rarer pairs are not merged.
MIN_FREQUENCY = 2


def train_bpe_vocab(texts: Iterable[str], vocab_size: int) -> BpeVocab:
    """Learns a vocabulary by merging the most frequent pair of tokens repeatedly.

    Counting uses all cores; the result does not depend on their number.

    Returns:
      Exactly `vocab_size` tokens. If the corpus is too small for that many, [unused] tokens are
      added and a warning is logged.

    Raises:
      ValueError: if the special tokens and the bytes do not fit, or there is no text.
    """
    import tokenizers as hugging_face

    if vocab_size < MIN_VOCAB_SIZE:
        raise ValueError(
            f"vocab_size is {vocab_size}; 256 bytes and {MIN_VOCAB_SIZE - 256} special tokens need "
            f"at least {MIN_VOCAB_SIZE}: raise vocab_size."
        )
    byte_level = hugging_face.pre_tokenizers.ByteLevel
    tokenizer = hugging_face.Tokenizer(hugging_face.models.BPE())
    tokenizer.pre_tokenizer = byte_level(add_prefix_space=True)
    trainer = hugging_face.trainers.BpeTrainer(
        # One row less: the mask token comes after all others.
        vocab_size=vocab_size - 1,
        min_frequency=MIN_FREQUENCY,
        special_tokens=list(FIRST_TOKENS),
        initial_alphabet=byte_level.alphabet(),
        show_progress=False,
    )
    texts = iter(texts)
    first = next((text for text in texts if text), None)
    if first is None:
        raise ValueError("The corpus has no words; give text to learn a vocabulary from.")
    tokenizer.train_from_iterator(itertools.chain([first], texts), trainer)
    model = json.loads(tokenizer.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].__getitem__)
    lacking = vocab_size - 1 - len(tokens)
    if lacking:
        logging.warning(
            "The corpus yields only %d of the %d requested tokens; the rest are [unused] ones.",
            len(tokens) + 1,
            vocab_size,
        )
    special = (*FIRST_TOKENS, LAST_TOKEN)
    unused = [f"[unused{i}]" for i in range(lacking)]
    return BpeVocab(
        tokens=(*tokens, *unused, LAST_TOKEN),
        merges=tuple((left, right) for left, right in model["merges"]),
        # As in RoBERTa, the mask token includes the space on its left.
        added_tokens=tuple(
            AddedToken(token, lstrip=token == LAST_TOKEN, normalized=token != LAST_TOKEN)
            for token in special
        ),
        add_prefix_space=True,
    )
