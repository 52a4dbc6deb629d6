"""Runs the examples as their first lines say, and loads what they wrote in another process."""

import json
import os
import pathlib
import re
import runpy
import shlex
import subprocess
import sys

import keras
import numpy as np
import pytest

from tests.tiny_model import tiny_words, write_tiny_model

ROOT = pathlib.Path(__file__).resolve().parents[1]
NAMES = ("classify_reviews", "tag_entities", "answer_questions")


def copy_of_project(folder: pathlib.Path) -> pathlib.Path:
    """Returns the folder, with what a user's commands need of the project."""
    for name in ("bert_tf", "examples"):
        (folder / name).symlink_to(ROOT / name)
    return folder


def command_of(name: str) -> list[str]:
    """Returns the command in an example's first lines: the script and its arguments."""
    text = (ROOT / "examples" / f"{name}.py").read_text(encoding="utf8")
    line = re.search("^    PYTHONPATH=. python (.*)$", text, re.MULTILINE)[1]
    assert line.startswith(f"examples/{name}.py --model=")
    return shlex.split(line)


def start(*command: str, folder: pathlib.Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, *command],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": ".", "TF_CPP_MIN_LOG_LEVEL": "3"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> str:
    """Returns what a program printed; it must have ended well, without a warning on the way."""
    printed, errors = process.communicate(timeout=500)
    assert process.returncode == 0, errors
    assert "WARNING:tensorflow" not in errors and "Warning:" not in errors, errors
    return printed


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return copy_of_project(tmp_path_factory.mktemp("examples"))


@pytest.fixture(scope="module")
def printed(folder: pathlib.Path) -> dict[str, str]:
    """What each example prints without arguments, all in one folder and at one time."""
    running = {name: start(command_of(name)[0], folder=folder) for name in NAMES}
    return {name: finish(process) for name, process in running.items()}


def number_after(words: str, text: str) -> float:
    return float(re.search(rf"^{words}:? ([0-9.]+)", text, re.MULTILINE).group(1))


@pytest.mark.slow
def test_classifier_learns(printed):
    text = printed["classify_reviews"]
    before, after = (number_after(f"Accuracy {when}", text) for when in ("before", "after"))
    assert 0.3 < before < 0.7 and 0.98 <= after <= 1.0
    assert text.splitlines()[-2:] == [
        "good: The music was delightful, a wonderful evening.",
        "bad: Clumsy and, I am afraid, boring.",
    ]


@pytest.mark.slow
def test_tagger_learns(printed):
    text = printed["tag_entities"]
    before, after = (number_after(f"F1 {when}", text) for when in ("before", "after"))
    assert before < 30 and 95 < after <= 100
    assert float(re.search("FB1: +([0-9.]+)", text).group(1)) == pytest.approx(after, abs=0.06)
    assert text.splitlines()[-2:] == [
        "Kurt/B-PER of/O Noether/B-ORG and/I-ORG Sons/I-ORG met/O Grace/B-PER ./O",
        "In/O Oslo/B-LOC ,/O Oslo/B-ORG Post/I-ORG left/O Ada/B-PER Byron/I-PER ./O",
    ]


@pytest.mark.slow
def test_span_labeler_learns(printed):
    text = printed["answer_questions"]
    matches = [number_after(f"{when}: exact match", text) for when in ("Before", "After")]
    f1 = [float(score) for score in re.findall(", F1 ([0-9.]+)", text)]
    assert matches[0] <= f1[0] < 30 and 95 < matches[1] <= f1[1] <= 100
    shown = re.findall(r"^.*\? (.*) \(right: (.*)\)$", text, re.MULTILINE)
    assert len(shown) == 5 and sum(found == right for found, right in shown) >= 4
    assert text.splitlines()[-1].endswith(" taught natural history. Where did Alan live? Bern")


# What a user's own program needs of the examples: the files that they wrote.
IN_A_FRESH_PROCESS = """
import bert_tf
import keras

reviews, tagger, answers = (
    keras.models.load_model(f"{name}.keras") for name in ("reviews", "tagger", "answers")
)

import numpy as np
from bert_tf.text.packing import pack, pad_batch

texts = ["The music was delightful, a wonderful evening.", "Clumsy and, I am afraid, boring."]
print(*(reviews.labels[i] for i in reviews.predict(texts, verbose=0).argmax(-1)))

words = "In Oslo , Oslo Post left Ada Byron .".split()
pieces = [tagger.tokenizer.encode(word) for word in words]
first = 1 + np.cumsum([0, *map(len, pieces[:-1])])
row = pack(tagger.preprocessor.vocab, sum(pieces, []), [], 64)
found = tagger.predict(pad_batch([row]), verbose=0)[0].argmax(-1)[first]
print(*(tagger.labels[i] for i in found))

context = "Born in Bern in 1812, Alan taught natural history."
vocab, encode = answers.preprocessor.vocab, answers.tokenizer.encode
row = pad_batch([pack(vocab, encode("Where did Alan live?"), encode(context), 64)])
scores = answers.predict(row, verbose=0)
span = slice(scores["start_logits"][0].argmax(), scores["end_logits"][0].argmax() + 1)
print(*(vocab.tokens[id] for id in row["input_word_ids"][0, span]))
"""


