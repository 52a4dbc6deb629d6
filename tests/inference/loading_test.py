"""`bert_tf.load` of every form: the same answers, those of the model itself."""

import dataclasses
import pathlib
import subprocess
import sys

import keras
import numpy as np
import pytest

import bert_tf
from bert_tf.checkpoints.formats import read_checkpoint, write_checkpoint
from bert_tf.inference import serving_models as models
from bert_tf.inference.graphs import GraphModel
from bert_tf.inference.lite import lite_answers
from bert_tf.inference.loading import check_as_exported
from bert_tf.inference.output_answers import output_answers
from bert_tf.inference.predictor import Predictor
from bert_tf.tasks.base.examples import columns
from bert_tf.tasks.base.models.preprocessor import BertPreprocessor
from bert_tf.tasks.base.serving.lite_model import LiteModel
from bert_tf.tasks.classification.model import BertClassifier
from bert_tf.text.tokenization import make_tokenizer
from tests.checkpoints.made_checkpoint import make_checkpoint
from tests.export.made_models import PURPOSE_OF_KIND, SHAPE, TEXTS, write_model
from tests.float_bounds import assert_close
from tests.tiny_bpe import tiny_bpe_vocab

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
    "regression": {"problem_type": "regression"},
    "embeddings": {},
    "fill_mask": {},
}


def make_model(folder: pathlib.Path, kind: str, **changes) -> pathlib.Path:
    changes = {"num_hidden_layers": 1, **changes}
    return write_model(folder / kind, kind, RUNS[kind], **changes)


def answers(predictor: Predictor) -> list:
    """Asks all that a predictor of its kind can be asked."""
    texts = [text for text in TEXTS if text]
    if predictor.kind == "question_answering":
        found = predictor.answer(["the river?"] * len(CONTEXTS), CONTEXTS)
        for row in found:
            row.pop("probability", None)  # A graph does not compute it.
        return found
    if predictor.kind == "tagger":
        words = [text.split() for text in texts]
        found = [*predictor.tag(TEXTS + tuple(CONTEXTS)), *predictor.tag(words)]
        return [*found, *predictor.find_entities(TEXTS)]
    if predictor.kind == "fill_mask":
        return predictor.fill_mask(["the [MASK] river [MASK]", "[MASK]"])
    if predictor.kind == "embeddings":
        return predictor.encode(TEXTS).tolist()
    if predictor.kind == "regression":
        return predictor.score(TEXTS)
    rows = [(text, "the river") for text in TEXTS] if len(predictor.inputs) == 2 else TEXTS
    return [*predictor.classify(rows), *predictor.probabilities(rows)]


def assert_same(found, expected, tolerance: float = 1e-5) -> None:
    """Texts and integers are equal, floats nearly."""
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for name in expected:
            assert_same(found[name], expected[name], tolerance)
    elif isinstance(expected, list):
        assert len(found) == len(expected)
        for pair in zip(found, expected, strict=True):
            assert_same(*pair, tolerance)
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, abs=tolerance, rel=tolerance)
    else:
        assert found == expected and type(found) is type(expected)


def test_a_run_reads_and_checks_each_text_once(tmp_path, monkeypatch):
    predictor = bert_tf.load(make_model(tmp_path, "multi_label"))
    read = []
    original = columns.check_text
    monkeypatch.setattr(
        columns, "check_text", lambda text, where: read.append(text) or original(text, where)
    )
    assert len(predictor.classify(list(TEXTS))) == len(TEXTS)
    assert sorted(read) == sorted(TEXTS)


def test_a_run_answers_as_its_model(tmp_path):
    folder = make_model(tmp_path, "classifier")
    predictor = bert_tf.load(folder, batch_size=3)
    assert (predictor.kind, predictor.inputs) == ("classifier", ("text", "text_b"))
    pairs = [(text, "the river") for text in TEXTS]
    tokens = bert_tf.load_tokenizer(folder)
    model = BertClassifier.from_pretrained(folder)
    batch = tokens(*map(list, zip(*pairs, strict=True)), max_length=predictor.max_seq_length)
    expected = keras.ops.softmax(model(batch)).numpy()
    found = predictor.probabilities(pairs)
    assert_close([list(row.values()) for row in found], expected)
    best = [predictor.labels[i] for i in expected.argmax(-1)]
    assert [row["label"] for row in predictor.classify(pairs)] == best


