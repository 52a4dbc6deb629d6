"""Zero-shot classification gives the probabilities of transformers' pipeline, in every format."""

import json
import pathlib
import shutil

import numpy as np
import pytest
import tensorflow as tf

import bert_tf
from bert_tf.inference.output_answers import output_answers
from bert_tf.inference.predictor import Predictor
from bert_tf.inference.serving_models import load
from bert_tf.tasks.base.serving.saving.writing import save
from bert_tf.tasks.classification.model import BertClassifier
from bert_tf.tasks.classification.zero_shot import check_template, find_classes, hypothesis_rows
from export.ask import ExportedModel, readable
from export.checks.model_check import check
from export.lite.conversion import convert
from export.page.model import DemoModel
from tests.export.demo_stand_in import StandIn
from tests.export.made_models import write_model
from tests.float_bounds import OTHER_FRAMEWORK, assert_close
from tests.shared_data import golden_file
from tests.slow_variants import slow_unless

FOLDER = golden_file("families", "zero_shot")
GOLDEN = json.loads((FOLDER / "zero_shot.json").read_text(encoding="utf8"))
CANDIDATES = GOLDEN["candidate_labels"]
TEMPLATES = GOLDEN["templates"]


def golden_rows(template: str) -> list[dict]:
    """Returns the rows of a template that the pipeline answers; it refuses the empty text."""
    return [row for row in GOLDEN["rows"] if row["template"] == template and row["sequence"]]


def check_answers(predictor, template: str, /, names: str = "folder", **given) -> None:
    """Compares the probabilities and labels of all golden texts."""
    rows = golden_rows(template)
    texts = [row["sequence"] for row in rows]
    options = {"candidates": CANDIDATES, **given}
    for several, key in ((False, "single"), (True, "multi_contradiction_by_name")):
        expected = np.array([row["scores"][names][key] for row in rows])
        found = predictor.probabilities(texts, several=several, **options)
        assert [list(row) for row in found] == [CANDIDATES] * len(rows)
        values = np.array([list(row.values()) for row in found])
        assert_close(values, expected, OTHER_FRAMEWORK)
    labels = predictor.classify(texts, **options)
    best = np.array([row["scores"][names]["single"] for row in rows])
    assert [row["label"] for row in labels] == [CANDIDATES[i] for i in best.argmax(axis=1)]
    assert_close([row["score"] for row in labels], best.max(axis=1), OTHER_FRAMEWORK)


@pytest.fixture(name="predictor", scope="module")
def fixture_predictor():
    return bert_tf.load(FOLDER / "model", batch_size=5)


@pytest.mark.parametrize("template", slow_unless("Is this text about {}?", TEMPLATES))
def test_probabilities_of_the_pipeline(predictor, template):
    assert len(golden_rows(template)) == 6
    check_answers(predictor, template, template=template)


def test_the_default_template(predictor):
    check_answers(predictor, "This example is {}.")


def renamed(folder: pathlib.Path, label2id: dict) -> pathlib.Path:
    """Writes the golden model with other names of its classes."""
    shutil.copytree(FOLDER / "model", folder)
    values = json.loads((folder / "config.json").read_text())
    values["id2label"] = {str(index): name for name, index in label2id.items()}
    (folder / "config.json").write_text(json.dumps({**values, "label2id": label2id}))
    return folder


@pytest.mark.parametrize(
    "names", [pytest.param("usual", marks=pytest.mark.slow), "entailment_first"]
)
def test_classes_in_any_case_and_order(tmp_path, names):
    predictor = bert_tf.load(renamed(tmp_path / "model", GOLDEN["label2id"][names]))
    check_answers(predictor, TEMPLATES[1], names, template=TEMPLATES[1])


def test_classes_without_names_are_refused(tmp_path):
    """The pipeline takes the last class for entailment."""
    predictor = bert_tf.load(renamed(tmp_path / "model", GOLDEN["label2id"]["unnamed"]))
    with pytest.raises(ValueError, match="entail") as error:
        predictor.classify(["A text."], candidates=CANDIDATES)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (["neutral", "ENTAILMENT", "contradiction"], (1, 2)),
        (["CONTRADICTION", "neutral", "entails"], (2, 0)),
        (["entailment", "not_entailment"], (0, 1)),
        (["not_entailment", "entailment"], (1, 0)),
        (["entailment", "neutral", "other"], (0, None)),
    ],
)
def test_classes_are_found_by_name(labels, expected):
    assert tuple(find_classes(labels)) == expected


@pytest.mark.parametrize(
    "labels", [["0", "1", "2"], ["not_entailment", "other"], ["entailment", "entailed"], []]
)
def test_no_class_or_two_for_entailment(labels):
    with pytest.raises(ValueError, match="entail"):
        find_classes(labels)


