"""Taggers as a user runs them: files of words and tags in, the same files with predictions out.

The tag of a word follows from it and from the word before, so that a model of one layer learns it.
Sentences are up to three windows long.
"""

import json
import random
import re

import numpy as np
import pytest

from bert_tf.tasks.tagging.conll import CONLLU_COLUMNS
from bert_tf.training.metrics_log import read_metrics
from tests import entity_twin
from tests.fine_tune import (
    WHOLE_RUN,
    files_of,
    fine_tune,
    read_results,
    read_tsv,
    refuse,
    write_table,
)
from tests.programs import finish, run
from tests.tiny_model import write_tiny_model

FIRST_NAMES, LAST_NAMES, PLACES = ("anna", "ben", "carla"), ("stone", "mill"), ("oslo", "lima")
VERBS, OTHERS = ("walks", "sleeps"), ("in", "the", "house", "of", "green", "water")
FLAGS = {**WHOLE_RUN, "max_seq_length": 20, "learning_rate": 5e-3, "num_train_steps": 50}


def make_sentences(seed, count):
    """Returns rows of (word, part of speech, tag); names of persons are one word or two."""
    draw = random.Random(seed)
    sentences = []
    for _ in range(count):
        rows = []
        for _ in range(draw.randint(1, 16)):
            kind = draw.randrange(4)
            if kind == 0:
                rows.append((draw.choice(FIRST_NAMES).title(), "PROPN", "B-PER"))
                if draw.random() < 0.5:
                    rows.append((draw.choice(LAST_NAMES).title(), "PROPN", "I-PER"))
            elif kind == 1:
                rows.append((draw.choice(PLACES).title(), "PROPN", "B-LOC"))
            elif kind == 2:
                rows.append((draw.choice(VERBS), "VERB", "O"))
            else:
                rows.append((draw.choice(OTHERS), "X", "O"))
        sentences.append(rows)
    return sentences


def as_conll(sentences, separator=" ", end="\n"):
    lines = ["-DOCSTART- -X- O".replace(" ", separator), ""]
    for rows in sentences:
        lines += [*(separator.join(row) for row in rows), ""]
    return end.join(lines)


def as_conllu(sentences):
    lines = []
    for number, rows in enumerate(sentences, 1):
        lines += [f"# sent_id = {number}", "# text = 1\t2"]
        for index, (word, part, _) in enumerate(rows, 1):
            if index == 2:
                lines.append("\t".join(["2-3", "x", *"________"]))
            columns = [str(index), word, word.lower(), part, *"__", "0", "dep", "_", "A=1"]
            lines.append("\t".join(columns))
        lines += ["\t".join(["9.1", "x", *"________"]), ""]
    return "\n".join(lines)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_files(tmp_path_factory.mktemp("tagger"))


def write_files(path):
    """Writes a model and data into a folder; returns the folder."""
    words = (*FIRST_NAMES, *LAST_NAMES, *PLACES, *VERBS, *OTHERS)
    write_tiny_model(path / "model", *words, num_hidden_layers=1)
    train, dev = make_sentences(1, 150), make_sentences(2, 40)
    files = {
        "train.txt": as_conll(train),
        "dev.txt": as_conll(dev, "\t", "\r\n"),
        "train.conllu": as_conllu(train),
        "dev.conllu": as_conllu(dev),
    }
    for name, text in files.items():
        (path / name).write_bytes(text.encode("utf8"))
    return path


def flags_of(folder, output_dir, ending, **changed):
    """Returns flags of a training; `dev` is evaluated and predicted."""
    files = {
        "init_checkpoint": folder / "model",
        "train_file": folder / f"train.{ending}",
        "eval_file": folder / f"dev.{ending}",
        "predict_file": folder / f"dev.{ending}",
        "output_dir": folder / output_dir,
    }
    return {**FLAGS, **files, **changed}


@pytest.fixture(scope="module")
def names(folder):
    """A tagger of names; returns the run's directory."""
    assert fine_tune("run_tagger", **flags_of(folder, "names", "txt")) == 0
    return folder / "names"


