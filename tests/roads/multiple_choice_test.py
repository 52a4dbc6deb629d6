"""Choices and their scores are the same by every road."""

import dataclasses

import pytest

import bert_tf
from bert_tf.checkpoints.formats import write_checkpoint
from tests.export.made_models import ODD_TEXT, make_model
from tests.fine_tune import fine_tune, read_tsv, write_table
from tests.float_bounds import close_to
from tests.roads.roads import check_roads, largest_difference, load_all, rest_rows

LENGTH = 24
CONTEXTS = ["the river", "a b", "unknownwords über", "", ODD_TEXT]
CHOICES = [
    ["c", "w40", "don't"],
    ["the", "w41 w42", "w50 " * 60],
    ["qa ba", "", "caa"],
    ["the a", "b", "the"],
    ["ﬁn", "fin…", "3 kg"],
]
PAIRS = [("the river", "c"), ("a b", ""), ("w40 " * 50, "w41 " * 50)]


@pytest.fixture(
    params=[False, pytest.param(True, marks=pytest.mark.slow)], ids=["wordpiece", "multilingual"]
)
def folder(tmp_path, request):
    """The folder of a run of multiple choice, whose head has one label."""
    made = make_model("classifier", request.param, num_hidden_layers=1)
    weights = {}
    for name, value in made.weights.items():
        weights[name] = value[:1] if name.startswith("cls/classifier/output_") else value
    made = dataclasses.replace(made, weights=weights, labels=())
    write_checkpoint(made, tmp_path / "run", "bert_tf")
    record = f"# ChoiceConfig\n--max_seq_length={LENGTH}\n"
    (tmp_path / "run" / "run.flags").write_text(record)
    return tmp_path / "run"


@pytest.mark.slow
def test_answers_are_the_same(tmp_path, record_property, folder):
    model = bert_tf.BertMultipleChoice.from_pretrained(folder)
    longer = [*CHOICES[:3], ["the a", "b", "the", "river", "w44"], CHOICES[4]]
    predictors = load_all(folder, model, tmp_path)
    kinds = [predictor.kind for predictor in predictors.values()]
    assert kinds[:2] == ["multiple_choice"] * 2 and set(kinds[2:]) == {"regression"}

    def ask(answers):
        return [
            answers.choose(CONTEXTS, CHOICES),
            answers.choose(list(zip(CONTEXTS, longer, strict=True))),
            answers.choose((CONTEXTS, longer)),
            answers.score(PAIRS),
            answers.score(tuple(map(list, zip(*PAIRS, strict=True)))),
        ]

    expected = ask(model)
    assert list(expected[0][0]) == ["choice", "index", "score"]
    assert expected[1] == expected[2] and expected[3] == expected[4]
    assert len({row["index"] for row in expected[0]}) > 1
    check_roads(expected, predictors, ask, record_property)

    # Scores of pairs are the model's logits, also where the choices are one row.
    logits = model.predict((CONTEXTS, CHOICES), verbose=0).tolist()
    for context, choices, row in zip(CONTEXTS, CHOICES, logits, strict=True):
        scores = model.score([(context, choice) for choice in choices])
        assert largest_difference(row, scores) <= 1e-5
    columns = {"text": [context for context, _ in PAIRS], "text_b": [text for _, text in PAIRS]}
    rows = rest_rows(tmp_path / "saved" / "1", columns)
    assert largest_difference(expected[3], [row["value"] for row in rows]) <= 1e-5


@pytest.mark.slow
def test_kinds_that_are_asked_for(folder):
    scores = bert_tf.BertMultipleChoice.from_pretrained(folder).score(PAIRS)
    for options in ({"kind": "regression"}, {"kind": "multiple_choice"}, {"pair": True}):
        predictor = bert_tf.load(folder, **options)
        assert predictor.inputs == ("text", "text_b")
        assert largest_difference(scores, predictor.score(PAIRS)) <= 1e-5
        assert predictor.choose(CONTEXTS, CHOICES)[0]["choice"] in CHOICES[0]


def test_the_program_predicts_the_same(tmp_path, folder):
    rows = []
    for context, choices in zip(CONTEXTS, CHOICES, strict=True):
        rows.append({"context": context, "choices": choices})
    path = write_table(tmp_path / "choices.jsonl", rows)
    flags = {
        "init_checkpoint": folder,
        "output_dir": tmp_path / "predicted",
        "predict_file": path,
        "do_predict": "true",
        "max_seq_length": LENGTH,
        "jit_compile": "false",
    }
    assert fine_tune("run_multiple_choice", **flags) == 0
    model = bert_tf.BertMultipleChoice.from_pretrained(folder)
    answers = model.choose(CONTEXTS, CHOICES)
    written = read_tsv(tmp_path / "predicted" / "predictions.tsv")
    assert len(written) == len(answers)
    for row, answer, context, choices in zip(written, answers, CONTEXTS, CHOICES, strict=True):
        assert int(row["answer"]) == answer["index"]
        scores = model.score([(context, choice) for choice in choices])
        found = [float(value) for value in row["scores"].split()]
        assert found == close_to(scores)
