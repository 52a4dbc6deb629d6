"""Every kind of model has its classes, formats, flags of programs and rows in the pages."""

import re
import types

import pytest

import bert_tf
from bert_tf.checkpoints.checkpoint import HEADS
from bert_tf.config.fine_tuning_config import PROBLEM_TYPES
from bert_tf.inference import model_card
from bert_tf.inference.kinds import ANSWERING, KINDS
from bert_tf.inference.output_answers import ANSWERS_OF_KINDS
from bert_tf.inference.predictor import Predictor
from bert_tf.inference.rows.answers import ROW_CLASSES
from bert_tf.tasks.base.serving.metadata import (
    CLASS_KINDS,
    ONNX_OUTPUTS,
    OPTIONAL_ROW_OUTPUTS,
    ROW_OUTPUTS,
    TEXT_OUTPUTS,
)
from export.page import model as page
from tests.programs import run
from tests.shared_data import ROOT

OPTION_FLAGS = {"texts": "pair"}
ALL = {**KINDS, **ANSWERING}
# A checkpoint without the heads that have serving classes of their own.
NO_HEADS = types.SimpleNamespace(heads=())


def rows_of(page_name: str) -> dict[str, str]:
    """Returns the rest of each table row of a page by the first cell's names."""
    rows = {}
    for line in (ROOT / "docs" / page_name).read_text(encoding="utf8").splitlines():
        if line.startswith("| "):
            first, _, rest = line[2:].partition(" | ")
            for name in re.findall(r"\w+", first):
                rows.setdefault(name, rest)
    return rows


@pytest.mark.parametrize("kind", ALL.values(), ids=list(ALL))
def test_classes(kind):
    assert ALL[kind.name] is kind
    assert kind.head in ("", *HEADS)
    assert kind.problem_type in ("", *PROBLEM_TYPES)
    model = kind.import_model()
    assert kind.model_name in bert_tf.__all__ and getattr(bert_tf, kind.model_name) is model
    # A run of multiple choice is exported as a model of one number.
    assert kind.import_serving(NO_HEADS).kind == (
        "regression" if kind.name == "multiple_choice" else kind.name
    )
    for method in kind.methods:
        assert callable(getattr(Predictor, method))
        if kind.name in ANSWERS_OF_KINDS and method != "choose":
            assert callable(getattr(ANSWERS_OF_KINDS[kind.name], method))
        assert callable(getattr(model, method, None)) or (kind.name, method) == (
            "regression",
            "choose",
        )
    if kind.problem_type:
        assert (
            getattr(kind.import_serving(NO_HEADS), "problem_type", kind.problem_type)
            == kind.problem_type
        )


@pytest.mark.parametrize(
    ("program", "names"),
    [("export.saved_model", KINDS), ("export.tflite", ROW_OUTPUTS), ("export.onnx", ONNX_OUTPUTS)],
)
def test_programs_offer_the_kinds(program, names):
    printed = run(program, "--helpfull").printed
    (offered,) = re.findall(r"--kind: <([^>]*)>", printed)
    assert re.sub(r"\s", "", offered).split("|") == ["", *names]
    if program == "export.saved_model":
        for kind in KINDS.values():
            for option in kind.options:
                assert re.search(f"--(\\[no\\])?{OPTION_FLAGS.get(option, option)}:", printed), (
                    option
                )


def test_formats():
    assert TEXT_OUTPUTS.keys() <= KINDS.keys()
    assert ROW_OUTPUTS.keys() <= KINDS.keys() and OPTIONAL_ROW_OUTPUTS.keys() <= ROW_OUTPUTS.keys()
    assert set(CLASS_KINDS) < TEXT_OUTPUTS.keys()
    assert {*ROW_OUTPUTS, *ONNX_OUTPUTS} == ROW_CLASSES.keys()


@pytest.mark.parametrize("kind", KINDS.values(), ids=list(KINDS))
def test_documentation(kind):
    served = rows_of("reference/saved_models.md")[kind.name]
    inputs = () if served.startswith("the same |") else kind.inputs
    for name in (*TEXT_OUTPUTS.get(kind.name, ()), *inputs):
        assert f"`{name}`" in served, name
    pages = [path.read_text(encoding="utf8") for path in (ROOT / "docs").rglob("*.md")]
    for name in kind.options:
        flag = f"--{OPTION_FLAGS.get(name, name)}"
        assert any(flag in text for text in pages), flag
    lite_rows = rows_of("litert.md")
    assert (kind.name in lite_rows) == (kind.name in ROW_OUTPUTS)
    if kind.name in ROW_OUTPUTS:
        for name in (*ROW_OUTPUTS[kind.name], *OPTIONAL_ROW_OUTPUTS.get(kind.name, ())):
            assert f"`{name}`" in lite_rows[kind.name]
    for name in ONNX_OUTPUTS.get(kind.name, ()):
        assert f"`{name}`" in rows_of("onnx.md")[kind.name]
    predictors = (ROOT / "docs/predictors.md").read_text(encoding="utf8")
    for method in kind.methods:
        assert f"`{method}(" in predictors


def test_cards_and_samples_name_kinds_and_their_methods():
    for name, purpose in model_card.PURPOSES.items():
        assert purpose.example.partition("(")[0] in KINDS[name].methods
    assert page.SAMPLES.keys() <= KINDS.keys()
