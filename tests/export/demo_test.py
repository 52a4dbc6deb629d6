"""What the demo's page is sent: answers of every kind, attention, errors."""

import base64
import json
import math

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.inference.kinds import KINDS
from bert_tf.inference.serving_models import load
from bert_tf.pretraining.masked_words.gap_filling import MaskedModel, fill_text
from bert_tf.pretraining.masked_words.model import BertPretrainer
from bert_tf.pretraining.masked_words.scores import rewrite, score_words
from bert_tf.tasks.tagging.answers import entities_of_outputs
from bert_tf.text.wordpiece import WordPiece
from export.page.model import (
    SAMPLE_WORDS,
    WITHOUT_PAGE,
    DemoModel,
    as_json,
    check_inputs,
    cosines,
    load_model,
    sample_query,
)
from tests.export.demo_stand_in import StandIn
from tests.export.made_models import write_model
from tests.slow_variants import slow_unless

# Shorter than what a row holds, longer, of characters outside the BMP, and markup.
TEXTS = ("the [MASK] river \U0001f600", "", "<img src=x onerror=alert(1)>", "w10 " * 100)


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind",
    slow_unless(
        "fill_mask", sorted(KINDS.keys() - {"reranker", "search", "zero_shot", *WITHOUT_PAGE})
    ),
)
def test_what_is_sent_is_the_models_and_as_the_page_tests_have_it(tmp_path, kind) -> None:
    short = {"max_query_length": 10} if kind == "question_answering" else {}
    served = load(str(write_model(tmp_path / kind, kind, num_hidden_layers=2)), kind, **short)
    model, stand_in = DemoModel(served), StandIn(kind)
    inputs = {name: list(TEXTS) for name in served.texts}
    answer = json.loads(json.dumps(model.answer(inputs), allow_nan=False))
    expected = served.from_texts(*(tf.constant(column) for column in inputs.values()))
    for name, value in expected.items():
        if name != "sequence_output":
            assert answer["outputs"][name] == as_json(value.numpy()), name
    in_windows = kind in ("tagger", "question_answering")
    assert answer["is_full"] == [False, False, False, not in_windows]
    made = stand_in.answer(inputs)
    assert answer.keys() == made.keys()
    assert answer["outputs"].keys() - {"pooled_output"} == made["outputs"].keys()
    assert model.card().keys() == stand_in.card().keys()

    inputs = {name: ["the river"] for name in served.texts}
    answer = model.attention(inputs)
    pieces = ["[CLS]", *["the", "river", "[SEP]"] * len(inputs)]
    assert answer["pieces"] == pieces and answer["num_pieces"] == len(pieces)
    assert answer["shape"] == [2, 4, len(pieces), len(pieces)]
    values = np.frombuffer(base64.b64decode(answer["probabilities"]), "<f4")
    np.testing.assert_allclose(values.reshape(answer["shape"]).sum(-1), 1, atol=1e-5)
    assert answer.keys() == stand_in.attention(inputs).keys()
    with pytest.raises(ValueError, match="2 texts; attention"):
        model.attention({name: ["a", "b"] for name in served.texts})


@pytest.mark.slow
def test_masked_texts_are_filled_in_whole_and_others_scored(tmp_path) -> None:
    folder = write_model(tmp_path / "m", "fill_mask")
    model = DemoModel(load(str(folder)))
    network = BertPretrainer.from_pretrained(folder, use_next_sentence=False, use_pooler=False)
    masked = MaskedModel(network, WordPiece(model._serving.vocab, True))
    for text in ("the [MASK] river [MASK]", "the [GAP:1-2] river"):
        outputs = model.answer({"text": [text]})["outputs"]
        expected = [
            (one.text, pytest.approx(one.share, abs=1e-5)) for one in fill_text(masked, text, 3)
        ]
        assert [(one["text"], one["share"]) for one in outputs["fillings"]] == expected
        assert outputs["words"] == []
    text = "\U0001f600 the river\u0301 w5"  # The mark that the rules drop is part of its word.
    outputs = model.answer({"text": [text]})["outputs"]
    words = score_words(masked, text)
    assert [word.is_known for word in words] == [False, True, True, True][: len(words)]
    assert [text[w["start"] : w["end"]] for w in outputs["words"]] == text.split()[1:]
    for word, expected in zip(outputs["words"], words[1:], strict=True):
        assert word["alternative"] == expected.alternative
        assert math.log(word["probability"]) == pytest.approx(expected.log_probability, abs=1e-3)
    text = "w5 the w7 river w9 a"
    versions = rewrite(masked, text, 3)
    assert versions and model.rewrite({"text": [text]}) == {"text": versions[-1]}
    for wrong, message in {
        "the [MASK]": r"'the \[MASK\]'",
        "w5 " * 200: "202 .*max_seq_length .*48",
    }.items():
        with pytest.raises(ValueError, match=message):
            model.rewrite({"text": [wrong]})
    with pytest.raises(ValueError, match=r"\[GAP:3-1\] .* 1 <= "):
        model.answer({"text": ["the [GAP:3-1] river"]})


