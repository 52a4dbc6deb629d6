"""What the check of an exported model finds, and that it finds it when something is wrong."""

import dataclasses
import shutil
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_text as tf_text
from tensorflow_serving.apis import prediction_log_pb2

from export.check import name_folder
from export.checks import answer_check, model_check
from export.checks.answer_check import ODD_TEXTS, check_equal, compare, make_requests, python_answer
from export.checks.model_check import check, check_result, check_source
from export.checks.op_check import check_foreign_ops, check_graph, needed_server, used_ops
from export.checks.run_apart import FRESH_PROCESS, make_job, run_apart
from export.checks.stored_model import Request, StoredModel, read, read_meta_graph, read_signatures
from export.checks.warmup_reading import read_log
from export.saving.writing import SAMPLES
from tests.export.conftest import every_kind
from tests.export.made_models import write_model

TOKENIZE = "FastWordpieceTokenizeWithOffsets"
TEXT = tf.TensorSpec([None], tf.string, "text")


@pytest.mark.parametrize("kind", every_kind())
def test_operations_of_every_kind(asked_models, kind) -> None:
    for form, foreign in (("text", [TOKENIZE]), ("ids", [])):
        asked = asked_models[kind, form]
        assert asked.stored.takes_texts == (form == "text")
        assert asked.result["foreign_ops"] == foreign
        check_graph(asked.stored.meta_graph)
        check_foreign_ops(foreign, asked.stored.takes_texts)
        # Of the graph, of functions, and of functions that functions call.
        assert {"VarHandleOp", "ParseExampleV2", "MatMul"} <= used_ops(asked.stored.meta_graph)


@pytest.mark.parametrize("form", ["text", "ids"])
@pytest.mark.parametrize("kind", every_kind())
def test_a_fresh_process_answers_as_python_does(asked_models, served_models, kind, form) -> None:
    stored, requests, _, result = asked_models[kind, form]
    answers = check_result(stored, requests, result, "a fresh process")
    assert len(answers) == len(requests) and result["load_seconds"] > 0
    odd = make_requests(stored)
    assert [request.signature for request in odd] == sorted(stored.card["signatures"])
    expected = [python_answer(served_models[kind].served, stored, request) for request in odd]
    compared = compare(odd, expected, answers[1 : 1 + len(odd)], "Python")
    assert compared.num_answers == len(odd) and compared.difference < 1e-5
    if form == "text":
        assert answers[-2][0] == tf.errors.INVALID_ARGUMENT
        assert isinstance(answers[-1], dict)  # It lives on.


def test_table_says_what_a_model_is(asked_models, served_models) -> None:
    model = served_models["tagger"]
    lines = asked_models["tagger", "text"].stored.table().splitlines()
    size = sum(file.stat().st_size for file in model.text.rglob("*") if file.is_file())
    assert lines[:7] == [
        f"kind        tagger ({', '.join(model.served.labels)})",
        "takes       text",
        "rows        at most 48 pieces, uncased, vocabulary of 80",
        f"source      {model.source}",
        f"written by  TensorFlow {tf.__version__}",
        f"size        {size / 1e6:.1f} MB",
        "warm-up     1 request",
    ]
    assert "words             in   words             string [?, ?]" in lines
    assert "serving_default   out  starts            int32 [?, ?]" in lines
    assert "takes       ids" in asked_models["tagger", "ids"].stored.table()
    assert "takes       text, text_b" in asked_models["next_sentence", "text"].stored.table()


def test_warmup_requests_are_read_back(asked_models) -> None:
    (request,) = asked_models["next_sentence", "text"].stored.warmup
    assert request.signature == "serving_default"
    assert {
        name: [text.decode() for text in column] for name, column in request.inputs.items()
    } == {name: list(SAMPLES[name]) for name in ("text", "text_b")}
    log = prediction_log_pb2.PredictionLog()
    log.log_metadata.sampling_config.sampling_rate = 1.0  # Fields that are not asked for.
    asked = log.predict_log.request
    asked.model_spec.name, asked.model_spec.signature_name = "m" * 200, "s"
    asked.model_spec.version.value = 1 << 40
    values = np.arange(1000, dtype=np.int32).reshape(20, 50)
    asked.inputs["ids"].CopyFrom(tf.make_tensor_proto(values))
    signature, inputs = read_log(log.SerializeToString())
    assert signature == "s" and list(inputs) == ["ids"]
    np.testing.assert_array_equal(inputs["ids"], values)


# What no server should be given.
ODD_FUNCTIONS = {
    "python": lambda text: tf.py_function(lambda x: x, [text], tf.string),
    "compiled": tf.function(lambda text: tf.shape(text) + 1, jit_compile=True),
    "foreign": lambda text: tf_text.normalize_utf8(text, "NFKC"),
}


