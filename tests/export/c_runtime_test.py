"""Every kind of SavedModel answers in TensorFlow's C library as in Python.

TensorFlow Serving loads models with the same function of the library. `C_RUNTIME_PYTHON` names an
interpreter with another release of TensorFlow and tensorflow-text, whose libraries answer then:

    C_RUNTIME_PYTHON=/path/to/python python -m pytest -m "" tests/export/c_runtime_test.py
"""

import os
import pathlib
import pickle
import subprocess
import sys

import pytest

from bert_tf.inference.kinds import KINDS
from bert_tf.inference.serving_models import load
from bert_tf.tasks.base.serving.saving.writing import save
from export.checks.answer_check import Answer, compare, tolerance_of
from export.checks.model_check import all_requests, run_model
from export.checks.op_check import foreign_ops, used_ops
from export.checks.stored_model import StoredModel, read
from tests.export import c_runtime
from tests.export.made_models import PURPOSE_OF_KIND, export_model, write_byte_bpe
from tests.shared_data import golden_file, shared_data

PYTHON = os.environ.get("C_RUNTIME_PYTHON", sys.executable)
WORDPIECE = ["FastWordpieceTokenizeWithOffsets"]
# The library of tensorflow-text's wheel that holds it.
TEXT_LIBRARY = "_fast_wordpiece_tokenizer.so"
# What models of texts need of tensorflow-text; models of ids need nothing.
TEXT_OPS = {
    **dict.fromkeys(KINDS, WORDPIECE),
    "bfloat16": WORDPIECE,
    "SentencePiece": [],
    "byte-level BPE": [],
}
NEEDS = {"late_interaction": pytest.mark.needs(data="fixtures/families/colbert")}
NAMES = [pytest.param(name, marks=NEEDS.get(name, ())) for name in TEXT_OPS]


def write_exports(folder: pathlib.Path, name: str, index: pathlib.Path) -> list[pathlib.Path]:
    """Writes the SavedModels of a name of `TEXT_OPS`; returns their folders."""
    if name in PURPOSE_OF_KIND:
        run = {"max_query_length": "8"} if name == "question_answering" else None
        exported = export_model(folder, name, run)
        return [exported.texts, exported.ids]
    if name == "SentencePiece":
        exported = export_model(folder, "fill_mask", is_multilingual=True, num_hidden_layers=1)
        return [exported.texts, exported.ids]
    options = {}
    kind = name if name in KINDS else ""
    if name == "byte-level BPE":
        source = str(write_byte_bpe(folder / "run", "fill_mask", num_hidden_layers=1))
    elif name == "search":
        source = ""
        options = {"index": str(index)}
    elif name == "late_interaction":
        source = str(shared_data("fixtures", "families", "colbert", "stanford"))
    elif name == "bfloat16":
        source = str(golden_file("families", "sentence_transformers", "mean_normalize"))
        options = {"precision": "bfloat16"}
    else:  # zero_shot
        source = str(golden_file("families", "zero_shot", "model"))
    return save(load(source, kind, **options), folder / "model", 1, source, options)


def run_in_c(
    stored: StoredModel, requests, folder: pathlib.Path, libraries: list[str]
) -> list[Answer]:
    """Returns the answers of the C library in a process of its own."""
    job = {"folder": str(stored.folder), "text_libraries": libraries, "requests": []}
    for request in requests:
        signature = stored.signatures[request.signature]
        tensors = []
        for infos in (signature.inputs, signature.outputs):
            tensors.append({name: info.name for name, info in infos.items()})
        job["requests"].append((request.inputs, *tensors))
    job_file = folder / "job"
    answers_file = folder / "answers"
    job_file.write_bytes(pickle.dumps(job))
    command = [PYTHON, c_runtime.__file__, str(job_file), str(answers_file)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    version, answers = pickle.loads(answers_file.read_bytes())
    print(f"{stored.folder} in TensorFlow {version}: {len(answers)} requests")
    return answers


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_saved_model_answers_without_python(tmp_path, search_index, name) -> None:
    for folder in write_exports(tmp_path, name, search_index):
        stored = read(folder)
        requests = all_requests(stored)
        ops = foreign_ops(used_ops(stored.meta_graph))
        assert ops == (TEXT_OPS[name] if stored.takes_texts else [])
        expected = run_model(stored, requests).answers
        found = run_in_c(stored, requests, tmp_path, [TEXT_LIBRARY] if ops else [])
        compare(requests, expected, found, "Python", tolerance_of(stored))


@pytest.mark.slow
def test_a_text_model_needs_the_library_of_its_tokenizer(exported, tmp_path) -> None:
    stored = read(exported.texts)
    (answer,) = run_in_c(stored, stored.warmup, tmp_path, [])
    assert isinstance(answer, tuple)
    assert "FastWordpieceTokenizeWithOffsets" in answer[1]
