"""Added tokens in the graph of byte-level BPE and SentencePiece."""

import tensorflow as tf

from bert_tf.text.added_tokens import AddedToken
from bert_tf.text.added_tokens_graph import AddedTokenMatcher, Characters, cut_out


def test_a_token_of_deleted_characters_is_never_found():
    tokens = [AddedToken("\x01", normalized=True), AddedToken("<a>", normalized=True)]
    ids = {"\x01": 3, "<a>": 4}
    matcher = AddedTokenMatcher(tokens, ids, normalize=lambda text: text.replace("\x01", ""))
    codes = list(map(ord, "x<a>y"))
    starts = tf.range(len(codes))
    text = Characters.of_text(tf.constant(codes), tf.zeros(5, tf.int64), starts, starts + 1)
    found = cut_out(text, matcher)
    assert found.code_points.numpy().tolist() == [ord("x"), 4, ord("y")]
    assert found.is_added.numpy().tolist() == [False, True, False]
    assert found.ends.numpy().tolist() == [1, 4, 5]