@pytest.fixture(scope="module")
def odd_models(tmp_path_factory, served_models):
    """Models that are not as they should be, with the cards of those that are."""
    folder = tmp_path_factory.mktemp("odd")
    good = served_models["next_sentence"].text
    for name, function in ODD_FUNCTIONS.items():
        signature = tf.function(lambda text, of=function: {"out": of(text)}, autograph=False)
        signatures = {"serving_default": signature.get_concrete_function(TEXT)}
        tf.saved_model.save(tf.Module(), str(folder / name), signatures)
    for name in ("damaged", "short", "headless"):
        shutil.copytree(good, folder / name)
    data = folder / "damaged/variables/variables.data-00000-of-00001"
    content = bytearray(data.read_bytes())
    content[: len(content) // 2] = bytes(len(content) // 2)
    data.write_bytes(content)
    data = folder / "short/variables/variables.data-00000-of-00001"
    data.write_bytes(data.read_bytes()[:1000])
    (folder / "headless/saved_model.pb").write_bytes(b"\x13 no message")
    return folder


def stored_part(folder, good) -> StoredModel:
    """Returns what a folder says of itself, with the card of another."""
    meta_graph = read_meta_graph(folder)
    signatures = read_signatures(meta_graph)
    return dataclasses.replace(good, folder=folder, meta_graph=meta_graph, signatures=signatures)


def test_calls_of_python_and_xla_are_found(odd_models) -> None:
    with pytest.raises(ValueError, match=r"calls Python \(EagerPyFunc\), which no server has"):
        check_graph(read_meta_graph(odd_models / "python"))
    with pytest.raises(ValueError, match="must be compiled by XLA"):
        check_graph(read_meta_graph(odd_models / "compiled"))


def test_foreign_operations_and_damaged_files_are_found(odd_models, asked_models) -> None:
    good = asked_models["next_sentence", "text"].stored
    stored = {
        name: stored_part(odd_models / name, good) for name in ("foreign", "damaged", "short")
    }
    jobs = [make_job(model, []) for model in stored.values()]
    foreign, damaged, short = run_apart(FRESH_PROCESS, jobs)
    assert foreign["foreign_ops"] == ["NormalizeUTF8"]
    with pytest.raises(ValueError, match=f"needs NormalizeUTF8, .* of texts may need {TOKENIZE}"):
        check_foreign_ops(foreign["foreign_ops"], takes_texts=True)
    for name, result in (("damaged", damaged), ("short", short)):
        with pytest.raises(ValueError, match="does not load in a fresh process: .*Error: ") as info:
            check_result(stored[name], [], result, "a fresh process")
        assert "\n" not in str(info.value) and "{{" not in str(info.value)


def test_ids_need_no_foreign_operation() -> None:
    check_foreign_ops([], takes_texts=False)
    with pytest.raises(ValueError, match=f"needs {TOKENIZE}, .* of ids may need no other"):
        check_foreign_ops([TOKENIZE], takes_texts=False)
    assert needed_server([TOKENIZE]) == (
        f"{TOKENIZE} of tensorflow-text (in TensorFlow Serving 2.18 and later)"
    )


def test_files_that_are_damaged_or_disagree(odd_models, served_models, tmp_path) -> None:
    with pytest.raises(ValueError, match="saved_model.pb is damaged"):
        read(odd_models / "headless")
    with pytest.raises(ValueError, match="has no saved_model.pb"):
        read(tmp_path)
    with pytest.raises(ValueError, match="has no assets.extra/bert_tf.json"):
        read(odd_models / "foreign")
    folder = tmp_path / "1"
    shutil.copytree(served_models["next_sentence"].text, folder)
    warmup = folder / "assets.extra/tf_serving_warmup_requests"
    warmup.write_bytes(warmup.read_bytes()[:-1])
    with pytest.raises(ValueError, match="warmup_requests is damaged: .*; export"):
        read(folder)
    with (folder / "assets.extra/vocab.txt").open("a") as file:
        file.write("more\n")
    with pytest.raises(ValueError, match="vocab.txt has 81 pieces, but bert_tf.json says 80"):
        read(folder)
    card = folder / "assets.extra/bert_tf.json"
    card.write_text(card.read_text().replace('"examples"', '"sentences"'))
    with pytest.raises(ValueError, match=r"\['examples', 'ids', .*says \['ids', 'sent"):
        read(folder)


def test_another_source_is_found(asked_models, served_models, tmp_path) -> None:
    asked, model = asked_models["next_sentence", "text"], served_models["next_sentence"]
    answers = asked.result["answers"]
    said = check_source(asked.stored, answers, "")
    assert f"3 requests of odd texts answered as {model.source} does" in said
    other = write_model(tmp_path / "other", "next_sentence", num_hidden_layers=2)
    with pytest.raises(ValueError, match=r"examples: \w+\[.*Is it another checkpoint") as info:
        check_source(asked.stored, answers, str(other))
    assert str(other) in str(info.value)
    gone = dataclasses.replace(asked.stored, card={**asked.stored.card, "source": "runs/gone"})
    assert "runs/gone is not here, so not compared" in check_source(gone, answers, "")


def test_the_source_is_loaded_as_it_was_exported(asked_models, monkeypatch) -> None:
    stored = asked_models["next_sentence", "text"].stored
    asked = []
    monkeypatch.setattr(answer_check, "load", lambda *a, **options: asked.append((a, options)))
    answer_check.load_source(stored, "runs/a")
    card = {**stored.card, "kind": "regression", "options": {"pooling": "cls"}}
    answer_check.load_source(dataclasses.replace(stored, card=card), "runs/b")
    assert asked == [
        (("runs/a", "next_sentence", 48), {}),
        (("runs/b", "regression", 48), {"pooling": "cls", "texts": ("text", "text_b")}),
    ]


def test_one_wrong_answer_is_found(asked_models) -> None:
    stored, requests, _, result = asked_models["tagger", "text"]
    right = result["answers"]

    def changed(name, place, value):
        answer = {**right[1], name: right[1][name].copy()}
        answer[name][place] = value
        return [answer]

    same = compare(requests[1:2], right[1:2], changed("tags", (0, 0), right[1]["tags"][0, 0]), "x")
    assert same.difference == 0
    for name, value in (("tags", b"O-"), ("starts", 7), ("scores", 0.2), ("scores", np.nan)):
        with pytest.raises(ValueError, match=rf"examples: {name}\[0, 0\] is .* of Python"):
            compare(requests[1:2], right[1:2], changed(name, (0, 0), value), "Python")
    with pytest.raises(ValueError, match="ends with error 3, expected 0 of Python"):
        compare(requests[1:2], right[1:2], [(3, "refused")], "Python")
    with pytest.raises(ValueError, match="has the outputs .*, expected those of Python"):
        compare(requests[1:2], right[1:2], [{}], "Python")


def test_tolerance_is_of_the_number_where_it_is_large() -> None:
    ones = np.ones([2], np.float32)
    assert check_equal("x", ones, ones + np.float32(5e-6), "y", 1e-5) == pytest.approx(5e-6, 0.05)
    check_equal("x", ones * 1e6, ones * np.float32(1e6 + 5), "y", 1e-5)
    with pytest.raises(ValueError, match="more than 1e-05 apart; 100% of them differ"):
        check_equal("x", ones * 1e-3, ones * np.float32(1e-3 + 2e-5), "y", 1e-5)
    with pytest.raises(ValueError, match=r"x\[1\] is np.float32\(nan\), .* 50% of them differ"):
        check_equal("x", ones, ones * np.float32([1, np.nan]), "y", 1e-5)
    with pytest.raises(ValueError, match=r"float32 \[2\], expected float32 \[1\] of y"):
        check_equal("x", ones[:1], ones, "y", 1e-5)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"answers": [{"value": np.array([np.nan])}]}, "value is not finite"),
        ({"answers": [(13, "it broke\nhere")]}, "serving_default fails with error 13: it broke$"),
        ({"refused": {"value": np.zeros(1)}}, "not UTF-8 is answered; expected INVALID_ARGUMENT"),
        ({"refused": (13, "other")}, "not UTF-8 ends with error 13; expected INVALID_ARGUMENT"),
        ({"after": {"value": np.ones(1)}}, "expected .* of the time before"),
        ({"after": (14, "dead")}, "ends with error 14, expected 0 of the time before"),
    ],
)
def test_wrong_behaviour_is_found(asked_models, change, message) -> None:
    stored = asked_models["next_sentence", "text"].stored
    good = {
        "answers": [{"value": np.zeros(1)}],
        "refused": (3, ""),
        "after": {"value": np.zeros(1)},
    }
    requests = [Request("serving_default", {})] * 3

    def result(parts):
        return {"answers": [*parts["answers"], parts["refused"], parts["after"]]}

    assert len(check_result(stored, requests, result(good), "x")) == 3
    with pytest.raises(ValueError, match=message):
        check_result(stored, requests, result({**good, **change}), "x")


