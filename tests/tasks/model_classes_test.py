"""A reader of a model's class meets few other classes on the way to `keras.Model`."""

import inspect

import keras
import pytest

import bert_tf

MOST_CLASSES = 5
# The joint head is a subclass of the plain one; the pretrainer fills masks, and scores texts; the
# two kinds of embedders train in the same way.
MORE = {"BertJointSpanLabeler": 6, "BertPretrainer": 6}
MORE |= {"BertEmbedder": 6, "BertLateInteraction": 6}


def public_models() -> list[type]:
    found = [getattr(bert_tf, name) for name in bert_tf.__all__]
    return [one for one in found if inspect.isclass(one) and issubclass(one, keras.Model)]


@pytest.mark.parametrize("model", public_models(), ids=lambda one: one.__name__)
def test_few_classes_stand_above_a_model(model):
    names = [one.__name__ for one in model.__mro__ if one.__module__.startswith("bert_tf")]
    assert len(names) <= MORE.get(model.__name__, MOST_CLASSES), names
    assert names[0] == model.__name__ and names[-1] == "FromPretrained"


def test_all_tasks_are_walked():
    assert {"BertClassifier", "BertTokenClassifier", "BertReranker", "BertEmbedder"} <= {
        one.__name__ for one in public_models()
    }
