"""Divisions of words that a Unigram vocabulary decides narrowly are those of `tokenizers`."""

import dataclasses

import pytest
import tensorflow as tf

from bert_tf.text.sentencepiece import SentencePiece
from bert_tf.text.sentencepiece_graph import SentencePieceTokenizer
from tests.text.sentencepiece_test import vocab_of
from tests.text.tokenizer_test import flat


@pytest.mark.slow
def test_ties_and_the_score_of_unknown_characters():
    vocab = vocab_of("xlm_roberta/masked_lm")
    special = vocab.tokens[:4]
    scores = {"▁": -1.0, "a": -2.0, "aa": -3.0, "aaa": -4.5, "b中": -9.0, "b": -2.0}
    small = dataclasses.replace(
        vocab,
        tokens=(*special, *scores, "<mask>"),
        scores=(0.0, 0.0, 0.0, 0.0, *scores.values(), 0.0),
    )
    texts = ["a" * length for length in range(1, 12)] + ["b中", "b中中", "中b中a"]
    twin = SentencePiece(small)
    assert twin.tokenize("b中") == ["▁", "b中"]
    tokenizer = SentencePieceTokenizer(small)
    ids = flat(tokenizer.tokenize(tf.constant(texts)))
    assert ids == [twin.encode(text) for text in texts]
