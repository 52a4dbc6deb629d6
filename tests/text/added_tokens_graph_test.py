"""Added tokens in the graph of byte-level BPE and SentencePiece."""

import tensorflow as tf

from bert_tf.text.added_tokens import AddedToken
from bert_tf.text.added_tokens_graph import NO_TOKEN, AddedTokenFinder, Parts


def test_a_token_of_deleted_characters_is_never_found():
    tokens = [AddedToken("\x01", normalized=True), AddedToken("<a>", normalized=True)]
    finder = AddedTokenFinder(tokens, {"\x01": 3, "<a>": 4}, lambda text: text.replace("\x01", ""))
    text = "x<a>y"
    starts = tf.range(len(text))
    parts = Parts(
        tf.constant([text]), tf.constant([NO_TOKEN]), tf.constant([0], tf.int64), starts, starts + 1
    )
    found = finder.find(parts)
    assert found.strings.numpy().tolist() == [b"x", b"<a>", b"y"]
    assert found.ids.numpy().tolist() == [NO_TOKEN, 4, NO_TOKEN]
