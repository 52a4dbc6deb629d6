"""What the check of an exported model finds, and that it finds it when something is wrong."""

import dataclasses
import pathlib
import shutil
import subprocess
import sys
from typing import NamedTuple

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_text as tf_text
from tensorflow_serving.apis import prediction_log_pb2

from bert_tf.tasks.base.serving.model import Serving
from bert_tf.tasks.base.serving.saving.warmup import read_log
from bert_tf.tasks.base.serving.saving.writing import SAMPLES
from export.check import name_folder
from export.checks import answer_check
from export.checks.answer_check import check_equal, compare, make_requests, python_answer
from export.checks.model_check import all_requests, check, check_answers, check_source, run_model
from export.checks.op_check import check_foreign_ops, check_graph, foreign_ops, used_ops
from export.checks.stored_model import Request, StoredModel, read, read_meta_graph
from tests.export.made_models import PURPOSE_OF_KIND, Exported, export_model, write_model
from tests.programs import finish, run

KIND = "classifier"  # of the fast tests
TOKENIZE = "FastWordpieceTokenizeWithOffsets"
# What no server should be given.
ODD_FUNCTIONS = {
    "python": lambda text: tf.py_function(lambda x: x, [text], tf.string),
    "compiled": tf.function(lambda text: tf.shape(text) + 1, jit_compile=True),
    "foreign": lambda text: tf_text.case_fold_utf8(text),
}


class Asked(NamedTuple):
    """A SavedModel, the model in Python, and what the SavedModel is asked."""

    source: pathlib.Path
    served: Serving
    stored: StoredModel
    requests: list[Request]


def read_forms(exported: Exported) -> dict[str, Asked]:
    """Returns the forms "ids" and "text" of an export."""
    forms = {}
    for form, path in (("ids", exported.ids), ("text", exported.texts)):
        stored = read(path)
        forms[form] = Asked(exported.source, exported.served, stored, all_requests(stored))
    return forms


@pytest.fixture(scope="module")
def asked(exported) -> dict[str, Asked]:
    return read_forms(exported)


