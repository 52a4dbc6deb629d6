"""What an earlier release wrote is read by this one, with the same answers.

`tests/golden/earlier` holds runs, .keras files, exports and an index that `remake_earlier.py` made
in a folder /earlier, which is not there any more: they have been moved, as users move theirs.
"""

import json
import lzma
import re
import shutil
import subprocess
import sys
import tarfile

import keras
import numpy as np
import pytest
import tensorflow as tf

import bert_tf
from bert_tf.config.renamed import RENAMED
from bert_tf.search.reranker import Reranker
from bert_tf.search.searcher import Searcher
from bert_tf.training.metrics_log import read_metrics
from tests.programs import finish, run
from tests.shared_data import golden_file
from tests.slow_variants import slow_unless, slow_where

MADE_IN = "/earlier"
with lzma.open(golden_file("earlier", "expected.json.xz"), "rt", encoding="utf8") as file:
    EXPECTED = json.load(file)
GIVEN = EXPECTED["inputs"]
TEXTS = GIVEN["texts"]
PAIRS = [tuple(pair) for pair in GIVEN["pairs"]]
# The program that made a run, and the predictions that it wrote.
PROGRAMS = {
    "class": ("run_classifier", "predictions.tsv", "test_results.tsv"),
    "several": ("run_classifier", "predictions.tsv", "test_results.tsv"),
    "number": ("run_classifier", "predictions.tsv", "test_results.tsv"),
    "pairs": ("run_classifier", "predictions.tsv", "test_results.tsv"),
    "windows": ("run_classifier", "predictions.tsv", "test_results.tsv"),
    "tags": ("run_tagger", "predictions.txt"),
    "squad": ("run_squad", "predictions.json", "nbest_predictions.json"),
    "squad2": ("run_squad", "predictions.json", "nbest_predictions.json", "null_odds.json"),
    "joint": ("run_squad", "predictions.json", "nbest_predictions.json", "null_odds.json"),
    "choice": ("run_multiple_choice", "predictions.tsv"),
    "reranker": ("run_reranker", "predictions.tsv"),
}
DATA = {
    "class": "class.csv",
    "tags": "tagged.txt",
    "squad2": "squad2.json",
    "choice": "choice.csv",
    "reranker": "lists.jsonl",
}


def models(*where, without=(), slow=()):
    """Returns the names of what was recorded, some of them for slow tests."""
    recorded = EXPECTED
    for part in where:
        recorded = recorded[part]
    names = sorted(recorded.keys() - set(without))
    return slow_where(lambda name: name in slow, names)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("earlier")
    for name in ("runs", "keras", "exports"):
        with tarfile.open(golden_file("earlier", f"{name}.tar.xz")) as archive:
            archive.extractall(path, filter="data")
    return path


def close(found, expected, tolerance=1e-5):
    """Compares answers: numbers nearly, all else exactly."""
    if isinstance(expected, dict):
        assert found.keys() >= expected.keys()
        for name, value in expected.items():
            close(found[name], value, tolerance)
    elif isinstance(expected, list):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            close(one, other, tolerance)
    elif isinstance(expected, float):
        assert float(found) == pytest.approx(expected, rel=tolerance, abs=tolerance)
    else:
        assert found == expected


def check_answers(model, name, expected, tolerance=1e-5):
    """Compares what the methods of the model called `name` answer to the recorded inputs."""
    several = {"windows": [*TEXTS, GIVEN["long"]], "pairs": PAIRS, "reranker": PAIRS}
    given = {
        "answer": (GIVEN["questions"], GIVEN["contexts"]),
        "choose": (TEXTS[:2], GIVEN["choices"]),
        "fill_mask": (GIVEN["masked"], 3),
        "words": (GIVEN["sentences"],),
    }
    for method, answers in expected.items():
        arguments = given.get(method, (several.get(name, TEXTS),))
        function = getattr(model, "tag" if method == "words" else method)
        close(function(*arguments), answers, tolerance)


# Run directories ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", models("runs", without=["reranker"], slow=["joint", "pairs", "several", "squad"])
)
def test_a_run_directory_answers(folder, name):
    expected = EXPECTED["runs"][name]
    if (
        name == "windows"
    ):  # `load` read only the beginning of a long text then, the model all of it.
        expected = EXPECTED["keras"][name]
    check_answers(bert_tf.load(folder / "runs" / name), name, expected)