@pytest.mark.slow
def test_saved_models_give_the_same_elsewhere(printed, folder):
    lines = finish(start("-c", IN_A_FRESH_PROCESS, folder=folder)).splitlines()
    assert lines[0] == "good bad"
    shown = printed["tag_entities"].splitlines()[-1].split()
    assert lines[1].split() == [pair.split("/")[1] for pair in shown]
    assert lines[2] == "bern"


def run_here(name: str, monkeypatch, capsys, folder: pathlib.Path) -> str:
    """Runs an example's own command in this process, where TensorFlow is loaded already."""
    command = command_of(name)
    monkeypatch.chdir(copy_of_project(folder))
    monkeypatch.setattr(sys, "argv", command)
    runpy.run_path(command[0], run_name="__main__")
    return capsys.readouterr().out


def assert_from_checkpoint(path: pathlib.Path, model_folder: pathlib.Path) -> None:
    """A saved model has the checkpoint's vectors of pieces, a few small steps away from them."""
    from bert_tf.checkpoints.formats import read_checkpoint

    expected = read_checkpoint(model_folder).weights["bert/embeddings/word_embeddings"]
    model = keras.models.load_model(path)
    table = model.bert.embeddings.word_embeddings.numpy()
    assert 0 < np.abs(table - expected).max() < 0.01 < expected.std()


@pytest.mark.slow
def test_classifier_takes_a_model_and_a_table(tmp_path, monkeypatch, capsys):
    model = write_tiny_model(
        tmp_path / "all-MiniLM-L6-v2", "good", "bad", "fine", num_hidden_layers=1
    )
    rows = [f"{word} {number}\t{word}" for number in range(12) for word in ("good", "bad", "fine")]
    (tmp_path / "train.tsv").write_text("\n".join(["sentence\tlabel", *rows]) + "\n")
    text = run_here("classify_reviews", monkeypatch, capsys, tmp_path)
    assert re.search(r"^(good|bad|fine): The music", text, re.MULTILINE)
    loaded = keras.models.load_model(tmp_path / "reviews.keras")
    assert loaded.labels == ("bad", "fine", "good")
    assert loaded.preprocessor.vocab.tokens == tiny_words("good", "bad", "fine")
    assert_from_checkpoint(tmp_path / "reviews.keras", model)


@pytest.mark.slow
def test_tagger_takes_a_model_and_words_with_tags(tmp_path, monkeypatch, capsys):
    model = write_tiny_model(
        tmp_path / "all-MiniLM-L6-v2", "paris", "is", "nice", num_hidden_layers=1
    )
    (tmp_path / "train.conll").write_text("Paris B-LOC\nis O\nnice O\n\n" * 40)
    text = run_here("tag_entities", monkeypatch, capsys, tmp_path)
    assert "processed 12 tokens with 4 phrases" in text
    loaded = keras.models.load_model(tmp_path / "tagger.keras")
    assert loaded.labels == ("O", "B-LOC")
    assert loaded.preprocessor.vocab.tokens == tiny_words("paris", "is", "nice")
    assert_from_checkpoint(tmp_path / "tagger.keras", model)


@pytest.mark.slow
def test_span_labeler_takes_a_model_and_squad(tmp_path, monkeypatch, capsys):
    shape = {"max_position_embeddings": 256, "num_hidden_layers": 1}
    model = write_tiny_model(tmp_path / "all-MiniLM-L6-v2", "where", "in", **shape)
    answer = {"text": "Rome", "answer_start": 3}
    paragraphs = [
        {
            "context": f"In Rome, {number}.",
            "qas": [{"id": str(number), "question": "Where?", "answers": [answer]}],
        }
        for number in range(30)
    ]
    (tmp_path / "train-v1.1.json").write_text(json.dumps({"data": [{"paragraphs": paragraphs}]}))
    text = run_here("answer_questions", monkeypatch, capsys, tmp_path)
    assert text.count("Where? ") == 3 and text.count("(right: Rome)") == 3
    assert not (tmp_path / "made_up.json").exists()
    assert_from_checkpoint(tmp_path / "answers.keras", model)