@pytest.fixture(scope="module")
def odd_models(tmp_path_factory, asked):
    """Models that are not as they should be."""
    folder = tmp_path_factory.mktemp("odd")
    for name, function in ODD_FUNCTIONS.items():
        signature = tf.function(
            lambda text, of=function: {"out": of(text)},
            input_signature=[tf.TensorSpec([None], tf.string, "text")],
            autograph=False,
        )
        signatures = {"serving_default": signature.get_concrete_function()}
        tf.saved_model.save(tf.Module(), str(folder / name), signatures)
    for name in ("damaged", "short", "headless"):
        shutil.copytree(asked["text"].stored.folder, folder / name)
    data = folder / "damaged/variables/variables.data-00000-of-00001"
    content = bytearray(data.read_bytes())
    content[: len(content) // 2] = bytes(len(content) // 2)
    data.write_bytes(content)
    data = folder / "short/variables/variables.data-00000-of-00001"
    data.write_bytes(data.read_bytes()[:1000])
    (folder / "headless/saved_model.pb").write_bytes(b"\x13 no message")
    return folder


def part(folder: pathlib.Path, good: StoredModel) -> StoredModel:
    """Returns what a folder says of itself, with the card of another."""
    return dataclasses.replace(good, folder=folder, meta_graph=read_meta_graph(folder))


def assert_good(model: Asked, form: str) -> None:
    """Asserts that an export answers as Python does, with operations that a server has."""
    ops = used_ops(model.stored.meta_graph)
    foreign = [TOKENIZE] if form == "text" else []
    assert foreign_ops(ops) == foreign and model.stored.takes_texts == (form == "text")
    check_graph(model.stored.meta_graph)
    check_foreign_ops(foreign, model.stored.takes_texts)
    # Operations of the graph, of functions, and of functions that functions call.
    assert {"VarHandleOp", "ParseExampleV2", "MatMul"} <= ops
    answers = run_model(model.stored, model.requests).answers
    check_answers(model.stored, model.requests, answers)
    assert len(answers) == len(model.requests)
    odd = make_requests(model.stored)
    assert [request.signature for request in odd] == sorted(model.stored.card["signatures"])
    expected = [python_answer(model.served, model.stored, request) for request in odd]
    compare(odd, expected, answers[1 : 1 + len(odd)], "Python")
    if form == "text":
        assert isinstance(answers[-2], dict)  # of a text that is not UTF-8


def test_an_export_answers_as_python_does(asked) -> None:
    for form, model in asked.items():
        assert_good(model, form)


@pytest.mark.slow
def test_every_other_kind(tmp_path) -> None:
    for kind in PURPOSE_OF_KIND:
        if kind != KIND:
            run = {"max_query_length": "8"} if kind == "question_answering" else None
            exported = export_model(tmp_path / kind, kind, run)
            for form, model in read_forms(exported).items():
                assert_good(model, form)


@pytest.mark.slow
def test_bfloat16_is_compared_with_bfloat16(tmp_path) -> None:
    source = write_model(tmp_path / "run", KIND, num_hidden_layers=2)
    given = {"model_dir": source, "output_dir": tmp_path / "out", "precision": "bfloat16"}
    finish(run("export.saved_model", **given))
    stored = read(tmp_path / "out" / "1")
    assert stored.card["options"] == {"precision": "bfloat16"}
    assert "answered as" in "\n".join(check(tmp_path / "out" / "1"))


def test_table_says_what_a_model_is(asked) -> None:
    stored = asked["text"].stored
    lines = stored.table().splitlines()
    size = sum(file.stat().st_size for file in stored.folder.rglob("*") if file.is_file())
    assert lines[:7] == [
        f"kind        {KIND} (no, yes, vielleicht ü)",
        "takes       text, text_b",
        "rows        at most 20 tokens, uncased, vocabulary of 80",
        f"source      {asked['text'].source}",
        f"written by  TensorFlow {tf.__version__}",
        f"size        {size / 1e6:.1f} MB",
        "warm-up     1 request",
    ]
    assert "ids               in   input_mask        int32 [?, ?]" in lines
    assert "serving_default   out  score             float32 [?]" in lines
    assert "takes       ids" in asked["ids"].stored.table()


def test_warmup_requests_are_read_back(asked) -> None:
    (request,) = asked["text"].stored.warmup
    assert request.signature == "serving_default"
    assert {
        name: [text.decode() for text in column] for name, column in request.inputs.items()
    } == {name: list(SAMPLES[name]) for name in ("text", "text_b")}
    log = prediction_log_pb2.PredictionLog()
    log.log_metadata.sampling_config.sampling_rate = 1.0  # Fields that are not asked for.
    wanted = log.predict_log.request
    wanted.model_spec.name, wanted.model_spec.signature_name = "m" * 200, "s"
    wanted.model_spec.version.value = 1 << 40
    values = np.arange(1000, dtype=np.int32).reshape(20, 50)
    wanted.inputs["ids"].CopyFrom(tf.make_tensor_proto(values))
    signature, inputs = read_log(log.SerializeToString())
    assert signature == "s" and list(inputs) == ["ids"]
    np.testing.assert_array_equal(inputs["ids"], values)


@pytest.mark.slow
def test_operations_that_no_server_has_are_found(odd_models) -> None:
    with pytest.raises(ValueError, match="EagerPyFunc"):
        check_graph(read_meta_graph(odd_models / "python"))
    with pytest.raises(ValueError, match="XLA"):
        check_graph(read_meta_graph(odd_models / "compiled"))
    foreign = used_ops(read_meta_graph(odd_models / "foreign"))
    assert foreign_ops(foreign) == ["CaseFoldUTF8"]
    with pytest.raises(ValueError, match=f"CaseFoldUTF8, .*{TOKENIZE}"):
        check_foreign_ops(["CaseFoldUTF8"], takes_texts=True)
    with pytest.raises(ValueError, match=f"{TOKENIZE}, .*ids"):
        check_foreign_ops([TOKENIZE], takes_texts=False)
    said = check_foreign_ops([TOKENIZE], takes_texts=True)
    assert TOKENIZE in said and "tensorflow-text" in said and "2.20.0" in said
    assert "2.20.0" in check_foreign_ops([], takes_texts=False)


@pytest.mark.slow
def test_files_that_are_damaged_or_disagree(odd_models, asked, tmp_path) -> None:
    for name in ("damaged", "short"):
        stored = part(odd_models / name, asked["text"].stored)
        with pytest.raises(ValueError, match=f"{name}.*") as info:
            run_model(stored, [])
        assert "\n" not in str(info.value) and "{{" not in str(info.value)
    with pytest.raises(ValueError, match="headless/saved_model.pb "):
        read(odd_models / "headless")
    with pytest.raises(ValueError, match=f"{tmp_path} .*saved_model.pb"):
        read(tmp_path)
    with pytest.raises(ValueError, match="/foreign .*assets.extra/bert_tf.json"):
        read(odd_models / "foreign")
    folder = tmp_path / "1"
    shutil.copytree(asked["text"].stored.folder, folder)
    warmup = folder / "assets.extra/tf_serving_warmup_requests"
    warmup.write_bytes(warmup.read_bytes()[:-1])
    with pytest.raises(ValueError, match="tf_serving_warmup_requests "):
        read(folder)
    with (folder / "assets.extra/vocab.txt").open("a") as file:
        file.write("more\n")
    with pytest.raises(ValueError, match="vocab.txt .*81 tokens, .*bert_tf.json .*80"):
        read(folder)
    card = folder / "assets.extra/bert_tf.json"
    card.write_text(card.read_text().replace('"examples"', '"sentences"'))
    with pytest.raises(ValueError, match=r"\['examples', 'ids', .*\['ids', 'sentences'"):
        read(folder)


@pytest.mark.slow
def test_another_source_is_found(asked, tmp_path) -> None:
    stored = asked["text"].stored
    answers = run_model(stored, asked["text"].requests).answers
    said = check_source(stored, answers, "")
    assert "3 requests" in said and str(asked["text"].source) in said
    other = write_model(tmp_path / "other", KIND, num_hidden_layers=2)
    with pytest.raises(ValueError, match=rf"examples: \w+\[.* {other} .*%"):
        check_source(stored, answers, str(other))
    gone = dataclasses.replace(stored, card={**stored.card, "source": "runs/gone"})
    assert "runs/gone" in check_source(gone, answers, "")


def test_the_source_is_loaded_as_it_was_exported(asked, monkeypatch) -> None:
    stored = asked["text"].stored
    loaded = []
    monkeypatch.setattr(answer_check, "load", lambda *a, **options: loaded.append((a, options)))
    answer_check.load_source(stored, "runs/a")
    card = {**stored.card, "kind": "embeddings", "options": {"pooling": "cls"}}
    answer_check.load_source(dataclasses.replace(stored, card=card), "runs/b")
    assert loaded == [
        (("runs/a", KIND, 20), {"texts": ("text", "text_b")}),
        (("runs/b", "embeddings", 20), {"pooling": "cls"}),
    ]


def test_one_wrong_answer_is_found() -> None:
    request = Request("examples", {})
    right = {
        "tags": np.array([[b"O", b"B"]], object),
        "starts": np.int32([[0, 2]]),
        "scores": np.float32([[0.5, 0.6]]),
    }

    def difference(answer) -> float:
        return compare([request], [right], [answer], "Python")

    assert difference({name: value.copy() for name, value in right.items()}) == 0
    for name, value in (("tags", b"O-"), ("starts", 7), ("scores", 0.2), ("scores", np.nan)):
        wrong = {**right, name: right[name].copy()}
        wrong[name][0, 0] = value
        with pytest.raises(ValueError, match=rf"examples: {name}\[0, 0\] .* Python .*; 50%"):
            difference(wrong)
    with pytest.raises(ValueError, match="examples .*error 3, .*0 .*Python"):
        difference((3, "refused"))
    with pytest.raises(ValueError, match=r"outputs \[\], .*Python, \['scores'"):
        difference({})


def test_order_of_scores_that_rounding_decides_is_free() -> None:
    request = Request("ids", {"input_word_ids": np.zeros([1, 5], np.int32)})
    right = {
        "end_top_index": np.array([[7, 4, 9, 2]], np.int32),
        "end_top_log_probs": np.array([[-0.1, -3.0, -3.000001, -5.0]], np.float32),
    }
    for order, is_right in (
        ([7, 4, 9, 2], True),
        ([7, 9, 4, 2], True),
        ([7, 4, 9, 3], True),  # What comes behind the beam may be as good.
        ([4, 7, 9, 2], False),
    ):
        answer = {**right, "end_top_index": np.array([order], np.int32)}
        if is_right:
            assert compare([request], [right], [answer], "Python") == 0.0
        else:
            with pytest.raises(ValueError, match=r"end_top_index\[0, 0\] .*4.*7.* Python .*25%"):
                compare([request], [right], [answer], "Python")


def test_tolerance_is_of_the_number_where_it_is_large() -> None:
    ones = np.ones([2], np.float32)
    assert check_equal("x", ones, ones + np.float32(5e-6), "y", 1e-5) == pytest.approx(5e-6, 0.05)
    check_equal("x", ones * 1e6, ones * np.float32(1e6 + 5), "y", 1e-5)
    with pytest.raises(ValueError, match=r"^x\[0\] .*0.00102.*0.001.* y .*100%"):
        check_equal("x", ones * 1e-3, ones * np.float32(1e-3 + 2e-5), "y", 1e-5)
    with pytest.raises(ValueError, match=r"^x .*float32 \[2\], .*float32 \[1\] .*y"):
        check_equal("x", ones[:1], ones, "y", 1e-5)


def test_wrong_behaviour_is_found(asked) -> None:
    stored = asked["text"].stored
    requests = [Request("serving_default", {})] * 3
    zero, one, nan = ({"value": np.array([value])} for value in (0.0, 1.0, np.nan))
    check_answers(stored, requests, [zero, one, zero])
    for answers, message in [
        ([nan, one, zero], "^serving_default: value .*finite"),
        ([(13, "it broke\nhere"), one, zero], "serving_default.*13: it broke$"),
        ([zero, (3, "not UTF-8"), zero], "serving_default.*3: not UTF-8$"),
        ([zero, one, one], r"value\[0\] .*1.0.*, .*0.0"),
        ([zero, one, (14, "dead")], "serving_default.*14: dead$"),
    ]:
        with pytest.raises(ValueError, match=message):
            check_answers(stored, requests, answers)


def run_program(folder) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "export.check", str(folder)]
    return subprocess.run(command, capture_output=True, text=True)


def test_program() -> None:
    assert name_folder(["check", "serving/a/1", "--model_dir=b"]) == [
        *("check", "--saved_model=serving/a/1", "--model_dir=b")
    ]
    assert name_folder(["check", "--model_dir=b", "c"]) == ["check", "--model_dir=b", "c"]
    done = run_program("serving/none/1")
    assert done.returncode == 1 and done.stderr.count("\n") == 1
    assert done.stderr.startswith("ERROR: serving/none/1 ")


@pytest.mark.slow
def test_program_on_a_good_model(asked) -> None:
    done = run_program(asked["text"].stored.folder)
    assert done.returncode == 0, done.stderr
    *_, operations, answers, source = done.stdout.splitlines()
    assert f"kinds; {TOKENIZE} of tensorflow-text" in operations
    assert "6 requests as they should be" in answers and source.startswith("source ")
