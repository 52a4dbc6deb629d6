"""Rows of tagged words: spelled out by hand, and against a slow computation of its own."""

import random
import tracemalloc

import numpy as np
import pytest

from bert_tf.tasks.tagging.answers import gather_words
from bert_tf.tasks.tagging.features import TagRow, count_odd_words, make_tag_rows, row_labels
from bert_tf.tasks.tagging.sentences import TaggedSentence
from bert_tf.text.vocab import Vocab
from bert_tf.text.wordpiece import WordPiece

LETTERS = "abcxyz019.,!'#[]-@éÉß漢字ıﬁ한\u0301\u200b\u00a0\u3000\u00ad\x01\ufeff\ufffd\U0001f600"


@pytest.fixture
def tokenizer(tiny_vocab: Vocab) -> WordPiece:
    return WordPiece(tiny_vocab, do_lower_case=True)


def sentence(*words: str) -> TaggedSentence:
    return TaggedSentence(words, None, "f line 1")


def pieces(row: TagRow, tokenizer: WordPiece) -> str:
    return " ".join(tokenizer.vocab.tokens[index] for index in row.text.ids)


def slow_rows(
    words: tuple[str, ...], tokenizer: WordPiece, max_seq_length: int
) -> list[tuple[list[str], list[int], list[int]]]:
    """Returns tokens, words and positions of each row, piece by piece and word by word."""
    room = max_seq_length - 2
    tokens = [(tokenizer.tokenize(word) or ["[UNK]"])[:room] for word in words]
    windows, first = [], 0
    while True:
        end = first
        while end < len(words) and len(sum(tokens[first : end + 1], [])) <= room:
            end += 1
        windows.append((first, end))
        if end == len(words):
            break
        first += 1
        while len(sum(tokens[windows[-1][0] : first + 1], [])) <= room // 2:
            first += 1
    chosen = {}
    for word in range(len(words)):
        contexts = [
            (min(len(sum(tokens[a:word], [])), len(sum(tokens[word + 1 : b], []))), -number)
            for number, (a, b) in enumerate(windows)
            if a <= word < b
        ]
        chosen[word] = -max(contexts)[1]
    rows = []
    for number, (a, b) in enumerate(windows):
        here = [word for word in range(a, b) if chosen[word] == number]
        positions = [1 + len(sum(tokens[a:word], [])) for word in here]
        if here:
            rows.append((["[CLS]", *sum(tokens[a:b], []), "[SEP]"], here, positions))
    return rows


def test_one_row_spelled_out(tokenizer):
    (row,) = make_tag_rows([sentence("The", "Miller", "walked", "\u200b", "U.N.")], tokenizer, 32)
    assert pieces(row, tokenizer) == "[CLS] the mill ##er walk ##ed [UNK] u . n . [SEP]"
    assert (row.sentence, row.text.type_ids) == (0, [0] * 12)
    assert row.words.tolist() == [0, 1, 2, 3, 4]
    assert row.positions.tolist() == [1, 2, 4, 6, 7]
    assert row.words.dtype == row.positions.dtype == np.int32
    labels = row_labels(row, np.array([5, 6, 7, 8, 0], np.int32))
    assert labels.tolist() == [-1, 5, 6, -1, 7, -1, 8, 0, -1, -1, -1, -1]
    assert labels.dtype == np.int32


def test_windows_spelled_out(tokenizer):
    rows = make_tag_rows([sentence("mill"), sentence(*"abcdefgh")], tokenizer, 6)
    assert [pieces(row, tokenizer) for row in rows] == [
        "[CLS] mill [SEP]",
        "[CLS] a b c d [SEP]",
        "[CLS] c d e f [SEP]",
        "[CLS] e f g h [SEP]",
    ]
    assert [row.sentence for row in rows] == [0, 1, 1, 1]
    # c has one word to its right in the first window, and none to its left in the second.
    assert [row.words.tolist() for row in rows] == [[0], [0, 1, 2], [3, 4], [5, 6, 7]]
    assert [row.positions.tolist() for row in rows] == [[1], [1, 2, 3], [2, 3], [2, 3, 4]]
    labels = row_labels(rows[2], np.arange(8))
    assert labels.tolist() == [-1, -1, 3, 4, -1, -1]


