"""Every class of model by every road out of Python: the same weights and the same answers."""

import dataclasses
import json
import pathlib
from collections.abc import Callable
from typing import Any, NamedTuple

import huggingface_hub
import keras
import numpy as np
import pytest

import bert_tf
from bert_tf.checkpoints.checkpoint import Checkpoint
from bert_tf.checkpoints.embedding import EmbeddingConfig
from bert_tf.checkpoints.formats import read_checkpoint, write_checkpoint
from bert_tf.checkpoints.run_identity import read_labels
from bert_tf.checkpoints.run_record import recorded
from bert_tf.network.pretrained import checkpoint_variables
from tests import programs
from tests.checkpoints.made_checkpoint import make_checkpoint
from tests.export.made_models import SHAPE, with_labels
from tests.float_bounds import OTHER_FRAMEWORK, assert_close
from tests.roads.roads import TOLERANCE, largest_difference
from tests.slow_variants import slow_unless

LENGTH = 24
TEXTS = ["the river a b c don't", "w40 w41 w42 the", "qa ba caa the"]
PAIRS = [(text, "the river") for text in TEXTS]
CONTEXTS = ["the river a b c " * 12, "w40 w41 w42 w43", "the the river"]


class Model(NamedTuple):
    """A class of model with a head, and the method that shows its answers.

    Attributes:
      name: of the class in `bert_tf`.
      purpose: of `make_checkpoint`.
      ask: calls the model's method, which a predictor has under the same name.
      arguments: of `from_pretrained`.
      num_labels: labels of its head; None: as made.
      kind: as which it is served.
    """

    name: str
    purpose: str
    ask: Callable[[Any], Any]
    kind: str
    arguments: dict[str, Any] = {}
    num_labels: int | None = None


def ask_answers(model: Any) -> list[tuple[Any, ...]]:
    found = model.answer(["the river?"] * 3, CONTEXTS)
    return [(one["answer"], one["start"], one["end"]) for one in found]


MODELS = {
    "classes": Model(
        "BertClassifier", "classifier", lambda model: model.probabilities(TEXTS), "classifier"
    ),
    "several": Model(
        *("BertClassifier", "classifier", lambda model: model.probabilities(TEXTS), "multi_label"),
        {"problem_type": "multi_label", "long_texts": "tail"},
    ),
    "pairs": Model(
        *("BertClassifier", "classifier", lambda model: model.probabilities(PAIRS), "classifier"),
        {"pair": True},
    ),
    "number": Model(
        *("BertClassifier", "classifier", lambda model: model.score(TEXTS), "regression"),
        num_labels=1,
    ),
    "tagger": Model("BertTokenClassifier", "tagger", lambda model: model.tag(TEXTS), "tagger"),
    "spans": Model("BertSpanLabeler", "squad", ask_answers, "question_answering"),
    "choices": Model(
        *("BertMultipleChoice", "classifier"),
        lambda model: model.choose(TEXTS[:2], [["the", "a b", "w40"], ["c", "river", "qa"]]),
        *("regression", {}, 1),
    ),
    "masks": Model(
        *("BertPretrainer", "pretrained"),
        lambda model: model.fill_mask(["the [MASK] river", "w40 [MASK]"], top_k=3),
        "fill_mask",
    ),
}


def make(folder: pathlib.Path, name: str, **changes: Any) -> keras.Model:
    """Makes a model of a class, with its tokenizer."""
    model = MODELS[name]
    made = make_checkpoint(model.purpose, seed=5, **{**SHAPE, **changes})
    if model.num_labels:
        made = with_labels(made, model.num_labels)
    start = folder / "start"
    write_checkpoint(made, start, "bert_tf")
    arguments = {"max_seq_length": LENGTH, **model.arguments}
    return getattr(bert_tf, model.name).from_pretrained(start, **arguments)


def assert_same_weights(model: keras.Model, expected: keras.Model) -> None:
    found = checkpoint_variables(model)
    for name, variable in checkpoint_variables(expected).items():
        np.testing.assert_array_equal(np.asarray(found[name]), np.asarray(variable), err_msg=name)


