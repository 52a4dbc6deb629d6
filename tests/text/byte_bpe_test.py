"""ByteBpe against golden files, and against Hugging Face's tokenizers on random Unicode."""

import dataclasses
import functools
import itertools
import json
import lzma
import pathlib
import pickle
import random
import unicodedata

import pytest

from bert_tf.text import byte_level, fast_tokenizers, nfc
from bert_tf.text.bpe_vocab import AddedToken, BpeVocab
from bert_tf.text.byte_bpe import ByteBpe
from bert_tf.text.packing import truncate_longest_first
from bert_tf.text.tokenization import make_tokenizer, read_vocab
from bert_tf.text.vocab import SPECIAL_TOKENS, Vocab
from bert_tf.text.wordpiece import WordPiece
from tests.shared_data import golden_file
from tests.slow_variants import slow_unless
from tests.text.bpe_vocab_test import SPECIAL, small_vocab

POOLS = (
    ("'s", "'S", "'re", "'ve", "'ll", "'d", "'", "''", "l", "don't"),
    tuple(" \t\n\r\x0b\x0c\x1c\x1f\x85\xa0\u1680\u2000\u200b\u2028\u2029\u202f\u3000"),
    (" ", "  ", "      ", "\n\n", " \n "),
    (" the", "The", "Hello", " world", "antidisestablishmentarianism", "aaaaaaa", "----------"),
    ("1", "234567", "६", "²", "½", "Ⅳ", "!", "...", "_", "$", "\x00", "\ufffd", "\u200d"),
    ("é", "ß", "Đ", "e\u0301", "a\u0327\u0301", "\u212b", "中国語", "한국", "\u1112\u1161\u11ab"),
    ("😀", "👩\u200d👩\u200d👧", "\U0001e5d1", "\u1c89", "\U000323af", "Ġ", "Ċ"),
    ("<mask>", "  <mask>", "<s>", "</s>", "<pad>", "<unk>", "<", "mask>", "[MASK]", "[SEP] "),
    tuple(sorted(nfc.unknown_characters())),
)


def random_text(rng: random.Random) -> str:
    """Returns text of all planes, and of what has rules of its own."""
    parts = []
    for _ in range(rng.choice((0, 1, 3, 8, 20, 60))):
        if rng.random() < 0.8:
            parts.append(rng.choice(rng.choice(POOLS)))
        else:
            code = rng.randrange(rng.choice((0x80, 0x3000, 0x110000)))
            parts.append("" if 0xD800 <= code < 0xE000 else chr(code))
    return "".join(parts)


def golden_rows() -> list[dict]:
    path = golden_file("families", "roberta", "tokenization-golden.jsonl.xz")
    with lzma.open(path, "rt", encoding="utf8") as file:
        return [json.loads(line) for line in file]


@functools.cache
def roberta_vocab(add_prefix_space: bool = False) -> BpeVocab:
    vocab = read_vocab(golden_file("vocab", "roberta-base", "vocab.json"))
    return dataclasses.replace(vocab, add_prefix_space=add_prefix_space)


def modernbert_vocab() -> BpeVocab:
    folder = golden_file("families", "modernbert", "masked_lm")
    return read_vocab(folder / "tokenizer.json")


def odd_vocab(seed: int) -> BpeVocab:
    """Returns merges in any order, two ways to one piece, and added tokens with all their flags."""
    rng = random.Random(seed)
    pieces, merges = list("abcĠÃ©"), []
    while len(merges) < 60:
        pair = rng.choice(pieces), rng.choice(pieces)
        if pair not in merges and len("".join(pair)) < 9:
            merges.append(pair)
            pieces.append("".join(pair))
    if seed % 2:
        rng.shuffle(merges)
    flags = [[rng.random() < 0.5 for _ in range(3)] for _ in range(len(SPECIAL) + 2)]
    contents = (*SPECIAL, "ab", "é")
    added = tuple(
        AddedToken(content, is_special, *flag)
        for content, is_special, flag in zip(contents, [True] * 5 + [False] * 2, flags, strict=True)
    )
    base = small_vocab()
    tokens = dict.fromkeys((*base.tokens, *("".join(pair) for pair in merges), *contents))
    return dataclasses.replace(
        base,
        tokens=tuple(tokens),
        merges=tuple(merges),
        added_tokens=added,
        add_prefix_space=rng.random() < 0.5,
        trim_offsets=rng.random() < 0.5,
        normalizer=rng.choice(("", "NFC")),
    )


def odd_text(rng: random.Random) -> str:
    parts = (*"abc\u3000x\n", " ", "  ", "aaaa", "abcabc", "é", "e\u0301", "\u212b", *SPECIAL)
    return "".join(rng.choice(parts) for _ in range(rng.choice((1, 4, 10, 30))))


def assert_equals_peer(vocab: BpeVocab, texts: list[str], folder: pathlib.Path) -> None:
    """Compares ids, and, where characters are not normalized, offsets."""
    tokenizers = pytest.importorskip("tokenizers")
    vocab.write(folder / "tokenizer.json")
    peer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer = ByteBpe(vocab)
    for text in texts:
        want = peer.encode(text, add_special_tokens=False)
        for _ in range(2):  # the second time from memory
            assert tokenizer.encode(text) == want.ids, ascii(text)
        tokens, starts, ends = tokenizer.tokenize_with_offsets(text)
        assert [vocab.ids[token] for token in tokens] == want.ids, ascii(text)
        assert tokenizer.tokenize(text) == tokens
        if not vocab.normalizer or nfc.normalize(text) == text:
            assert list(zip(starts, ends, strict=True)) == want.offsets, ascii(text)