def test_windows_hold_whole_words_and_context_is_counted_in_pieces(tokenizer):
    rows = make_tag_rows([sentence("mill", "xxxx", "stone", "boat")], tokenizer, 8)
    assert [pieces(row, tokenizer) for row in rows] == [
        "[CLS] mill x ##x ##x ##x stone [SEP]",
        "[CLS] x ##x ##x ##x stone boat [SEP]",
    ]
    assert [row.words.tolist() for row in rows] == [[0, 1], [2, 3]]
    # One of the two windows that end at the long word predicts nothing, and is not made.
    rows = make_tag_rows([sentence("a", "b", "c", "xxxxxx", "d")], tokenizer, 8)
    assert [pieces(row, tokenizer) for row in rows] == [
        "[CLS] a b c [SEP]",
        "[CLS] x ##x ##x ##x ##x ##x [SEP]",
        "[CLS] d [SEP]",
    ]


def test_a_sentence_that_just_fits_is_one_row(tokenizer):
    fits = sentence("mill", "walked", "slowly")
    assert [len(row.text.ids) for row in make_tag_rows([fits], tokenizer, 7)] == [7]
    assert len(make_tag_rows([fits], tokenizer, 6)) == 2


def test_a_long_word_is_cut_and_each_word_keeps_a_piece(tokenizer):
    rows = make_tag_rows([sentence("xyz", "", "x")], tokenizer, 3)
    assert [pieces(row, tokenizer).split()[1] for row in rows] == ["x", "[UNK]", "x"]
    assert [row.words.tolist() for row in rows] == [[0], [1], [2]]
    assert make_tag_rows([sentence()], tokenizer, 3) == []


def test_odd_words_are_counted(tokenizer):
    odd = sentence("xxxxx", "xxxxx", "\u00ad")
    sentences = [sentence("walked", "\u200b", "a"), odd, sentence("a")]
    assert count_odd_words(sentences, tokenizer, 6) == (2, 2)
    assert count_odd_words(sentences, tokenizer, 7) == (0, 2)


def test_no_room_is_an_error(tokenizer):
    with pytest.raises(ValueError, match="max_seq_length .*2;.* 3"):
        make_tag_rows([sentence("a")], tokenizer, 2)


def as_lists(arrays):
    return [array.tolist() for array in arrays]


def test_tags_are_gathered(tokenizer):
    sentences = [sentence("mill"), sentence(*"abcdefgh")]
    rows = make_tag_rows(sentences, tokenizer, 6)
    predictions = [np.full(9, 99) for _ in rows]
    for row, prediction in zip(rows, predictions, strict=True):
        prediction[row.positions] = 10 * row.sentence + row.words
    expected = [[0], [10, 11, 12, 13, 14, 15, 16, 17]]
    assert as_lists(gather_words(rows, predictions, sentences)) == expected
    assert as_lists(gather_words(rows[::-1], predictions[::-1], sentences)) == expected


@pytest.mark.parametrize("seed", range(4))
def test_random_sentences_against_a_slow_computation(tokenizer, seed):
    draw = random.Random(seed)
    for length in (4, 5, 6, 7, 9, 12, 17, 32):
        sizes = [1, draw.randint(2, 12), draw.randint(13, 60), 300 if length == 32 else 20]
        sentences = []
        for size in sizes:
            longest = draw.choice((1, 3, 9, 40))
            words = [
                "".join(draw.choices(LETTERS, k=draw.randint(1, longest))) for _ in range(size)
            ]
            sentences.append(sentence(*words))
        rows = make_tag_rows(sentences, tokenizer, length)
        made = [
            (
                row.sentence,
                pieces(row, tokenizer).split(),
                row.words.tolist(),
                row.positions.tolist(),
            )
            for row in rows
        ]
        assert made == [
            (number, *row)
            for number, text in enumerate(sentences)
            for row in slow_rows(text.words, tokenizer, length)
        ]
        assert max(len(row.text.ids) for row in rows) <= length
        predicted = [(row.sentence, word) for row in rows for word in row.words.tolist()]
        assert sorted(predicted) == [(n, w) for n, size in enumerate(sizes) for w in range(size)]
        ids = [np.array([draw.randrange(9) for _ in range(size)], np.int32) for size in sizes]
        labels = [row_labels(row, ids[row.sentence]) for row in rows]
        assert sum((row >= 0).sum() for row in labels) == sum(sizes)
        assert as_lists(gather_words(rows, labels, sentences)) == as_lists(ids)


def test_memory_grows_with_the_words_of_a_sentence_only(tokenizer):
    def peak(times: int) -> int:
        tracemalloc.start()
        rows = make_tag_rows([sentence(*["mill", "walked", "x"] * times)], tokenizer, 32)
        used = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert sum(len(row.words) for row in rows) == 3 * times
        return used

    assert peak(8000) < 6 * peak(2000)  # scores of each window for each word would take 16 times