def test_a_reranker_scores_and_ranks(folder):
    model = Reranker.from_pretrained(str(folder / "runs/reranker"))
    expected = EXPECTED["runs"]["reranker"]
    close(model.scores(PAIRS), expected["scores"])
    ranked = model.rank(TEXTS[0], GIVEN["contexts"] + TEXTS)
    assert ranked.tolist() == expected["rank"]
    predictor = bert_tf.load(folder / "runs/reranker")
    close(predictor.score(PAIRS), expected["scores"])
    answers = predictor.rank(TEXTS[0], GIVEN["contexts"] + TEXTS)
    assert [answer["index"] for answer in answers] == expected["rank"]


def same_file(found, expected):
    """Compares predictions: JSON by value, tables cell by cell."""
    if expected.suffix == ".json":
        close(json.loads(found.read_text()), json.loads(expected.read_text()))
        return
    assert expected.read_text()
    close(read_cells(found), read_cells(expected))


def read_cells(path):
    """Returns the words of a table's cells by line; numbers as such."""
    lines = path.read_text().splitlines()
    return [list(map(as_number, re.split("[\t ]", line))) for line in lines]


def as_number(cell):
    try:
        return float(cell)
    except ValueError:
        return cell


def moved(folder, name, tmp_path):
    """Returns a copy of a run whose run.flags names the files where they are now."""
    for path in (folder / "data", folder / "model", folder / "runs" / name):
        shutil.copytree(path, tmp_path / path.relative_to(folder))
    record = tmp_path / "runs" / name / "run.flags"
    record.write_text(record.read_text().replace(MADE_IN, str(tmp_path)))
    return record.parent


@pytest.mark.parametrize("name", slow_unless("squad", PROGRAMS))
def test_the_command_of_a_run_predicts_the_same_again(folder, name, tmp_path):
    program, *files = PROGRAMS[name]
    path = moved(folder, name, tmp_path)
    kept = {file: path / file for file in ("metrics.jsonl", "model.ckpt-30.index")}
    before = {file: place.read_bytes() for file, place in kept.items()}
    for file in files:
        (path / file).unlink()
    finish(run(program, f"--flagfile={path / 'run.flags'}"))
    for file in files:
        same_file(path / file, folder / "runs" / name / file)
    assert {file: place.read_bytes() for file, place in kept.items()} == before


@pytest.mark.parametrize("name", slow_unless("choice", DATA))
def test_a_moved_run_predicts_with_its_record_as_it_is(folder, name, tmp_path):
    program, *files = PROGRAMS[name]
    path = shutil.copytree(folder / "runs" / name, tmp_path / "run")
    for file in files:
        (path / file).unlink()
    data = folder / "data" / DATA[name]
    finish(run(program, "--do_predict", output_dir=path, predict_file=data))
    for file in files:
        same_file(path / file, folder / "runs" / name / file)


@pytest.mark.parametrize("program", sorted(EXPECTED["flags"]))
def test_a_program_has_the_flags_that_flagfiles_name(program):
    printed = run(program, "--helpfull").printed
    known = set(re.findall(r"--(?:\[no\])?(\w+):", printed))
    # Flags that have been renamed go on working: `renamed_test.py`.
    known |= {earlier for earlier, name in RENAMED.items() if name in known}
    missing = set(EXPECTED["flags"][program]) - known
    assert len(known) > 20 and not missing


# Trainings that go on ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", models("losses", slow=["electra"]))
def test_a_pretraining_goes_on_with_the_losses_of_a_run_that_was_not_stopped(
    folder, name, tmp_path
):
    path = moved(folder, name, tmp_path)
    expected = EXPECTED["losses"][name]
    assert len(read_metrics(path / "metrics.jsonl")) == 8 and len(expected) == 12
    before = (path / "model.ckpt-6.index").stat().st_mtime_ns
    finish(run("run_pretraining", f"--flagfile={path / 'run.flags'}"))
    # It did not begin at step 0, which would write this checkpoint again.
    assert (path / "model.ckpt-6.index").stat().st_mtime_ns == before
    close(read_metrics(path / "metrics.jsonl"), expected)


# .keras files ------------------------------------------------------------------------------------


def check_keras_model(model, name):
    expected = EXPECTED["keras"][name]
    if all(method.startswith("call/") for method in expected):
        outputs = model(batch())
        found = outputs if isinstance(outputs, dict) else {"output": outputs}
        for method, values in expected.items():
            np.testing.assert_allclose(found[method.removeprefix("call/")], values, atol=1e-5)
    elif "answer" in expected:
        # The score was then the probability, which has a key of its own now.
        answers = model.answer(GIVEN["questions"], GIVEN["contexts"])
        for found, earlier in zip(answers, expected["answer"], strict=True):
            assert found["answer"] == earlier["answer"]
            close(found["probability"], earlier["score"])
            assert (found["start"], found["end"]) == (earlier["start"], earlier["end"])
    else:
        check_answers(model, name, expected)


