"""The doctor as a user runs it: it tells the places apart, prints, writes the page, and exits."""

import re

import pytest
from absl import flags
from absl.testing import flagsaver

from bert_tf import doctor
from tests.diagnosis.corpus_test import documents
from tests.diagnosis.corpus_test import write as write_text
from tests.diagnosis.examples_test import MASKING, VOCAB, made_rows, write
from tests.diagnosis.run_test import MASKED, diagnose, pretraining_lines
from tests.fine_tune import write_table
from tests.programs import fail, start

FINDING = re.compile(r"\d+ findings?\b")


@pytest.fixture
def look(tmp_path, capsys):
    """Runs the doctor in this process; returns exit status and what it printed."""

    def run(*arguments):
        with flagsaver.flagsaver():
            report = f"--report_file={tmp_path / 'doctor.html'}"
            rest = doctor.gather_paths(["doctor", *map(str, arguments), report])
            assert rest == ["doctor"]
            return doctor.main(rest), capsys.readouterr().out

    return run


def test_a_corpus_that_is_clean_and_one_that_is_not(tmp_path, look):
    clean = write_text(tmp_path / "clean.jsonl", documents(150))
    copied = write_text(tmp_path / "copied.jsonl", documents(150) * 2)
    status, printed = look(clean)
    assert status == 0 and not FINDING.search(printed)
    status, printed = look(clean, copied)
    assert status == 2 and printed.index("clean.jsonl") < printed.index("copied.jsonl")
    assert FINDING.search(printed) and re.search(r"50 % \(150 of 300\); .*1\.0 %", printed)
    assert (tmp_path / "doctor.html").read_text("utf8").count("<img") == 2


def test_records_and_runs_are_told_apart(tmp_path, look):
    cache, run = tmp_path / "cache", tmp_path / "run"
    (cache / "train").mkdir(parents=True)
    write(cache / "train" / "a.tfrecord", made_rows())
    (cache / "train" / "b.tfrecord").write_bytes(b"\0" * 30)
    (cache / "train" / "manifest.json").write_text("{}", "utf8")
    diagnose(run, pretraining_lines(next_sentence_loss=lambda step: 0.6931), MASKED)
    (run / "seed-1").mkdir()
    diagnose(run / "seed-1", [])
    VOCAB.write(tmp_path / "vocab.txt")
    slots = f"--max_predictions_per_seq={MASKING.max_predictions_per_seq}"
    status, printed = look(cache, f"--vocab_file={tmp_path}/vocab.txt", run, slots)
    assert status == 2
    assert "cache/train (examples)" in printed and re.search(r"1: .*record 0\b", printed)
    assert "run (pre-training run)" in printed and "0.6931 " in printed
    assert "seed-1 (pre-training run)" in printed


def test_words_that_stand_alone_are_paths(tmp_path):
    with flagsaver.flagsaver():
        assert doctor.gather_paths(["doctor", "a", "--vocab_file=v", "b"]) == ["doctor"]
        assert (flags.FLAGS.paths, flags.FLAGS.vocab_file) == (["a", "b"], "v")
        assert doctor.gather_paths(["doctor", "--no_such", "a"]) == ["doctor", "--no_such", "a"]


def test_what_is_not_there_is_one_clear_line(tmp_path):
    assert "nothing.txt" in fail(start("doctor", str(tmp_path / "nothing.txt")))


ROWS = [
    {"text": f"film {number}", "label": "good" if number % 2 else "bad"} for number in range(20)
]


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.jsonl"])
def test_a_labelled_table_is_no_prose(tmp_path, look, name):
    status, printed = look(write_table(tmp_path / name, ROWS))
    assert status == 0 and "(labelled table)" in printed
    assert "rows: 20; columns: text, label; labels: 2 (" in printed
    assert "bad 10" in printed and "good 10" in printed and not FINDING.search(printed)


def test_a_text_file_with_columns_is_a_table(tmp_path, look):
    path = write_table(tmp_path / "a.tsv", ROWS).rename(tmp_path / "a.txt")
    assert "(labelled table)" in look(path)[1]
    prose = write_text(tmp_path / "prose.jsonl", documents(150))
    assert "(corpus)" in look(prose)[1]


def test_faults_of_a_labelled_table(tmp_path, look):
    rows = [*ROWS, ROWS[1], {**ROWS[2], "label": "good"}, {"text": "new", "label": ""}]
    status, printed = look(write_table(tmp_path / "a.csv", rows))
    assert status == 0
    for measured in ("4.3 % (1 of 23)", "8.7 % (2 of 23)", "1 of 21 texts", "a.csv line 24"):
        assert measured in printed
    rows = [{**row, "label": "good"} for row in ROWS]
    status, printed = look(write_table(tmp_path / "one.csv", rows))
    assert status == 2
    status, printed = look(write_table(tmp_path / "b.csv", ROWS), "--label_column=topic")
    assert status == 2 and re.search(" topic.*--label_column", printed, re.DOTALL)
    (tmp_path / "c.csv").write_text("text,label\na,b\na,b,c\n")
    status, printed = look(tmp_path / "c.csv")
    assert status == 2 and "c.csv line 3" in printed


def test_no_file_is_written_unless_asked_for(tmp_path, capsys, monkeypatch):
    table = write_table(tmp_path / "a.csv", ROWS)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with flagsaver.flagsaver():
        assert doctor.main(doctor.gather_paths(["doctor", str(table)])) == 0
    assert not list((tmp_path / "here").iterdir())
    assert "--report_file" in capsys.readouterr().out