@pytest.mark.parametrize("name", slow_unless("tagger", MODELS))
def test_a_model_is_read_back_from_the_folder_that_it_wrote(tmp_path, name):
    model = make(tmp_path, name)
    folder = tmp_path / "mine"
    model.save_pretrained(folder)
    again = type(model).from_pretrained(folder)
    assert_same_weights(again, model)
    assert again.preprocessor.max_seq_length == LENGTH
    for key in ("labels", "problem_type", "long_texts", "pair", "num_labels", "reading"):
        assert getattr(again, key, None) == getattr(model, key, None), key
    assert MODELS[name].ask(again) == MODELS[name].ask(model)
    files = {path.name for path in folder.iterdir()}
    assert {"config.json", "model.safetensors", "vocab.txt", "README.md"} <= files
    card = huggingface_hub.ModelCard.load(folder / "README.md")
    assert card.data.library_name == "transformers" and card.data.pipeline_tag


@pytest.mark.parametrize("name", slow_unless("tagger", MODELS))
def test_a_keras_file_is_a_checkpoint(tmp_path, name):
    model = make(tmp_path, name)
    path = tmp_path / "mine.keras"
    model.save(path)
    again = type(model).from_pretrained(path)
    assert_same_weights(again, model)
    assert again.preprocessor.max_seq_length == LENGTH
    assert MODELS[name].ask(again) == MODELS[name].ask(model)
    tokenizer = bert_tf.load_tokenizer(path)
    assert tokenizer.vocab == model.preprocessor.vocab
    # It is described by itself: what lies beside it is of another model.
    (tmp_path / "run.flags").write_text("--max_seq_length=7\n--long_texts=windows\n")
    assert recorded(str(path), "max_seq_length") == str(LENGTH)
    assert read_checkpoint(path).settings.get("long_texts") != "windows"


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_a_file_a_folder_and_an_export_answer_as_the_model(tmp_path, name):
    model, ask = make(tmp_path, name), MODELS[name].ask
    model.save(tmp_path / "mine.keras")
    model.save_pretrained(tmp_path / "folder")
    texts, ids = model.export(tmp_path / "served")
    assert (texts.parent, texts.name) == (tmp_path / "served", "1") and ids.name == "1"
    expected = ask(model)
    for path in ("mine.keras", "folder", "served"):
        predictor = bert_tf.load(tmp_path / path)
        # An export of multiple choice scores pairs.
        is_choice = name == "choices" and path != "served"
        assert predictor.kind == ("multiple_choice" if is_choice else MODELS[name].kind)
        assert predictor.max_seq_length == LENGTH
        assert largest_difference(expected, ask(predictor)) < TOLERANCE
    assert [path.name for path in model.export(tmp_path / "served")] == ["2", "2"]


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_a_keras_file_is_converted_as_its_run(tmp_path, name):
    model = make(tmp_path, name)
    model.save(tmp_path / "mine.keras")
    done = programs.run(
        "convert_checkpoint",
        input=tmp_path / "mine.keras",
        output=tmp_path / "converted",
        to="huggingface",
    )
    assert done.returncode == 0, done.printed
    model.save_pretrained(tmp_path / "saved")
    converted, saved = read_checkpoint(tmp_path / "converted"), read_checkpoint(tmp_path / "saved")
    assert converted.weights.keys() == saved.weights.keys()
    assert (converted.labels, converted.problem_type) == (saved.labels, saved.problem_type)
    assert converted.settings == saved.settings
    config = json.loads((tmp_path / "converted/config.json").read_text())
    assert config == json.loads((tmp_path / "saved/config.json").read_text())


@pytest.mark.slow
def test_an_embedder_leaves_in_the_form_of_sentence_transformers(tmp_path):
    embedding = EmbeddingConfig(
        ("mean",), normalize=True, lower_case_texts=True, max_seq_length=LENGTH
    )
    made = make_checkpoint("encoder", seed=5, **SHAPE)
    write_checkpoint(dataclasses.replace(made, embedding=embedding), tmp_path / "start", "bert_tf")
    model = bert_tf.BertEmbedder.from_pretrained(tmp_path / "start")
    expected = model.encode(TEXTS)
    model.save_pretrained(tmp_path / "mine")
    model.save(tmp_path / "mine.keras")
    for path in ("mine", "mine.keras"):
        again = bert_tf.BertEmbedder.from_pretrained(tmp_path / path)
        assert again.embedding == embedding
        np.testing.assert_array_equal(again.encode(TEXTS), expected)
    card = huggingface_hub.ModelCard.load(tmp_path / "mine" / "README.md")
    assert card.data.library_name == "sentence-transformers"
    assert (tmp_path / "mine/modules.json").exists()
    model.export(tmp_path / "served")
    found = bert_tf.load(tmp_path / "served").encode(TEXTS)
    assert_close(found, expected, OTHER_FRAMEWORK)


