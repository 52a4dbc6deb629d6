"""Attention probabilities equal those of the NumPy twin; the head shown first."""

import numpy as np
import pytest

from bert_tf.checkpoints.formats import read_checkpoint
from bert_tf.inference.serving_models import load
from bert_tf.network import attention
from export.page import attention_view
from export.page.attention_view import AttentionView, find_clear_head, view_attention
from tests.export.made_models import write_model
from tests.float_bounds import OTHER_FRAMEWORK, assert_close
from tests.reference.numpy_bert import NumpyBert, softmax

TEXTS = ("the river don't", "a b w12")
PIECES = "[CLS] the river don ' t [SEP] a b w12 [SEP]".split()


class LookingBert(NumpyBert):
    """Keeps the attention probabilities of every layer: [N, T, T] each."""

    def attention(self, scope, x, mask):
        heads = (len(x), self.num_heads, -1)
        query, key = (self.dense(f"{scope}/{n}", x).reshape(heads) for n in ("query", "key"))
        scores = np.einsum("tnh,snh->nts", query, key) / np.sqrt(query.shape[-1])
        self.seen.append(softmax(scores))
        return super().attention(scope, x, mask)


@pytest.mark.slow
def test_a_pair_equals_the_twin_whole_and_cut(tmp_path, monkeypatch) -> None:
    shape = {"num_hidden_layers": 2, "hidden_act": "gelu_tanh", "layer_norm_eps": 1e-12}
    folder = str(write_model(tmp_path / "pairs", "next_sentence", **shape))
    served = load(folder, "next_sentence")
    view = view_attention(served, TEXTS)
    assert (view.pieces, view.num_pieces) == (PIECES, 11)
    twin = LookingBert(read_checkpoint(folder).weights, num_layers=2, num_heads=4)
    twin.seen = []
    ids = np.array([served.vocab.tokens.index(piece) for piece in PIECES])
    twin.encode(ids, np.ones(11), (np.arange(11) > 6).astype(int))
    assert_close(view.probabilities, twin.seen, OTHER_FRAMEWORK)

    monkeypatch.setattr(attention_view, "MAX_TOKENS", 4)
    cut = view_attention(served, TEXTS)
    assert (cut.pieces, cut.num_pieces) == (PIECES[:4], 11)
    first, others = np.split(np.array(twin.seen)[:, :, :4], [4], axis=-1)
    expected = np.concatenate([first, others.sum(-1, keepdims=True)], -1)
    assert_close(cut.probabilities, expected, OTHER_FRAMEWORK)


@pytest.mark.slow
@pytest.mark.parametrize("block_type", ["post_norm", "pre_norm"])
def test_what_is_shown_is_what_the_model_computes(tmp_path, monkeypatch, block_type) -> None:
    """With turned queries, a window, and LayerNorm before: kept while the model runs."""
    shape = {
        "num_hidden_layers": 2,
        "position_type": "rotary",
        "local_attention": 4,
        "block_type": block_type,
    }
    served = load(str(write_model(tmp_path / "pairs", "next_sentence", **shape)), "next_sentence")
    seen, softmax_of_model = [], attention.softmax

    def keep(*arguments):
        seen.append(softmax_of_model(*arguments)[0].numpy())
        return softmax_of_model(*arguments)

    monkeypatch.setattr(attention, "softmax", keep)
    view = view_attention(served, TEXTS)
    assert_close(view.probabilities, seen)
    is_far = abs(np.subtract.outer(np.arange(11), np.arange(11))) > 2
    assert view.probabilities[0][:, is_far].any() and not view.probabilities[1][:, is_far].any()


TO_CLS, TO_SELF, SPREAD = np.eye(4)[[0, 0, 0, 0]], np.eye(4), np.full([4, 4], 0.25)
SWAPPED = np.eye(4)[[0, 2, 1, 3]]
BLURRED = 0.4 * SPREAD + 0.6 * SWAPPED


@pytest.mark.parametrize(
    ("pieces", "heads", "expected"),
    [
        ("[CLS] a b [SEP]", [[TO_CLS, TO_SELF, SPREAD], [BLURRED, SWAPPED, TO_CLS]], (1, 1)),
        ("[CLS] a b [SEP]", [[TO_CLS, TO_SELF, SPREAD]], (0, 2)),  # None looks mostly at words.
        ("[CLS] [SEP]", [[np.eye(2), np.eye(2)]], (0, 0)),
        # What is not shown counts as other words.
        ("[CLS] a", [[np.eye(2, 3), np.eye(3)[[2, 2]]]], (0, 1)),
    ],
)
def test_the_clear_head_looks_at_other_words_and_decides(pieces, heads, expected) -> None:
    pieces = pieces.split()
    assert find_clear_head(AttentionView(pieces, len(pieces), np.array(heads))) == expected
