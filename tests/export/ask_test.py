"""export.ask gives the model's answers, from its folder alone, in lines and as JSON."""

import functools
import json
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from export.ask import ask, name_arguments, readable
from export.models import CLASSES, load
from export.page.model import as_json
from export.saving.version_folders import ids_folder
from export.saving.writing import save
from tests.export.made_models import TEXTS, write_model

FAST = "next_sentence"  # Making the others takes long.
KINDS = [FAST, *(pytest.param(kind, marks=pytest.mark.slow) for kind in CLASSES if kind != FAST)]


@pytest.fixture(scope="module")
def served_models(tmp_path_factory):
    """Gives the model of a kind: (in Python, folder of its SavedModels); made once."""

    @functools.cache
    def make(kind):
        folder = tmp_path_factory.mktemp(kind)
        source = write_model(folder / "run", kind, {"max_query_length": "8"}, num_hidden_layers=1)
        served = load(str(source), kind)
        save(served, folder / "serving" / kind, 1, str(source))
        return served, folder / "serving" / kind

    return make


@pytest.mark.parametrize("kind", KINDS)
def test_answers_are_those_of_the_model_in_python(served_models, kind) -> None:
    served, folder = served_models(kind)
    texts = TEXTS[: len(served.texts)]
    labels, answer = ask(folder, texts)  # Its newest version.
    assert tuple(labels) == served.labels and readable(labels, answer)
    expected = served.from_texts(*(tf.constant([text]) for text in texts))
    for name, value in expected.items():
        if value.dtype == tf.float32:
            np.testing.assert_allclose(answer[name], value[0], atol=1e-5)
        else:
            assert answer[name] == as_json(value[0].numpy())


def test_lines_for_people() -> None:
    labels = ["bad", "good"]
    assert readable(labels, {"probabilities": [0.25, 0.75]}) == [" 75.00%  good", " 25.00%  bad"]
    entity = {"score": 0.5, "type": "PER", "text": "Ada"}
    assert readable(labels, {"entities": [entity]}) == [" 50.00%  PER  Ada"]
    assert readable(labels, {"entities": []}) == ["no entity"]
    assert readable([], {"answer": "é", "start": 3}) == ['answer: "é"', "start: 3"]


def test_what_is_wrong_is_said(served_models, tmp_path) -> None:
    _, folder = served_models(FAST)
    with pytest.raises(ValueError, match="takes text and text_b; received 1"):
        ask(folder / "1", ["alone"])
    with pytest.raises(ValueError, match="takes ids; give the model of texts"):
        ask(ids_folder(folder) / "1", ["a", "b"])
    with pytest.raises(ValueError, match=f"{tmp_path} has no saved_model.pb; give a folder"):
        ask(tmp_path, ["a"])


@pytest.mark.slow
def test_the_program_prints_json(served_models) -> None:
    arguments = [str(served_models(FAST)[1]), "the river", "a b", "--json"]
    command = [sys.executable, "-m", "export.ask", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert 0 <= json.loads(done.stdout)["is_next"] <= 1


def test_arguments_that_stand_alone_are_named() -> None:
    received = name_arguments(["ask", "m", "-5 degrees", "--json", "b"])
    assert received == ["ask", "--saved_model=m", "--text=-5 degrees", "--json", "--second_text=b"]
