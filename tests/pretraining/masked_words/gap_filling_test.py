"""Several masks, gaps and scores of texts against the same thing done slowly, a call a number."""

import dataclasses
import math
import types

import keras
import numpy as np
import pytest

from bert_tf.config import ModelConfig
from bert_tf.pretraining.masked_words import scores as text_scores
from bert_tf.pretraining.masked_words.gap_filling import MaskedModel, Sampling, fill_text, joined
from bert_tf.pretraining.masked_words.model import BertPretrainer
from bert_tf.pretraining.masked_words.scores import pseudo_log_likelihood, rewrite, score_words
from bert_tf.text.byte_bpe import ByteBpe
from bert_tf.text.vocab import Vocab
from bert_tf.text.wordpiece import WordPiece
from tests.float_bounds import OTHER_FRAMEWORK, close_to
from tests.tiny_bpe import tiny_bpe_vocab

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
WORDS = ("the", "cat", "dog", "sat", "ran", "home", "##s", "##ing", "a", ".")
VOCAB = Vocab((*SPECIAL, *WORDS))
FIRST = len(SPECIAL)


CONFIG = ModelConfig(
    vocab_size=len(VOCAB),
    hidden_size=16,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=32,
    max_position_embeddings=24,
    initializer_range=0.8,
)


@pytest.fixture(scope="module")
def model():
    """A model of random weights, large enough that its opinions are strong."""
    keras.utils.set_random_seed(11)
    network = BertPretrainer(CONFIG, use_next_sentence=False, use_pooler=False)
    return MaskedModel(network, WordPiece(VOCAB, do_lower_case=True)), network


def table(network, row, place):
    """Log-probabilities of the pieces that are no special tokens, by the plain call."""
    row = np.array([row], np.int32)
    inputs = {"input_word_ids": row, "input_mask": 1 + 0 * row, "input_type_ids": 0 * row}
    outputs = network({**inputs, "masked_lm_positions": np.int32([[place]])})
    logits = np.asarray(outputs["masked_lm_logits"])[0, 0].astype(float)
    logits[:FIRST] = -math.inf
    return logits - np.log(np.exp(logits).sum())


def row_of(text):
    ids = {token: index for index, token in enumerate(VOCAB.tokens)}
    return [ids[word] for word in f"[CLS] {text} [SEP]".split()]


def surest_first(network, row):
    """Fills in the surest mask, then looks again."""
    row, total = list(row), 0.0
    while VOCAB.mask_id in row:
        places = [place for place, piece in enumerate(row) if piece == VOCAB.mask_id]
        tables = {place: table(network, row, place) for place in places}
        place = max(places, key=lambda p: tables[p].max())
        row[place] = int(tables[place].argmax())
        total += tables[place].max()
    return row, total


def test_the_surest_mask_is_filled_in_first(model):
    masked, network = model
    text = "the [MASK] [MASK] sat [MASK] ."
    expected, value = surest_first(network, row_of(text))
    found = fill_text(masked, text, count=1)[0]
    assert found.log_probability == close_to(value)
    pieces = [VOCAB.tokens[expected[place]] for place in (2, 3, 5)]
    assert list(found.tokens) == pieces and found.share == 1.0


def test_a_wide_beam_finds_the_best_of_all(model):
    """Of two masks: every filling, in the order that their probabilities ask for."""
    masked, network = model
    row = row_of("the [MASK] sat [MASK] .")
    first = {place: table(network, row, place) for place in (2, 4)}
    surest = max(first, key=lambda place: first[place].max())
    other = 6 - surest
    values = {}
    for piece in range(FIRST, len(VOCAB)):
        filled = list(row)
        filled[surest] = piece
        for second, value in enumerate(table(network, filled, other)[FIRST:], FIRST):
            pieces = {surest: piece, other: second}
            values[pieces[2], pieces[4]] = first[surest][piece] + value
    best = sorted(values, key=values.get, reverse=True)[:3]
    found = fill_text(masked, "the [MASK] sat [MASK] .", count=len(WORDS))
    assert [one.tokens for one in found[:3]] == [
        tuple(VOCAB.tokens[piece] for piece in pair) for pair in best
    ]
    total = sum(math.exp(one.log_probability) for one in found)
    for one in found:
        assert one.share == pytest.approx(math.exp(one.log_probability) / total, rel=1e-4)


