"""export.ask gives the model's answers, from its folder alone, in lines and as JSON."""

import json

import numpy as np
import pytest
import tensorflow as tf

from export.ask import ExportedModel, name_arguments, readable
from export.page.model import as_json
from tests.export.made_models import TEXTS, export_model
from tests.export.toy_model import ToyModel, save_toy_export
from tests.float_bounds import assert_close
from tests.programs import fail, finish, run


@pytest.fixture(scope="module")
def tagger(tmp_path_factory):
    return export_model(tmp_path_factory.mktemp("tagger"), "tagger")


@pytest.mark.slow
def test_answers_are_those_of_the_model_in_python(tagger) -> None:
    served = tagger.served
    model = ExportedModel(tagger.texts.parent)  # Its newest version.
    answer = model.answer(TEXTS[:1])
    assert tuple(model.labels) == served.labels
    for name, value in served.from_texts(tf.constant(TEXTS[:1])).items():
        if value.dtype == tf.float32:
            assert_close(answer[name], value[0])
        else:
            assert answer[name] == as_json(value[0].numpy())
    assert all(entity["text"] in TEXTS[0] for entity in answer["entities"])


def test_lines_for_people() -> None:
    labels = ["bad", "good"]
    assert readable(labels, {"probabilities": [0.25, 0.75]}) == [" 75.00%  good", " 25.00%  bad"]
    entity = {"score": 0.5, "type": "PER", "text": "Ada"}
    assert readable(labels, {"entities": [entity]}) == [" 50.00%  PER  Ada"]
    assert readable(labels, {"entities": []}) == ["no entity"]
    assert readable([], {"answer": "é", "start": 3}) == ['answer: "é"', "start: 3"]


@pytest.mark.slow
def test_what_is_wrong_is_said(tagger, tmp_path) -> None:
    with pytest.raises(ValueError, match=" text; .* 2"):
        ExportedModel(tagger.texts).answer(["a", "b"])
    with pytest.raises(ValueError, match="_ids/3 .*ids; .*text model"):
        ExportedModel(tagger.ids)
    with pytest.raises(ValueError, match=f"{tmp_path} .*saved_model.pb"):
        ExportedModel(tmp_path)


@pytest.mark.slow
def test_the_program_prints_json(tagger) -> None:
    printed = finish(run("export.ask", str(tagger.texts), "the river", "--json"))
    assert json.loads(printed)["words"] == ["the", "river"]


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    """The folder of a toy model of single texts and of one of pairs."""
    folder = tmp_path_factory.mktemp("toy")
    save_toy_export(folder / "text/1")
    save_toy_export(folder / "text_b/1", "regression")
    return folder


def test_several_texts_are_several_requests(toy) -> None:
    texts = ["A fine film.", "Größe, 中文", "-5 degrees", "a\x1b[2J\nb"]
    printed = finish(run("export.ask", str(toy / "text"), *texts, "--json"))
    answers = [json.loads(line) for line in printed.splitlines()]
    model = ToyModel()
    expected = model.classify(tf.constant(texts))
    assert [answer["label"] for answer in answers] == [
        label.decode() for label in expected["label"].numpy()
    ]
    for answer, row in zip(answers, expected["probabilities"].numpy(), strict=True):
        np.testing.assert_allclose(answer["probabilities"], row, rtol=1e-5)
    lines = finish(run("export.ask", str(toy / "text"), *texts)).splitlines()
    assert len(lines) == len(texts) * 5 - 1  # A title and three classes, with a blank line between.
    assert lines[::5] == ["A fine film.", "Größe, 中文", "-5 degrees", r"a\x1b[2J\nb"]
    assert lines[1].split()[1] == answers[0]["label"]


def test_pairs_follow_each_other(toy) -> None:
    printed = finish(run("export.ask", str(toy / "text_b"), "four", "ab", "é", "", "--json"))
    assert [json.loads(line) for line in printed.splitlines()] == [{"value": 3.0}, {"value": 2.0}]
    assert finish(run("export.ask", str(toy / "text_b"), "four", "ab")) == "value: 3.0\n"
    assert "3 texts" in fail(run("export.ask", str(toy / "text_b"), "four", "ab", "é"))


def test_arguments_that_stand_alone_are_named() -> None:
    received = name_arguments(["ask", "m", "-5 degrees", "--json", "b"])
    assert received == ["ask", "--saved_model=m", "--text=-5 degrees", "--json", "--second_text=b"]
    received = name_arguments(["ask", "m", "a", "b", "c", "d"])
    assert received[3:] == ["--second_text=b", "--more_texts=c", "--more_texts=d"]
