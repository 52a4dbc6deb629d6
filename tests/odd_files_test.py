"""Readers of users' files: marks, line ends and encodings give the same, or are named."""

import gzip
import json

import pytest

from bert_tf.checkpoints.run_identity import read_labels
from bert_tf.corpus.corpus import list_parts, read_documents
from bert_tf.metrics.trec import read_run
from bert_tf.search.documents import read_file
from bert_tf.tasks.base.examples.tables import read_plain_text, read_rows
from bert_tf.tasks.question_answering.sources import read_paragraphs
from bert_tf.tasks.tagging.files import read_tagged
from bert_tf.text.vocab import SPECIAL_TOKENS, Vocab

SQUAD = {"context": "a cat", "qas": [{"id": "1", "question": "who", "answers": []}]}
READERS = {
    "a.csv": ("text,label\nthe cat,x\na dog,y\n", lambda path: [*read_rows(path)]),
    "a.tsv": ("text\tlabel\nthe cat\tx\na dog\ty\n", lambda path: [*read_rows(path)]),
    "a.jsonl": ('{"text": "cat"}\n{"text": "dog"}\n', lambda path: [*read_rows(path)]),
    "a.txt": ("the cat sat\na dog\n", lambda path: [*read_plain_text(path)]),
    "b.txt": (
        "The cat sat.\nA dog.\n\nAnother.\n",
        lambda path: [[*read_documents(part)] for part in list_parts(path)],
    ),
    "c.txt": ("The cat sat.\n\nA dog.\n", lambda path: [*read_file(path)]),
    "a.conll": ("Paris B-LOC\nis O\n\nRome B-LOC\n", read_tagged),
    "a.conllu": ("1\tParis\tParis\tPROPN\t_\t_\t0\troot\t_\t_\n\n", read_tagged),
    "a.json": (
        json.dumps({"data": [{"paragraphs": [SQUAD]}]}, indent=1) + "\n",
        lambda path: [*read_paragraphs(path)],
    ),
    "a.run": ("q1 Q0 d1 1 .5 x\nq1 Q0 d2 2 .4 x\n", read_run),
    "vocab.txt": ("\n".join((*SPECIAL_TOKENS, "cat")) + "\n", Vocab.read),
    "labels.txt": ("a\nb\n", lambda path: read_labels(path.parent)),
}


@pytest.fixture(params=READERS)
def written(request, tmp_path):
    """A file, its text, a function that reads it, and what that should return."""
    text, read = READERS[request.param]
    path = tmp_path / request.param
    path.write_text(text)

    def read_path():
        return read(path if request.param == "labels.txt" else str(path))

    return path, text, read_path, read_path()


def test_a_mark_and_the_line_ends_of_windows_change_nothing(written):
    path, text, read, expected = written
    for content in (b"\xef\xbb\xbf" + text.encode(), text.replace("\n", "\r\n").encode()):
        path.write_bytes(content)
        assert read() == expected


def test_other_files_are_refused_by_name(written):
    path, text, read, expected = written
    latin = text.replace("cat", "café").replace("Paris", "Parí").replace("d1", "dé")
    contents = {
        "UTF-16": text.encode("utf-16"),
        "UTF-16LE": text.encode("utf-16-le"),
        "HTML": f"\n<!doctype HTML>\n<html>\n{text}".encode(),
        "XML": f'<?xml version="1.0"?>\n{text}'.encode(),
        "carriage return": text.replace("\n", "\r").encode(),
        "UTF-8": latin.encode("latin1"),
    }
    if latin == text:
        del contents["UTF-8"]
    for name, content in contents.items():
        path.write_bytes(content)
        with pytest.raises(ValueError, match=rf"(?s){path.name}.*{name}"):
            read()
    path.write_bytes(gzip.compress(text.encode()))
    try:
        assert read() == expected
    except ValueError as error:
        assert path.name in str(error) and "gzip" in str(error)


@pytest.mark.parametrize(
    ("content", "name"),
    [
        ({"nfl_1": {"passage": "a", "qa_pairs": []}}, "qa_pairs.*DROP"),
        ([{"passage": "a", "question": "b", "answers_spans": {}}], "answers_spans.*DROP"),
        ({"Data": [{"Question": "a"}], "Domain": "Web"}, "Data.*TriviaQA"),
        ([{"question": "a", "context": [], "supporting_facts": []}], "supporting_facts.*Hotpot"),
        ({"version": "1", "data": [{"story": "a"}]}, "story.*CoQA"),
        ([{"id": 1, "data": {"text": "a"}, "annotations": []}], "annotations.*Label Studio"),
    ],
)
def test_other_formats_are_named_by_their_keys(tmp_path, content, name):
    path = tmp_path / "train.json"
    path.write_text(json.dumps(content))
    readers = [read_paragraphs]
    if "Label Studio" in name:
        readers += [read_rows, read_tagged]
    for read in readers:
        with pytest.raises(ValueError, match=f"train.json.*{name}"):
            list(read(str(path)))


def test_control_characters_in_names_are_dropped(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("te\0xt,label\na,b\n")
    assert [list(row) for _, row in read_rows(str(path))] == [["text", "label"]]
