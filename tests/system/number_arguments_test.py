"""Numbers that methods take: text, truth values and values out of range name the argument."""

import math

import numpy as np
import pytest

from bert_tf.inference.loading import load
from bert_tf.metrics.classification import check_threshold
from bert_tf.pretraining.masked_words.answers import check_top_k
from bert_tf.system.number_arguments import check_numbers
from bert_tf.tasks.base.examples.row_batches import evaluation_batches
from bert_tf.tasks.base.examples.rows import TokenizedDataset
from bert_tf.tasks.base.models.preprocessor import BertPreprocessor
from bert_tf.tasks.base.models.row_outputs import RowOutputs
from bert_tf.tasks.base.models.text_model import TextModel
from bert_tf.tasks.embedding.answers import EmbedderAnswers
from bert_tf.text.packing import PackedText, by_length
from bert_tf.text.vocab import Vocab
from tests.conftest import tiny_tokens


@pytest.mark.parametrize("value", ["3", True, 1.5, [1], np.array([1, 2])])
def test_what_is_no_whole_number(value):
    with pytest.raises(TypeError, match="^epochs "):
        check_numbers(1, epochs=value)


@pytest.mark.parametrize("value", [0, -1, np.int64(-3)])
def test_what_is_too_small(value):
    with pytest.raises(ValueError, match="^epochs "):
        check_numbers(1, epochs=value)


def test_what_is_right():
    check_numbers(1, epochs=np.int64(3))
    check_numbers(1, or_none=True, batch_size=None)
    check_numbers(0, whole=False, learning_rate=np.float32(1e-3), other=1)
    check_numbers(0, 1, whole=False, one=1, zero=0.0)
    with pytest.raises(ValueError, match="^other .*1.5.* 0 .* 1"):
        check_numbers(0, 1, whole=False, other=1.5)
    for value in (math.nan, math.inf, -1e-9):
        with pytest.raises(ValueError, match="^learning_rate "):
            check_numbers(0, whole=False, learning_rate=value)


@pytest.mark.parametrize("name", ["batch_size", "epochs", "validation_batch_size", "learning_rate"])
def test_fit_names_the_argument_before_it_reads(name):
    with pytest.raises(TypeError, match=f"^{name} "):
        TextModel.fit(None, ["a text"], [0], **{name: "3"})


def test_a_path_may_be_bytes():
    with pytest.raises(ValueError, match="^none does not exist"):
        load(b"none")


def test_every_use_of_a_model_names_the_argument():
    rows = TokenizedDataset([PackedText([2, 3], [0, 0])])
    vocab = Vocab(tuple(tiny_tokens()))
    for name, use in (
        ("batch_size", lambda: by_length([1], "8", list)),
        ("batch_size", lambda: evaluation_batches(rows, "8", 0, [2])),
        ("batch_size", lambda: RowOutputs.predict(None, rows, "8", 0, None)),
        ("max_seq_length", lambda: BertPreprocessor(vocab, True, max_seq_length="16")),
        ("max_seq_length", lambda: load("none", max_seq_length="16")),
        ("threshold", lambda: check_threshold("0.5", True)),
        ("top_k", lambda: check_top_k("5")),
        ("top_k", lambda: check_top_k(None)),
        ("batch_size", lambda: by_length([1], None, list)),
        ("prompt", lambda: EmbedderAnswers.encode(None, ["a"], prompt=3)),
    ):
        with pytest.raises(TypeError, match=f"^{name} "):
            use()