@pytest.mark.parametrize("template", slow_unless("Is this text about {}?", TEMPLATES))
def test_tokens_of_the_pairs(template):
    """Only premises are cut, also to nothing of an empty text."""
    model = BertClassifier.from_pretrained(FOLDER / "model")
    rows = [row for row in GOLDEN["rows"] if row["template"] == template]
    texts = [row["sequence"] for row in rows]
    made = hypothesis_rows(model, texts, CANDIDATES, template)
    expected = [ids for row in rows for ids in row["input_ids"]]
    assert len(made) == len(expected) == 28
    logits = model.predict_rows(made, 8)
    for index, ids in enumerate(expected):
        batch = made.batch(np.array([index]), 1, len(ids))
        assert batch["input_word_ids"].tolist() == [ids]
    golden = np.concatenate([row["logits"] for row in rows])
    assert_close(np.stack(logits), golden, OTHER_FRAMEWORK)


@pytest.mark.slow
def test_the_end_of_long_texts():
    """With long_texts="tail" a text is cut at its beginning, in Python and in the graph."""
    model = BertClassifier.from_pretrained(FOLDER / "model", long_texts="tail")
    premise = max((row["sequence"] for row in GOLDEN["rows"]), key=len)
    made = hypothesis_rows(model, [premise], CANDIDATES[:2], None)
    served = load(str(FOLDER / "model"), "zero_shot", long_texts="tail")
    packed = served.pack(tf.constant([premise] * 2), tf.constant(CANDIDATES[:2]))
    tokenizer = model.tokenizer
    tokens = tokenizer.encode(premise)
    cls, sep = tokenizer.vocab.cls_id, tokenizer.vocab.sep_id
    for index, name in enumerate(CANDIDATES[:2]):
        sentence = tokenizer.encode(f"This example is {name}.")
        kept = tokens[len(tokens) - (61 - len(sentence)) :]
        expected = [cls, *kept, sep, *sentence, sep]
        assert len(expected) == 64
        batch = made.batch(np.array([index]), 1, 64)
        assert batch["input_word_ids"][0].tolist() == expected
        assert packed["input_word_ids"][index].numpy().tolist() == expected


def test_pairs_of_similar_length_are_computed_together(monkeypatch):
    model = BertClassifier.from_pretrained(FOLDER / "model")
    shapes = []
    original = BertClassifier.predict_rows

    def predict_rows(self, rows, batch_size):
        shapes.append((len(rows), batch_size))
        return original(self, rows, batch_size)

    monkeypatch.setattr(BertClassifier, "predict_rows", predict_rows)
    texts = [row["sequence"] for row in golden_rows(TEMPLATES[0])]
    model.classify(texts, 7, candidates=CANDIDATES)
    assert shapes == [(6 * 4, 7)]


def test_several_labels_and_a_threshold(predictor):
    rows = golden_rows(TEMPLATES[0])[:1]
    texts = [rows[0]["sequence"]]
    expected = rows[0]["scores"]["folder"]["multi_contradiction_by_name"]
    (found,) = predictor.classify(texts, candidates=CANDIDATES, several=True)
    order = np.argsort(expected)[::-1]
    assert found["labels"] == [CANDIDATES[index] for index in order]
    least = float(np.mean(sorted(expected)[1:3]))
    (found,) = predictor.classify(texts, least, candidates=CANDIDATES, several=True)
    assert found["labels"] == [CANDIDATES[index] for index in order[:2]]
    assert predictor.classify([], candidates=CANDIDATES) == []
    assert predictor.probabilities(texts, ["sport"], several=True)[0].keys() == {"sport"}


WRONG = {
    "^candidates .*empty": {"candidates": []},
    r"candidates\[1\]": {"candidates": ["a", " "]},
    "candidates .*'b'": {"candidates": ["a", "b", "b"]},
    "several=True": {"candidates": ["a"]},
    "template .*'This example.'": {"candidates": ["a", "b"], "template": "This example."},
    "threshold=0.3": {"candidates": ["a", "b"], "threshold": 0.3},
    "max_seq_length .*64": {"candidates": ["a", "b " * 70]},
    "candidates=": {"template": "It is {}."},
    r"candidates=\[": {"several": True},
}


@pytest.mark.parametrize("named", WRONG)
def test_wrong_arguments(predictor, named):
    with pytest.raises(ValueError, match=named):
        predictor.classify(
            ["A text."] if "candidates" in WRONG[named] else [("a", "b")], **WRONG[named]
        )


def test_a_template_has_one_place():
    for template in ("", "no place", "{} and {}"):
        with pytest.raises(ValueError, match=f"template .*'{template}'"):
            check_template(template)


def test_several_needs_a_contradiction(tmp_path):
    names = {"entailment": 0, "neutral": 1, "other": 2}
    predictor = bert_tf.load(renamed(tmp_path / "model", names))
    assert predictor.classify(["A text."], candidates=CANDIDATES)
    with pytest.raises(ValueError, match="contradict"):
        predictor.classify(["A text."], candidates=CANDIDATES, several=True)