def test_a_cross_encoder_leaves_as_one(tmp_path):
    model = make(tmp_path, "number")
    model.activation, model.pair = "identity", True
    model.save(tmp_path / "mine.keras")
    again = bert_tf.BertClassifier.from_pretrained(tmp_path / "mine.keras")
    assert again.activation == "identity" and again.pair
    model.save_pretrained(tmp_path / "mine")
    config = json.loads((tmp_path / "mine/config.json").read_text())
    assert config["sentence_transformers"]["activation_fn"].endswith("Identity")
    assert bert_tf.BertClassifier.from_pretrained(tmp_path / "mine").activation == "identity"


def test_an_encoder_has_roads_of_its_own(tmp_path):
    made = make_checkpoint("encoder with pooler", seed=5, **SHAPE)
    write_checkpoint(made, tmp_path / "start", "bert_tf")
    model = bert_tf.BertEncoder.from_pretrained(tmp_path / "start")
    model.save_pretrained(tmp_path / "mine")
    model.save(tmp_path / "mine.keras")
    for path in ("mine", "mine.keras"):
        assert_same_weights(bert_tf.BertEncoder.from_pretrained(tmp_path / path), model)
    with pytest.raises(ValueError, match="BertEncoder.export.*model.preprocessor"):
        model.export(tmp_path / "served")
    assert not (tmp_path / "served").exists()


def joint_model(folder: pathlib.Path) -> keras.Model:
    start = make_checkpoint("encoder", seed=5, **SHAPE)
    write_checkpoint(start, folder / "start", "bert_tf")
    keras.utils.set_random_seed(1)
    return bert_tf.BertJointSpanLabeler.from_pretrained(
        folder / "start", new_head=True, max_seq_length=LENGTH
    )


@pytest.mark.slow
def test_a_head_that_hugging_face_lacks_names_the_other_roads(tmp_path):
    model = joint_model(tmp_path)
    with pytest.raises(ValueError, match="BertJointSpanLabeler.*joint_squad.*bert_tf.*keras"):
        model.save_pretrained(tmp_path / "mine")
    assert not (tmp_path / "mine").exists()
    expected = ask_answers(model)
    model.save_pretrained(tmp_path / "own", form="bert_tf")
    model.save(tmp_path / "mine.keras")
    for path in ("own", "mine.keras"):
        again = bert_tf.BertSpanLabeler.from_pretrained(tmp_path / path)
        assert isinstance(again, bert_tf.BertJointSpanLabeler)
        assert_same_weights(again, model)
        assert again.preprocessor.max_seq_length == LENGTH and ask_answers(again) == expected


def test_a_structure_that_hugging_face_lacks_is_named(tmp_path):
    model = make(tmp_path, "classes", block_type="pre_norm", gated_feed_forward=True)
    with pytest.raises(ValueError, match="BertClassifier: huggingface .*pre_norm.*bert_tf"):
        model.save_pretrained(tmp_path / "mine")
    model.save_pretrained(tmp_path / "own", form="bert_tf")
    again = bert_tf.BertClassifier.from_pretrained(tmp_path / "own")
    assert MODELS["classes"].ask(again) == MODELS["classes"].ask(model)


def test_a_model_of_ids_leaves_without_a_tokenizer(tmp_path):
    model = make(tmp_path, "classes")
    model.preprocessor = None
    model.save_pretrained(tmp_path / "mine")
    assert bert_tf.BertClassifier.from_pretrained(tmp_path / "mine").preprocessor is None
    with pytest.raises(ValueError, match="BertClassifier.export.*preprocessor"):
        model.export(tmp_path / "served")
    model.save(tmp_path / "mine.keras")
    with pytest.raises(ValueError, match="mine.keras"):
        bert_tf.load_tokenizer(tmp_path / "mine.keras")


def test_a_folder_that_is_not_empty_stays_as_it_is(tmp_path):
    model = make(tmp_path, "classes")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    with pytest.raises(ValueError, match=f"^{tmp_path}/mine "):
        model.save_pretrained(tmp_path / "mine")
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["notes.txt"]
    with pytest.raises(ValueError, match="form .*'onnx'"):
        model.save_pretrained(tmp_path / "new", form="onnx")


def test_labels_and_settings_of_a_folder_in_our_form(tmp_path):
    model = make(tmp_path, "several")
    model.save_pretrained(tmp_path / "mine", form="bert_tf")
    assert read_labels(tmp_path / "mine") == model.labels
    found: Checkpoint = read_checkpoint(tmp_path / "mine")
    settings = {"problem_type": "multi_label", "long_texts": "tail"}
    assert found.settings == {"max_seq_length": str(LENGTH), **settings}
