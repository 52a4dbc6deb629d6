"""Numbers that methods take: text, truth values and values out of range name the argument."""

import math

import numpy as np
import pytest

from bert_tf.system.number_arguments import check_numbers
from bert_tf.tasks.base.models.text_model import TextModel


@pytest.mark.parametrize("value", ["3", True, 1.5, [1], np.array([1, 2])])
def test_what_is_no_whole_number(value):
    with pytest.raises(TypeError, match="^epochs "):
        check_numbers(1, epochs=value)


@pytest.mark.parametrize("value", [0, -1, np.int64(-3)])
def test_what_is_too_small(value):
    with pytest.raises(ValueError, match="^epochs "):
        check_numbers(1, epochs=value)


def test_what_is_right():
    check_numbers(1, epochs=np.int64(3), batch_size=None)
    check_numbers(0, whole=False, learning_rate=np.float32(1e-3), other=1)
    for value in (math.nan, math.inf, -1e-9):
        with pytest.raises(ValueError, match="^learning_rate "):
            check_numbers(0, whole=False, learning_rate=value)


@pytest.mark.parametrize("name", ["batch_size", "epochs", "validation_batch_size", "learning_rate"])
def test_fit_names_the_argument_before_it_reads(name):
    with pytest.raises(TypeError, match=f"^{name} "):
        TextModel.fit(None, ["a text"], [0], **{name: "3"})
