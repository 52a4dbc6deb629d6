"""Trains a Unigram vocabulary with SentencePiece's own trainer.

The rows are XLM-RoBERTa's: <s> <pad> </s> <unk> are the first four, <mask> is the last. Text is
normalized by SentencePiece's NFKC rules. Two texts are packed like XLM-RoBERTa's, `<s> A </s></s>
B </s>` with type 0 throughout.
"""

import dataclasses
import io
import itertools
from collections.abc import Iterable

from absl import logging

from bert_tf.text.sentencepiece_model import make_vocab
from bert_tf.text.sentencepiece_vocab import SentencePieceVocab

# Characters that are rarer than this become the unknown token.
CHARACTER_COVERAGE = 0.9995
# Of larger corpora so many sentences are drawn.
MAX_SENTENCES = 10_000_000
MAX_SENTENCE_BYTES = 1 << 16
# SentencePiece divides its sums by this number, so a fixed one gives the same result everywhere.
NUM_THREADS = 16
# <s> <pad> </s> <unk> <mask> instead of SentencePiece's three.
_MORE_ROWS = 2
_MIN_VOCAB_SIZE = 16


def train_unigram_vocab(texts: Iterable[str], vocab_size: int) -> SentencePieceVocab:
    """Learns the tokens of a Unigram language model.

    Returns:
      Exactly `vocab_size` tokens. If the corpus is too small for that many, [unused] tokens are
      added and a warning is logged.

    Raises:
      ValueError: if there is no text, or `vocab_size` is too small for its characters.
    """
    import sentencepiece

    if vocab_size < _MIN_VOCAB_SIZE:
        raise ValueError(f"vocab_size is {vocab_size}; expected at least {_MIN_VOCAB_SIZE}.")
    texts = (text for text in texts if text.strip())
    first = next(texts, None)
    if first is None:
        raise ValueError("The corpus has no words; give text to learn a vocabulary from.")
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=itertools.chain([first], texts),
            model_writer=model,
            model_type="unigram",
            vocab_size=vocab_size - _MORE_ROWS,
            hard_vocab_limit=False,
            character_coverage=CHARACTER_COVERAGE,
            input_sentence_size=MAX_SENTENCES,
            max_sentence_length=MAX_SENTENCE_BYTES,
            num_threads=NUM_THREADS,
            minloglevel=2,
        )
    except RuntimeError as error:
        raise ValueError(
            f"SentencePiece cannot learn {vocab_size} tokens from this corpus: {error}"
        ) from None
    vocab = make_vocab(model.getvalue(), "XLMRobertaTokenizer", {})
    lacking = vocab_size - len(vocab)
    if lacking < 0:
        raise ValueError(
            f"vocab_size is {vocab_size}, but the characters of the corpus need {len(vocab)}; "
            "raise vocab_size."
        )
    if not lacking:
        return vocab
    logging.warning(
        "The corpus yields only %d of the %d requested tokens; the rest are [unused] ones.",
        len(vocab),
        vocab_size,
    )
    unused = tuple(f"[unused{i}]" for i in range(lacking))
    return dataclasses.replace(
        vocab,
        tokens=(*vocab.tokens[:-1], *unused, vocab.tokens[-1]),
        scores=(*vocab.scores[:-1], *[min(vocab.scores)] * lacking, vocab.scores[-1]),
    )
