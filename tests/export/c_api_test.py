"""SavedModels of every kind in TensorFlow's C library, without TensorFlow's Python."""

import functools

import numpy as np
import pytest

from export.checks.answer_check import compare
from export.checks.c_api import LIBRARIES, OP_LIBRARIES, has_library
from export.checks.model_check import check_result
from export.checks.run_apart import C_LIBRARY, run_apart
from export.checks.stored_model import read_meta_graph, read_signatures
from tests.export.conftest import QUICK_KINDS, every_kind
from tests.export.toy_model import save_toy_model

pytestmark = pytest.mark.skipif(not has_library(), reason=f"needs {LIBRARIES[1]} in the wheel")
# Strings of up to 22 bytes stand inside of a TF_TString, longer ones outside.
STRINGS = (b"", b"\0", b"a\0b\0", b"x" * 21, b"y" * 22, b"z" * 23, b"\xff\xfe" * 5000)


@pytest.fixture(scope="module")
def toy_job(tmp_path_factory):
    folder = tmp_path_factory.mktemp("toy") / "1"
    save_toy_model(folder)
    signatures = {
        name: tuple({key: info.tensor for key, info in part.items()} for part in signature)
        for name, signature in read_signatures(read_meta_graph(folder)).items()
    }
    ids = np.arange(6, dtype=np.int32).reshape(2, 3)
    requests = [
        ("examples", {"examples": np.array(STRINGS, object)}),
        ("examples", {"examples": np.zeros([0], object)}),
        ("ids", {"input_word_ids": ids, "input_mask": ids, "input_type_ids": ids + 10}),
        ("compare", {"text": np.array([b"four"], object), "text_b": np.array([b"ab"], object)}),
        ("compare", {"text_b": np.array([b"four"], object), "text": np.array([b"ab"], object)}),
        ("tag", {"text": np.array([b"a bcd", b"e"], object)}),
        ("serving_default", {"text": np.array([b"caf\xe9"], object)}),
    ]
    return {"folder": str(folder), "ops": [], "signatures": signatures, "requests": requests}


@pytest.fixture(scope="module")
def other_results(asked_models, toy_job, tmp_path_factory):
    """What one process says of a text model without its operation, the toy, and no model."""
    good = asked_models["next_sentence", "text"].job
    lacking = {**good, "ops": [], "requests": good["requests"][:1]}
    nothing = {**toy_job, "folder": str(tmp_path_factory.mktemp("empty"))}
    return dict(
        zip(
            ("lacking", "toy", "empty"),
            run_apart(C_LIBRARY, [lacking, toy_job, nothing]),
            strict=True,
        )
    )


@pytest.fixture(scope="module")
def c_results(asked_models):
    """Returns a function that says what a process says of all models that go with a kind."""

    @functools.cache
    def results_of(group):
        asked = asked_models.group(group)
        results = run_apart(C_LIBRARY, [model.job for model in asked.values()])
        return dict(zip(asked, results, strict=True))

    return lambda kind: results_of("tagger" if kind in QUICK_KINDS else "encoder")


@pytest.mark.parametrize("form", ["text", "ids"])
@pytest.mark.parametrize("kind", every_kind())
def test_answers_equal_those_of_python(c_results, asked_models, kind, form) -> None:
    asked, result = asked_models[kind, form], c_results(kind)[kind, form]
    answers = check_result(asked.stored, asked.requests, result, "the C library")
    expected = asked.result["answers"]
    # The graph is optimized as a whole here, so the last digits differ.
    compared = compare(asked.requests, expected, answers, "Python", tolerance=5e-6)
    assert compared.num_answers == len(asked.requests)
    is_float = [v.dtype.kind == "f" for answer in answers[:1] for v in answer.values()]
    assert any(is_float)


def test_texts_need_the_operation_of_tensorflow_text(other_results, asked_models) -> None:
    (op,) = OP_LIBRARIES
    # A model is loaded without it: only a request, as those of the warm-up, tells.
    ((code, message),) = other_results["lacking"]["answers"]
    assert code == 5 and f"Op type not registered '{op}'" in message
    used = {form: asked_models["tagger", form].job["ops"] for form in ("text", "ids")}
    assert op in used["text"] and op not in used["ids"]


def test_a_folder_without_a_model(other_results) -> None:
    assert "Could not find SavedModel" in other_results["empty"]["error"]


def test_strings_of_every_length_and_byte_come_back(other_results) -> None:
    answer, empty = other_results["toy"]["answers"][:2]
    for name in ("back_bytes", "back"):
        assert tuple(answer[name]) == STRINGS
        assert empty[name].shape == (0,)


def test_numbers_and_names_of_inputs(other_results) -> None:
    _, _, ids, compared, swapped, tags, refused = other_results["toy"]["answers"]
    # Sums of id * mask and of types: 0 + 1 + 4, 9 + 16 + 25; 10 + 11 + 12, 13 + 14 + 15.
    np.testing.assert_array_equal(ids["embedding"], np.float32([[5, 33], [50, 42]]))
    assert compared["value"].tolist() == [3.0] and swapped["value"].tolist() == [0.0]
    assert tags["words"].tolist() == [[b"a", b"bcd"], [b"e", b""]]
    assert tags["ends"].tolist() == [[1, 4], [1, -1]]
    assert refused[0] == 3 and "Invalid formatting on input string" in refused[1]
