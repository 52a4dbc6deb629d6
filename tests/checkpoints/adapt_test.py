"""Tables cut, grown and exchanged: rows go with their pieces, new ones start as stated."""

import dataclasses

import numpy as np
import pytest

from bert_tf.checkpoints.adapt import (
    adapt,
    add_words,
    exchange_vocabulary,
    keep_layers,
    read_words,
    resize_positions,
)
from bert_tf.text.vocab import Vocab
from tests.checkpoints.made_checkpoint import assert_same, make_checkpoint
from tests.float_bounds import assert_close

WORDS, BIAS = "bert/embeddings/word_embeddings", "cls/predictions/output_bias"
POSITIONS = "bert/embeddings/position_embeddings"


@pytest.fixture(name="made")
def fixture_made():
    return make_checkpoint("pretrained", 1, do_lower_case=True, vocab_size=70)


def rows(checkpoint, tokens):
    ids = [checkpoint.vocab.ids[token] for token in tokens]
    return checkpoint.weights[WORDS][ids], checkpoint.weights[BIAS][ids]


@pytest.mark.parametrize("size", [3, 9, 20, 100])
def test_positions_are_cut_or_repeated(made, size):
    made = resize_positions(made, 9)
    table = made.weights[POSITIONS]
    resized = resize_positions(made, size)
    received = resized.weights[POSITIONS]
    assert received.shape == (size, table.shape[1])
    for row in range(size):
        np.testing.assert_array_equal(received[row], table[row % 9])
    assert resized.config == dataclasses.replace(made.config, max_position_embeddings=size)
    resized.check()


def test_known_pieces_keep_their_rows_in_any_order(made):
    tokens = made.vocab.tokens
    shuffled = Vocab((*reversed(tokens[:6]), *reversed(tokens[6:-4])))
    received = exchange_vocabulary(made, shuffled)
    received.check()
    for after, before in zip(rows(received, tokens[:-4]), rows(made, tokens[:-4]), strict=True):
        np.testing.assert_array_equal(after, before)
    assert received.config.pad_token_id == shuffled.pad_id != made.config.pad_token_id
    assert_same(exchange_vocabulary(made, made.vocab), made)


def test_a_new_piece_is_the_mean_of_the_pieces_that_wrote_it(made):
    received = exchange_vocabulary(made, Vocab((*made.vocab.tokens, "cab", "##ba", "u中u")))
    received.check()
    # "cab" was c ##a ##b, and "##ba", read as a word, b ##a; 中 parts words.
    for table in (0, 1):
        cab, ba, mixed = rows(received, ["cab", "##ba", "u中u"])[table]
        assert_close(cab, rows(made, ["c", "##a", "##b"])[table].mean(0))
        np.testing.assert_allclose(ba, rows(made, ["b", "##a"])[table].mean(0), rtol=1e-6)
        assert_close(mixed, rows(made, ["u", "中", "u"])[table].mean(0))


def test_what_was_unknown_is_the_mean_of_all_rows(made):
    received = exchange_vocabulary(made, Vocab((*made.vocab.tokens, "日本")))
    for name in (WORDS, BIAS):
        expected = made.weights[name].mean(axis=0)
        np.testing.assert_allclose(received.weights[name][-1], expected, rtol=1e-5)


def test_words_take_unused_rows_first(made, tmp_path):
    path = tmp_path / "words.txt"
    path.write_text("Cab\n\n river \nbaa\ncab\n##bab\n")
    words = read_words(made, str(path))
    assert words == ["cab", "baa", "##bab"]  # river is known, the second cab too
    received = add_words(made, words)
    received.check()
    assert received.vocab.tokens[1:3] == ("cab", "baa")
    assert received.vocab.tokens[3:-1] == made.vocab.tokens[3:]
    assert received.vocab.tokens[-1] == "##bab"
    table = rows(received, ["baa"])[0][0]
    np.testing.assert_allclose(table, rows(made, ["b", "##a", "##a"])[0].mean(0), rtol=1e-6)
    for token in made.vocab.tokens[3:]:
        np.testing.assert_array_equal(rows(received, [token])[0], rows(made, [token])[0])


@pytest.mark.parametrize("line", ["New York", "don't", "a" * 201, "##", "\u0301"])
def test_words_that_are_none(made, tmp_path, line):
    path = tmp_path / "words.txt"
    path.write_text(f"fine\n{line}\n")
    with pytest.raises(ValueError, match=r"words.txt, line 2: "):
        read_words(made, str(path))


def test_a_vocabulary_of_the_other_casing_is_refused(made):
    cased = Vocab((*made.vocab.tokens, "The", "River", "New", "York"))
    with pytest.raises(ValueError, match="do_lower_case .*true, .*cased: 4 .* 74 "):
        exchange_vocabulary(made, cased)


def test_all_at_once_and_without_a_vocabulary(made, tmp_path):
    made.vocab.write(tmp_path / "vocab.txt")
    (tmp_path / "words.txt").write_text("cab\n")
    bare = dataclasses.replace(made, vocab=None)
    with pytest.raises(ValueError, match="^made .*--vocab_file"):
        adapt(bare, added_words_file=str(tmp_path / "words.txt"))
    received = adapt(bare, 12, str(tmp_path / "vocab.txt"), str(tmp_path / "words.txt"))
    received.check()
    assert received.vocab.tokens[1] == "cab" and received.config.max_position_embeddings == 12
    assert_same(adapt(made), made)


def test_kept_layers_move_down_and_nothing_else_changes():
    made = make_checkpoint("pretrained", 1, num_hidden_layers=11)
    kept = keep_layers(made, "0, 2,10")
    kept.check()
    assert kept.config == dataclasses.replace(made.config, num_hidden_layers=3)
    for name, weight in kept.weights.items():
        for new, old in ((1, 2), (2, 10)):
            name = name.replace(f"/layer_{new}/", f"/layer_old_{old}/")
        before = made.weights[name.replace("layer_old_", "layer_")]
        np.testing.assert_array_equal(weight, before)
    dropped = [name for name in made.weights if "/layer_" in name]
    assert len(made.weights) - len(kept.weights) == len(dropped) * 8 // 11


@pytest.mark.parametrize("layers", ["", "1,0", "0,0", "11", "-1", "a", "0,,1"])
def test_layers_that_cannot_be_kept(layers):
    made = make_checkpoint("pretrained", 1, num_hidden_layers=11)
    with pytest.raises(ValueError, match=f"--keep_layers={layers}: .* 0 .* 10,"):
        keep_layers(made, layers)


@pytest.mark.parametrize("layers", ["1,2", "0,1,3"])
def test_layers_that_are_made_otherwise_in_another_place(layers):
    """The first of the pre-norm form has no LayerNorm; every third sees all pieces."""
    changes = {"num_hidden_layers": 6, "block_type": "pre_norm", "local_attention": 4}
    made = make_checkpoint("encoder", 1, max_position_embeddings=16, **changes)
    number = layers[-1] if layers[0] == "0" else 1
    with pytest.raises(ValueError, match=f"--keep_layers={layers}: .* layer {number} "):
        keep_layers(made, layers)
    keep_layers(made, "0,1,2,3").check()