def test_the_sample_query_is_the_beginning_of_a_document() -> None:
    assert sample_query("Vitamin C for colds. A study of colds.") == "Vitamin C for colds."
    words = [f"word{number}" for number in range(40)]
    assert sample_query(" ".join(words)) == " ".join(words[:SAMPLE_WORDS])
    assert sample_query("東京都の天気は晴れです。" * 3) == "東京都の天気は晴れで"[:SAMPLE_WORDS]
    assert sample_query("") == ""


@pytest.mark.slow
def test_the_programs_model_answers_in_a_graph_as_without(tmp_path) -> None:
    folder = write_model(tmp_path / "sst2", "classifier")
    compiled, eager = load_model(str(folder)), DemoModel(load(str(folder)))
    assert compiled.card()["name"] == "sst2" and compiled.kind == "classifier"
    expected = eager.answer({"text": list(TEXTS)})["outputs"]["probabilities"]
    received = compiled.answer({"text": list(TEXTS)})["outputs"]["probabilities"]
    np.testing.assert_allclose(received, expected, 1e-4)


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (["O", "B-PER", "I-PER", "B-LOC"], [("PER", 2, 14, 0.5), ("LOC", 16, 21, 0.25)]),
        (
            ["O", "NOUN", "B-PER", "I-PER", "B-LOC"],  # Not BIO: words stand alone.
            [("B-PER", 2, 5, 0.75), ("I-PER", 6, 14, 0.5), ("B-LOC", 16, 21, 0.25)],
        ),
    ],
)
def test_tags_are_joined_to_entities_in_characters(labels, expected) -> None:
    outputs = {
        "tags": np.array([[b"B-PER", b"I-PER", b"O", b"B-LOC", b""]], object),
        "starts": np.array([[2, 6, 14, 16, -1]]),
        "ends": np.array([[5, 14, 15, 21, -1]]),
        "scores": np.array([[0.75, 0.5, 0.9, 0.25, 0.0]]),
    }
    text = "\U0001f600 Ada Lovelace, Paris"
    (found,) = entities_of_outputs(labels, outputs, [text])
    assert [(e["type"], e["start"], e["end"], e["score"]) for e in found] == expected
    assert [e["text"] for e in found] == [text[e["start"] : e["end"]] for e in found]


def test_cosines_and_json_of_odd_numbers() -> None:
    received = cosines(np.array([[3.0, 4.0], [4.0, 3.0], [0.0, 0.0]]))
    np.testing.assert_allclose(received, [[1, 0.96, 0], [0.96, 1, 0], [0, 0, 0]], atol=1e-12)
    odd = {"a": np.array([np.nan, np.inf, 0.5]), "b": np.array([["é".encode()]], object)}
    assert as_json(odd) == {"a": [None, None, 0.5], "b": [["é"]]}


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        *((value, "text_b") for value in (None, 7, "text", [], {}, {"text": ["a"]})),
        ({"text": ["a"], "text_b": ["b"], "more": ["c"]}, "text_b"),
        *(
            ({"text": value, "text_b": ["b"]}, "^text .*list")
            for value in ("a", None, [1], [["a"]], {"a": 1})
        ),
        ({"text": [], "text_b": []}, "text .*0 .*1 .. 32"),
        ({"text": ["a"] * 33, "text_b": ["b"]}, "text .*33 "),
        ({"text": ["a", "b"], "text_b": ["b"]}, "text_b .*1 "),
        ({"text": ["a"], "text_b": ["b" * 10_001]}, "text_b .*10001 .* 10000"),
    ],
)
def test_bad_inputs_are_refused(inputs, message) -> None:
    with pytest.raises(ValueError, match=message):
        check_inputs(inputs, ("text", "text_b"))
