"""`bert_tf.load` of every form: the same answers, those of the model itself."""

import os
import pathlib
import subprocess
import sys

import keras
import pytest

import bert_tf
from bert_tf.checkpoints.formats import write_checkpoint
from bert_tf.inference import serving_models as models
from bert_tf.inference.graphs import GraphModel
from bert_tf.inference.loading import check_as_exported
from bert_tf.inference.output_answers import output_answers
from bert_tf.inference.predictor import Predictor
from bert_tf.system.checksums import file_crc
from bert_tf.tasks.base.examples import columns
from bert_tf.tasks.base.models.preprocessor import BertPreprocessor
from bert_tf.tasks.base.serving.onnx_model import check_is_current
from bert_tf.tasks.classification.model import BertClassifier
from tests.checkpoints.made_checkpoint import make_checkpoint
from tests.export.made_models import SHAPE, TEXTS, write_byte_bpe, write_model
from tests.roads.roads import TOLERANCE, largest_difference

CONTEXTS = ["the river a b c " * 30, "w40 w41 w42, the étè\u0301 don't", "", "the", " \u200b "]
# Cased rules part marks from punctuation.
CONTEXTS += ["Wow\u203c\ufe0f a\u2028 \u2028 b\u203c\ufe0fc", "\ufe0f a \u0301"]
RUNS = {
    "classifier": {"task_name": "mnli"},
    "multi_label": {"problem_type": "multi_label"},
    "tagger": {},
    "question_answering": {
        **{"max_query_length": "8", "doc_stride": "9", "max_answer_length": "5"},
        **{"version_2_with_negative": "true", "null_score_diff_threshold": "-1.0"},
    },
    "fill_mask": {},
}


def make_model(folder: pathlib.Path, kind: str) -> pathlib.Path:
    return write_model(folder / kind, kind, RUNS[kind])


def answers(predictor: Predictor) -> list:
    if predictor.kind == "question_answering":
        return predictor.answer(["the river?"] * len(CONTEXTS), CONTEXTS)
    words = [text.split() for text in TEXTS if text]
    found = [*predictor.tag(TEXTS + tuple(CONTEXTS)), *predictor.tag(words)]
    return [*found, *predictor.find_entities(TEXTS)]


def test_a_run_reads_and_checks_each_text_once(tmp_path, monkeypatch):
    predictor = bert_tf.load(make_model(tmp_path, "multi_label"))
    read = []
    original = columns.check_text
    monkeypatch.setattr(
        columns, "check_text", lambda text, where: read.append(text) or original(text, where)
    )
    assert len(predictor.classify(list(TEXTS))) == len(TEXTS)
    assert sorted(read) == sorted(TEXTS)


def in_python(folder: pathlib.Path) -> Predictor:
    """A predictor without a graph, whose making takes seconds."""
    served = models.load(str(folder))
    functions = {"serving_default": served.from_texts}
    if served.kind == "tagger":
        functions["words"] = served.from_words
    model = GraphModel(served.card(), functions, "")
    return Predictor(output_answers(model), model.card)


@pytest.mark.slow
@pytest.mark.parametrize("write", [write_model, write_byte_bpe])
@pytest.mark.parametrize("kind", ["tagger", "question_answering"])
def test_windows_made_in_python_are_those_of_the_graph(tmp_path, monkeypatch, kind, write):
    # The graph calls the model several times.
    monkeypatch.setattr("bert_tf.tasks.base.serving.model.MAX_ROWS", 7)
    shape = {"max_position_embeddings": 24, "do_lower_case": False}
    folder = write(tmp_path / "run", kind, RUNS[kind], **shape)
    predictor = bert_tf.load(folder)
    assert largest_difference(answers(in_python(folder)), answers(predictor)) < TOLERANCE
    if kind == "tagger" and write is write_model:
        words = [word["word"] for word in predictor.tag(CONTEXTS[5:])[0]]
        assert words[:2] == ["Wow", "\u203c\ufe0f"]


