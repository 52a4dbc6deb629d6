"""WordPiece with other rules than google-research/bert's: in Python, in the graph, in files."""

import itertools
import json
import random
import unicodedata

import pytest
import tensorflow as tf

from bert_tf.text.kinds import content_of, to_config, vocab_from_config
from bert_tf.text.tokenizer import BertTokenizer
from bert_tf.text.vocab import SPECIAL_TOKENS, UNK, Vocab, options_file
from bert_tf.text.wordpiece import WordPiece, split_words
from bert_tf.text.wordpiece_options import DEFAULT_OPTIONS, WordPieceOptions
from tests.shared_data import golden_file
from tests.text.hugging_face_test import differing_characters
from tests.text.wordpiece_test import random_text

tokenizers = pytest.importorskip("tokenizers")

# Lower case, without accents, ideographs apart.
SOME_RULES = [(True, False, True), (False, True, False)]
RULES = []
for rules in itertools.product([True, False], repeat=3):
    RULES.append(pytest.param(*rules, marks=[] if rules in SOME_RULES else pytest.mark.slow))
TEXTS = (
    "Ärger über Größe",
    "ΑΣ und ΣΑΣ",
    "İstanbul ÀÉ",
    "中文a中",
    "한국어 豈",
    "a" * 13,
    "é" * 12,
)


def make_vocab(strips: bool, splits: bool, limit: int = 12) -> Vocab:
    base = Vocab.read(golden_file("vocab", "bert-base-multilingual-cased-vocab.txt"))
    tokens = dict.fromkeys((*base.tokens[:4000], "the", "thé"))
    return Vocab(tuple(tokens), WordPieceOptions(strips, splits, limit))


def some_texts(count: int) -> list[str]:
    rng = random.Random(5)
    texts = [random_text(rng) for _ in range(count)]
    # A lone surrogate has no UTF-8.
    return [*TEXTS, *(text.encode("utf8", "replace").decode() for text in texts)]


def in_graph(vocab: Vocab, lower: bool, texts: list[str]) -> list[tuple[list[int], ...]]:
    """Returns ids, start bytes and end bytes of each text, after a check of both functions."""
    tokenizer = BertTokenizer(vocab, lower)
    columns = tokenizer.tokenize_with_offsets(tf.constant(texts))
    ids = tokenizer.tokenize(tf.constant(texts))
    assert ids.to_list() == columns[0].to_list()
    flat = [column.merge_dims(1, 2).to_list() for column in columns]
    return list(zip(*flat, strict=True))


def in_python(tokenizer: WordPiece, text: str) -> tuple[list[int], ...]:
    """Returns ids, start bytes and end bytes of a text, after checks that all functions agree."""
    tokens, starts, ends = tokenizer.tokenize_with_offsets(text)
    ids = [tokenizer.vocab.ids[token] for token in tokens]
    assert tokenizer.encode(text) == tokenizer.encode_uncached(text) == ids
    byte_of = list(itertools.accumulate((len(char.encode()) for char in text), initial=0))
    return ids, [byte_of[start] for start in starts], [byte_of[end] for end in ends]


@pytest.mark.parametrize(("lower", "strips", "splits"), RULES)
def test_the_graph_equals_python(lower, strips, splits):
    vocab = make_vocab(strips, splits)
    texts = some_texts(60)
    tokenizer = WordPiece(vocab, lower)
    assert in_graph(vocab, lower, texts) == [in_python(tokenizer, text) for text in texts]


@pytest.mark.slow
@pytest.mark.parametrize(("lower", "strips", "splits"), RULES)
def test_words_are_those_of_hugging_face(lower, strips, splits):
    """They differ by the characters of docs/tokenizer.md and the final sigma alone."""
    differing = differing_characters(True) | differing_characters(False)
    normalizer = tokenizers.normalizers.BertNormalizer(
        lowercase=lower, strip_accents=strips, handle_chinese_chars=splits
    )
    splitter = tokenizers.pre_tokenizers.BertPreTokenizer()
    options = WordPieceOptions(strips, splits)
    for text in some_texts(5000):
        text = "".join(char for char in text if char not in differing)
        pairs = splitter.pre_tokenize_str(normalizer.normalize_str(text))
        theirs = [word.replace("ς", "σ") for word, _ in pairs]
        ours = [word.replace("ς", "σ") for word in split_words(text, lower, options)]
        assert ours == theirs, ascii(text)


def test_a_long_word_is_unknown():
    vocab = make_vocab(strips=False, splits=True, limit=3)
    tokenizer = WordPiece(vocab, False)
    assert tokenizer.tokenize("the then") == ["the", UNK]
    assert tokenizer.tokenize("the théâ thé") == ["the", UNK, *tokenizer.tokenize("thé")]
    assert in_graph(vocab, False, ["the then", "é then"]) == [
        in_python(tokenizer, "the then"),
        in_python(tokenizer, "é then"),
    ]


def test_accents_and_case_are_apart():
    decomposed = unicodedata.normalize("NFD", "ÄÉ")
    assert split_words("Äé", True, WordPieceOptions(strip_accents=False)) == ["äé"]
    assert split_words("Äé", False, WordPieceOptions(strip_accents=True)) == ["Ae"]
    assert split_words(decomposed, False, WordPieceOptions(strip_accents=True)) == ["AE"]
    assert split_words("a中文b", True, WordPieceOptions(splits_ideographs=False)) == ["a中文b"]


def test_options_are_in_a_file_beside_the_vocabulary(tmp_path):
    path = tmp_path / "vocab.txt"
    vocab = make_vocab(strips=False, splits=False)
    vocab.write(path)
    assert Vocab.read(path) == vocab != Vocab(vocab.tokens)
    Vocab(vocab.tokens).write(path)
    assert Vocab.read(path).options == DEFAULT_OPTIONS and not options_file(path).exists()


@pytest.mark.parametrize(
    "values",
    [
        {"strip_accents": "no"},
        {"splits_ideographs": None},
        {"max_word_characters": 0},
        {"max_word_characters": True},
        {"other": 1},
    ],
)
def test_damaged_options(tmp_path, values):
    path = tmp_path / "vocab.txt"
    make_vocab(strips=False, splits=False).write(path)
    options_file(path).write_text(json.dumps(values))
    with pytest.raises(ValueError, match=rf"vocab.options.json.*{next(iter(values))}"):
        Vocab.read(path)


def test_configurations_for_keras_files():
    vocab = make_vocab(strips=False, splits=False)
    config = json.loads(json.dumps(to_config(vocab)))
    assert vocab_from_config(config) == vocab
    plain = Vocab((*SPECIAL_TOKENS, "a"))
    assert to_config(plain) == list(plain.tokens)
    assert content_of(plain) == "\n".join(plain.tokens)
    assert content_of(vocab) != content_of(Vocab(vocab.tokens))
