"""An XLNet, whose last token is pooled, answers the same in every form."""

import pathlib
from typing import Any

import numpy as np
import pytest

import bert_tf
from bert_tf.checkpoints.formats import write_checkpoint
from bert_tf.pretraining.masked_words.model import BertPretrainer
from bert_tf.tasks.classification.model import BertClassifier
from tests.roads.roads import TOLERANCE, check_roads, largest_difference, load_all, load_onnx
from tests.shared_data import golden_file

TEXTS = ["The river of the city", "a", "of the people, and the sea"]


@pytest.fixture(name="run", scope="module")
def fixture_run(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("xlnet") / "run"
    model = BertClassifier.from_pretrained(
        golden_file("families", "xlnet", "lm_head"), labels=["bad", "good"]
    )
    draw = np.random.default_rng(0)
    for variable in (*model.head.weights, *model.bert.pooler.weights):
        variable.assign(draw.normal(0, 0.5, variable.shape))
    write_checkpoint(model.to_checkpoint(), folder, "bert_tf")
    return folder


@pytest.mark.slow
def test_answers_are_the_same(tmp_path: pathlib.Path, record_property, run: pathlib.Path) -> None:
    model = BertClassifier.from_pretrained(run)
    expected = model.probabilities(TEXTS)
    assert abs(expected[0]["good"] - expected[1]["good"]) > 0.01

    def ask(answers: Any) -> list[dict[str, float]]:
        # In one batch, where the last token of a text is not in the last column.
        return answers.probabilities(TEXTS)

    check_roads(expected, load_all(run, model, tmp_path), ask, record_property)


@pytest.mark.slow
def test_masks_are_filled_by_load_as_by_the_model(tmp_path: pathlib.Path) -> None:
    """Rows with a query stream keep their padding."""
    folder = golden_file("families", "xlnet", "lm_head")
    texts = ["the [MASK] of the [MASK]", "of the people, and the [MASK]"]
    expected = BertPretrainer.from_pretrained(folder).fill_mask(texts)
    for predictor in (bert_tf.load(folder), *load_onnx(folder, tmp_path).values()):
        assert largest_difference(expected, predictor.fill_mask(texts)) < TOLERANCE
