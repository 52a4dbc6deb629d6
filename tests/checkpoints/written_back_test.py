"""Models that lack or hold something unusual, and what comes back of them when they are written."""

import dataclasses
import json

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy

from bert_tf.checkpoints.families import FAMILIES
from bert_tf.checkpoints.formats import read_checkpoint, write_checkpoint
from bert_tf.pretraining.masked_words.model import BertPretrainer
from bert_tf.tasks.embedding.model import BertEmbedder
from bert_tf.tasks.question_answering.model import BertSpanLabeler
from bert_tf.tasks.tagging.model import BertTokenClassifier
from tests.checkpoints.made_checkpoint import make_checkpoint
from tests.checkpoints.null_fields_test import STRUCTURES

NAMES = {
    "bert": "BertForMultipleChoice",
    "roberta": "RobertaForMultipleChoice",
    "distilbert": "DistilBertForMultipleChoice",
    "modernbert": "ModernBertForMultipleChoice",
    "electra": "ElectraForMultipleChoice",
    "albert": "AlbertForMultipleChoice",
    "mpnet": "MPNetForMultipleChoice",
    "deberta-v2": "DebertaV2ForMultipleChoice",
    "xlnet": "XLNetForMultipleChoice",
}


def make_choice(name: str, **changes):
    """Makes a model of a family that scores choices."""
    made = make_checkpoint("classifier", 3, **STRUCTURES[name], **changes)
    weights = dict(made.weights)
    for part in ("output_weights", "output_bias"):
        weights[f"cls/classifier/{part}"] = weights[f"cls/classifier/{part}"][:1]
    if name == "modernbert":  # It has a transformation in place of the pooler.
        size = made.config.hidden_size
        weights = {key: value for key, value in weights.items() if "/pooler/" not in key}
        weights["cls/transform/dense/kernel"] = np.ones((size, size), np.float32)
        weights["cls/transform/LayerNorm/gamma"] = np.ones(size, np.float32)
    return dataclasses.replace(
        made,
        weights=weights,
        vocab=None,
        labels=(),
        family=FAMILIES[name].title,
        is_multiple_choice=True,
    )


@pytest.mark.parametrize("name", list(NAMES))
def test_multiple_choice_comes_back_under_its_names(tmp_path, name):
    made = make_choice(name)
    written = write_checkpoint(made, tmp_path / "first", "huggingface")
    config = json.loads((tmp_path / "first" / "config.json").read_text())
    assert config["architectures"] == [NAMES[name]]
    assert written.is_multiple_choice and written.problem_type == ""
    # By way of our own format.
    own = write_checkpoint(written, tmp_path / "own", "bert_tf")
    assert own.is_multiple_choice and own.problem_type == ""
    write_checkpoint(own, tmp_path / "second", "huggingface")
    first, second = (
        safetensors.numpy.load_file(tmp_path / folder / "model.safetensors")
        for folder in ("first", "second")
    )
    assert first.keys() == second.keys()
    for key, value in first.items():
        np.testing.assert_array_equal(value, second[key], err_msg=key)
    assert json.loads((tmp_path / "second" / "config.json").read_text()) == config


def test_a_classifier_with_one_label_is_not_multiple_choice(tmp_path):
    made = dataclasses.replace(make_choice("roberta"), is_multiple_choice=False)
    written = write_checkpoint(made, tmp_path / "model", "huggingface")
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    assert config["architectures"] == ["RobertaForSequenceClassification"]
    assert not written.is_multiple_choice


@pytest.mark.parametrize("kind", [ml_dtypes.bfloat16, np.float16])
def test_a_roformer_in_short_numbers(tmp_path, kind):
    shape = {**STRUCTURES["roformer"], "max_position_embeddings": 300}
    made = make_checkpoint("masked_lm", 5, **shape)
    made = dataclasses.replace(made, vocab=None)
    write_checkpoint(made, tmp_path / "model", "huggingface")
    path = tmp_path / "model" / "model.safetensors"
    weights = safetensors.numpy.load_file(path)
    short = {key: value.astype(kind) for key, value in weights.items()}
    safetensors.numpy.save_file(short, path)
    found = read_checkpoint(tmp_path / "model")
    found.check()
    name = "bert/embeddings/word_embeddings"
    expected = made.weights[name].astype(kind).astype(np.float32)
    np.testing.assert_array_equal(found.weights[name], expected)
    for changed in (weights, short):  # Another table of sines is still refused.
        table = dict(changed)
        key = "roformer.encoder.embed_positions.weight"
        table[key] = (table[key].astype(np.float32) * 1.02).astype(table[key].dtype)
        safetensors.numpy.save_file(table, path)
        with pytest.raises(ValueError, match="embed_positions"):
            read_checkpoint(tmp_path / "model")


def test_a_pooler_that_the_head_does_not_read_may_be_missing(tmp_path, caplog):
    made = make_checkpoint("masked_lm", 1, num_hidden_layers=1)
    write_checkpoint(made, tmp_path / "model", "huggingface")
    for make in (
        lambda path, **options: BertTokenClassifier.from_pretrained(
            path, labels=["a", "b"], allow_missing=["cls/"], **options
        ),
        lambda path, **options: BertSpanLabeler.from_pretrained(
            path, allow_missing=["cls/"], **options
        ),
        BertEmbedder.from_pretrained,
        lambda path, **options: BertPretrainer.from_pretrained(
            path, use_next_sentence=False, **options
        ),
    ):
        caplog.clear()
        with caplog.at_level("INFO", logger="absl"):
            model = make(tmp_path / "model", use_pooler=True)
        assert model.bert.use_pooler
        assert "bert/pooler/dense/kernel" in caplog.text
    with pytest.raises(ValueError, match="bert/pooler/"):
        BertPretrainer.from_pretrained(
            tmp_path / "model", use_next_sentence=True, use_pooler=True, allow_missing=["cls/"]
        )