@pytest.mark.parametrize("rounds", [1, 2, 3, pytest.param(10, marks=pytest.mark.slow)])
def test_mask_predict_is_the_papers(model, rounds):
    masked, network = model
    text = "the [MASK] [MASK] [MASK] [MASK] ."
    row, values = row_of(text), {}
    places = [2, 3, 4, 5]
    again = places
    for done in range(1, rounds + 1):
        seen = list(row)
        for place in again:
            scores = table(network, seen, place)
            row[place], values[place] = int(scores.argmax()), scores.max()
        again = sorted(places, key=values.get)[: math.floor(len(places) * (rounds - done) / rounds)]
        for place in again:
            row[place] = VOCAB.mask_id
    found = fill_text(masked, text, rounds=rounds)
    assert len(found) == 1
    assert list(found[0].tokens) == [VOCAB.tokens[row[place]] for place in places]
    assert found[0].log_probability == close_to(sum(values.values()))


def test_a_gap_takes_the_length_that_fits_best(model):
    masked, network = model
    found = fill_text(masked, "the [GAP:1-3] sat.", count=10)
    assert {len(one.tokens) for one in found} <= {1, 2, 3}
    means = [one.mean for one in found]
    assert means == sorted(means, reverse=True)
    for size in (1, 2, 3):
        _, value = surest_first(network, row_of(f"the {'[MASK] ' * size}sat ."))
        best = max(one for one in fill_text(masked, f"the [GAP:{size}-{size}] sat.", 1))
        assert best.mean == pytest.approx(value / size, abs=1e-4)
    two = fill_text(masked, "the [GAP:1-2] sat [GAP:1-2].", count=30)
    assert {len(one.tokens) for one in two} >= {2, 3}


class Told(MaskedModel):
    """Knows nothing of the other pieces: tells at each of n masks the probabilities of n masks."""

    max_seq_length = 24

    def __init__(self, vocab, by_masks):
        self.vocab, self.tokenizer = vocab, WordPiece(vocab, True)
        self._by_masks = by_masks

    def log_probabilities(self, rows, positions):
        tables = []
        for row, places in zip(rows, positions, strict=True):
            shares = np.full([len(places), len(self.vocab)], 1e-9)
            for index, place in enumerate(places):
                left = sum(piece == self.vocab.mask_id for piece in row)
                filled = row[place - 1] != self.vocab.ids["the"]
                for token, share in self._by_masks[left, filled].items():
                    shares[index, self.vocab.ids[token]] = share
            tables.append(np.log(shares))
        return tables


def test_shares_are_of_probabilities_where_lengths_differ():
    """A gap of 1 or 2: `cats` in one piece has 0.02, in two 0.5 * 0.4."""
    vocab = Vocab((*VOCAB.tokens, "cats"))
    told = Told(
        vocab,
        {
            (1, False): {"cats": 0.02, "dog": 0.16},
            (2, False): {"cat": 0.5, "dog": 0.1},
            (2, True): {"##s": 0.3, "ran": 0.2},
            (1, True): {"##s": 0.4, "ran": 0.2},
        },
    )
    found = fill_text(told, "the [GAP:1-2] .", count=4)
    by_text = {one.text: one for one in found}
    values = {"the cats .": 0.2, "the cat ran .": 0.1, "the dogs .": 0.04, "the dog .": 0.16}
    assert by_text.keys() == values.keys() and by_text["the cats ."].tokens == ("cat", "##s")
    # By the mean: the roots of 0.2, 0.1 and 0.04, and 0.16 itself.
    assert [one.text for one in found] == list(values)
    for text, value in values.items():
        assert math.exp(by_text[text].log_probability) == close_to(value)
        assert by_text[text].share == close_to(value / 0.5)