def test_a_false_that_is_given_is_compared():
    card = {"kind": "classifier", "max_seq_length": 9, "inputs": ["text", "text_b"]}
    given = {"kind": "", "max_seq_length": 0, "pair": None}
    for pair in (None, True):
        check_as_exported(card, pathlib.Path("m"), {**given, "pair": pair})
    with pytest.raises(ValueError, match="^m .* pair True.* False"):
        check_as_exported(card, pathlib.Path("m"), {**given, "pair": False})
    with pytest.raises(ValueError, match="^m .* max_seq_length 9.* 16"):
        check_as_exported(card, pathlib.Path("m"), {**given, "max_seq_length": 16})


def write_keras(folder: pathlib.Path) -> pathlib.Path:
    """Saves a functional model of texts, with its tokenizer inside."""
    texts = keras.Input((), dtype="string")
    preprocessor = BertPreprocessor.from_pretrained(folder, 48)
    model = keras.Model(texts, BertClassifier.from_pretrained(folder)(preprocessor(texts)))
    model.save(folder / "mine.keras")
    return folder / "mine.keras"


@pytest.mark.slow
def test_a_keras_file_answers_as_what_it_was_made_from(tmp_path):
    folder = make_model(tmp_path, "multi_label")
    predictor = bert_tf.load(write_keras(folder), kind="multi_label")
    made = bert_tf.load(folder)
    assert predictor.labels == made.labels
    expected = made.probabilities(TEXTS)
    found = predictor.probabilities(TEXTS)
    assert largest_difference(expected, found) < TOLERANCE
    assert bert_tf.load(folder / "mine.keras").kind == "multi_label"  # As its classifier says.
    with pytest.raises(ValueError, match="mine.keras .*tagger"):
        bert_tf.load(folder / "mine.keras", kind="tagger")


def test_a_path_that_does_not_exist_needs_no_tensorflow(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "bert_tf.inference.graphs", None)
    for path, named in ((tmp_path / "x", "x "), ("all-MiniLM-L6-v2", "hf://sentence-transformers")):
        with pytest.raises(ValueError, match=named):
            bert_tf.load(path)


def test_what_is_no_model_is_told(tmp_path):
    (tmp_path / "holiday").mkdir()
    (tmp_path / "holiday" / "photo.jpg").touch()
    with pytest.raises(ValueError, match="holiday .*photo.jpg"):
        bert_tf.load(tmp_path / "holiday")
    for name in ("none", "none.keras", "none.tflite"):
        with pytest.raises(ValueError, match=f"/{name} "):
            bert_tf.load(tmp_path / name)
    (tmp_path / "bad.keras").write_bytes(b"PK\x03\x04")
    with pytest.raises(ValueError, match="bad.keras .*Keras.* zip"):
        bert_tf.load(tmp_path / "bad.keras")
    (tmp_path / "bad.tflite").write_bytes(b"TFL3")
    with pytest.raises(ValueError, match="bad.tflite .*export.tflite"):
        bert_tf.load(tmp_path / "bad.tflite")
    dense = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    dense.save(tmp_path / "dense.keras")
    with pytest.raises(ValueError, match="dense.keras .*bert_tf"):
        bert_tf.load(tmp_path / "dense.keras")
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "saved_model.pb").touch()
    with pytest.raises(ValueError, match="/1 .*assets.extra/bert_tf.json"):
        bert_tf.load(tmp_path)


def test_a_head_a_device_and_threads_that_are_not_there(tmp_path):
    folder = make_model(tmp_path, "tagger")
    with pytest.raises(ValueError, match="classifier head.* tagger, embeddings, encoder"):
        bert_tf.load(folder, kind="classifier")
    with pytest.raises(ValueError, match="kind .*'encoder'.*classifier"):
        bert_tf.load(folder, kind="encoder")
    with pytest.raises(ValueError, match="device .*'gpu:7'; .*CPU:0"):
        bert_tf.load(folder, device="gpu:7")
    with pytest.raises(ValueError, match="num_threads .*63, .*TF_NUM_INTRAOP_THREADS"):
        bert_tf.load(folder, num_threads=63)
    with pytest.raises(ValueError, match="^pair .*classifier, multi_label, regression; .*tagger"):
        bert_tf.load(folder, pair=True)
    assert bert_tf.load(folder, device="cpu").kind == "tagger"
    assert bert_tf.load(folder, kind="embeddings").encode(["the"]).shape == (1, 32)


