"""LiteRT files of tiny models: equal to Keras, judged before they are kept, whole or absent."""

import concurrent.futures
import dataclasses
import functools
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import types
import zipfile
from collections.abc import Callable

import numpy as np
import pytest

import bert_tf
from bert_tf.inference.serving_models import load
from bert_tf.tasks.base.serving.lite_model import LiteModel
from bert_tf.tasks.base.serving.metadata import ROW_OUTPUTS
from bert_tf.tasks.base.serving.model import Serving
from bert_tf.text.packing import PackedText, pad_batch
from bert_tf.text.vocab import Vocab
from export.lite import accuracy_gate
from export.lite import writing as tflite_writing
from export.lite.conversion import check_size, convert, output_names
from export.lite.text_input import check_text_input
from export.lite.writing import write
from export.tflite import LiteConfig
from tests.export.made_models import TEXTS, write_model
from tests.float_bounds import assert_close
from tests.programs import fail, run
from tests.slow_variants import slow_unless
from tests.tiny_model import tiny_words

# A conversion takes seconds: one kind in the fast tests, and all in the full ones but zero_shot, a
# classifier of pairs; see tests/tasks/classification/zero_shot_test.
FEW_KINDS = slow_unless("classifier", [kind for kind in ROW_OUTPUTS if kind != "zero_shot"])
# The largest difference of a probability from Keras, of models whose weights are random.
BOUNDS = {"float16": 0.01, "dynamic": 0.2}


@functools.cache
def model_folder(kind: str) -> pathlib.Path:
    run = {"max_query_length": "8"} if kind == "question_answering" else None
    return write_model(pathlib.Path(tempfile.mkdtemp()) / "model", kind, run)


@functools.cache
def served_of(kind: str) -> Serving:
    return load(str(model_folder(kind)), kind, unpad=False)


@functools.cache
def keras_of(kind: str) -> Callable:
    return accuracy_gate.reference(served_of(kind))


@functools.cache
def lite_file(kind: str, form: str) -> pathlib.Path:
    served = served_of(kind)
    calibration = [random_batch(served, 8, length) for length in (3, 20, 48)] * 2
    path = pathlib.Path(tempfile.mkdtemp()) / f"{form}.tflite"
    path.write_bytes(convert(served, form, calibration))
    return path


def random_batch(served: Serving, num_rows: int, length: int) -> dict[str, np.ndarray]:
    """Draws rows of up to `length` pieces, the first of just as many."""
    rng = np.random.default_rng(num_rows * 100 + length)
    lengths = [length, *rng.integers(1, length + 1, num_rows - 1)]
    rows = [
        PackedText(rng.integers(5, 80, n).tolist(), rng.integers(0, 2, n).tolist()) for n in lengths
    ]
    return pad_batch(rows)


def differences(kind: str, form: str, batch: dict[str, np.ndarray]) -> dict[str, float]:
    """Returns the largest difference from Keras at real pieces, by output."""
    found = LiteModel(lite_file(kind, form)).from_ids(batch)
    expected = keras_of(kind)(batch)
    assert set(found) == set(expected)
    real = batch["input_mask"] == 1

    def values(column: np.ndarray) -> np.ndarray:
        return column[real] if column.shape[:2] == real.shape else column

    return {
        name: float(abs(values(found[name]) - values(expected[name])).max()) for name in expected
    }


@pytest.mark.parametrize("kind", FEW_KINDS)
def test_float32_equals_keras_for_any_batch_and_length(kind):
    served = served_of(kind)
    for num_rows in (1, 7):
        for length in (3, 16, 48):
            batch = random_batch(served, num_rows, length)
            found = differences(kind, "none", batch)
            assert set(found) == set(output_names(kind))
            # Vectors of random weights are not small; other outputs are.
            assert max(found.values()) < 1e-5, (num_rows, length, found)


def test_threads_may_share_a_file():
    model = LiteModel(lite_file("classifier", "none"))
    batches = []
    for length in (3, 16, 48):
        batches += [random_batch(served_of("classifier"), 7, length)] * 8
    alone = list(map(model.from_ids, batches))
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        together = list(pool.map(model.from_ids, batches))
    for found, expected in zip(together, alone, strict=True):
        for name, values in expected.items():
            np.testing.assert_array_equal(found[name], values)


@pytest.mark.parametrize(
    ("kind", "form"),
    [
        pytest.param("classifier", "float16", marks=pytest.mark.slow),
        pytest.param("tagger", "dynamic", marks=pytest.mark.slow),
        pytest.param("classifier", "dynamic", marks=pytest.mark.slow),
    ],
)
def test_smaller_weights_answer_nearly_the_same(kind, form):
    batch = random_batch(served_of(kind), 7, 48)
    found = max(differences(kind, form, batch).values())
    assert 1e-6 < found < BOUNDS[form]
    assert lite_file(kind, form).stat().st_size < 0.75 * lite_file(kind, "none").stat().st_size


