"""A trained byte-level BPE vocabulary: its order, its size, and that it merges what is frequent."""

import pytest

from bert_tf.text.bpe_training import (
    FIRST_TOKENS,
    MIN_VOCAB_SIZE,
    train_bpe_vocab,
)
from bert_tf.text.bpe_vocab import BpeVocab
from bert_tf.text.byte_bpe import ByteBpe

pytest.importorskip("tokenizers")
TEXTS = ["the mill stood on the slow river", "its wheel turned with the water", "the 'naïve' mill"]


def test_special_tokens_stand_where_roberta_has_them(tmp_path) -> None:
    vocab = train_bpe_vocab(TEXTS * 3, MIN_VOCAB_SIZE + 20)
    assert len(vocab) == MIN_VOCAB_SIZE + 20
    assert vocab.tokens[:4] == FIRST_TOKENS and vocab.tokens[-1] == vocab.mask == "<mask>"
    assert (vocab.add_prefix_space, vocab.num_separators, vocab.second_type) == (True, 2, 0)
    assert len(vocab.merges) == 20 and "Ġthe" in vocab.tokens
    vocab.write(tmp_path / "tokenizer.json")
    assert BpeVocab.read(tmp_path / "tokenizer.json") == vocab
    tokenizer = ByteBpe(vocab)
    assert tokenizer.tokenize("the") == ["Ġthe"] and len(tokenizer.encode("中")) == 4


def test_the_most_frequent_pair_is_merged_first() -> None:
    assert train_bpe_vocab(["xy xy xy ab ab"], MIN_VOCAB_SIZE + 1).merges == (("x", "y"),)


def test_a_small_corpus_is_topped_up() -> None:
    vocab = train_bpe_vocab(["ab ab"], MIN_VOCAB_SIZE + 10)
    assert len(vocab) == MIN_VOCAB_SIZE + 10
    assert vocab.tokens[-3:] == ("[unused6]", "[unused7]", "<mask>")
    assert ByteBpe(vocab).encode("[unused6]") != [vocab.ids["[unused6]"]]


def test_what_cannot_be_trained_is_refused() -> None:
    with pytest.raises(ValueError, match="vocab_size .*200.* 261"):
        train_bpe_vocab(TEXTS, 200)
    for nothing in ([], ["", ""]):
        with pytest.raises(ValueError, match="words.*vocabulary"):
            train_bpe_vocab(nothing, 300)
