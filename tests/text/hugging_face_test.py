"""How WordPiece differs from Hugging Face's tokenizers: the list of docs/tokenizer.md, no more."""

import collections
import random
import unicodedata

import pytest

from bert_tf.text.unicode_tables import NUM_CODE_POINTS
from bert_tf.text.vocab import SPECIAL_TOKENS, UNK, Vocab
from bert_tf.text.wordpiece import WordPiece, split_words
from tests.shared_data import golden_file
from tests.text.wordpiece_test import random_text

tokenizers = pytest.importorskip("tokenizers")

# Text, our pieces, theirs: the table of docs/tokenizer.md.
DIFFERENCES = (
    ("a" * 101, "aaa " + " ".join(["##aa"] * 49), "[UNK]"),
    ("use\ue000", "[UNK]", "use"),
    ("ΑΣ", "α ##ς", "α ##σ"),
    ("the [MASK] sat", "the [ mask ] sat", "the [MASK] sat"),
    ("a\U0002b820b", "a [UNK] b", "[UNK]"),
    ("a\u2e55b", "a [UNK] b", "[UNK]"),
    ("a\u166db", "[UNK]", "a [UNK] b"),
    ("te\u0890st", "test", "[UNK]"),
    ("te\u0898st", "test", "[UNK]"),
    ("te\u1734st", "[UNK]", "test"),
    ("te\U000111c9st", "test", "te [UNK] st"),
)


def peer(vocab: Vocab, lower: bool) -> "tokenizers.Tokenizer":
    """Returns the tokenizer that transformers' BertTokenizerFast builds from a vocab.txt."""
    model = tokenizers.models.WordPiece(dict(vocab.ids), unk_token=UNK)
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=lower)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    tokenizer.add_special_tokens(list(SPECIAL_TOKENS))
    return tokenizer


def their_words(text: str, lower: bool) -> list[str]:
    normalizer = tokenizers.normalizers.BertNormalizer(lowercase=lower)
    splitter = tokenizers.pre_tokenizers.BertPreTokenizer()
    return [word for word, _ in splitter.pre_tokenize_str(normalizer.normalize_str(text))]


def differing_characters(lower: bool) -> set[str]:
    """Returns the characters that have other words when they stand between letters, or alone."""
    found = set()
    for first in range(0, NUM_CODE_POINTS, 64):
        # White space ends the context of every rule, so that many can be asked at once.
        texts = {
            chr(code): f"a{chr(code)}b {chr(code)}"
            for code in range(first, first + 64)
            if not 0xD800 <= code < 0xE000
        }
        together = " ".join(texts.values())
        if split_words(together, lower) != their_words(together, lower):
            found |= {
                char
                for char, text in texts.items()
                if split_words(text, lower) != their_words(text, lower)
            }
    return found


@pytest.mark.parametrize("place", range(len(DIFFERENCES)))
def test_listed_differences(place) -> None:
    text, ours, theirs = DIFFERENCES[place]
    vocab = Vocab.read(golden_file("vocab", "bert-base-uncased-vocab.txt"))
    assert " ".join(WordPiece(vocab, True).tokenize(text)) == ours
    assert " ".join(peer(vocab, True).encode(text).tokens) == theirs


@pytest.mark.slow
@pytest.mark.parametrize("lower", [True, False])
def test_nothing_else_differs(lower) -> None:
    """Words differ by single characters of the listed kinds, and by the final sigma."""
    differing = differing_characters(lower)
    counts = collections.Counter(unicodedata.category(char)[0] for char in differing)
    counts["private use"] = sum(unicodedata.category(char) == "Co" for char in differing)
    assert counts["private use"] == 137_468  # all of it
    if unicodedata.unidata_version == "14.0.0":  # that of Python 3.11
        # Format characters and unassigned letters (C), ideographs, marks, punctuation, a symbol.
        others = {"L": 256, "M": 386 if lower else 1, "P": 104, "S": 1}
        others["C"] = 137_468 + 13 + (55 if lower else 0)
        assert counts == {**others, "private use": 137_468}
    rng = random.Random(7)
    for _ in range(20_000):
        text = "".join(char for char in random_text(rng) if char not in differing)
        ours, theirs = split_words(text, lower), their_words(text, lower)
        assert [w.replace("ς", "σ") for w in ours] == [w.replace("ς", "σ") for w in theirs], ascii(
            text
        )
        assert lower or ours == theirs, ascii(text)