@pytest.mark.slow
def test_int8_goes_with_keras():
    batch = random_batch(served_of("question_answering"), 16, 20)
    found = LiteModel(lite_file("question_answering", "int8")).from_ids(batch)
    expected = keras_of("question_answering")(batch)
    real = batch["input_mask"] == 1
    for name in expected:
        correlation = np.corrcoef(found[name][real], expected[name][real])[0, 1]
        # Of random weights, the worst case; with the padding bias of training it is 0.19.
        assert 0.6 < correlation < 0.99999


@pytest.mark.slow
def test_file_takes_texts_and_says_what_it_is():
    served, path = served_of("classifier"), lite_file("classifier", "none")
    model = LiteModel(path)
    with zipfile.ZipFile(path) as archive:
        assert json.loads(archive.read("bert_tf.json")) == model.card
        pieces = archive.read("vocab.txt").decode("utf8").splitlines()
    assert pieces == list(served.vocab.tokens)
    assert model.card == {
        "kind": "classifier",
        "inputs": ["text"],
        "labels": list(served.labels),
        "max_seq_length": 48,
        "do_lower_case": True,
        "vocab_size": 80,
        "long_texts": "head",
        "quantize": "none",
        "outputs": ["probabilities"],
        "text_input": False,
    }
    expected = served.from_texts(list(TEXTS))["probabilities"]
    assert_close(model(TEXTS)["probabilities"], expected)


@pytest.mark.slow
def test_a_reranker_scores_as_its_model():
    pairs = [(TEXTS[0], text) for text in TEXTS]
    expected = bert_tf.load(model_folder("reranker"), "reranker").score(pairs)
    assert_close(bert_tf.load(lite_file("reranker", "none")).score(pairs), expected)


# Texts in ---------------------------------------------------------------------------------------

# The tokenizers differ on control characters and on words over 100 bytes.
VISIBLE_TEXTS = [text for text in TEXTS if "\x00" not in text]


@functools.cache
def text_file(kind: str, form: str = "none") -> pathlib.Path:
    path = pathlib.Path(tempfile.mkdtemp()) / f"{kind}_{form}.tflite"
    path.write_bytes(convert(served_of(kind), form, text_input=True))
    return path


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["classifier", "embeddings"])
def test_text_input_answers_as_python(kind):
    model = LiteModel(text_file(kind))
    (name,) = ROW_OUTPUTS[kind]
    expected = served_of(kind).from_texts(VISIBLE_TEXTS)[name]
    assert len(np.unique(np.round(expected, 4), axis=0)) >= 4  # Else any answer would do.
    assert_close(model.from_texts(VISIBLE_TEXTS)[name], expected)
    alone = model.from_texts(VISIBLE_TEXTS[:1])[name]
    assert_close(alone, expected[:1])
    # Its ids are as good as another file's.
    assert_close(model(VISIBLE_TEXTS)[name], expected)


@pytest.mark.slow
def test_text_input_with_smaller_weights():
    model = LiteModel(text_file("classifier", "dynamic"))
    found, expected = (call(VISIBLE_TEXTS)["probabilities"] for call in (model.from_texts, model))
    assert_close(found, expected)


@pytest.mark.slow
def test_without_kernels_a_file_with_text_input_takes_ids():
    program = f"""
import sys, numpy as np
from ai_edge_litert.interpreter import Interpreter
model = Interpreter({str(text_file("classifier"))!r})
ids = np.ones([2, 5], np.int32)
columns = dict.fromkeys(("input_word_ids", "input_mask", "input_type_ids"), ids)
print(model.get_signature_runner("serving_default")(**columns)["probabilities"].shape)
model.get_signature_runner("text")(text=np.array([b"a"], object))
"""
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == [f"(2, {len(served_of('classifier').labels)})"]
    assert "unresolved custom op: FastBertNormalize" in done.stderr


def test_texts_for_a_file_without_text_input():
    with pytest.raises(ValueError, match="none.tflite .*--text_input"):
        LiteModel(lite_file("classifier", "none")).from_texts(["a"])


@pytest.mark.parametrize(
    ("form", "changes", "reason"),
    [
        ("dynamic", {"kind": "tagger"}, "tagger .*classifier, multi_label"),
        ("int8", {}, "int8 .*dynamic"),
        ("none", {"texts": ("text", "text_b")}, "pairs .*text_b"),
        ("none", {"long_texts": "tail"}, "long_texts=tail"),
        ("none", {"long_texts": "windows"}, "long_texts=windows"),
    ],
)
def test_text_input_is_refused(form, changes, reason):
    served = {"kind": "classifier", "texts": ("text",), "long_texts": "head"}
    served["vocab"] = Vocab(tiny_words())
    check_text_input(types.SimpleNamespace(**served), "none")
    with pytest.raises(ValueError, match=f"--text_input .*{reason}"):
        check_text_input(types.SimpleNamespace(**{**served, **changes}), form)


