"""BertTokenizer in the graph equals its plain-Python twin, everywhere a graph can run."""

import random

import pytest
import tensorflow as tf
from tensorflow.python.framework.func_graph import FuncGraph

from bert_tf.text import unicode_tables
from bert_tf.text.tokenization import Tokenizer
from bert_tf.text.tokenizer import BertTokenizer, _make_wordpiece, _shared_wordpiece
from bert_tf.text.vocab import SPECIAL_TOKENS, Vocab
from bert_tf.text.wordpiece import WordPiece
from tests.shared_data import golden_file
from tests.text.wordpiece_test import (
    assert_offsets_select_tokens,
    golden_texts,
    random_text,
    vocab_of_pools,
)

TEXTS = ["", "Héllo, wörld!", "ΑΣ. ΟΔΟΣ Σ", "a\u302e\u1b44 \u200b", "한국 中国", " \n", "a" * 201]


def flat(ragged: tf.RaggedTensor) -> list[list[int]]:
    return ragged.merge_dims(1, 2).to_list()


def byte_offsets(text: str) -> list[int]:
    offsets = [0]
    for char in text:
        offsets.append(offsets[-1] + len(char.encode()))
    return offsets


def assert_equals_twin(tokenizer: tf.Module, twin: Tokenizer, texts: list[str]) -> None:
    ids, starts, ends = (flat(ragged) for ragged in tokenizer.tokenize_with_offsets(texts))
    assert flat(tokenizer.tokenize(texts)) == ids
    for i, text in enumerate(texts):
        tokens, twin_starts, twin_ends = twin.tokenize_with_offsets(text)
        to_bytes = byte_offsets(text)
        assert ids[i] == [twin.vocab.ids[token] for token in tokens], ascii(text)
        assert starts[i] == [to_bytes[place] for place in twin_starts], ascii(text)
        assert ends[i] == [to_bytes[place] for place in twin_ends], ascii(text)


def assert_the_same_everywhere(tokenizer: tf.Module, texts: list[str], folder) -> None:
    """Eagerly, in a graph, in datasets, and saved."""
    want = tokenizer.tokenize(texts).to_list()
    assert tf.function(tokenizer.tokenize)(tf.constant(texts)).to_list() == want
    # One text at a time, then all in a batch.
    for batch in (1, len(texts)):
        dataset = tf.data.Dataset.from_tensor_slices(texts).batch(batch).map(tokenizer.tokenize)
        assert [row for ragged in dataset for row in ragged.to_list()] == want
    tf.saved_model.save(tokenizer, str(folder / "saved"))
    restored = tf.saved_model.load(str(folder / "saved"))
    assert restored.tokenize(tf.constant(texts)).to_list() == want
    for ragged in restored.tokenize_with_offsets(tf.constant(texts)):
        assert [len(row) for row in ragged.to_list()] == [len(row) for row in want]


@pytest.mark.parametrize("casing", ["uncased", pytest.param("cased", marks=pytest.mark.slow)])
def test_equals_golden_texts(casing) -> None:
    vocab = Vocab.read(golden_file("vocab", f"bert-base-{casing}-vocab.txt"))
    tokenizer = BertTokenizer(vocab, casing == "uncased")
    records = golden_texts(casing)
    texts = [record["text"] for record in records]
    ids, starts, ends = (flat(ragged) for ragged in tokenizer.tokenize_with_offsets(texts))
    for i, record in enumerate(records):
        tokens = [vocab.tokens[index] for index in ids[i]]
        assert (tokens, ids[i]) == (record["tokens"], record["ids"]), texts[i]
        to_characters = {byte: place for place, byte in enumerate(byte_offsets(texts[i]))}
        spans = [
            (to_characters[start], to_characters[end])
            for start, end in zip(starts[i], ends[i], strict=True)
        ]
        assert_offsets_select_tokens(texts[i], tokens, spans, casing == "uncased")
    assert_equals_twin(tokenizer, WordPiece(vocab, casing == "uncased"), texts)


@pytest.mark.slow
@pytest.mark.parametrize("lower", [True, False])
def test_random_unicode_equals_twin(lower) -> None:
    rng = random.Random(11)
    vocab = vocab_of_pools()
    tokenizer, twin = BertTokenizer(vocab, lower), WordPiece(vocab, lower)
    for size in (1, 2, 5) * 20 + (1000,) * 4:
        assert_equals_twin(tokenizer, twin, [random_text(rng) for _ in range(size)])


