"""An XLNet classifier, whose last token is pooled, answers the same in every form."""

import pathlib

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.checkpoints.formats import write_checkpoint
from bert_tf.inference.serving_models import load
from bert_tf.tasks.base.serving.lite_model import LiteModel
from bert_tf.tasks.base.serving.saving.writing import save
from bert_tf.tasks.classification.model import BertClassifier
from export.lite.conversion import convert
from tests.float_bounds import assert_close
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
def test_lite_files_answer_as_the_model(tmp_path: pathlib.Path, run: pathlib.Path) -> None:
    served = load(str(run), unpad=False)
    path = tmp_path / "model.tflite"
    path.write_bytes(convert(served, "none"))
    model = LiteModel(str(path))
    batches = [model.pack(TEXTS), model.pack(TEXTS, TEXTS[::-1])]
    for batch in batches:
        assert batch["input_mask"][1, -1] == 0  # The last token is not in the last column.
        found = model.from_ids(batch)["probabilities"]
        inputs = {name: tf.constant(values) for name, values in batch.items()}
        expected = served.from_ids(inputs)["probabilities"]
        assert_close(found, expected)
    assert np.abs(found[0] - found[1]).max() > 0.01


@pytest.mark.slow
def test_saved_models_answer_as_the_model(tmp_path: pathlib.Path, run: pathlib.Path) -> None:
    served = load(str(run))
    texts_folder, _ = save(served, tmp_path / "serving", 1, "run")
    signature = tf.saved_model.load(str(texts_folder)).signatures["serving_default"]
    found = signature(text=tf.constant(TEXTS))["probabilities"]
    model = BertClassifier.from_pretrained(run)
    logits = model.predict(TEXTS, verbose=0)
    assert_close(found, tf.nn.softmax(logits))