def test_text_input_is_refused_before_the_conversion(tmp_path):
    request = request_of(tmp_path, model_folder("classifier"), quantize="int8", text_input=True)
    assert "--text_input" in refuse(dataclasses.replace(request, no_gate=True))


@pytest.mark.slow
def test_text_input_with_other_pieces_is_not_written(tmp_path, monkeypatch):
    output = tmp_path / "file.tflite"
    asked = LiteConfig(
        model_dir=str(model_folder("classifier")),
        output_file=str(output),
        quantize="none",
        no_gate=True,
        text_input=True,
    )
    monkeypatch.setattr(tflite_writing, "SAMPLE_TEXTS", (("the ri\x07ver", "a b"),))
    with pytest.raises(ValueError, match="probabilities .*--text_input"):
        write(asked)
    assert not output.exists()
    monkeypatch.undo()
    write(asked)
    assert LiteModel(output).card["text_input"]


# Judged, then kept -----------------------------------------------------------------------------


@functools.cache
def run_folder(kind: str, is_pair: bool = False) -> pathlib.Path:
    """Makes a run whose dev set is labelled with the model's own answers, but for two rows."""
    folder = pathlib.Path(tempfile.mkdtemp())
    file = folder / ("dev.conll" if kind == "tagger" else "dev.jsonl")
    pair = {"text_b_column": "other"} if is_pair else {}
    run = {"eval_file": str(file), "train_file": str(file), "max_seq_length": "20", **pair}
    path = write_model(folder / "run", kind, run)
    served = load(str(path), unpad=False)
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(served.vocab.tokens[7:], rng.integers(1, 25))) for _ in range(40)]
    if kind == "tagger":
        words = [text.replace("##", "").split() for text in texts]
        width = max(map(len, words))
        padded = [[*row, *[""] * (width - len(row))] for row in words]
        tags = served.from_words(np.array(padded))["tags"].numpy()
        lines = [
            "".join(f"{word}\t{tag.decode()}\n" for word, tag in zip(*pair, strict=False))
            for pair in zip(words, tags, strict=True)
        ]
        file.write_text("\n".join(lines), encoding="utf8")
        return path
    columns = (texts, texts[::-1]) if is_pair else (texts,)
    labels = [label.decode() for label in served.from_texts(*columns)["label"].numpy()]
    for row in (0, 1):
        labels[row] = served.labels[(served.labels.index(labels[row]) + 1) % 3]
    rows = zip(*columns, labels, strict=True)
    names = ("text", "other", "label") if is_pair else ("text", "label")
    file.write_text("".join(json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in rows))
    return path


def request_of(tmp_path: pathlib.Path, model_dir: pathlib.Path, **values) -> LiteConfig:
    output = tmp_path / "out" / "model.tflite"
    return LiteConfig(model_dir=str(model_dir), output_file=str(output), **values)


def refuse(request: LiteConfig) -> str:
    """Returns the message, one line, with which a request is refused; it leaves no file."""
    with pytest.raises(ValueError) as caught:
        write(request)
    folder = pathlib.Path(request.output_file).parent
    assert not folder.exists() or not list(folder.iterdir())
    message = str(caught.value)
    assert message and "\n" not in message
    return message


@pytest.mark.slow
@pytest.mark.parametrize("is_pair", [False, True], ids=["text", "pair"])
def test_classifier_is_scored_on_the_dev_set_of_its_run(tmp_path, is_pair):
    request = request_of(tmp_path, run_folder("classifier", is_pair), quantize="none")
    verdict = write(request)
    assert (verdict.metric, verdict.reference, verdict.score) == ("accuracy", 95.0, 95.0)
    assert 0 < verdict.difference < 1e-5
    assert verdict.size == pathlib.Path(request.output_file).stat().st_size
    header, line = verdict.table().splitlines()
    assert len(header) == len(line) and line.split()[:3] == [
        "none",
        f"{verdict.size / 1e6:.2f}",
        "accuracy",
    ]
    assert LiteModel(request.output_file).card["inputs"] == ["text", "text_b"][: 1 + is_pair]


@pytest.mark.slow
def test_tagger_is_scored_in_windows(tmp_path):
    verdict = write(request_of(tmp_path, run_folder("tagger"), quantize="float16", max_loss=5.0))
    assert (verdict.metric, verdict.reference) == ("accuracy", 100.0)
    assert verdict.score > 95


@pytest.mark.slow
def test_int8_is_measured_on_the_training_set(tmp_path):
    verdict = write(request_of(tmp_path, run_folder("classifier"), quantize="int8", max_loss=40.0))
    assert verdict.score > 55 and verdict.difference > 1e-4


