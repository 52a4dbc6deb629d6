"""Training of a vocabulary of byte-level BPE."""

from typing import Any

from bert_tf.text.bpe_vocab import BpeVocab


def train_bpe_on_parts(*arguments: Any) -> BpeVocab:
    """Trains a vocabulary on a corpus."""
    raise ValueError("--tokenizer=byte_bpe needs a --vocab_file.")
