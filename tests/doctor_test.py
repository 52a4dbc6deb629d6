"""The doctor as a user runs it: it tells the places apart, prints, writes the page, and exits."""

import json

import pytest

from bert_tf.doctor import gather_paths
from tests.diagnosis.made_corpus import documents
from tests.diagnosis.made_records import SLOTS, made_rows, made_vocab, write
from tests.diagnosis.made_run import MASKED, pretraining_lines, write_run
from tests.programs import fail, start


def look(folder, *arguments, status, **flags):
    """Runs the doctor, which must end with that status; returns what it printed and the page."""
    page = folder / "doctor.html"
    process = start("doctor", *map(str, arguments), report_file=page, **flags)
    printed = process.communicate(timeout=300)[0]
    assert process.returncode == status, printed
    return printed, page.read_text(encoding="utf8")


def test_corpus_that_is_clean_and_one_that_is_not(tmp_path):
    clean, copied = tmp_path / "clean.jsonl", tmp_path / "copied.jsonl"
    lines = [json.dumps({"body": "\n".join(document)}) + "\n" for document in documents(150)]
    clean.write_text("".join(lines), encoding="utf8")
    copied.write_text("".join(lines + lines), encoding="utf8")
    printed, page = look(tmp_path, clean, status=0, text_field="body")
    assert "Nothing is wrong" in printed and "clean.jsonl" in page
    printed, page = look(tmp_path, clean, copied, status=2, text_field="body")
    assert printed.index("clean.jsonl") < printed.index("copied.jsonl")
    assert "50 % (150 of 300); expected below 1 %" in printed and page.count("<svg") == 2


def test_what_is_not_there_is_one_clear_line(tmp_path):
    assert "no file matches" in fail(start("doctor", str(tmp_path / "nothing.txt")))
    assert "python -m bert_tf.doctor runs/my_bert" in fail(start("doctor"))


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["a", "--vocab_file=v", "b"], ["--vocab_file=v", "--paths=a,b"]),
        (["--vocab_file", "a", "a"], ["--vocab_file", "a", "--paths=a"]),
        (["--paths=a"], ["--paths=a"]),
        (["--no_such_flag", "a"], ["--no_such_flag", "--paths=a"]),
    ],
)
def test_words_that_stand_alone_are_paths(arguments, expected):
    assert gather_paths(["doctor", *arguments]) == ["doctor", *expected]


def test_records_and_runs_are_told_apart(tmp_path):
    records, run = tmp_path / "records", tmp_path / "run"
    records.mkdir()
    rows = made_rows(1000)
    write(records / "a.tfrecord", rows)
    write_run(run, pretraining_lines(next_sentence_loss=lambda step: 0.6931), flags=MASKED)
    made_vocab().write(tmp_path / "vocab.txt")
    flags = {"vocab_file": tmp_path / "vocab.txt", "max_predictions_per_seq": SLOTS}
    printed, _ = look(tmp_path, records, status=0, **flags)
    assert "records (examples)" in printed and "1,000 of them read" in printed
    printed, page = look(tmp_path, records, run, status=2, **flags)
    assert "run (pre-training run)" in printed
    assert "Next sentence prediction is a coin's" in printed and "0.6931 over the last" in page
