"""ByteBpeTokenizer in the graph equals its plain-Python twin, everywhere a graph can run."""

import dataclasses
import functools
import random

import pytest
import tensorflow as tf

from bert_tf.text.byte_bpe import ByteBpe
from bert_tf.text.byte_bpe_graph import ByteBpeTokenizer
from bert_tf.text.graph_tokenization import make_graph_tokenizer
from bert_tf.text.tokenizer import BertTokenizer
from bert_tf.text.vocab import SPECIAL_TOKENS, Vocab
from tests.text.bpe_vocab_test import small_vocab
from tests.text.byte_bpe_test import (
    golden_rows,
    modernbert_vocab,
    odd_text,
    odd_vocab,
    random_text,
    roberta_vocab,
)
from tests.text.tokenizer_test import assert_equals_twin, assert_the_same_everywhere, flat

TEXTS = ["", "It's the  <mask>", "६x६\x00😀", "e\u0301\n\n", "a" * 200, " ", "</s>then"]
# Good and bad bytes: cut off, too long, surrogates, beyond Unicode.
BYTES = (b"a", b" ", b"<mask>", b"\xc3\xa9", b"\xff", b"\x80", b"\xc3", b"\xe4\xb8", b"\xc0\xaf")
BYTES += (b"\xed\xa0\x80", b"\xf0\x80\x80", b"\xf4\x90\x80\x80", b"\xf0\x9f\x98", b"\xe0\x80")


@functools.cache
def roberta_tokenizer(add_prefix_space: bool = False) -> ByteBpeTokenizer:
    return ByteBpeTokenizer(roberta_vocab(add_prefix_space))


def random_tokenizer(name: str) -> ByteBpeTokenizer:
    if name == "NFC":
        return ByteBpeTokenizer(modernbert_vocab())
    return roberta_tokenizer(name == "prefix")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["plain", "prefix"])
def test_equals_golden_texts(name) -> None:
    rows = [row for row in golden_rows() if "pair" not in row]
    texts = [row["text"] for row in rows]
    ids = flat(roberta_tokenizer(name == "prefix").tokenize(tf.constant(texts)))
    for row, row_ids in zip(rows, ids, strict=True):
        assert [0, *row_ids, 2] == row[name]["ids"], row["text"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["plain", "prefix", "NFC"])
def test_random_unicode_equals_twin(name) -> None:
    rng = random.Random(11)
    tokenizer = random_tokenizer(name)
    for size in (1, 2, 5, 500):
        assert_equals_twin(
            tokenizer, ByteBpe(tokenizer.vocab), [random_text(rng) for _ in range(size)]
        )


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_merges_in_any_order_and_flags_of_added_tokens(seed) -> None:
    rng = random.Random(seed)
    vocab = odd_vocab(seed)
    texts = [odd_text(rng) for _ in range(200)]
    assert_equals_twin(ByteBpeTokenizer(vocab), ByteBpe(vocab), texts)


def test_a_merge_that_makes_an_earlier_one_possible_comes_before_the_next_place() -> None:
    merges = (("ab", "a"), ("a", "b"))  # "abab": first "ab a b", then "aba b", not "ab ab"
    base = small_vocab(merges=())
    vocab = dataclasses.replace(base, merges=merges, tokens=(*base.tokens, "ab", "aba"))
    tokenizer = ByteBpeTokenizer(vocab)
    ids = flat(tokenizer.tokenize(["abab"]))[0]
    assert [vocab.tokens[index] for index in ids] == ["aba", "b"] == ByteBpe(vocab).tokenize("abab")


def test_words_and_their_pieces() -> None:
    vocab = small_vocab()
    tokenizer = ByteBpeTokenizer(vocab)
    ids, starts, ends = tokenizer.tokenize_with_offsets(["hehe the", "", "é<mask>"])
    assert [[[vocab.tokens[i] for i in word] for word in row] for row in ids.to_list()] == [
        [["he", "he"], ["Ġthe"]],
        [],
        [["Ã", "©"], ["<mask>"]],
    ]
    assert starts.to_list() == [[[0, 2], [5]], [], [[0, 0], [2]]]
    assert ends.to_list() == [[[2, 4], [8]], [], [[2, 2], [8]]]
    assert {column.dtype for column in (ids, starts, ends)} == {tf.int32}


def test_text_that_is_not_utf8_is_read_as_python_decodes_it() -> None:
    rng = random.Random(3)
    tokenizer = ByteBpeTokenizer(small_vocab())
    encode = ByteBpe(tokenizer.vocab).encode
    strings = [b"".join(rng.choices(BYTES, k=rng.randrange(7))) for _ in range(1000)]
    for ids, string in zip(flat(tokenizer.tokenize(strings)), strings, strict=True):
        assert ids == encode(string.decode("utf-8", "replace")), string


@pytest.mark.slow
def test_eager_graph_dataset_and_saved_model_agree(tmp_path) -> None:
    assert_the_same_everywhere(make_graph_tokenizer(modernbert_vocab(), False), TEXTS, tmp_path)


@pytest.mark.parametrize("add_prefix_space", [pytest.param(False, marks=pytest.mark.slow), True])
def test_nothing_to_tokenize(add_prefix_space) -> None:
    tokenizer = ByteBpeTokenizer(small_vocab(add_prefix_space=add_prefix_space))
    for texts in ([], [""], ["", "", ""]):
        for ragged in tokenizer.tokenize_with_offsets(tf.constant(texts, tf.string)):
            assert ragged.to_list() == [[] for _ in texts]
            assert ragged.shape[1:] == [None, None] and ragged.flat_values.dtype == tf.int32


def test_without_a_normalizer_all_operations_are_tensorflows_own() -> None:
    tokenizer = ByteBpeTokenizer(small_vocab())
    graph = tokenizer.tokenize_with_offsets.get_concrete_function().graph
    names = {op.type for op in graph.get_operations()}
    for function in graph.as_graph_def().library.function:
        names |= {node.op for node in function.node_def}
    assert not {name for name in names if "PyFunc" in name or "Text" in name or ">" in name}


def test_the_vocabulary_says_which_tokenizer() -> None:
    assert isinstance(make_graph_tokenizer(Vocab(SPECIAL_TOKENS), True), BertTokenizer)