def test_what_is_drawn_has_the_models_distribution(model):
    masked, network = model
    expected = np.exp(table(network, row_of("the [MASK] sat ."), 2))[FIRST:]
    draws = 3000
    random = np.random.default_rng(1)
    scores = table(network, row_of("the [MASK] sat ."), 2)
    counts = np.bincount(
        [Sampling().draw(scores, random) for _ in range(draws)], minlength=len(VOCAB)
    )[FIRST:]
    likely = expected * draws > 5
    error = (counts[likely] - draws * expected[likely]) ** 2 / (draws * expected[likely])
    assert error.sum() < 45  # 10 pieces at most: passed by chance once in a million.
    best = int(scores.argmax())
    assert {Sampling(top_k=1).draw(scores, random) for _ in range(20)} == {best}
    for top_p in (1e-9, 0.0):
        assert {Sampling(top_p=top_p).draw(scores, random) for _ in range(20)} == {best}
    one, two = (
        fill_text(masked, "the [MASK] [MASK].", 4, sampling=Sampling(9.0, seed=s)) for s in (3, 3)
    )
    assert one == two
    fewer = fill_text(masked, "the [MASK] [MASK].", 2, sampling=Sampling(9.0, seed=3))
    assert len({filling.text for filling in one}) == 4  # So two of them are no accident.
    assert len(fewer) == 2 and {f.tokens for f in fewer} < {f.tokens for f in one}


def test_special_tokens_are_no_candidates_of_a_mask(model):
    _, network = model
    tokenizer = WordPiece(VOCAB, do_lower_case=True)
    ((row,),) = MaskedModel(network, tokenizer).fill_mask(["the [MASK] sat."], top_k=99)
    values = np.exp(table(network, row_of("the [MASK] sat ."), 2))
    assert [one["piece"] for one in row] == [
        VOCAB.tokens[piece] for piece in np.argsort(-values)[: len(WORDS)]
    ]
    assert [one["score"] for one in row] == close_to(sorted(values, reverse=True)[:-FIRST])


def test_pieces_join_their_words():
    assert joined("the cat ", "##s", False) == "the cats" and joined("a ", "dog", False) == "a dog"
    assert joined("a ", " dog", True) == "a dog" and joined("a ", "s", True) == "as"


def test_words_are_scored_within_from_left_to_right(model):
    masked, network = model
    words = score_words(masked, "The cats sat.")
    assert [(w.text, w.start, w.end) for w in words] == [
        ("The", 0, 3), ("cats", 4, 8), ("sat", 9, 12), (".", 12, 13),
    ]  # fmt: skip
    ids = row_of("the cat ##s sat .")
    begin = table(network, row_of("the [MASK] [MASK] sat ."), 2)
    end = table(network, row_of("the cat [MASK] sat ."), 3)
    assert words[1].log_probability == close_to(begin[ids[2]] + end[ids[3]], OTHER_FRAMEWORK)
    begin[[VOCAB.ids["##s"], VOCAB.ids["##ing"]]] = -math.inf  # They begin no word.
    assert words[1].alternative == VOCAB.tokens[int(begin.argmax())]
    assert [word.num_tokens for word in words] == [1, 2, 1, 1]
    alone = table(network, row_of("the cat ##s [MASK] ."), 4)
    assert words[2].log_probability == close_to(alone[ids[4]])
    total = sum(word.log_probability for word in words)
    assert pseudo_log_likelihood(words) == close_to(total)