class AsLite(LiteModel):
    """The model itself in the place of a LiteRT file."""

    def __init__(self, served):
        self.card = served.card()
        self.vocab, self.labels = served.vocab, served.labels
        self.tokenizer = make_tokenizer(served.vocab, served.do_lower_case)
        self._served = served

    def from_ids(self, batch):
        from export.lite.conversion import answer

        return {name: value.numpy() for name, value in answer(self._served, batch).items()}


def answering(model) -> Predictor:
    return Predictor(output_answers(model), model.card)


def lite_predictor(lite) -> Predictor:
    return Predictor(lite_answers(lite), lite.card)


def in_python(folder: pathlib.Path) -> Predictor:
    """A predictor without a graph, whose making takes seconds."""
    served = models.load(str(folder))
    functions = {"serving_default": served.from_texts}
    if served.kind == "tagger":
        functions["words"] = served.from_words
    return answering(GraphModel(served.card(), functions, ""))


@pytest.mark.slow
@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("kind", ["tagger", "question_answering", "multi_label"])
def test_windows_made_in_python_are_those_of_the_graph(tmp_path, kind, lower):
    folder = make_model(tmp_path, kind, max_position_embeddings=24, do_lower_case=lower)
    expected = answers(in_python(folder))
    lite = AsLite(models.load(str(folder)))
    assert_same(answers(lite_predictor(lite)), expected)


@pytest.mark.slow
def test_words_of_a_model_are_those_of_what_serves_it(tmp_path):
    folder = make_model(tmp_path, "tagger", do_lower_case=False)
    found = bert_tf.BertTokenClassifier.from_pretrained(folder).tag(CONTEXTS[5:])
    assert_same(found, in_python(folder).tag(CONTEXTS[5:]))
    assert [word["word"] for word in found[0]][:2] == ["Wow", "\u203c\ufe0f"]


def test_a_false_that_is_given_is_compared():
    card = {"kind": "classifier", "max_seq_length": 9, "inputs": ["text", "text_b"]}
    given = {"kind": "", "max_seq_length": 0, "pair": None}
    for pair in (None, True):
        check_as_exported(card, pathlib.Path("m"), {**given, "pair": pair})
    with pytest.raises(ValueError, match="^m .* pair True.* False"):
        check_as_exported(card, pathlib.Path("m"), {**given, "pair": False})


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["tagger", "question_answering"])
def test_answers_with_byte_level_bpe_are_those_of_the_graph(tmp_path, kind):
    vocab = tiny_bpe_vocab()
    shape = {**SHAPE, "max_position_embeddings": 24, "do_lower_case": False}
    shape |= {"vocab_size": len(vocab), "tokenizer": "byte_bpe", "pad_token_id": vocab.pad_id}
    made = make_checkpoint(PURPOSE_OF_KIND[kind], seed=5, **shape)
    folder = tmp_path / "bpe"
    write_checkpoint(dataclasses.replace(made, vocab=vocab), folder, "bert_tf")
    lines = [f"--{name}={value}\n" for name, value in RUNS[kind].items()]
    (folder / "run.flags").write_text("".join(lines))
    lite = AsLite(models.load(str(folder)))
    assert_same(answers(lite_predictor(lite)), answers(in_python(folder)))


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
    assert_same([list(r.values()) for r in found], [list(r.values()) for r in expected])
    assert bert_tf.load(folder / "mine.keras").kind == "multi_label"  # As its classifier says.
    with pytest.raises(ValueError, match="mine.keras .*tagger"):
        bert_tf.load(folder / "mine.keras", kind="tagger")


@pytest.mark.slow
def test_a_run_of_multiple_choice_chooses(tmp_path):
    made = make_checkpoint("classifier", seed=5, **{**SHAPE, "num_hidden_layers": 1})
    head = "cls/classifier/output_"  # One score a text.
    cut = {name: value[:1] for name, value in made.weights.items() if name.startswith(head)}
    made = dataclasses.replace(made, weights=made.weights | cut, labels=())
    folder = tmp_path / "choices"
    write_checkpoint(made, folder, "bert_tf")
    (folder / "run.flags").write_text("# ChoiceConfig\n")
    predictor = bert_tf.load(folder)
    contexts, choices = ["the river", "a b"], [["c", "w40"], ["don't", "the", "river"]]
    found = predictor.choose(contexts, choices)
    for chosen, context, texts in zip(found, contexts, choices, strict=True):
        scores = predictor.score([(context, text) for text in texts])
        assert chosen["index"] == np.argmax(scores)


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


