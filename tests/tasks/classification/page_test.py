"""The HTML report: the part of each token by finite differences, and escaped texts."""

import re

import keras
import numpy as np
import pytest

from bert_tf.tasks.classification.model import BertClassifier
from bert_tf.tasks.classification.page import ShownError, run_page, token_contributions
from bert_tf.text.packing import INPUTS


@pytest.mark.parametrize("unpad", [pytest.param(False, marks=pytest.mark.slow), True])
def test_contributions_are_derivatives(tiny_config, unpad):
    keras.utils.set_random_seed(4)
    model = BertClassifier(tiny_config, 3, unpad=unpad)
    for weight in model.trainable_weights:  # As large as trained ones.
        weight.assign(weight + np.random.default_rng(1).normal(size=weight.shape) * 0.2)
    mask = np.array([[1, 1, 1, 1, 0], [1, 1, 1, 0, 0]], np.int32)
    ids = np.random.default_rng(2).integers(5, 50, mask.shape).astype(np.int32) * mask
    batch = dict(zip(INPUTS, (ids, mask, np.zeros_like(mask)), strict=True))
    columns = np.array([2, 0])
    found = token_contributions(model, batch, columns)
    assert np.abs(found).max() > 0.05 and not found[mask == 0].any()
    step = 1e-2
    for row, place in ((0, 1), (0, 3), (1, 0)):
        scores = []
        for factor in (1 + step, 1 - step):
            factors = np.ones(mask.shape, np.float32)
            factors[row, place] = factor
            logits = np.array(model({**batch, "token_factors": factors}, training=False))
            scores.append(logits[row, columns[row]])
        slope = (scores[0] - scores[1]) / (2 * step)
        assert found[row, place] == pytest.approx(slope, rel=0.02, abs=2e-3)


def test_texts_are_escaped_and_nothing_is_loaded(tmp_path):
    (tmp_path / "curves.png").write_bytes(b"\x89PNG")
    evil = '<script src="http://x">"&'
    error = ShownError(1.5, evil, evil, evil, evil, [evil, "good"], [0.5, -1.0])
    plots = {"Curves": tmp_path / "curves.png", "None": tmp_path / "none.png"}
    page = run_page(evil, {evil: 0.25}, plots, evil, [error])
    assert "<script" not in page and "none.png" not in page
    assert page.count("&lt;script") >= 7
    sources = re.findall(r'(?:src|href)="([^"]*)"', page)
    assert len(sources) == 1 and sources[0].startswith("data:image/png;base64,")
    assert re.findall(r'title="([^"]*)" style="background:rgba\(([\d,.]+)\)"', page) == [
        ("+0.500", "46,125,50,0.30"),
        ("-1.000", "198,40,40,0.60"),
    ]
