"""Counts of texts that are cut, empty or unknown, on each road to a model."""

import re

import numpy as np
import pytest

from bert_tf.inference.graphs import GraphModel
from bert_tf.inference.loading import load
from bert_tf.inference.output_answers import output_answers
from bert_tf.tasks.classification.model import BertClassifier
from bert_tf.tasks.embedding.model import BertEmbedder
from bert_tf.tasks.question_answering.answers import Answer
from bert_tf.tasks.question_answering.model import BertSpanLabeler
from bert_tf.tasks.reranking.model import BertReranker
from bert_tf.tasks.tagging.model import BertTokenClassifier
from bert_tf.text.packing import ids_after_prompt, pack, pack_windows
from bert_tf.text.sentencepiece import SentencePiece
from bert_tf.text.text_counts import Remedy, TextCounts, counting_texts
from bert_tf.text.tokenization import read_vocab
from bert_tf.text.vocab import Vocab
from tests.shared_data import golden_file
from tests.tiny_model import write_tiny_model

LONG = "the cat " * 20  # 40 tokens
LENGTH = 16


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_tiny_model(tmp_path_factory.mktemp("counts") / "model", "the", "cat")


def lines(caplog) -> list[str]:
    found = [record.getMessage() for record in caplog.records if "texts" in record.getMessage()]
    caplog.clear()
    return found