@pytest.mark.parametrize("name", slow_unless("plain", ["plain", "prefix"]))
def test_equals_golden_texts(name) -> None:
    tokenizer = ByteBpe(roberta_vocab(add_prefix_space=name == "prefix"))
    rows = [row for row in golden_rows() if "pair" not in row]
    assert len(rows) == 546
    for row in rows:
        want = row[name]
        assert [0, *tokenizer.encode(row["text"]), 2] == want["ids"], row["text"]
        tokens, starts, ends = tokenizer.tokenize_with_offsets(row["text"])
        assert tokens == want["tokens"][1:-1], row["text"]
        offsets = list(map(list, zip(starts, ends, strict=True)))
        assert offsets == want["offsets"][1:-1], row["text"]


@pytest.mark.slow
def test_golden_pairs() -> None:
    rows = [row for row in golden_rows() if "pair" in row]
    assert len(rows) == 35
    tokenizers = {name: ByteBpe(roberta_vocab(name == "prefix")) for name in ("plain", "prefix")}
    for row, (name, tokenizer) in itertools.product(rows, tokenizers.items()):
        encode = tokenizer.encode
        first, second = encode(row["text"]), encode(row["pair"])
        num_special = 4 if second else 2
        if row.get("truncation"):
            first, second = truncate_longest_first(first, second, row["max_length"] - num_special)
        want = [0, *first, 2, *([2, *second, 2] if second else [])]
        assert want == row[name]["ids"], row


@pytest.mark.parametrize("name", ["plain", pytest.param("prefix", marks=pytest.mark.slow), "NFC"])
def test_random_unicode_equals_tokenizers(tmp_path, name) -> None:
    rng = random.Random(5)
    vocab = modernbert_vocab() if name == "NFC" else roberta_vocab(name == "prefix")
    assert_equals_peer(vocab, [random_text(rng) for _ in range(1500)], tmp_path)


def test_nfc_of_what_it_may_change_equals_tokenizers() -> None:
    normalize = pytest.importorskip("tokenizers").normalizers.NFC().normalize_str
    rng = random.Random(9)
    composing, unknown = sorted(nfc.composing_characters()), sorted(nfc.unknown_characters())
    whole = [chr(c) for c in range(0x30000) if unicodedata.decomposition(chr(c))[:1] not in "<"]
    for _ in range(20_000):
        pools = (composing, composing, whole, unknown, "abeouAEO가한\u1100 ")
        text = "".join(rng.choice(rng.choice(pools)) for _ in range(rng.randrange(1, 9)))
        assert nfc.normalize(text) == normalize(text), ascii(text)
        segments = [text[start:end] for start, end in nfc.segment(text)]
        assert "".join(segments) == text
        assert "".join(map(nfc.normalize, segments)) == nfc.normalize(text), ascii(text)


@pytest.mark.parametrize("seed", range(8))
def test_merges_in_any_order_and_flags_of_added_tokens(tmp_path, seed) -> None:
    rng = random.Random(seed)
    assert_equals_peer(odd_vocab(seed), [odd_text(rng) for _ in range(100)], tmp_path)


@pytest.mark.slow
def test_words_are_those_of_tokenizers_around_each_code_point() -> None:
    tokenizers = pytest.importorskip("tokenizers")
    peer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    for code in (*range(0xD800), *range(0xE000, 0x110000)):
        char = chr(code)
        text = f"a{char}1{char}!{char} {char}"
        words = [text[start:end] for _, (start, end) in peer.pre_tokenize_str(text)]
        assert byte_level.split_words(text) == words, hex(code)


def test_words_by_hand() -> None:
    words = ["It", "'s", " 10", " ", " o", "'", "clock", "\n", "\n", "'ll", "amas", "  "]
    assert byte_level.split_words("".join(words)) == words
    assert byte_level.split_words("") == []


def test_a_word_of_a_split_sentence_has_a_space_before_it() -> None:
    tokenizer = ByteBpe(roberta_vocab())
    assert tokenizer.encode_word("world") == tokenizer.encode_word(" world") == [232]
    assert tokenizer.encode("world") == [8331]
    vocab = Vocab((*SPECIAL_TOKENS, "world"))
    word_piece = make_tokenizer(vocab, True)
    assert isinstance(word_piece, WordPiece) and word_piece.encode_word("World") == [5]


def test_a_lone_surrogate_counts_as_the_replacement_character() -> None:
    tokenizer = ByteBpe(small_vocab())
    for text, same in (("a\ud800b", "a\ufffdb"), ("\udfff", "\ufffd")):
        assert tokenizer.encode(text) == tokenizer.encode(same)
        assert tokenizer.tokenize_with_offsets(text) == tokenizer.tokenize_with_offsets(same)


def test_long_words_take_no_long_time() -> None:
    tokenizer = ByteBpe(small_vocab())
    assert tokenizer.tokenize("a" * 100_003) == [*["aaaa"] * 25_000, "aa", "a"]


def test_memory_is_bounded_and_not_pickled(monkeypatch) -> None:
    monkeypatch.setattr(fast_tokenizers, "MAX_CACHED_WORDS", 10)
    tokenizer = ByteBpe(small_vocab())
    for number in range(1000):
        tokenizer.encode(f"{number}")
        assert len(tokenizer._word_ids) <= 10
    tokenizer.encode("x" * 150)
    assert "x" * 150 not in tokenizer._word_ids
    copy = pickle.loads(pickle.dumps(tokenizer))
    assert not copy._word_ids and copy.encode("the") == tokenizer.encode("the")
