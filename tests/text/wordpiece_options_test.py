"""WordPiece with other rules than google-research/bert's: in Python, in the graph, in files."""

import dataclasses
import itertools
import json
import random
import unicodedata

import pytest
import tensorflow as tf

from bert_tf.text.added_tokens import AddedToken
from bert_tf.text.kinds import vocab_from_config
from bert_tf.text.tokenizer import BertTokenizer
from bert_tf.text.vocab import SPECIAL_TOKENS, UNK, Vocab, options_file
from bert_tf.text.wordpiece import WordPiece, split_words
from bert_tf.text.wordpiece_options import DEFAULT_OPTIONS, WordPieceOptions
from tests.shared_data import golden_file
from tests.slow_variants import slow_unless
from tests.text.hugging_face_test import differing_characters
from tests.text.wordpiece_test import random_text

tokenizers = pytest.importorskip("tokenizers")

# Lower case, without accents, ideographs apart.
RULES = list(itertools.product([True, False], repeat=3))
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


@pytest.mark.parametrize(("lower", "strips", "splits"), slow_unless((False, True, False), RULES))
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
    config = json.loads(json.dumps(vocab.to_config()))
    assert vocab_from_config(config) == vocab
    plain = Vocab((*SPECIAL_TOKENS, "a"))
    assert plain.to_config() == list(plain.tokens)
    assert plain.content == "\n".join(plain.tokens)
    assert vocab.content != Vocab(vocab.tokens).content


LETTERS = "aAbBéÉ_ .-中ß\n\t\u00a0<>[]0\u0301한\u00ad"
PIECES = ("a", "b", "é", "ß", "0", "_", ".", "-", "中", "<", ">", "[", "]", "A", "B", "É", "aa")
CONTINUATIONS = ("##a", "##b", "##é", "##0", "##\u0301", "##A", "##B", "##ab")


def random_string(rng: random.Random, longest: int) -> str:
    return "".join(rng.choices(LETTERS, k=rng.randint(0, longest)))


def random_tokens(rng: random.Random) -> tuple[AddedToken, ...]:
    tokens = {}
    for _ in range(6):
        content = random_string(rng, 4).strip()
        if content and content not in (*PIECES, *CONTINUATIONS):
            flags = [rng.random() < 0.4 for _ in range(4)]
            tokens[content] = AddedToken(content, False, *flags)
    return tuple(tokens.values())


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, *(n for n in (2, 3, 4))])
def test_random_added_tokens(seed):
    rng = random.Random(seed)
    base = (*SPECIAL_TOKENS, *PIECES, *CONTINUATIONS)
    tokens = random_tokens(rng)
    contents = tuple(token.content for token in tokens)
    strips = rng.choice([None, True, False])
    reads = rng.random() < 0.5
    lower = rng.random() < 0.6
    options = WordPieceOptions(strips, rng.random() < 0.7, 6, tokens, contents, reads)
    vocab = Vocab((*base, *contents), options)
    peer = tokenizers.Tokenizer(
        tokenizers.models.WordPiece(
            {token: index for index, token in enumerate(base)},
            unk_token=UNK,
            max_input_chars_per_word=6,
        )
    )
    peer.normalizer = tokenizers.normalizers.BertNormalizer(
        lowercase=lower, strip_accents=strips, handle_chinese_chars=options.splits_ideographs
    )
    peer.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    peer.add_special_tokens(list(SPECIAL_TOKENS))
    for token in tokens:
        fields = dataclasses.asdict(token)
        del fields["special"]
        peer.add_tokens([tokenizers.AddedToken(**fields)])
    peer.encode_special_tokens = not reads
    texts = []
    for _ in range(200):
        choices = (random_string(rng, 3), rng.choice(contents), "[MASK]", "\n", "a ", "B")
        texts.append("".join(rng.choices(choices, k=rng.randint(0, 5))))
    texts += ["a\n[MASK]", *(f"a\n{content}\nb" for content in contents)]
    tokenizer = WordPiece(vocab, lower)
    expected = [in_python(tokenizer, text) for text in texts]
    assert [row[0] for row in expected] == [peer.encode(text).ids for text in texts]
    assert in_graph(vocab, lower, texts) == expected
