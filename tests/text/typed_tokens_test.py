"""Special tokens written in texts are counted before a model is trained on them."""

import pickle
import re

import keras
import numpy as np
import pytest

from bert_tf.tasks.classification.model import BertClassifier
from bert_tf.tasks.tagging.model import BertTokenClassifier
from bert_tf.text.tokenization import make_tokenizer
from bert_tf.text.typed_tokens import CountingTokenizer, TypedTokens, texts_in
from bert_tf.text.vocab import Vocab
from bert_tf.text.wordpiece_options import WordPieceOptions
from tests.fine_tune import FLAGS, log_of, texts, write_folder, write_table
from tests.text.bpe_vocab_test import small_vocab
from tests.tiny_model import tiny_words


@pytest.fixture(name="folder", scope="module")
def fixture_folder(tmp_path_factory):
    folder = write_folder(tmp_path_factory.mktemp("typed"))
    rows = texts(16)
    for row in rows:
        row["text"] = f"the film [SEP] {row['text']}"
    rows[0]["text"] += " [MASK]"
    write_table(folder / "typed.csv", rows)
    return folder


def counts_in(log: str) -> dict[str, tuple[int, int]]:
    found = re.findall(r"(\[[A-Z]+\])\D+(\d+)\D+(\d+) texts", log)
    return {token: (int(count), int(of)) for token, count, of in found}


def test_counts():
    typed = TypedTokens(Vocab(tiny_words()))
    for text in ("a [SEP] b [SEP] c", "", "[sep] [ SEP ]", "[CLS] x [SEP]", "x"):
        typed.add(text)
    assert (typed.num_texts, typed.counts) == (4, {"[SEP]": 2, "[CLS]": 1})
    assert len(typed.notes()) == 2 and "50 %" in typed.notes()[0]


def test_notes_say_whether_they_are_read():
    notes = []
    for reads in (False, True):
        typed = TypedTokens(Vocab(tiny_words(), WordPieceOptions(reads_special_tokens=reads)))
        typed.add("a [SEP] b")
        assert typed.are_read == reads
        notes.extend(typed.notes())
    assert len(set(notes)) == 2


def test_byte_bpe_reads_them_as_special_tokens_itself():
    typed = TypedTokens(small_vocab())
    typed.add("a [SEP] b <mask>")
    assert typed.notes() == []


def test_a_counting_tokenizer_reads_as_the_one_in_it():
    plain = make_tokenizer(Vocab(tiny_words("film")), True)
    counting = pickle.loads(pickle.dumps(CountingTokenizer(plain)))
    assert counting.typed.num_texts == 0
    text = "the film [SEP] x"
    assert counting.encode(text) == counting.encode_uncached(text) == plain.encode(text)
    assert counting.encode_word("film") == plain.encode_word("film")
    assert counting.tokenize(text) == plain.tokenize(text)
    assert counting.tokenize_with_offsets(text) == plain.tokenize_with_offsets(text)
    assert counting.vocab == plain.vocab and counting.do_lower_case is True
    assert counting.typed.counts == {"[SEP]": 4} and counting.typed.num_texts == 5


def test_texts_in_columns_of_any_form():
    columns = (["a", "b"], np.array(["c"], object), [["d", "e"], ("f",)])
    assert list(texts_in(columns)) == list("abcdef")
    assert list(texts_in({"input_word_ids": [1]})) == list(texts_in(b"x")) == []
    assert list(texts_in(keras.ops.convert_to_tensor([["a"], ["ü"]]))) == ["a", "ü"]


@pytest.mark.slow
def test_a_program_counts_them_before_it_trains(folder, tmp_path, caplog):
    flags = {
        **FLAGS,
        "do_train": "true",
        "num_train_steps": 1,
        "init_checkpoint": folder / "model",
        "output_dir": tmp_path / "run",
    }
    log = log_of(caplog, "run_classifier", **flags, train_file=folder / "typed.csv")
    assert counts_in(log) == {"[SEP]": (16, 16), "[MASK]": (1, 16)}


def test_fit_logs_them(folder, caplog, monkeypatch):
    monkeypatch.setattr(keras.Model, "fit", lambda *_, **__: None)  # Its loop is not the point.
    model = BertClassifier.from_pretrained(folder / "model", allow_missing=["cls/"], num_labels=2)
    model.fit(["a [SEP] b", "c", "d", "e [SEP]"], [0, 1, 0, 1], verbose=0)
    assert counts_in(caplog.text) == {"[SEP]": (2, 4)}
    caplog.clear()
    model.fit(["a", "b"], [0, 1], verbose=0)
    assert counts_in(caplog.text) == {}
    model.fit((["a", "b"], ["c [CLS]", "d"]), [0, 1], verbose=0)
    assert counts_in(caplog.text) == {"[CLS]": (1, 4)}
    caplog.clear()
    tagger = BertTokenClassifier.from_pretrained(
        folder / "model", allow_missing=["cls/"], labels=["O", "B-X"]
    )
    tagger.fit([["a", "[SEP]"], ["b"]], [["O", "O"], ["B-X"]], verbose=0)
    assert counts_in(caplog.text) == {"[SEP]": (1, 3)}