def check_names(path, source, separator, expected, least):
    """Compares scores and report with those of predictions.txt, and that with its input."""
    lines = (path / "predictions.txt").read_bytes().decode().split("\n")
    rows = [line.rstrip("\r").split(separator) for line in lines]
    assert [separator.join(row[:-1]) if row != [""] else "" for row in rows] == [
        line.rstrip("\r") for line in source.read_bytes().decode().split("\n")
    ]
    sentences = [[]]
    for row in rows[1:]:
        sentences += [[]] if row == [""] else []
        sentences[-1] += [row] if row != [""] else []
    sentences = [rows for rows in sentences if rows]
    assert [[row[0] for row in rows] for rows in sentences] == [
        [row[0] for row in rows] for rows in expected
    ]
    true, found = ([[row[place] for row in rows] for rows in sentences] for place in (-2, -1))
    results = read_results(path)
    assert set(results) == {"global_step", "loss"} | {
        f"eval_{name}" for name in ("loss", "precision", "recall", "f1", "accuracy")
    }
    scores = entity_twin.scores(true, found)
    for name in ("precision", "recall", "f1"):
        assert results[f"eval_{name}"] == pytest.approx(scores[name])
    same = [a == b for pair in zip(true, found, strict=True) for a, b in zip(*pair, strict=True)]
    assert results["eval_accuracy"] == pytest.approx(np.mean(same))
    assert least < results["eval_f1"]
    report = (path / "report.txt").read_text()
    phrases = sum(row[-1].startswith("B") for rows in expected for row in rows)
    assert f"processed {sum(map(len, true))} tokens with {phrases} phrases;" in report
    assert f"FB1: {results['eval_f1']:6.2f}" in report
    for name in ("LOC", "PER"):
        line = next(line for line in report.splitlines() if line.strip().startswith(f"{name}:"))
        assert f"FB1: {entity_twin.scores(true, found, name)['f1']:6.2f}" in line
    pairs = zip(true, found, strict=True)
    wrong = [sum(a != b for a, b in zip(*pair, strict=True)) for pair in pairs]
    table = read_tsv(path / "worst_errors.tsv")
    assert [int(row["wrong"]) for row in table] == sorted(filter(None, wrong), reverse=True)[:50]


def test_names(folder, names):
    check_names(names, folder / "dev.txt", "\t", make_sentences(2, 40), 90)
    labels = (names / "labels.txt").read_text().split()
    assert labels == ["O", "B-LOC", "B-PER", "I-PER"]


@pytest.mark.slow
def test_parts_of_speech(folder):
    sklearn = pytest.importorskip("sklearn.metrics")
    flags = flags_of(folder, "parts", "conllu", tag_column="upos", num_train_steps=30)
    assert fine_tune("run_tagger", **flags) == 0
    path, true = folder / "parts", [row for rows in make_sentences(2, 40) for row in rows]
    written = (path / "predictions.txt").read_text().split("\n")
    source = (folder / "dev.conllu").read_text().split("\n")
    found = []
    for line, before in zip(written, source, strict=True):
        if before.endswith("|A=1") or before.endswith("\tA=1"):
            kept, _, tag = line.partition("|Predicted=")
            assert kept == before
            found.append((before.split("\t")[CONLLU_COLUMNS.index("form")], tag))
        else:
            assert line == before
    assert [word for word, _ in found] == [row[0] for row in true]
    results = read_results(path)
    pair = [row[1] for row in true], [tag for _, tag in found]
    assert results["eval_accuracy"] == pytest.approx(sklearn.accuracy_score(*pair))
    assert results["eval_accuracy"] > 0.95
    assert set(results) == {"global_step", "loss", "eval_loss", "eval_accuracy"}
    report = [line.split() for line in (path / "report.txt").read_text().splitlines()]
    scores = sklearn.precision_recall_fscore_support(*pair, labels=["PROPN", "VERB", "X"])
    for name, *values in zip(("PROPN", "VERB", "X"), *scores, strict=True):
        row = next(row for row in report if row and row[0] == name)
        assert [float(value) for value in row[1:]] == pytest.approx(values, abs=0.006)


def test_any_file_comes_out_whole(folder, names):
    """The command of the README: the run's directory, and an odd file."""
    odd = ["\u200b", "\x01", "\xad\u200b", "é" * 300, "漢字かな", "\U0001f600", "a\u2028b\x85c\x0b"]
    odd += ["\xa0", "[SEP]", "[MASK]", "#", "_", "x" * 5000, "x" * 60, "-", "\ufffd", "Anna"]
    words = [*odd, *(["Anna", "walks"] * 400), *odd[::-1]]
    text = "\r\n\n \n" + "\n".join(words) + "\r\n\t\n\n" + "\r\n".join(odd) + "\n\nOslo"
    (folder / "odd.txt").write_bytes(text.encode("utf8"))
    flags = {"do_predict": "true", "output_dir": names, "predict_file": folder / "odd.txt"}
    printed = finish(run("run_tagger", **flags))
    assert re.search("predict: 3 sentences, 852 words; 2 .* 20, 3 words ", printed)
    assert re.search("3 words [^;]*, 15 ", printed)
    written = (names / "predictions.txt").read_bytes().decode("utf8").split("\n")
    labels = set((names / "labels.txt").read_text().split())
    found = []
    for line, before in zip(written, text.split("\n"), strict=True):
        if not before.strip(" \t\r"):
            assert line == before
            continue
        kept, _, tag = line.rstrip("\r").rpartition(" ")
        assert kept == before.rstrip("\r") and line.endswith("\r") == before.endswith("\r")
        assert tag in labels
        found.append((kept, tag))
    assert [word for word, _ in found] == [*words, *odd, "Oslo"]
    middle = [tag for word, tag in found[20:-40] if word == "Anna"]
    assert middle.count("B-PER") / len(middle) > 0.9 and found[-1] == ("Oslo", "B-LOC")


