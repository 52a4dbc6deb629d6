"""WordPiece against golden files, and against the original's algorithm written out step by step."""

import json
import lzma
import pickle
import random
import unicodedata

import pytest

from bert_tf.text import fast_tokenizers
from bert_tf.text.vocab import SPECIAL_TOKENS, Vocab
from bert_tf.text.wordpiece import WordPiece, split_words
from tests.shared_data import golden_file

POOLS = (
    "abcdefgXYZ éÉßİı",
    "Σσς'.·:^ΑΒαβ\u00ad\u200d ʰ\u0345",
    # Marks that are kept and sorted, marks that are dropped, and marks that bound the sorting.
    "a\u0301\u0327\u0345\u302e\u302f\u1b44\u0dca\u093c\U0001d165\U0001d16d\U0001d15e\U0001d1bc"
    "\u0cc6\u0cca\u0cc0\u0903\u1bf2\u0323",
    "\x00\x01\t\n\r\x0b\x0c\x1c\x1d\x1e\x1f\x7f\x85\xa0\u1680\u2000\u2028\u2029\u202f\u3000",
    "\ufeff\u200b\ufffd\ufffe\uffff\ue000\uf8ff\U000f0000\U0010ffff",
    "中国語豈\U0002f800\u3400\ufae2\U0002cea2 한국어가각\u1100\u1161\u11a8",
    "!?-#[]_$«»“”…。ﬁ²™Ａ①ⅣǅǄ\u037e\u1fef\u2260",
)
PLAIN = "abcdeABCDE01 \t\n\r.,'#[]!-/:@^`{~"


def random_text(rng: random.Random) -> str:
    """Returns text of ASCII, of all planes, or of characters that have rules of their own."""
    length = rng.choice((0, 1, 3, 8, 20, 60)) if rng.random() < 0.97 else rng.randrange(190, 230)
    style = rng.random()
    chars = []
    while len(chars) < length:
        if style < 0.3:
            char = chr(rng.randrange(0x110000))
        elif style < 0.5:
            char = chr(rng.randrange(0x3000))
        elif style < 0.7:
            char = "a" if style < 0.55 else rng.choice(PLAIN)
        else:
            char = rng.choice(rng.choice(POOLS))
        if not 0xD800 <= ord(char) < 0xE000:
            chars.append(char)
    return "".join(chars)


def vocab_of_pools() -> Vocab:
    """Returns a small vocabulary that knows most characters of POOLS and some pairs."""
    pools = "".join(POOLS) + PLAIN
    chars = sorted(set(unicodedata.normalize("NFD", pools.lower() + pools)))
    chars = [c for c in chars if c.strip() == c and unicodedata.category(c) not in ("Cc", "Cf")]
    pairs = ["ab", "abc", "de", "σα", "αβ", "aa", "aaa", "éa", "ας"]
    tokens = [*chars, *pairs, *("##" + token for token in (*chars, *pairs))]
    return Vocab((*SPECIAL_TOKENS, *tokens))


def golden_texts(casing: str) -> list[dict]:
    path = golden_file(f"tokenization-golden-{casing}.jsonl.xz")
    with lzma.open(path, "rt", encoding="utf8") as file:
        return [json.loads(line) for line in file]


def original_split(text: str, lower: bool) -> list[str]:
    """Does what the original's BasicTokenizer does, in its order, one character at a time."""
    cleaned = ""
    for char in text:
        category, code = unicodedata.category(char), ord(char)
        if code in (0, 0xFFFD) or (char not in "\t\n\r" and category in ("Cc", "Cf")):
            continue
        cleaned += " " if char in " \t\n\r" or category == "Zs" else char
    spaced = ""
    for char in cleaned:
        code = ord(char)
        is_cjk = (
            0x4E00 <= code <= 0x9FFF
            or 0x3400 <= code <= 0x4DBF
            or 0x20000 <= code <= 0x2A6DF
            or 0x2A700 <= code <= 0x2B73F
            or 0x2B740 <= code <= 0x2B81F
            or 0x2B820 <= code <= 0x2CEAF
            or 0xF900 <= code <= 0xFAFF
            or 0x2F800 <= code <= 0x2FA1F
        )
        spaced += f" {char} " if is_cjk else char
    words: list[str] = []
    for token in spaced.split():
        if lower:
            token = unicodedata.normalize("NFD", token.lower())
            token = "".join(char for char in token if unicodedata.category(char) != "Mn")
        group = ""
        for char in token:
            code = ord(char)
            is_ascii_mark = 33 <= code <= 47 or 58 <= code <= 64 or 91 <= code <= 96
            is_ascii_mark |= 123 <= code <= 126
            if is_ascii_mark or unicodedata.category(char).startswith("P"):
                words += [group, char]
                group = ""
            else:
                group += char
        words.append(group)
    return " ".join(words).split()


