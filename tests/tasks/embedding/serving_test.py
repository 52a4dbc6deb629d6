"""Texts of served embedders in lower case are those of Python, U+0000 included."""

import tensorflow as tf

from bert_tf.tasks.embedding.serving import lower_case


def test_nothing_is_lost_at_a_null_character() -> None:
    texts = ["", "\0", "A\0B", "\0\0Ä", "İX\0", "ΑΣ"]
    assert [text.decode() for text in lower_case(tf.constant(texts)).numpy()] == list(
        map(str.lower, texts)
    )
