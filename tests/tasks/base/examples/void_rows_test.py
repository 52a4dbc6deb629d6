"""Rejected annotations are left out by each reader, and counted."""

import json
import logging

import pytest

from bert_tf.tasks.classification.examples import read_text_examples
from bert_tf.tasks.embedding.examples import read_embedding_examples
from bert_tf.tasks.multiple_choice.examples import read_swag
from bert_tf.tasks.question_answering.questions import read_squad
from bert_tf.tasks.reranking.examples import read_ranking
from bert_tf.tasks.tagging.files import read_tagged

VOID = [
    {"answer": "reject"},
    {"answer": "ignore"},
    {"status": "discarded"},
    {"was_cancelled": True},
    {"skipped": True},
    {"is_deleted": "true"},
    {"accepted": False},
]
KEPT = [
    {"answer": "accept"},
    {"is_accepted": True},
    {"status": "submitted"},
    {"was_cancelled": False},
    {"skip": None},
]
ROWS = {
    "classes": {"text": "Paris is", "label": "LOC"},
    "tags": {"text": "Paris is", "spans": [{"start": 0, "end": 5, "label": "LOC"}]},
    "pairs": {"query": "Paris", "positive": "a city"},
    "ranking": {"query": "Paris", "document": "a city", "label": 1},
    "choices": {"context": "Paris", "choices": ["is", "was"], "label": 0},
    "answers": {
        "context": "Paris is",
        "question": "what?",
        "answers": {"text": ["Paris"], "answer_start": [0]},
    },
}
READERS = {
    "classes": lambda path: read_text_examples(path, "text", "", "label", is_needed=True),
    "tags": lambda path: read_tagged(path, is_needed=True),
    "pairs": lambda path: read_embedding_examples(path, "--train_file"),
    "ranking": read_ranking,
    "choices": lambda path: read_swag(path, is_needed=True),
    "answers": lambda path: read_squad(path, is_training=True, version_2=False),
}


@pytest.mark.parametrize("reader", READERS)
def test_rejected_rows_are_left_out_and_counted(reader, tmp_path, caplog):
    rows = [{**ROWS[reader], **extra} for extra in [*VOID, *KEPT]]
    for index, row in enumerate(rows):
        row["id"] = f"q{index}"
        if "query" in row:
            row["query"] += str(index)
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf8")
    with caplog.at_level(logging.INFO, logger="absl"):
        found = READERS[reader](str(path))
    assert len(found) == len(KEPT)
    assert f"{path}: {len(VOID)} rows" in caplog.text


def test_labels_and_texts_that_look_like_rejections_are_kept(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("status,answer\nI wait,reject\nreject,accept\n", encoding="utf8")
    found = read_text_examples(str(path), "status", "", "answer", is_needed=True)
    assert [example.label for example in found] == ["reject", "accept"]


def test_pairs_without_a_consensus_are_left_out(tmp_path):
    path = tmp_path / "snli.tsv"
    path.write_text("sentence1\tsentence2\tgold_label\na\tb\t-\na\tc\tneutral\n", encoding="utf8")
    found = read_text_examples(str(path), "sentence1", "sentence2", "gold_label", is_needed=True)
    assert [example.label for example in found] == ["neutral"]


def test_all_texts_are_read_where_no_labels_are(tmp_path):
    path = tmp_path / "rows.jsonl"
    rows = [{**ROWS["tags"], **extra} for extra in [*VOID, *KEPT]]
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf8")
    assert len(read_tagged(str(path), reads_tags=False)) == len(rows)