def original_pieces(words: list[str], vocab: Vocab) -> list[str]:
    pieces: list[str] = []
    for word in words:
        found, start = [], 0
        while start < len(word) <= 200:
            end = len(word)
            while end > start and "##" * (start > 0) + word[start:end] not in vocab.ids:
                end -= 1
            if end == start:
                break
            found.append("##" * (start > 0) + word[start:end])
            start = end
        pieces += found if start == len(word) else ["[UNK]"]
    return pieces


def normalized(text: str, lower: bool) -> str:
    """Returns what the original leaves of the characters of one piece."""
    text = "".join(char for char in text if unicodedata.category(char) not in ("Cc", "Cf"))
    if lower:
        text = unicodedata.normalize("NFD", text.lower())
        text = "".join(char for char in text if unicodedata.category(char) != "Mn")
    # Which small sigma a capital one becomes is seen by its neighbours, not in the piece alone.
    return text.replace("\ufffd", "").replace("ς", "σ")


def has_marks_in_order(text: str) -> bool:
    """True if NFD swaps no characters, so that each piece comes from neighbouring ones."""
    text = "".join(unicodedata.normalize("NFD", char) for char in normalized(text, False).lower())
    return unicodedata.normalize("NFD", text) == text


def assert_offsets_select_tokens(
    text: str, tokens: list[str], spans: list[tuple[int, int]], lower: bool
) -> None:
    """Checks that the characters between the offsets give the piece, [UNK] its whole word."""
    words = iter(original_split(text, lower))
    selected: list[list] = []
    for token, (start, end) in zip(tokens, spans, strict=True):
        word = next(words) if not token.startswith("##") else ""
        piece = (word if token == "[UNK]" else token.removeprefix("##")).replace("ς", "σ")
        if selected and start < selected[-1][2]:  # two pieces of one character
            assert token.startswith("##") and start == selected[-1][2] - 1, ascii(text)
            selected[-1] = [selected[-1][0] + piece, selected[-1][1], end]
        else:
            selected.append([piece, start, end])
    for piece, start, end in selected:
        assert normalized(text[start:end], lower) == piece, ascii(text)
    assert not list(words)


@pytest.mark.parametrize("casing", ["uncased", pytest.param("cased", marks=pytest.mark.slow)])
def test_equals_golden_texts(casing) -> None:
    vocab = Vocab.read(golden_file("vocab", f"bert-base-{casing}-vocab.txt"))
    tokenizer = WordPiece(vocab, casing == "uncased")
    records = golden_texts(casing)
    assert len(records) == 469
    for record in records:
        text = record["text"]
        assert tokenizer.tokenize(text) == record["tokens"], text
        assert tokenizer.encode(text) == record["ids"], text
        tokens, starts, ends = tokenizer.tokenize_with_offsets(text)
        assert tokens == record["tokens"], text
        spans = list(zip(starts, ends, strict=True))
        assert_offsets_select_tokens(text, tokens, spans, casing == "uncased")
        if record["agree"]:  # then Hugging Face's offsets are of the same pieces
            assert list(map(list, spans)) == record["hf_offsets"], text


def test_equals_the_originals_own_cases() -> None:
    path = golden_file("google-tokenization-test-cases.json")
    cases = json.loads(path.read_text(encoding="utf8"))
    for case in cases["basic"]:
        assert split_words(case["text"], case["lower"]) == case["tokens"]
    for group in (cases["full_tokenizer"], cases["wordpiece"]):
        vocab = Vocab((*group["vocab"], "[PAD]", "[MASK]"))
        tokenizer = WordPiece(vocab, group.get("lower", False))
        for case in group["cases"]:
            assert tokenizer.tokenize(case["text"]) == case["tokens"]
            assert tokenizer.encode(case["text"]) == [vocab.ids[t] for t in case["tokens"]]
    convert = cases["wordpiece"]["convert"]
    assert [vocab.ids[token] for token in convert["tokens"]] == convert["ids"]