def test_models_of_other_kinds(tmp_path):
    regression = bert_tf.load(write_model(tmp_path / "regression", "regression"))
    with pytest.raises(ValueError, match="classify .*regression"):
        regression.classify(["A text."], candidates=CANDIDATES)
    several = BertClassifier.from_pretrained(FOLDER / "model", problem_type="multi_label")
    with pytest.raises(ValueError, match="problem_type='multi_label'"):
        several.classify(["A text."], candidates=CANDIDATES)


# Exports.


@pytest.fixture(name="exported", scope="module")
def fixture_exported(tmp_path_factory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("serving") / "nli"
    options = {"template": TEMPLATES[1]}
    served = load(str(FOLDER / "model"), "zero_shot", **options)
    save(served, folder, 1, str(FOLDER / "model"), options)
    return folder


@pytest.mark.slow
def test_a_saved_model_reads_candidates(exported):
    predictor = bert_tf.load(exported, batch_size=9)
    check_answers(predictor, TEMPLATES[1])
    check_answers(predictor, TEMPLATES[1], template=TEMPLATES[1])
    assert predictor.kind == "zero_shot"
    with pytest.raises(ValueError, match="--template"):
        predictor.classify(["A text."], candidates=CANDIDATES, template=TEMPLATES[0])
    with pytest.raises(ValueError, match="candidates"):
        predictor.classify(["A text."])


@pytest.mark.slow
def test_the_saved_model_passes_its_check(exported):
    lines = list(check(exported / "1", str(FOLDER / "model")))
    assert lines


@pytest.mark.slow
def test_lists_of_different_lengths():
    served = load(str(FOLDER / "model"), "zero_shot")
    texts = [row["sequence"] for row in golden_rows(TEMPLATES[0])[:3]]
    lists = [CANDIDATES, ["", "sport", "", "politics"], [""] * 4]
    found = served.from_texts(tf.constant(texts), tf.constant(lists))
    expected = golden_rows(TEMPLATES[0])[0]["scores"]["folder"]["single"]
    assert_close(found["probabilities"][0], expected, OTHER_FRAMEWORK)
    assert found["probabilities"][1].numpy()[[0, 2]].tolist() == [0, 0]
    assert abs(float(sum(found["probabilities"][1])) - 1) < 1e-6
    assert found["label"].numpy()[2] == b"" and found["score"].numpy()[2] == 0
    assert not found["probabilities"][2].numpy().any()
    assert not found["several_probabilities"][2].numpy().any()
    nothing = served.from_texts(tf.constant(texts[:1]), tf.zeros([1, 0], tf.string))
    assert nothing["label"].numpy().tolist() == [b""]


def test_a_saved_model_of_classes_says_how_to_export():
    card = {"kind": "classifier", "inputs": ("text",), "labels": ("entailment", "x")}
    model = type("Model", (), {"card": {**card, "max_seq_length": 9}})()
    predictor = Predictor(output_answers(model), model.card)
    with pytest.raises(ValueError, match="--kind=zero_shot"):
        predictor.classify(["A text."], candidates=CANDIDATES)


@pytest.mark.slow
def test_litert(tmp_path):
    path = tmp_path / "nli.tflite"
    path.write_bytes(convert(load(str(FOLDER / "model"), "zero_shot", unpad=False), "none"))
    check_answers(bert_tf.load(path), TEMPLATES[0])


@pytest.mark.slow
def test_ask_and_the_page(exported):
    row = golden_rows(TEMPLATES[1])[0]
    request = [row["sequence"], "\n".join(CANDIDATES)]
    model = ExportedModel(exported)
    lines = readable(model.labels_of(request), model.answer(request))
    best = CANDIDATES[int(np.argmax(row["scores"]["folder"]["single"]))]
    assert len(lines) == 4 and lines[0].endswith(best)

    page = DemoModel(load(str(FOLDER / "model"), "zero_shot", template=TEMPLATES[1]), "nli")
    texts = {"text": [row["sequence"]], "candidates": CANDIDATES}
    outputs = page.answer(texts)["outputs"]
    expected = row["scores"]["folder"]
    assert_close(outputs["probabilities"][0], expected["single"], OTHER_FRAMEWORK)
    several = outputs["several_probabilities"][0]
    assert_close(several, expected["multi_contradiction_by_name"], OTHER_FRAMEWORK)
    attention = page.attention({"text": texts["text"], "candidates": [CANDIDATES[0]]})
    assert attention["num_pieces"] == len(row["input_ids"][0])
    made = StandIn("zero_shot")
    assert set(page.card()["samples"]) == {"text", "candidates"}
    assert page.card().keys() == made.card().keys()
    assert outputs.keys() == made.answer(texts)["outputs"].keys()
