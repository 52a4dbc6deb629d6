"""Words of raw texts end at punctuation with SentencePiece too, in Python as in the graph."""

import tensorflow as tf

from bert_tf.text.sentencepiece import SentencePiece
from bert_tf.text.tokenizer import BertTokenizer
from bert_tf.text.vocab import SPECIAL_TOKENS, Vocab
from bert_tf.text.words import word_offsets
from tests.text.sentencepiece_test import vocab_of


def test_words_end_at_punctuation():
    text = "Sie war in Köln… (3㎏)."
    tokenizer = SentencePiece(vocab_of("xlm_roberta/masked_lm"))
    offsets = word_offsets(text, tokenizer)
    words = [text[start:end] for start, end in offsets]
    assert words == ["Sie", "war", "in", "Köln", "…", "(", "3㎏", ")", "."]
    splitter = BertTokenizer(Vocab(SPECIAL_TOKENS), do_lower_case=False)
    _, starts, ends = splitter.tokenize_with_offsets(tf.constant([text]))
    spans = zip(starts.flat_values.numpy(), ends.flat_values.numpy(), strict=True)
    assert [text.encode()[start:end].decode() for start, end in spans] == words