def test_pair_decides_how_many_texts_a_run_without_a_record_takes(tmp_path):
    made = make_checkpoint("classifier", seed=5, **{**SHAPE, "num_hidden_layers": 1})
    write_checkpoint(made, tmp_path / "m", "bert_tf")
    assert bert_tf.load(tmp_path / "m").inputs == ("text",)
    pairs = bert_tf.load(tmp_path / "m", pair=True)
    assert pairs.inputs == ("text", "text_b")
    found = pairs.probabilities([("the river", "a b c"), ("the river", "c b a")])
    assert found[0] != found[1]


def test_a_keras_file_cannot_do_what_its_head_cannot(tmp_path):
    made = make_checkpoint("classifier", seed=5, **{**SHAPE, "num_hidden_layers": 1})
    write_checkpoint(made, tmp_path / "m", "bert_tf")
    BertClassifier.from_pretrained(tmp_path / "m").save(tmp_path / "classes.keras")
    with pytest.raises(ValueError, match="classes.keras .*3 labels.*regression"):
        bert_tf.load(tmp_path / "classes.keras", "regression")
    folder = make_model(tmp_path, "fill_mask")
    model = bert_tf.BertPretrainer.from_pretrained(folder, use_next_sentence=False)
    model.save(tmp_path / "masks.keras")
    with pytest.raises(ValueError, match="masks.keras .*next_sentence head.* fill_mask"):
        bert_tf.load(tmp_path / "masks.keras", "next_sentence")


KINDS_OF_LITE = ("classifier", "multi_label", "regression", "tagger", "question_answering")


@pytest.mark.slow
@pytest.mark.parametrize("kind", RUNS)
def test_exported_forms_answer_as_what_they_were_made_from(tmp_path, kind):
    from bert_tf.tasks.base.serving.saving.writing import save
    from export.lite.conversion import convert

    folder = make_model(tmp_path, kind)
    options = {"top_k": 5} if kind == "fill_mask" else {}
    save(models.load(str(folder), **options), tmp_path / "saved", 3, str(folder))
    expected = answers(bert_tf.load(folder))
    for path in (tmp_path / "saved", tmp_path / "saved" / "3"):
        assert_same(answers(bert_tf.load(path, device="cpu")), expected)
    with pytest.raises(ValueError, match="saved.* max_seq_length 48.* 16"):
        bert_tf.load(tmp_path / "saved", max_seq_length=16)
    with pytest.raises(ValueError, match="saved_ids.* ids; .*text model"):
        bert_tf.load(tmp_path / "saved_ids")
    if kind != "fill_mask":
        path = tmp_path / "mine.tflite"
        path.write_bytes(convert(models.load(str(folder), unpad=False), "none"))
        assert_same(answers(bert_tf.load(path, num_threads=2)), expected, 1e-4)
        with pytest.raises(ValueError, match="device .*'gpu'"):
            bert_tf.load(path, device="gpu")


@pytest.mark.slow
def test_a_lite_file_needs_no_tensorflow_and_threads_are_set_at_first(tmp_path):
    from export.lite.conversion import convert

    folder = make_model(tmp_path, "tagger")
    path = tmp_path / "mine.tflite"
    path.write_bytes(convert(models.load(str(folder), unpad=False), "none"))
    code = f"""
import sys, bert_tf
print(bert_tf.load({str(path)!r}).tag(["the river"]))
assert "tensorflow" not in sys.modules and "keras" not in sys.modules
predictor = bert_tf.load({str(folder)!r}, num_threads=1)
import tensorflow as tf
assert tf.config.threading.get_intra_op_parallelism_threads() == 1
print(predictor.tag(["the river"]))
"""
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert printed.returncode == 0, printed.stderr
    assert len(printed.stdout.splitlines()) == 2


@pytest.mark.slow
def test_a_checkpoint_says_what_it_fills(tmp_path):
    folder = make_model(tmp_path, "fill_mask")
    predictor = bert_tf.load(folder)
    (masks,) = predictor.fill_mask(["the [MASK]"], top_k=7)
    assert len(masks) == 1 and len(masks[0]) == 7
    assert {piece["piece"] for piece in masks[0]} <= set(read_checkpoint(folder).vocab.tokens)
    assert bert_tf.load(folder, kind="embeddings").encode(["the"]).shape == (1, 32)