def test_unknown_words_have_no_score(model):
    """They stay in the text, and the others are scored and rewritten beside them."""
    masked, network = model
    text = "a dog\u2603 the home"
    words = score_words(masked, text)
    assert [word.is_known for word in words] == [True, False, True, True]
    assert math.isnan(words[1].log_probability) and words[1].text == "dog\u2603"
    value = table(network, row_of("a [UNK] [MASK] home"), 3)[VOCAB.ids["the"]]
    assert words[2].log_probability == close_to(value)
    total = sum(words[index].log_probability for index in (0, 2, 3))
    assert pseudo_log_likelihood(words) == close_to(total)
    versions = rewrite(masked, text, rounds=9, share=0.1)
    assert versions and all("dog\u2603" in version for version in versions)
    assert rewrite(masked, "\u2603", rounds=2) == []


@pytest.fixture(scope="module")
def of_bytes():
    """A model with byte-level BPE, whose pieces hold the space before a word."""
    vocab = tiny_bpe_vocab()
    keras.utils.set_random_seed(3)
    config = dataclasses.replace(
        CONFIG,
        vocab_size=len(vocab),
        max_position_embeddings=48,
        tokenizer="byte_bpe",
        do_lower_case=False,
        pad_token_id=vocab.pad_id,
    )
    return BertPretrainer(config, use_next_sentence=False, use_pooler=False), vocab


@pytest.mark.parametrize("trim", [True, False])
def test_words_of_byte_level_bpe(of_bytes, monkeypatch, trim):
    network, vocab = of_bytes
    vocab = dataclasses.replace(vocab, trim_offsets=trim)
    masked = MaskedModel(network, ByteBpe(vocab))
    text = "It stood of the river"
    words = score_words(masked, text)
    assert [text[word.start : word.end] for word in words] == text.split()
    assert [word.text for word in words] == text.split()
    parts = text.replace(" ", "| ").split("|")
    sizes = [len(masked.tokenizer.encode(part)) for part in parts]
    assert [word.num_tokens for word in words] == sizes
    # The space is lost in `text`: alone a word has other pieces.
    assert sizes != [len(masked.tokenizer.encode(word.text)) for word in words]
    names = vocab.token_texts()
    for word in words[1:]:
        assert f" {word.alternative}" in names  # It begins a word; its space stands there already.
    with pytest.raises(ValueError, match="'It <mask> the'"):
        score_words(masked, "It <mask> the")
    asked = []

    def note(_, masked_text, count):
        asked.append(masked_text)
        return [types.SimpleNamespace(text=text)]

    monkeypatch.setattr(text_scores, "fill_text", note)
    assert rewrite(masked, text, rounds=2, share=1.0) == []  # Nothing likelier came back.
    assert asked == [" ".join(sum(sizes) * [text_scores.MASK])]


def test_a_rewritten_text_has_likelier_words(model):
    masked, _ = model
    random, changed = np.random.default_rng(5), 0
    whole = [word for word in WORDS if not word.startswith("##")]
    for _ in range(6):
        text = " ".join(random.choice(whole, 7))
        before = pseudo_log_likelihood(score_words(masked, text))
        for version in rewrite(masked, text, rounds=5, share=0.3):
            after = pseudo_log_likelihood(score_words(masked, version))
            assert after > before
            before, changed = after, changed + 1
    assert changed > 2


def test_what_cannot_be_filled_in(model):
    masked, _ = model
    for text, message in {
        "the cat": r"'the cat'.*\[MASK\]",
        "the [GAP:0-2]": r"\[GAP:0-2\] .* 1 <= ",
        "the [GAP:3-2]": r"\[GAP:3-2\] .* 1 <= ",
        " ".join(["[GAP:1-5]"] * 3): r"\[GAP:1-5\]' .*64",
        "the [GAP:1-1000000000000000000]": r"\[GAP:1-1000000000000000000\]' .*64",
        "the [GAP:20-30]": "25 .*max_seq_length .*24",
    }.items():
        with pytest.raises(ValueError, match=message):
            fill_text(masked, text)
    with pytest.raises(ValueError, match="' ' .*words"):
        score_words(masked, " ")
    assert len(fill_text(masked, "[MASK]", 99)) == len(WORDS)  # No special token.
