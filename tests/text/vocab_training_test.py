"""Vocabulary training: rows, alphabet, merges by hand, memory bound, independence of processes."""

import collections
import os
import random
import re
import signal

import pytest

from bert_tf.text import vocab_training
from bert_tf.text.vocab import SPECIAL_TOKENS, Vocab
from bert_tf.text.vocab_training import count_words, count_words_of_parts, train_vocab
from bert_tf.text.wordpiece import WordPiece, split_words
from tests.shared_data import golden_file

Counter = collections.Counter


def random_words(count: int, seed: int = 0) -> Counter[str]:
    """Returns words made of syllables, with counts that fall as those of natural text."""
    rng = random.Random(seed)
    syllables = [a + b for a in "bcdfglmnprst" for b in ("a", "e", "in", "or", "u")]
    words = {"".join(rng.choices(syllables, k=rng.randint(1, 5))) for _ in range(count)}
    return Counter({word: 1 + 5000 // rank for rank, word in enumerate(sorted(words), start=1)})


def read_words_of_part(part: int) -> list[list[str]]:
    """Stands for a corpus reader; worker processes import it from here."""
    rng = random.Random(part)
    return [[" ".join(rng.choices("the a cat Dog é runs, ran!".split(), k=9))] for _ in range(50)]


def read_and_be_killed(part: int) -> list[list[str]]:
    """Stands for a corpus reader for which memory does not do."""
    os.kill(os.getpid(), signal.SIGKILL)
    return []


def test_merges_follow_the_counts() -> None:
    words = {"lower": 9, "low": 5, "her": 2}
    alphabet = [*"ehlorw", *("##" + char for char in "ehlorw")]
    # l+o and o+w 14 times, the older pair first; then lo+w 14, e+r 9 + 2 = 11, low+er 9.
    merged = vocab_training._merge_pairs(words, alphabet, 4)
    assert merged == ["lo", "low", "##er", "lower"]


def slow_merges(words: dict[str, int], num_merges: int) -> list[str]:
    """Counts all pairs anew before each merge."""
    splits = {word: vocab_training._split_characters(word) for word in words}
    learned: list[str] = []
    while len(learned) < num_merges:
        pairs: Counter = Counter()
        for word, split in splits.items():
            for pair in zip(split, split[1:], strict=False):
                pairs[pair] += words[word]
        [(pair, best), (_, second)] = pairs.most_common(2)
        assert best > second, "the test wants counts without ties"
        token = pair[0] + pair[1][2:]
        if token not in learned:
            learned.append(token)
        for split in splits.values():
            i = 0
            while i < len(split) - 1:
                if (split[i], split[i + 1]) == pair:
                    split[i : i + 2] = [token]
                i += 1
    return learned


def test_merged_pairs_are_always_the_most_frequent() -> None:
    rng = random.Random(2)
    words = {"".join(rng.choices("abcd", k=rng.randint(2, 8))) for _ in range(400)}
    words = {word: rng.randrange(10**6, 10**9) for word in sorted(words)}
    alphabet = [*"abcd", *("##" + char for char in "abcd")]
    assert vocab_training._merge_pairs(words, alphabet, 60) == slow_merges(words, 60)


@pytest.mark.parametrize("vocab_size", [60, 500, 999, 1000, 1500])
def test_exact_rows_specials_and_alphabet(vocab_size) -> None:
    words = random_words(800)
    tokens = train_vocab(words, vocab_size)
    vocab = Vocab(tuple(tokens))  # checks: unique, no empty rows, all special tokens
    assert len(vocab) == vocab_size
    for char in set("".join(words)):
        assert char in vocab.ids and "##" + char in vocab.ids
    if vocab_size < 1000:
        assert vocab.tokens[:5] == SPECIAL_TOKENS and not vocab.tokens[5].startswith("[")
    else:
        assert [vocab.ids[t] for t in ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")] == (
            [0, 100, 101, 102, 103]
        )
        assert vocab.tokens[1:100] == tuple(f"[unused{i}]" for i in range(99))
        assert not vocab.tokens[104].startswith("[unused")
    tokenizer = WordPiece(vocab, True)
    assert not any(vocab.unk_id in tokenizer.encode(word) for word in words)


def test_head_equals_the_released_file() -> None:
    released = Vocab.read(golden_file("vocab", "bert-base-uncased-vocab.txt")).tokens
    assert tuple(vocab_training._head_rows(30522)) == released[:999]
    assert released[999] == "!"


@pytest.mark.slow
def test_more_rows_give_fewer_pieces() -> None:
    words = random_words(3000)
    sizes = []
    for vocab_size in (100, 200, 400, 800):
        tokenizer = WordPiece(Vocab(tuple(train_vocab(words, vocab_size))), True)
        sizes.append(sum(len(tokenizer.encode(w)) * count for w, count in words.items()))
    assert sizes == sorted(sizes, reverse=True) and sizes[-1] < 0.6 * sizes[0]


def test_order_of_words_does_not_matter() -> None:
    words = random_words(500)
    shuffled = list(words.items())
    random.Random(1).shuffle(shuffled)
    assert train_vocab(Counter(dict(shuffled)), 300) == train_vocab(words, 300)


def test_small_corpus_is_topped_up_with_unused_rows(caplog) -> None:
    tokens = train_vocab(Counter({"ab": 3, "b": 1}), 20)
    assert tokens[:10] == [*SPECIAL_TOKENS, "a", "b", "##a", "##b", "ab"]
    assert tokens[10:] == [f"[unused{i}]" for i in range(10)]
    tokens = train_vocab(Counter({"ab": 3, "b": 1}), 1200)
    assert tokens[104:109] == ["a", "b", "##a", "##b", "ab"] and tokens[109] == "[unused99]"
    assert len(Vocab(tuple(tokens))) == 1200
    assert re.search(r" 10 .*20 .*\[unused\]", caplog.text)


def test_impossible_requests_are_refused() -> None:
    with pytest.raises(ValueError, match="vocab_size 8 .* 9: .*vocab_size"):
        train_vocab(Counter({"ab": 1}), 8)
    with pytest.raises(ValueError, match="words.*vocabulary"):
        train_vocab(Counter(), 100)


def test_rare_characters_and_impossible_continuations_have_no_piece() -> None:
    tokens = train_vocab(Counter({"abab": 100_000, "x": 1, "!": 1000, "中": 1000}), 20)
    assert "x" not in tokens
    assert {"!", "中"} <= set(tokens) and not {"##!", "##中"} & set(tokens)


@pytest.mark.parametrize("lower", [True, False])
def test_words_are_those_of_the_tokenizer(lower) -> None:
    texts = ["The cat, the DOG.\x85Joined", "tha\x0bt cat\u2028é 中国", ""]
    want = Counter(word for text in texts for word in split_words(text, lower))
    assert count_words(texts, lower) == want


def test_counting_keeps_the_frequent_words_in_bounded_memory() -> None:
    rng = random.Random(5)
    frequent = [f"w{i}" for i in range(20)]
    texts = [" ".join(frequent + [f"n{rng.random()}".replace(".", "x")] * 30) for _ in range(200)]
    texts += [" ".join(f"r{i}q{j}" for j in range(50)) for i in range(50)]
    counts = count_words(texts, True, max_distinct=100)
    assert len(counts) <= 200
    assert all(counts[word] == 200 for word in frequent)


def test_text_without_spaces_is_counted_whole_in_bounded_memory() -> None:
    rng = random.Random(0)
    # 300 ideographs, each a word, in 2,000 chunks of which no two are equal.
    texts = ["".join(chr(0x4E00 + rng.randrange(300)) for _ in range(30)) for _ in range(2000)]
    assert len(set(texts)) == 2000
    assert count_words(texts, True, max_distinct=400) == Counter("".join(texts))


def test_killed_process_is_one_clear_error() -> None:
    with pytest.raises(OSError, match="process.*--num_workers"):
        count_words_of_parts([1, 2, 3], read_and_be_killed, True, num_workers=2)


@pytest.mark.slow
def test_result_does_not_depend_on_the_number_of_processes() -> None:
    parts = list(range(5))
    alone = count_words_of_parts(parts, read_words_of_part, True, num_workers=1, max_distinct=7)
    for workers in (2, 3):
        many = count_words_of_parts(parts, read_words_of_part, True, workers, max_distinct=7)
        assert list(many.items()) == list(alone.items())
    texts = (text for part in parts for [text] in read_words_of_part(part))
    assert count_words_of_parts(parts, read_words_of_part, True, 1) == count_words(texts, True)