CALLS = {
    "encode": (BertEmbedder, lambda model: model.encode([LONG, "", "cat"])),
    "classify": (BertClassifier, lambda model: model.classify([LONG, "", "cat"])),
    "predict": (BertClassifier, lambda model: model.predict([LONG, "", "cat"])),
    "rank": (BertReranker, lambda model: model.rank("cat", [LONG, "cat"])),
    "tag": (BertTokenClassifier, lambda model: model.tag([["cat"], ["x" * 40]])),
    "answer": (BertSpanLabeler, lambda model: model.answer(["the " * 70], [LONG])),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_call_says_once_how_many_texts_are_cut(folder, caplog, name):
    kind, call = CALLS[name]
    options = {"new_head": True}
    if kind is BertEmbedder:
        options = {"pooling": "mean"}
    if kind in (BertClassifier, BertTokenClassifier):
        options = {"labels": ["O", "B-X"]}
    if kind is not BertSpanLabeler:
        options["max_seq_length"] = LENGTH
    model = kind.from_pretrained(folder, **options)
    caplog.clear()
    call(model)
    (line,) = lines(caplog)
    assert line.startswith(name) and "1 of" in line
    call(model)
    assert not lines(caplog)


@pytest.mark.parametrize("prompt", ["the cat: ", "cat", ""])
def test_a_prompt_hides_no_empty_text(folder, caplog, prompt):
    model = BertEmbedder.from_pretrained(folder, pooling="mean", max_seq_length=LENGTH)
    model.encode(["", "漢 漢", "cat"], prompt=prompt)
    (line,) = lines(caplog)
    assert re.findall(r"\d of \d", line) == ["1 of 3", "1 of 3"]
    assert "empty" in line and "unknown" in line


def test_tokens_of_a_prompt_that_join_the_text():
    path = golden_file("families", "xlm_roberta", "masked_lm", "tokenizer.json")
    tokenizer = SentencePiece(read_vocab(path))
    for prompt in ("query: ", "query:", "<mask>"):
        for text, is_empty in (("", True), ("the", False), ("a", False)):
            ids = tokenizer.encode(prompt + text)
            assert (not ids_after_prompt(tokenizer, prompt, ids)) == is_empty


def test_texts_that_are_read_whole_are_not_spoken_of(folder, caplog):
    model = BertTokenClassifier.from_pretrained(folder, labels=["O", "B-X"], max_seq_length=LENGTH)
    model.tag([LONG])  # in windows
    windows = BertClassifier.from_pretrained(
        folder, labels=["a", "b"], max_seq_length=LENGTH, long_texts="windows"
    )
    windows.classify([LONG])
    assert not lines(caplog)


def test_more_texts_than_before_are_spoken_of_again(folder, caplog):
    model = BertEmbedder.from_pretrained(folder, pooling="mean", max_seq_length=LENGTH)
    for text in [LONG] * 3:
        model.encode([text])
    assert len(lines(caplog)) == 1
    model.encode([LONG, LONG, ""])
    (line,) = lines(caplog)
    assert "2 of 3" in line and "1 of 3" in line


@pytest.mark.slow
def test_fit_says_it_of_both_parts(folder, caplog):
    model = BertClassifier.from_pretrained(folder, labels=["a", "b"], max_seq_length=LENGTH)
    data = [LONG, "cat"], ["a", "b"]
    model.fit(*data, epochs=1, verbose=0, validation_data=([LONG, LONG], ["a", "b"]))
    first, second = lines(caplog)
    assert "1 of 2" in first and "2 of 2" in second and "validation_data" in second


def test_counts_of_packed_texts():
    vocab = Vocab(("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a"))
    with counting_texts("") as counts:
        pack(vocab, [5] * 7, [], 9)  # fits
        pack(vocab, [5] * 8, [], 9)
        pack(vocab, [1, 1], [1], 9)
        pack(vocab, [1, 5], [], 9)
        pack(vocab, [], [], 9)
        pack_windows(vocab, [5] * 30, [], 9)
        pack_windows(vocab, [5] * 30, [5] * 4, 9)  # room for 3 tokens of the shorter text
    assert vars(counts) == {
        "num_texts": 7,
        "num_cut": 2,
        "num_empty": 1,
        "num_unknown": 1,
        "num_known": 0,
        "num_compared": 0,
        "longest": 37,
        "limit": 9,
    }
    merged = TextCounts()
    merged.merge(vars(counts))
    merged.merge({"num_texts": 3, "longest": 50})
    assert (merged.num_texts, merged.num_cut, merged.longest) == (10, 2, 50)
    assert pack(vocab, [5] * 9, [], 9).ids  # outside the context nothing is counted
    assert counts.num_texts == 7


@pytest.mark.parametrize(
    ("limit", "num_positions", "read_all", "expected", "unexpected"),
    [
        (16, 512, "--long_texts=windows", ["--max_seq_length=300", "--long_texts=windows"], []),
        (16, 200, "", ["--max_seq_length=200"], ["long_texts"]),
        (512, 512, "--long_texts=windows", ["--long_texts=windows"], ["--max_seq_length"]),
    ],
)
def test_the_line_names_what_helps(limit, num_positions, read_all, expected, unexpected):
    counts = TextCounts()
    counts.merge({"num_texts": 1200, "num_cut": 3, "longest": 300, "limit": limit})
    reasons = counts.reasons(Remedy("--max_seq_length={}", num_positions, read_all=read_all))
    number, sentence = reasons["cut"]
    assert number == 3
    assert all(part in sentence for part in [*expected, "3 of 1,200"])
    assert not any(part in sentence for part in unexpected)


def stand_in(folder, tmp_path, **card) -> GraphModel:
    """Returns a SavedModel of a kind without its graph; its answer is 0 for each text."""
    extra = tmp_path / "assets.extra"
    extra.mkdir()
    (extra / "vocab.txt").write_bytes((folder / "vocab.txt").read_bytes())
    made = {"inputs": ["text"], "labels": [], "do_lower_case": True, "max_seq_length": LENGTH}
    model = GraphModel({**made, **card}, {}, "")
    model._folder = tmp_path
    row = dict.fromkeys((*Answer._fields, "value"), np.float32(0)) | {"answer": b""}
    model._call = lambda name, tensors: [row | dict.fromkeys(WORD, ())] * len(tensors[0])
    return model


WORD = ("tags", "scores", "starts", "ends")
# By kind: its call, how many texts are cut, empty and unknown, and words of the line.
EXPORTED = {
    # 40 tokens; 48 letters that are 6 tokens, fewer than the letters; none; one [UNK].
    "regression": (
        lambda answers: answers.score([LONG, "the cat " * 3 + " " * 24, "", "漢"]),
        ["1 of 4", "1 of 4", "1 of 4"],
        ("longer", "has 42", "empty", "unknown"),
    ),
    "tagger": (
        lambda answers: answers.tag([LONG, "", "漢", "漢 漢"]),
        ["1 of 4", "2 of 4"],
        ("empty", "unknown"),
    ),
    "question_answering": (
        lambda answers: answers.answer([(LONG, "cat"), ("漢", "漢"), ("cat", LONG)]),
        ["1 of 3", "1 of 3"],
        ("max_query_length=4 ", "--max_query_length=40 ", "unknown"),
    ),
}


@pytest.mark.parametrize("kind", EXPORTED)
def test_a_saved_model_counts_with_the_vocabulary_of_its_folder(folder, tmp_path, caplog, kind):
    call, counts, words = EXPORTED[kind]
    call(output_answers(stand_in(folder, tmp_path, kind=kind, max_query_length=4)))
    (line,) = lines(caplog)
    assert re.findall(r"\d of \d", line) == counts and all(word in line for word in words)


def test_a_predictor_says_it(folder, caplog):
    predictor = load(folder, "fill_mask", max_seq_length=LENGTH)
    predictor.fill_mask(["the [MASK] " + LONG, "the [MASK]"])
    (line,) = lines(caplog)
    assert line.startswith("fill_mask") and "1 of 2" in line
