"""Words of raw texts: as a server's graph finds them, and by hand."""

import pytest

from bert_tf.text.byte_bpe import ByteBpe
from bert_tf.text.vocab import Vocab
from bert_tf.text.wordpiece import WordPiece
from bert_tf.text.words import word_offsets
from tests.tiny_bpe import tiny_bpe_vocab
from tests.tiny_model import tiny_words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("In Oslo, Ada.", ["In", "Oslo", ",", "Ada", "."]),
        ("  two  spaces\n", ["two", "spaces"]),
        ("", []),
        ("東京 x", ["東", "京", "x"]),
        # The accent is dropped by the uncased rules, and belongs to its word all the same.
        ("cafe\u0301 bar", ["cafe\u0301", "bar"]),
        ("zzz unseen", ["zzz", "unseen"]),
    ],
)
def test_words_of_wordpiece(text, words):
    tokenizer = WordPiece(Vocab(tiny_words("oslo", "ada")), True)
    assert [text[start:end] for start, end in word_offsets(text, tokenizer)] == words


def test_marks_that_stand_alone_are_no_words():
    """The cased rules part them from punctuation."""
    text = "Wow\u203c\ufe0f \u0301 x"
    tokenizer = WordPiece(Vocab(tiny_words()), False)
    words = [text[start:end] for start, end in word_offsets(text, tokenizer)]
    assert words == ["Wow", "\u203c\ufe0f", "x"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("In Oslo, Ada.", ["In", "Oslo", ",", "Ada", "."]),
        ("  two  spaces\n", ["two", "spaces"]),
        ("", []),
        ("it's", ["it", "'s"]),
    ],
)
def test_words_of_byte_level_bpe(text, words):
    places = word_offsets(text, ByteBpe(tiny_bpe_vocab()))
    assert [text[start:end] for start, end in places] == words
