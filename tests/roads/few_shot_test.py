"""A classifier from few labels gives the same answers by every road."""

import pytest

import bert_tf
from tests.fine_tune import WORDS, texts
from tests.roads.roads import check_roads, load_all
from tests.tiny_model import write_tiny_model


@pytest.mark.slow
def test_answers_are_the_same(tmp_path, record_property):
    rows = texts(12)
    given = [row["text"] for row in rows]
    source = write_tiny_model(tmp_path / "embedder", *WORDS, num_hidden_layers=1)
    embedder = bert_tf.BertEmbedder.from_pretrained(source, normalize=True, max_seq_length=16)
    made = bert_tf.BertClassifier.from_few_shot(
        embedder, given, [row["label"] for row in rows], pairs_per_example=2, verbose=0
    )
    made.save_pretrained(tmp_path / "run", "bert_tf")
    model = bert_tf.BertClassifier.from_pretrained(tmp_path / "run")
    assert model.config.classifier_pooling == "normalized_mean"
    expected = [made.classify(given), made.probabilities(given)]
    predictors = {"read back": model, **load_all(tmp_path / "run", model, tmp_path)}
    check_roads(
        expected,
        predictors,
        lambda answers: [answers.classify(given), answers.probabilities(given)],
        record_property,
    )