def test_pair_decides_how_many_texts_a_run_without_a_record_takes(tmp_path):
    made = make_checkpoint("classifier", seed=5, **SHAPE)
    write_checkpoint(made, tmp_path / "m", "bert_tf")
    assert bert_tf.load(tmp_path / "m").inputs == ("text",)
    pairs = bert_tf.load(tmp_path / "m", pair=True)
    assert pairs.inputs == ("text", "text_b")
    found = pairs.probabilities([("the river", "a b c"), ("the river", "c b a")])
    assert found[0] != found[1]


def test_a_keras_file_cannot_do_what_its_head_cannot(tmp_path):
    made = make_checkpoint("classifier", seed=5, **SHAPE)
    write_checkpoint(made, tmp_path / "m", "bert_tf")
    BertClassifier.from_pretrained(tmp_path / "m").save(tmp_path / "classes.keras")
    with pytest.raises(ValueError, match="classes.keras .*3 labels.*regression"):
        bert_tf.load(tmp_path / "classes.keras", "regression")
    with pytest.raises(ValueError, match="max_seq_length .*400; .* 48 positions"):
        bert_tf.load(tmp_path / "classes.keras", max_seq_length=400)
    folder = make_model(tmp_path, "fill_mask")
    model = bert_tf.BertPretrainer.from_pretrained(folder, use_next_sentence=False)
    model.save(tmp_path / "masks.keras")
    with pytest.raises(ValueError, match="masks.keras .*next_sentence head.* fill_mask"):
        bert_tf.load(tmp_path / "masks.keras", "next_sentence")


@pytest.mark.slow
def test_a_lite_file_needs_no_tensorflow_and_threads_are_set_at_first(tmp_path):
    from export.lite.conversion import convert

    folder = make_model(tmp_path, "tagger")
    path = tmp_path / "mine.tflite"
    path.write_bytes(convert(models.load(str(folder), unpad=False), "none"))
    with pytest.raises(ValueError, match="device .*'gpu'"):
        bert_tf.load(path, device="gpu")
    code = f"""
import sys, bert_tf
print(bert_tf.load({str(path)!r}, num_threads=2).tag(["the river"]))
assert "tensorflow" not in sys.modules and "keras" not in sys.modules
predictor = bert_tf.load({str(folder)!r}, num_threads=1)
import tensorflow as tf
assert tf.config.threading.get_intra_op_parallelism_threads() == 1
print(predictor.tag(["the river"]))
"""
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert printed.returncode == 0, printed.stderr
    assert len(printed.stdout.splitlines()) == 2


@pytest.mark.parametrize(
    "name",
    [
        "model.safetensors",
        "model-00002-of-00003.safetensors",
        "2_Dense/model.safetensors",
        "adapter_model.bin",
        "model.ckpt-40.index",
    ],
)
def test_an_onnx_file_is_not_older_than_any_weights_beside_it(tmp_path, name):
    file, weights = tmp_path / "onnx" / "model.onnx", tmp_path / name
    for path in (file, weights):
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(path.name.encode())
    card = {"checksums": {file.name: file_crc(file)}, "weights": {}}
    stamp = file.stat().st_mtime
    os.utime(weights, (stamp - 5, stamp - 5))
    check_is_current(file, card)
    os.utime(weights, (stamp + 5, stamp + 5))
    with pytest.raises(ValueError, match=f"{file} .*{weights}"):
        check_is_current(file, card)
    check_is_current(file, {**card, "weights": {name: file_crc(weights)}})  # a copy


@pytest.mark.parametrize(
    "name", ["config.json", "tokenizer.json", "labels.txt", "1_Pooling/config.json"]
)
def test_an_onnx_file_says_which_settings_beside_it_have_changed(tmp_path, name, caplog):
    file, settings = tmp_path / "onnx" / "model.onnx", tmp_path / name
    for path in (file, settings):
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"{}")
    card = {"checksums": {file.name: file_crc(file)}, "settings": {name: file_crc(settings)}}
    check_is_current(file, card)
    assert not caplog.records
    settings.write_bytes(b"{} ")
    check_is_current(file, card)
    (record,) = caplog.records
    assert name in record.getMessage() and str(file) in record.getMessage()
