"""What the demo's page is sent: answers of every kind, attention, errors."""

import base64
import json

import numpy as np
import pytest
import tensorflow as tf

from export.models import CLASSES, load
from export.page.attention_view import find_clear_head
from export.page.model import DemoModel, as_json, check_inputs, cosines, find_entities, load_model
from tests.export.demo_stand_in import StandIn
from tests.export.made_models import write_model

# Shorter than what a row holds, longer, of characters outside the BMP, and markup.
TEXTS = ("the river \U0001f600 a b", "", "<img src=x onerror=alert(1)>", "w10 " * 100)


def form_of(value):
    """Returns the names and types in a JSON value; of a list, those of its first element."""
    if isinstance(value, dict):
        return {name: form_of(part) for name, part in value.items()}
    if isinstance(value, list):
        return [form_of(part) for part in value[:1]]
    return type(value).__name__


@pytest.fixture(scope="module")
def make(tmp_path_factory):
    """Makes the tiny model of a kind, once."""
    made = {}

    def of_kind(kind):
        if kind not in made:
            folder = write_model(tmp_path_factory.mktemp("models") / kind, kind)
            short = {"max_query_length": 10} if kind == "question_answering" else {}
            made[kind] = load(str(folder), kind, **short)
        return made[kind]

    return of_kind


@pytest.mark.parametrize("kind", CLASSES)
def test_answers_are_the_models_and_have_the_form_that_the_page_reads(make, kind) -> None:
    served = make(kind)
    model = DemoModel(served, "stand-in")
    inputs = {name: ["the [MASK] river", *TEXTS] for name in served.texts}
    answer = json.loads(json.dumps(model.answer(inputs), allow_nan=False))
    expected = served.from_texts(*(tf.constant(column) for column in inputs.values()))
    for name, value in expected.items():
        if name != "sequence_output":
            assert answer["outputs"][name] == as_json(value.numpy()), name
    # The stand-in finds its names; a random tagger or answerer perhaps nothing.
    made = StandIn(kind).answer({name: ["Ada Lovelace [MASK] Paris"] for name in served.texts})
    if kind == "encoder":
        assert answer["outputs"].pop("pooled_output")
    assert set(form_of(answer)["outputs"]) == set(form_of(made)["outputs"])
    if kind not in ("tagger", "embeddings"):
        assert form_of(answer) == form_of(made)
    in_windows = kind in ("tagger", "question_answering")
    assert answer["is_full"] == [False, False, False, False, not in_windows]
    card = model.card()
    assert form_of(card).keys() == StandIn(kind).card().keys()
    assert card["num_layers"] == 2 and card["num_heads"] == 4 and list(card["samples"])


def test_the_programs_model_answers_in_a_graph_as_without(tmp_path) -> None:
    folder = write_model(tmp_path / "sst2", "classifier")
    compiled, eager = load_model(str(folder)), DemoModel(load(str(folder)))
    assert compiled.card()["name"] == "sst2" and compiled.kind == "classifier"
    expected = eager.answer({"text": list(TEXTS)})["outputs"]["probabilities"]
    received = compiled.answer({"text": list(TEXTS)})["outputs"]["probabilities"]
    np.testing.assert_allclose(received, expected, 1e-4)


def test_attention_is_sent_as_float32(make) -> None:
    model = DemoModel(make("next_sentence"))
    answer = model.attention({"text": ["the river"], "text_b": ["a b"]})
    assert answer["pieces"] == "[CLS] the river [SEP] a b [SEP]".split()
    assert answer["shape"] == [2, 4, 7, 7] and answer["num_pieces"] == 7
    values = np.frombuffer(base64.b64decode(answer["probabilities"]), "<f4").reshape(2, 4, 7, 7)
    np.testing.assert_allclose(values.sum(-1), 1, atol=1e-5)
    assert answer["head"] == find_clear_head(answer["pieces"], values)
    assert form_of(answer).keys() == StandIn().attention({"text": ["a"]}).keys()
    with pytest.raises(ValueError, match="Received 2 rows; attention is shown of one"):
        model.attention({"text": ["a", "b"], "text_b": ["a", "b"]})


def made_tags(tags, starts, ends, scores):
    outputs = {"tags": np.array([[t.encode() for t in tags]], object)}
    numbers = {"starts": starts, "ends": ends, "scores": scores}
    return {**outputs, **{name: np.array([column]) for name, column in numbers.items()}}


def test_tags_are_joined_to_entities_in_characters() -> None:
    text = "\U0001f600 Ada Lovelace, Paris Rome"
    outputs = made_tags(
        ["B-PER", "I-PER", "O", "B-LOC", "B-LOC", "", ""],
        [2, 6, 14, 16, 22, -1, -1],
        [5, 14, 15, 21, 26, -1, -1],
        [0.75, 0.5, 0.9, 0.25, 1.0, 0.0, 0.0],
    )
    labels = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]
    assert find_entities(labels, outputs, [text]) == [
        [
            {"type": "PER", "start": 2, "end": 14, "text": "Ada Lovelace", "score": 0.5},
            {"type": "LOC", "start": 16, "end": 21, "text": "Paris", "score": 0.25},
            {"type": "LOC", "start": 22, "end": 26, "text": "Rome", "score": 1.0},
        ]
    ]


def test_tags_without_bio_stand_alone() -> None:
    outputs = made_tags(["NOUN", "NOUN", "O"], [0, 2, 4], [1, 3, 5], [0.5, 0.5, 0.5])
    found = find_entities(["NOUN", "VERB", "O"], outputs, ["a b c"])[0]
    assert [(part["type"], part["text"]) for part in found] == [("NOUN", "a"), ("NOUN", "b")]


def test_cosines_and_json_of_odd_numbers() -> None:
    received = cosines(np.array([[3.0, 4.0], [4.0, 3.0], [-3.0, -4.0], [0.0, 0.0]]))
    # fmt: off
    expected = [[ 1.00,  0.96, -1.00, 0],
                [ 0.96,  1.00, -0.96, 0],
                [-1.00, -0.96,  1.00, 0],
                [ 0,     0,     0,    0]]
    # fmt: on
    np.testing.assert_allclose(received, expected, atol=1e-12)
    odd = {"a": np.array([np.nan, np.inf, 0.5]), "b": np.array([["é".encode()]], object)}
    assert as_json(odd) == {"a": [None, None, 0.5], "b": [["é"]]}


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (None, "Expected the inputs text and text_b; received none."),
        ({"text": ["a"]}, "Expected the inputs text and text_b; received text."),
        ({"text": "a", "text_b": ["b"]}, "text is no list of texts"),
        ({"text": [1], "text_b": ["b"]}, "text is no list of texts"),
        ({"text": [], "text_b": []}, "text holds 0 texts; expected 1 .. 32."),
        ({"text": ["a"] * 33, "text_b": ["b"]}, "text holds 33 texts"),
        ({"text": ["a", "b"], "text_b": ["b"]}, "of different sizes: text 2, text_b 1"),
        ({"text": ["a"], "text_b": ["b" * 10_001]}, "text_b has 10001 characters; expected at"),
        ({"text": ["\ud83d"], "text_b": ["b"]}, "text holds half a character"),
    ],
)
def test_bad_inputs_are_refused_in_one_line(inputs, message) -> None:
    with pytest.raises(ValueError) as caught:
        check_inputs(inputs, ("text", "text_b"))
    assert message in str(caught.value) and "\n" not in str(caught.value)