@pytest.mark.parametrize("lower", [True, False])
def test_random_unicode_equals_the_original_cached_and_uncached(lower) -> None:
    rng = random.Random(3)
    vocab = vocab_of_pools()
    tokenizer = WordPiece(vocab, lower)
    known = checked = 0
    for _ in range(4000):
        text = random_text(rng)
        words = original_split(text, lower)
        pieces = original_pieces(words, vocab)
        ids = [vocab.ids[piece] for piece in pieces]
        assert split_words(text, lower) == words, ascii(text)
        assert tokenizer.tokenize(text) == pieces, ascii(text)
        for _ in range(2):  # the second time from the cache
            assert tokenizer.encode(text) == ids, ascii(text)
        tokens, starts, ends = tokenizer.tokenize_with_offsets(text)
        assert tokens == pieces, ascii(text)
        assert all(0 <= s < e <= len(text) for s, e in zip(starts, ends, strict=True))
        assert starts == sorted(starts) and ends == sorted(ends)
        if has_marks_in_order(text):
            spans = list(zip(starts, ends, strict=True))
            assert_offsets_select_tokens(text, tokens, spans, lower)
            checked += 1
        known += len(ids) - ids.count(vocab.unk_id)
    assert known > 10_000 and checked > 3000  # not all is [UNK], few texts have marks out of order


def test_each_character_in_context_equals_the_original() -> None:
    for code in [*range(0x3100), *range(0xF900, 0x11000), *range(0x1D100, 0x1D200)]:
        text = f"A{chr(code)}b ΑΣ{chr(code)} Σ{chr(code)}Β"
        for lower in (True, False):
            assert split_words(text, lower) == original_split(text, lower), ascii(text)


def test_special_tokens_in_text_are_plain_text() -> None:
    vocab = Vocab((*SPECIAL_TOKENS, "[", "]", "mask"))
    assert WordPiece(vocab, True).tokenize("[MASK]") == ["[", "mask", "]"]


def test_word_limit_is_200_characters() -> None:
    tokenizer = WordPiece(Vocab((*SPECIAL_TOKENS, "a", "##a", "b" * 201)), False)
    assert len(tokenizer.encode("a" * 200)) == 200
    assert tokenizer.tokenize("a" * 201 + " a") == ["[UNK]", "a"]
    assert tokenizer.tokenize("b" * 201) == tokenizer.tokenize("é" * 150) == ["[UNK]"]
    assert tokenizer.tokenize_with_offsets(" " + "a" * 201)[1:] == ([1], [202])


def test_offsets_point_into_the_original_text() -> None:
    vocab = Vocab((*SPECIAL_TOKENS, "cafe", "##s", "한".replace("한", "\u1112\u1161"), "##\u11ab"))
    tokens, starts, ends = WordPiece(vocab, True).tokenize_with_offsets("\u200bCa\xadfés 한 x")
    assert tokens == ["cafe", "##s", "\u1112\u1161", "##\u11ab", "[UNK]"]
    assert list(zip(starts, ends, strict=True)) == [(1, 6), (6, 7), (8, 9), (8, 9), (10, 11)]


def test_cache_is_bounded_and_not_pickled(monkeypatch) -> None:
    monkeypatch.setattr(fast_tokenizers, "MAX_CACHED_WORDS", 10)
    tokenizer = WordPiece(
        Vocab((*SPECIAL_TOKENS, *"0123456789", *(f"##{i}" for i in range(10)))), True
    )
    for number in range(1000):
        assert tokenizer.encode(f"{number}") == [
            5 + int(d) + 10 * (i > 0) for i, d in enumerate(str(number))
        ]
        assert len(tokenizer._chunk_ids) <= 10
    tokenizer.encode("1" * 150)
    assert "1" * 150 not in tokenizer._chunk_ids
    assert not pickle.loads(pickle.dumps(tokenizer))._chunk_ids
