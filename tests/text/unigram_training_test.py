"""A trained Unigram vocabulary: its order, its size, and that it has what is frequent."""

import pytest

from bert_tf.text.sentencepiece import SentencePiece
from bert_tf.text.sentencepiece_vocab import SentencePieceVocab
from bert_tf.text.unigram_training import train_unigram_vocab

TEXTS = ["the mill stood on the slow river", "its wheel turned with the water", "the 'naïve' mill"]


def test_special_tokens_have_the_rows_of_xlm_roberta(tmp_path):
    vocab = train_unigram_vocab(TEXTS * 3, 60)
    assert len(vocab) == 60
    assert vocab.tokens[:4] == ("<s>", "<pad>", "</s>", "<unk>")
    assert vocab.tokens[-1] == vocab.mask == "<mask>"
    assert (vocab.num_separators, vocab.second_type) == (2, 0)
    vocab.write(tmp_path / "tokenizer.json")
    assert SentencePieceVocab.read(tmp_path / "tokenizer.json") == vocab
    tokenizer = SentencePiece(vocab)
    assert tokenizer.tokenize("mill the")[-2:] == ["▁t", "he"]
    assert tokenizer.encode("中")[-1] == vocab.unk_id


def test_a_small_corpus_is_filled_up_with_unused_tokens():
    vocab = train_unigram_vocab(TEXTS, 300)
    assert len(vocab) == 300
    assert sum(token.startswith("[unused") for token in vocab.tokens) > 100
    assert vocab.tokens[-1] == "<mask>"


@pytest.mark.parametrize(("texts", "size"), [([], 60), (["", " "], 60), (TEXTS, 20), (TEXTS, 3)])
def test_too_little_text_or_room_is_refused(texts, size):
    with pytest.raises(ValueError):
        train_unigram_vocab(texts, size)