OWN_CLASSES = {
    "classifier": "BertClassifier",
    "regression": "BertClassifier",
    "tagger": "BertTokenClassifier",
    "question_answering": "BertSpanLabeler",
    "fill_mask": "BertPretrainer",
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", OWN_CLASSES)
def test_a_keras_file_answers_as_the_methods_of_its_model(tmp_path, kind):
    pytest.importorskip("bert_tf.tasks.base.models.preprocessing")
    shape = {**SHAPE, "num_hidden_layers": 1}
    made = make_checkpoint(PURPOSE_OF_KIND[kind], seed=5, **shape)
    options = {"use_next_sentence": False} if kind == "fill_mask" else {}
    if kind == "regression":
        head = "cls/classifier/output_"
        cut = {name: value[:1] for name, value in made.weights.items() if name.startswith(head)}
        made = dataclasses.replace(made, weights=made.weights | cut, labels=())
    write_checkpoint(made, tmp_path / "model", "bert_tf")
    model = getattr(bert_tf, OWN_CLASSES[kind]).from_pretrained(tmp_path / "model", **options)
    model.save(tmp_path / "mine.keras")
    predictor = bert_tf.load(tmp_path / "mine.keras")
    assert predictor.kind == kind
    texts = [text for text in TEXTS if text.strip("\x00 \u200b\ufffd\t\n")]
    calls = {
        "classifier": ("classify", (texts,)),
        "regression": ("score", (texts,)),
        "tagger": ("tag", (texts,)),
        "question_answering": ("answer", (["the river?"] * 2, CONTEXTS[:2])),
        "fill_mask": ("fill_mask", (["the [MASK] river [MASK]"],)),
    }
    method, arguments = calls[kind]
    found = getattr(predictor, method)(*arguments)
    expected = getattr(model, method)(*arguments)
    assert_same(found, expected)


@pytest.mark.slow
def test_other_models_of_keras(tmp_path):
    """Choices, vectors, next sentences and how a reader chooses answers come along."""
    shape = {**SHAPE, "num_hidden_layers": 1}
    made = make_checkpoint("classifier", seed=5, **shape)
    head = "cls/classifier/output_"
    cut = {name: value[:1] for name, value in made.weights.items() if name.startswith(head)}
    made = dataclasses.replace(made, weights=made.weights | cut, labels=())
    write_checkpoint(made, tmp_path / "choice", "bert_tf")
    model = bert_tf.BertMultipleChoice.from_pretrained(tmp_path / "choice")
    model.save(tmp_path / "choice.keras")
    question = (["the river"], [["a b", "c a b"]])
    (expected,), (found,) = (
        model.choose(*question),
        bert_tf.load(tmp_path / "choice.keras").choose(*question),
    )
    assert found["index"] == expected["index"]
    assert found["score"] == pytest.approx(expected["score"], abs=1e-5)

    write_checkpoint(make_checkpoint("encoder", seed=5, **shape), tmp_path / "encoder", "bert_tf")
    embedder = bert_tf.BertEmbedder.from_pretrained(
        tmp_path / "encoder",
        pooling="cls",
        prompts={"own": "the river "},
        default_prompt="own",
        include_prompt=False,
        lower_case_texts=True,
    )
    embedder.save(tmp_path / "embedder.keras")
    expected = embedder.encode(["The a b", "b"])
    received = bert_tf.load(tmp_path / "embedder.keras").encode(["The a b", "b"])
    assert_close(received, expected)

    made = make_checkpoint("pretrained", seed=5, **shape)
    write_checkpoint(made, tmp_path / "pretrained", "bert_tf")
    bert_tf.BertPretrainer.from_pretrained(tmp_path / "pretrained").save(tmp_path / "pairs.keras")
    both = (
        bert_tf.load(tmp_path / name, kind="next_sentence").score([("the a", "b")])
        for name in ("pretrained", "pairs.keras")
    )
    assert_same(*both)

    write_checkpoint(make_checkpoint("squad", seed=5, **shape), tmp_path / "squad", "bert_tf")
    reading = {"version_2_with_negative": True, "null_score_diff_threshold": -1000.0}
    reading |= {"max_query_length": 8, "doc_stride": 16}
    reader = bert_tf.BertSpanLabeler.from_pretrained(tmp_path / "squad", reading=reading)
    reader.save(tmp_path / "squad.keras")
    asked = (["the river?"] * 2, CONTEXTS[:2])
    assert [row["answer"] for row in reader.answer(*asked)] == ["", ""]
    answers = bert_tf.load(tmp_path / "squad.keras").answer(*asked)
    assert [row["answer"] for row in answers] == ["", ""]
    with pytest.raises(ValueError, match="max_seq_length .*400; .* 48 positions"):
        bert_tf.load(tmp_path / "squad.keras", max_seq_length=400)