@pytest.mark.parametrize(
    ("text", "message"),
    [("Anna X B-PER\nBen X\n", "bad.txt, line 2: 'Ben X' "), ("Anna\n", "bad.txt line 1: ")],
)
def test_a_bad_training_file(folder, text, message):
    (folder / "bad.txt").write_text(text)
    flags = flags_of(folder, "refused", "txt", train_file=folder / "bad.txt")
    assert re.search(message, refuse("run_tagger", **flags))
    assert not (folder / "refused/run.flags").exists()


def test_tags_and_heads_that_do_not_fit(folder, names):
    def message(**changed):
        flags = {"do_train": "false", "do_predict": "false", **changed}
        return refuse("run_tagger", **flags_of(folder, "refused", "txt", **flags))

    (folder / "new.txt").write_text("a O\n\nthe O\nMars B-PLANET\n")
    new = {"eval_file": folder / "new.txt"}
    unseen = "new.txt line 3: word 2 .*'Mars', .*'B-PLANET'; .*B-LOC"
    assert re.search(unseen, message(do_train="true", **new))
    assert re.search(unseen, message(init_checkpoint=names, **new))
    other = message(do_train="true", train_file=folder / "new.txt", init_checkpoint=names, **new)
    assert re.search(r" 4 labels \['O', 'B-LOC', 'B-PER', 'I-PER'\], .*2 \['O'.*--new_head", other)
    assert "nowhere.txt" in message(eval_file="nowhere.txt", init_checkpoint=names)
    assert re.search("/model.* tagger head", message())
    assert "labels.txt" in message(do_eval="false", do_predict="true")


@pytest.mark.slow
def test_a_labelled_file_is_judged_as_well_as_tagged(folder, names):
    """With the columns of the run, which are not said again."""
    before = files_of(names, "predictions.txt")
    (folder / "test.txt").write_text("Anna O\n\nOslo B-LOC\nsleeps O\n")
    out = f"--output_dir={names}"
    assert fine_tune("run_tagger", "--do_predict", out, predict_file=folder / "test.txt") == 0
    tagged = "Anna O B-PER\n\nOslo B-LOC B-LOC\nsleeps O O\n"
    assert (names / "predictions.txt").read_text() == tagged
    results = read_results(names, "eval_results_test.txt")
    assert (results["eval_precision"], results["eval_recall"]) == (50, 100)
    assert len(read_tsv(names / "worst_errors_test.tsv")) == 1
    assert "FB1:" in (names / "report_test.txt").read_text()
    for text in ("Anna O\nOslo O\n", "Anna\n", "Anna X\nOslo Y\n"):  # Nothing to judge by.
        (folder / "bare.txt").write_text(text)
        assert fine_tune("run_tagger", "--do_predict", out, predict_file=folder / "bare.txt") == 0
    assert files_of(names).items() >= before.items()
    assert len(files_of(names)) == len(before) + 4


@pytest.mark.slow
def test_a_student_learns_the_tags_of_a_teacher(folder, names):
    """All its own tags are wrong, and not learned."""
    after = {"B-PER": "B-LOC", "B-LOC": "O", "O": "I-PER", "I-PER": "B-PER"}
    wrong = [[(*row[:-1], after[row[-1]]) for row in rows] for rows in make_sentences(1, 150)]
    (folder / "wrong.txt").write_text(as_conll(wrong))
    given = {"train_file": folder / "wrong.txt", "teacher": names, "learn_labels": "false"}
    assert fine_tune("run_tagger", **flags_of(folder, "student", "txt", **given)) == 0
    assert read_results(folder / "student")["eval_f1"] > 80
    lines = read_metrics(folder / "student/metrics.jsonl")
    assert lines[-1]["teacher_loss"] < lines[0]["teacher_loss"] / 3
    assert lines[-1]["loss"] == pytest.approx(lines[-1]["teacher_loss"], rel=1e-5)


@pytest.mark.slow
def test_texts_with_spans_are_trained_on_and_predicted(tmp_path):
    write_tiny_model(tmp_path / "model", *FIRST_NAMES, *PLACES, *OTHERS, ".", num_hidden_layers=1)
    rows = []
    for index in range(24):
        name, place = FIRST_NAMES[index % 3], PLACES[index % 2]
        text = f"{name} of {place}."
        start = text.index(place)
        spans = [[0, len(name), "PER"], [start, start + len(place), "LOC"]]
        rows.append({"id": index, "text": text, "label": spans})
    path = write_table(tmp_path / "t.jsonl", rows)
    flags = {"train_file": path, "eval_file": path, "predict_file": path}
    flags |= {"init_checkpoint": tmp_path / "model", "output_dir": tmp_path / "run"}
    assert fine_tune("run_tagger", **{**FLAGS, **flags}) == 0
    lines = (tmp_path / "run/predictions.jsonl").read_text(encoding="utf8").splitlines()
    found = [json.loads(line) for line in lines]
    assert [(row["id"], row["predicted_entities"]) for row in found] == [
        (row["id"], row["label"]) for row in rows
    ]
    assert read_results(tmp_path / "run")["eval_f1"] == 100
