"""Attention probabilities equal those of the NumPy twin."""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.checkpoints.formats import read_checkpoint
from export.models import load
from export.page.attention_view import (
    attention_probabilities,
    find_clear_head,
    find_encoder,
    show_first,
    view_attention,
)
from tests.export.made_models import write_model
from tests.reference.numpy_bert import NumpyBert, softmax

TEXT = {"text": "the river a b c don't w12"}


class LookingBert(NumpyBert):
    """Keeps the attention probabilities of every layer: [N, T, T] each."""

    def attention(self, scope, x, mask):
        width = x.shape[-1] // self.num_heads
        by_head = (len(x), self.num_heads, width)
        query, key = (self.dense(f"{scope}/{n}", x).reshape(by_head) for n in ("query", "key"))
        scores = np.einsum("tnh,snh->nts", query, key) / np.sqrt(width)
        self.seen.append(softmax(scores - 10000.0 * (1 - mask)))
        return super().attention(scope, x, mask)

    def look(self, ids, mask, types):
        self.seen = []
        self.encode(ids, mask, types)
        return np.stack(self.seen)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    shape = {"hidden_act": "gelu_tanh", "layer_norm_eps": 1e-12}
    return write_model(tmp_path_factory.mktemp("models") / "tagger", "tagger", **shape)


@pytest.fixture(scope="module")
def served(folder):
    return load(str(folder))


@pytest.fixture(scope="module")
def twin(folder):
    return LookingBert(read_checkpoint(str(folder)).weights, num_layers=2, num_heads=4)


def test_equals_the_twin_with_padding_and_types(served, twin) -> None:
    rng = np.random.default_rng(5)
    ids = rng.integers(0, 80, [3, 11]).astype(np.int32)
    mask = (np.arange(11) < np.array([[11], [7], [1]])).astype(np.int32)
    types = (np.arange(11) > 4).astype(np.int32) * mask
    batch = {"input_word_ids": ids, "input_mask": mask, "input_type_ids": types}
    batch = {name: tf.constant(column) for name, column in batch.items()}
    received = np.stack(list(attention_probabilities(find_encoder(served.model), batch)))
    assert received.shape == (2, 3, 4, 11, 11)
    for row, length in enumerate([11, 7, 1]):
        expected = twin.look(ids[row], mask[row], types[row])
        seen = received[:, row, :, :length]  # Rows of padding mean nothing.
        np.testing.assert_allclose(seen, expected[:, :, :length], atol=2e-5)
        assert not seen[..., length:].any()


def test_view_of_a_text_names_its_pieces_and_equals_the_twin(served, twin) -> None:
    view = view_attention(served, TEXT)
    assert view.pieces == "[CLS] the river a b c don ' t w12 [SEP]".split()
    assert view.num_pieces == 11
    ids = np.array([served.vocab.tokens.index(piece) for piece in view.pieces])
    expected = twin.look(ids, np.ones(11), np.zeros(11, int))
    np.testing.assert_allclose(view.probabilities, expected, atol=2e-5)
    np.testing.assert_allclose(view.probabilities.sum(-1), 1, atol=1e-5)


def test_long_texts_show_their_first_pieces_and_what_the_others_get(served) -> None:
    whole, view = view_attention(served, TEXT), view_attention(served, TEXT, max_pieces=4)
    assert view.pieces == ["[CLS]", "the", "river", "a"] and view.num_pieces == 11
    assert view.probabilities.shape == (2, 4, 4, 5)
    np.testing.assert_array_equal(view.probabilities[..., :4], whole.probabilities[:, :, :4, :4])
    np.testing.assert_allclose(view.probabilities.sum(-1), 1, atol=1e-5)


def test_show_first_sums_the_others() -> None:
    # fmt: off
    given = np.array([[[0.5, 0.25, 0.25],
                       [0.1, 0.2, 0.7],
                       [0.0, 0.0, 1.0]]])
    np.testing.assert_allclose(show_first(given, 1), [[[0.5, 0.5]]])
    np.testing.assert_allclose(show_first(given, 2), [[[0.5, 0.25, 0.25],
                                                       [0.1, 0.2, 0.7]]])
    # fmt: on
    assert show_first(given, 3) is given


def test_the_clear_head_looks_at_other_words_and_decides() -> None:
    pieces = ["[CLS]", "a", "b", "[SEP]"]
    to_cls, to_self = np.eye(4)[[0, 0, 0, 0]], np.eye(4)
    spread, swapped = np.full([4, 4], 0.25), np.eye(4)[[0, 2, 1, 3]]
    blurred = 0.4 * spread + 0.6 * swapped
    heads = np.stack([to_cls, to_self, spread, blurred, swapped, to_cls]).reshape(2, 3, 4, 4)
    assert find_clear_head(pieces, heads) == (1, 1)
    assert find_clear_head(pieces, heads[:1]) == (0, 2)  # None looks mostly at other words.
    assert find_clear_head(["[CLS]", "[SEP]"], heads[..., :2, :2]) == (0, 0)


def test_what_is_not_shown_counts_as_other_words() -> None:
    to_self, to_rest = np.eye(2, 3)[[0, 1]], np.eye(3)[[2, 2]]
    assert find_clear_head(["[CLS]", "a"], np.stack([to_self, to_rest])[None]) == (0, 1)