def test_all_checks_of_a_good_model(served_models, monkeypatch) -> None:
    model = served_models["next_sentence"]
    parts = list(check(model.text))
    assert [part.split()[0] for part in parts] == ["kind", "operations", "process", "C", "source"]
    assert f"kinds; {TOKENIZE} of tensorflow-text" in parts[1]
    assert "6 requests as they should be" in parts[2]
    assert "same answers, floats to" in parts[3]
    monkeypatch.setattr(model_check, "has_library", lambda: False)
    assert "not installed" in model_check.check_in_c(read(model.text), {}, [])


def test_odd_texts_hold_what_breaks_models() -> None:
    joined = "".join(ODD_TEXTS)
    assert "" in ODD_TEXTS and max(map(len, ODD_TEXTS)) >= 5000
    assert {"\x00", "\u200b", "\ufffd", "\U0001f600", "\u4eac", "\u0301", "\u03a3"} <= set(joined)


def test_program() -> None:
    assert name_folder(["check", "serving/a/1", "--model_dir=b"]) == [
        *("check", "--saved_model=serving/a/1", "--model_dir=b")
    ]
    assert name_folder(["check", "--model_dir=b", "c"]) == ["check", "--model_dir=b", "c"]
    assert name_folder(["check"]) == ["check"]
    command = [sys.executable, "-m", "export.check", "serving/none/1"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1
    expected = "ERROR: serving/none/1 is no folder; give that of a version, as serving/sst2/1.\n"
    assert done.stderr == expected