@pytest.mark.slow
def test_pieces_that_no_word_holds_are_never_found() -> None:
    pieces = ("a", "##a", "a a", "##a a", "a,a", "##,a", "a]", "[a", "##]", "é a", "#", "##")
    vocab = Vocab((*SPECIAL_TOKENS, *pieces))
    texts = ["a a", "aa a aé a", "a,a [a]", "#a ##a", "[UNK] [MASK]", "\x7f0 \x7f"]
    for lower in (True, False):
        assert_equals_twin(BertTokenizer(vocab, lower), WordPiece(vocab, lower), texts)
    special = Vocab(SPECIAL_TOKENS)
    assert_equals_twin(BertTokenizer(special, True), WordPiece(special, True), texts)


def test_words_and_their_pieces() -> None:
    vocab = Vocab((*SPECIAL_TOKENS, "un", "##want", "##ed", ",", "runn", "##ing"))
    tokenizer = BertTokenizer(vocab, True)
    ids, starts, ends = tokenizer.tokenize_with_offsets(["UNwantéd,running", "", "?"])
    assert ids.to_list() == [[[5, 6, 7], [8], [9, 10]], [], [[1]]]
    assert starts.to_list() == [[[0, 2, 6], [9], [10, 14]], [], [[0]]]
    assert ends.to_list() == [[[2, 6, 9], [10], [14, 17]], [], [[1]]]
    assert {column.dtype for column in (ids, starts, ends)} == {tf.int32}


def test_text_that_is_not_utf8_is_skipped_as_in_the_original() -> None:
    tokenizer = BertTokenizer(Vocab((*SPECIAL_TOKENS, "ab", "c")), True)
    ids, starts, ends = tokenizer.tokenize_with_offsets([b"\xffa\xc3b\x80 c\xe4\xb8"])
    assert (ids.to_list(), starts.to_list()) == ([[[5], [6]]], [[[1], [6]]])
    assert ends.to_list() == [[[4], [7]]]


@pytest.mark.slow
@pytest.mark.parametrize("lower", [True, False])
def test_eager_graph_dataset_and_saved_model_agree(tmp_path, lower) -> None:
    assert_the_same_everywhere(BertTokenizer(vocab_of_pools(), lower), TEXTS, tmp_path)


@pytest.mark.parametrize(
    "texts",
    [
        pytest.param([], marks=pytest.mark.slow),
        [""],
        pytest.param(["", " ", "\x00"], marks=pytest.mark.slow),
    ],
)
def test_nothing_to_tokenize(texts) -> None:
    tokenizer = BertTokenizer(vocab_of_pools(), True)
    for ragged in tokenizer.tokenize_with_offsets(tf.constant(texts, tf.string)):
        assert ragged.to_list() == [[] for _ in texts]
        assert ragged.shape[1:] == [None, None] and ragged.flat_values.dtype == tf.int32


@pytest.mark.slow
def test_tables_cover_every_code_point() -> None:
    tables = unicode_tables.code_point_tables(do_lower_case=True, strip_accents=True)
    for paged in (tables.expansion, tables.kind, tables.combining_class, tables.casing):
        values = paged.pages.reshape(-1, unicode_tables.PAGE_SIZE)[paged.page_of]
        assert values.size == unicode_tables.NUM_CODE_POINTS
    kinds = tables.kind.pages.reshape(-1, unicode_tables.PAGE_SIZE)[tables.kind.page_of].ravel()
    for code in range(unicode_tables.NUM_CODE_POINTS):
        char = chr(code)
        assert (kinds[code] == unicode_tables.ISOLATED) == unicode_tables.is_isolated(char), code


@pytest.mark.parametrize("make_graph", [tf.Graph, lambda: FuncGraph("traced")])
def test_tables_made_in_a_graph_do_not_break_those_of_later_tokenizers(make_graph):
    options = (("[UNK]", "river", "##s"), "[UNK]", 400, False)
    _shared_wordpiece.cache_clear()
    with make_graph().as_default():
        _make_wordpiece(*options)
    found = _make_wordpiece(*options).tokenize(tf.constant(["rivers", "boat"]))
    assert found.to_list() == [[1, 2], [0]]
