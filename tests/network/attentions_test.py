"""Attention weights of all heads, against the NumPy twin and transformers."""

import importlib.util

import numpy as np
import pytest
import tensorflow as tf

import bert_tf
from bert_tf.checkpoints.formats import read_checkpoint, write_checkpoint
from tests.checkpoints.made_checkpoint import make_checkpoint
from tests.export.made_models import SHAPE
from tests.float_bounds import OTHER_FRAMEWORK, assert_close

TEXTS = ["the river a b c don't", "w40 w41", "qa ba caa the river w42"]


def make(folder, **changes):
    made = make_checkpoint("encoder with pooler", seed=5, **{**SHAPE, **changes})
    write_checkpoint(made, folder, "bert_tf")
    return bert_tf.BertEncoder.from_pretrained(folder), bert_tf.load_tokenizer(folder)(TEXTS)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"position_type": "rotary", "local_attention": 4},
        {"block_type": "pre_norm"},
        {"position_type": "alibi"},
    ],
    ids=["bert", "local rotary", "pre-norm", "alibi"],
)
def test_rows_sum_to_one_and_padding_has_no_part(tmp_path, changes):
    model, batch = make(tmp_path / "model", **changes)
    outputs = model(batch, output_attentions=True)
    assert "attentions" not in model(batch)
    rows, length = batch["input_mask"].shape
    for weights in outputs["attentions"]:
        assert weights.shape == (rows, SHAPE["num_attention_heads"], length, length)
        np.testing.assert_allclose(np.sum(weights, axis=-1), 1.0, atol=1e-5)
        is_text = np.asarray(batch["input_mask"]) == 1  # [B, T]
        to_padding = np.asarray(weights) * ~is_text[:, None, None, :]
        from_texts = to_padding.transpose(0, 2, 1, 3)[is_text]
        assert not is_text.all() and np.abs(from_texts).max() < 1e-6
    assert len(outputs["attentions"]) == SHAPE["num_hidden_layers"]


def test_rows_without_padding_and_graphs_have_the_same(tmp_path):
    model, batch = make(tmp_path / "model")
    expected = model(batch, output_attentions=True)["attentions"]
    is_text = np.asarray(batch["input_mask"]) == 1
    model.leave_out_padding(True)
    found = tf.function(lambda x: model(x, output_attentions=True)["attentions"])(batch)
    for one, other in zip(found, expected, strict=True):
        pairs = (np.asarray(x).transpose(0, 2, 1, 3)[is_text] for x in (one, other))
        assert_close(*pairs)


def test_packed_rows_are_refused(tmp_path):
    model, batch = make(tmp_path / "model")
    packed = {"packed_positions": batch["input_mask"], "packed_starts": tf.constant([0, 1, 2])}
    with pytest.raises(ValueError, match="output_attentions"):
        model({**batch, **packed}, output_attentions=True)


@pytest.mark.skipif(
    importlib.util.find_spec("transformers") is None, reason="transformers is not installed"
)
def test_they_are_those_of_transformers(tmp_path):
    import torch
    import transformers

    model, batch = make(tmp_path / "model", layer_norm_eps=1e-12)
    write_checkpoint(read_checkpoint(tmp_path / "model"), tmp_path / "hf", "huggingface")
    theirs = transformers.AutoModel.from_pretrained(tmp_path / "hf", attn_implementation="eager")
    ids, mask, types = (
        torch.tensor(np.asarray(batch[name])).long()
        for name in ("input_word_ids", "input_mask", "input_type_ids")
    )
    with torch.no_grad():
        expected = theirs(ids, mask, types, output_attentions=True).attentions
    found = model(batch, output_attentions=True)["attentions"]
    for one, other in zip(found, expected, strict=True):
        assert_close(np.asarray(one), other.numpy(), OTHER_FRAMEWORK)