def test_existing_file_stays(tmp_path):
    output = tmp_path / "model.tflite"
    output.write_text("mine")
    printed = fail(run("export.tflite", model_dir=tmp_path / "none", output_file=output))
    assert f"--output_file {output}" in printed and output.read_text() == "mine"
    given = {"model_dir": tmp_path / "none", "output_file": tmp_path / "new.tflite"}
    assert "--quantize=int8" in fail(run("export.tflite", **given, calibration_file="texts.txt"))


@pytest.fixture
def broken(monkeypatch):
    """Lets the converter see another model than the one it is compared with."""

    def break_weights(change) -> None:
        def convert_broken(served, *arguments):
            table = served.model.bert.embeddings.word_embeddings
            before = table.numpy()
            table.assign(change(before))
            try:
                return convert(served, *arguments)
            finally:
                table.assign(before)

        monkeypatch.setattr(tflite_writing, "convert", convert_broken)

    return break_weights


@pytest.mark.slow
def test_file_that_loses_points_is_not_kept(tmp_path, broken):
    broken(lambda table: table[::-1])
    message = refuse(request_of(tmp_path, run_folder("classifier"), quantize="none"))
    assert all(part in message for part in ("accuracy", "(95.00 ", "--max_loss=0.1"))


@pytest.mark.slow
def test_file_that_answers_nan_is_not_kept(tmp_path, broken):
    broken(lambda table: np.full_like(table, np.nan))
    message = refuse(request_of(tmp_path, run_folder("classifier"), quantize="none"))
    assert message.startswith("none ") and "finite" in message and "probabilities" in message


def test_file_without_its_weights_is_not_kept(tmp_path, monkeypatch):
    small = b"TFL3" * 1000
    monkeypatch.setattr(tflite_writing, "convert", lambda *_: small)
    message = refuse(request_of(tmp_path, run_folder("classifier"), quantize="none"))
    assert f"{len(small):,} bytes" in message and "weights" in message


@pytest.mark.slow
def test_without_a_dev_set_one_says_so(tmp_path):
    folder = model_folder("embeddings")
    assert "--no_gate" in refuse(request_of(tmp_path, folder))
    verdict = write(request_of(tmp_path, folder, no_gate=True))
    assert verdict.metric == "" and verdict.table().splitlines()[1].split()[2] == "-"


@pytest.mark.slow
def test_sample_texts_show_a_wrong_model(tmp_path, broken):
    broken(lambda table: table[::-1])
    message = refuse(request_of(tmp_path, model_folder("tagger"), quantize="none", no_gate=True))
    assert message.startswith("none ") and " 0.0001 " in message


@pytest.mark.parametrize("given", [{"eval_file": "dev.tsv"}, {"max_loss": 0.0}])
def test_what_only_a_gate_reads_is_refused_without_one(given):
    with pytest.raises(ValueError, match=f"{next(iter(given))} .*no_gate"):
        LiteConfig(no_gate=True, **given)


def test_kinds_without_a_form_are_refused(tmp_path):
    message = refuse(request_of(tmp_path, model_folder("fill_mask"), no_gate=True))
    assert message.startswith("fill_mask ") and "LiteRT" in message


def test_missing_runtime_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ai_edge_litert.interpreter", None)
    with pytest.raises(ValueError, match="pip install ai-edge-litert"):
        LiteModel(lite_file("classifier", "none"))


@pytest.mark.slow
def test_answers_to_questions_are_judged(tmp_path):
    context = "the river a b c the river don't"
    questions = [
        {"id": str(i), "question": "a b", "answers": [{"text": "river", "answer_start": 4}]}
        for i in range(3)
    ]
    data = {"data": [{"paragraphs": [{"context": context, "qas": questions}]}]}
    file = tmp_path / "dev.json"
    file.write_text(json.dumps(data))
    run = {"eval_file": str(file), "max_seq_length": "24", "max_query_length": "8"}
    folder = write_model(tmp_path / "run", "question_answering", run)
    verdict = write(request_of(tmp_path, folder, quantize="none"))
    assert verdict.metric == "f1" and verdict.reference == verdict.score


def test_equal_weights_are_stored_once(tmp_path: pathlib.Path) -> None:
    """Such as the biases of a model that was not trained; see the size of the file."""
    weights = [np.zeros(500, np.float32), np.zeros(500, np.float32), np.ones(100, np.float32)]
    serving = types.SimpleNamespace(model=types.SimpleNamespace(trainable_weights=weights))
    file = tmp_path / "m.tflite"
    file.write_bytes(bytes(2400))
    check_size(file, serving, "none")
    file.write_bytes(bytes(2399))
    with pytest.raises(ValueError, match=re.escape("2,400")):
        check_size(file, serving, "none")
