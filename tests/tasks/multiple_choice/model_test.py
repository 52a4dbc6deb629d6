"""BertMultipleChoice: each choice by itself, and as transformers computes it."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.checkpoints.formats import write_checkpoint
from bert_tf.config import ModelConfig
from bert_tf.tasks.classification.model import BertClassifier
from bert_tf.tasks.multiple_choice.model import BertMultipleChoice
from tests.checkpoints.made_checkpoint import make_checkpoint
from tests.float_bounds import OTHER_FRAMEWORK, assert_close, close_to

CONFIG = ModelConfig(30, 12, 2, 3, 20)
QUESTIONS, CHOICES, LENGTH = 3, 4, 7


def make_inputs(vocab_size: int = 30, num_types: int = 2) -> dict[str, np.ndarray]:
    draw = np.random.default_rng(3)
    shape = (QUESTIONS, CHOICES, LENGTH)
    lengths = draw.integers(2, LENGTH + 1, shape[:2])
    return {
        "input_word_ids": draw.integers(0, vocab_size, shape).astype(np.int32),
        "input_mask": (np.arange(LENGTH) < lengths[..., None]).astype(np.int32),
        "input_type_ids": draw.integers(0, num_types, shape).astype(np.int32),
    }


def randomize(model: keras.Model) -> None:
    draw = np.random.default_rng(4)
    for variable in model.trainable_variables:
        variable.assign(draw.normal(0.0, 1.0, variable.shape))


def test_each_choice_has_the_score_of_a_text_by_itself():
    model, classifier = BertMultipleChoice(CONFIG), BertClassifier(CONFIG, 1)
    randomize(model)
    classifier.set_weights(model.get_weights())
    inputs = make_inputs()
    scores = model(inputs)
    assert scores.shape == (QUESTIONS, CHOICES) and scores.dtype == "float32"
    for choice in range(CHOICES):
        rows = {name: value[:, choice] for name, value in inputs.items()}
        assert_close(scores[:, choice], classifier(rows)[:, 0])
    assert np.ptp(scores, axis=0).min() > 0.01 and np.ptp(scores, axis=1).min() > 0.01


def test_weights_may_be_integers_and_labels_are_choices():
    model, scores = BertMultipleChoice(CONFIG), np.log([[1.0, 3.0], [1.0, 1.0]])
    loss = model.task_loss({}, np.array([1, 0]), scores, np.array([3, 1]))
    assert float(loss.mean()) == close_to((3 * np.log(4 / 3) + np.log(2)) / 4)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"(?s)labels.*\n1\n.*\n2\n.*\n1$"):
        model.task_loss({}, np.array([1, 2]), scores, None)


def test_symbolic_inputs_keep_the_axis_of_choices():
    model = BertMultipleChoice(CONFIG)
    inputs = {name: keras.Input((CHOICES, None), dtype="int32") for name in make_inputs()}
    assert model(inputs).shape == (None, CHOICES)


def test_rows_without_choices_are_refused():
    rows = {name: value[:, 0] for name, value in make_inputs().items()}
    with pytest.raises(ValueError, match=r"input_word_ids .*\(3, 7\).* \[B, C, T\]"):
        BertMultipleChoice(CONFIG)(rows)


def test_a_classifier_of_several_labels_is_no_multiple_choice(tmp_path):
    write_checkpoint(make_checkpoint("classifier"), tmp_path / "model", "huggingface")
    with pytest.raises(ValueError, match=r"cls/classifier/output_weights \[3, \d+\] .*\[1, "):
        BertMultipleChoice.from_pretrained(tmp_path / "model")


def test_an_encoder_starts_a_new_head(tmp_path):
    made = make_checkpoint("encoder with pooler")
    write_checkpoint(made, tmp_path / "model", "huggingface")
    with pytest.raises(ValueError, match="cls/classifier/output_bias;.* new_head=True"):
        BertMultipleChoice.from_pretrained(tmp_path / "model")
    model = BertMultipleChoice.from_pretrained(tmp_path / "model", allow_missing=["cls/"])
    kernel = made.weights["bert/pooler/dense/kernel"]
    np.testing.assert_array_equal(model.bert.pooler.dense.kernel, kernel)


@pytest.mark.needs("torch", "transformers")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("act", ["gelu", "relu"])
def test_transformers_computes_the_same(tmp_path, act):
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=50,
        hidden_size=24,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=36,
        max_position_embeddings=16,
        hidden_act=act,
        initializer_range=0.5,
    )
    theirs = transformers.BertForMultipleChoice(config).eval()
    theirs.classifier.bias.data.fill_(0.7)
    theirs.save_pretrained(tmp_path)
    inputs = make_inputs(50)
    with torch.no_grad():
        expected = theirs(
            input_ids=torch.tensor(inputs["input_word_ids"], dtype=torch.long),
            attention_mask=torch.tensor(inputs["input_mask"], dtype=torch.long),
            token_type_ids=torch.tensor(inputs["input_type_ids"], dtype=torch.long),
        ).logits.numpy()
    model = BertMultipleChoice.from_pretrained(tmp_path)
    assert expected.shape == (QUESTIONS, CHOICES) and np.ptp(expected, axis=1).min() > 0.1
    assert_close(model(inputs), expected, OTHER_FRAMEWORK)