def batch():
    """Returns ids of two rows, with masked positions for a model that pre-trains."""
    ids = [[2, 5, 40, 41, 3, 0, 0, 0], [2, 60, 61, 62, 63, 64, 65, 3]]
    return {
        "input_word_ids": np.array(ids),
        "input_mask": (np.array(ids) > 0).astype(int),
        "input_type_ids": np.zeros([2, 8], int),
        "masked_lm_positions": np.array([[1, 2], [3, 4]]),
        "masked_lm_ids": np.array([[7, 40], [61, 9]]),
        "masked_lm_weights": np.ones([2, 2], "float32"),
    }


@pytest.mark.parametrize(
    "name", models("keras", without=["saved_tags"], slow=["joint", "several", "squad"])
)
def test_a_keras_file_computes_the_same(folder, name):
    check_keras_model(keras.models.load_model(folder / f"keras/{name}.keras"), name)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["class", "tags", "squad"])
def test_a_keras_file_is_loaded_to_answer(folder, name):
    model = bert_tf.load(folder / f"keras/{name}.keras")
    check_answers(model, name, EXPECTED["runs"][name])


def test_a_folder_of_save_pretrained_is_read(folder):
    model = bert_tf.BertTokenClassifier.from_pretrained(folder / "keras/saved_tags")
    check_answers(model, "tags", EXPECTED["keras"]["saved_tags"])


def test_a_model_saved_in_training_trains_on(folder):
    model = keras.models.load_model(folder / "keras/in_training.keras")
    assert int(model.optimizer.iterations.numpy()) == 3
    labels = ["pos", "neg", "so-so"] * 4
    model.fit(TEXTS * 4, labels, batch_size=4, verbose=0, shuffle=False)
    assert int(model.optimizer.iterations.numpy()) == 6


@pytest.mark.slow
def test_keras_finds_the_classes_of_old_files_after_a_mere_import(folder):
    program = (
        "import sys, keras, bert_tf\n"
        "for path in sys.argv[1:]: print(type(keras.models.load_model(path)).__name__)\n"
    )
    paths = sorted((folder / "keras").glob("*.keras"))
    done = subprocess.run(
        [sys.executable, "-c", program, *paths], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.split()) == len(paths) == 15


# Exports -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    models(
        "exports",
        "saved_model",
        slow=["bert", "joint", "pairs", "retriever", "several", "squad", "tags"],
    ),
)
def test_a_saved_model_answers(folder, name):
    model = bert_tf.load(folder / "exports" / name)
    check_answers(model, name, EXPECTED["exports"]["saved_model"][name])


@pytest.mark.parametrize("name", ["class", pytest.param("reranker", marks=pytest.mark.slow)])
def test_a_serving_signature_computes_the_same(folder, name):
    expected = EXPECTED["exports"]["signature"][name]
    serve = tf.saved_model.load(str(folder / "exports" / name / "1")).signatures["serving_default"]
    given = {"text": tf.constant(TEXTS)}
    if name == "reranker":
        documents = [GIVEN["contexts"] + TEXTS]
        given = {"query": tf.constant(TEXTS[:1]), "documents": tf.constant(documents)}
    found = {key: value.numpy() for key, value in serve(**given).items()}
    for key, values in found.items():
        if values.dtype == object:
            found[key] = [value.decode() for value in values]
    close(found, expected)


@pytest.mark.parametrize("name", models("exports", "lite"))
def test_a_lite_file_answers(folder, name):
    model = bert_tf.load(folder / f"exports/{name}.tflite")
    check_answers(model, name, EXPECTED["exports"]["lite"][name], 1e-4)


# An index ----------------------------------------------------------------------------------------


def test_vectors_of_an_index_are_searched(folder):
    (expected,) = (one for one in EXPECTED["index"] if one["mode"] == "vectors")
    model = str(folder / "runs/retriever")
    searcher = Searcher(str(folder / "index"), model=model, mode=expected["mode"])
    (found,) = searcher.search([expected["query"]], 3)
    close(found.scores, expected["scores"])
    assert found.rows.tolist() == expected["rows"]


def test_words_of_an_index_without_the_rule_are_refused(folder):
    with pytest.raises(ValueError, match="--output_dir"):
        Searcher(str(folder / "index"), model=str(folder / "runs/retriever"), mode="words")
