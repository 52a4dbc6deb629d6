"""A thousand real texts and odd ones: a saved model answers as the programs in Python do."""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.tasks.classification.model import BertClassifier
from bert_tf.text.packing import pack, pad_batch
from bert_tf.text.wordpiece import WordPiece
from tests.checkpoints.made_checkpoint import make_checkpoint
from tests.export.made_models import SHAPE, export_model
from tests.float_bounds import assert_close
from tests.shared_data import shared_data

LENGTH = 40
ODD = (
    "",
    " \t\n ",
    "word " * 10_000,
    "x" * 100_000,
    "\U0001f600\U0001f468‍\U0001f469‍\U0001f467 and 中文字 and עברית",
    "control \x00\x01\x7f\u200b characters \ufffd",
    "e\u0301\u0327 combining \u0130stanbul \u03a3\u03a3 ligature \ufb01",
    "[MASK] [CLS] [SEP] ##ing",
)


def real_texts() -> list[str]:
    """Returns texts of reviews, questions to a bank, and Wikipedia's paragraphs."""
    reviews = shared_data("glue", "SST-2", "dev.tsv").read_text(encoding="utf8").split("\n")[1:400]
    bank = shared_data("classification", "banking77", "test.csv").read_text(encoding="utf8")
    pairs = shared_data("glue", "RTE", "dev.tsv").read_text(encoding="utf8").split("\n")[1:]
    texts = [line.split("\t")[0] for line in reviews] + bank.split("\n")[1:400]
    texts += [line.split("\t")[1] for line in pairs if line]
    assert len(texts) > 1000
    return texts


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory):
    """The folder of a tiny classifier, and its two SavedModels."""
    folder = tmp_path_factory.mktemp("real")
    made = export_model(folder, "classifier", max_position_embeddings=LENGTH)
    paths = made.texts, made.ids
    return made.source, *(tf.saved_model.load(str(path)).signatures for path in paths)


@pytest.mark.slow
def test_texts_and_ids_are_answered_as_in_python(model) -> None:
    folder, by_text, by_ids = model
    texts = [*ODD, *real_texts()]
    vocab = make_checkpoint("classifier", seed=5, **SHAPE).vocab
    tokenizer = WordPiece(vocab, True)
    python = BertClassifier.from_pretrained(folder)
    for start in range(0, len(texts), 64):
        chosen = texts[start : start + 64]
        rows = [pack(vocab, tokenizer.encode(text), (), LENGTH) for text in chosen]
        batch = pad_batch(rows)
        expected = tf.nn.softmax(python(batch)).numpy()
        found = by_text["serving_default"](text=tf.constant(chosen))
        assert_close(found["probabilities"], expected)
        assert (np.argmax(found["probabilities"], 1) == expected.argmax(1)).all()
        ids = by_ids["serving_default"](**{n: tf.constant(value) for n, value in batch.items()})
        assert_close(ids["probabilities"], found["probabilities"])
        assert (ids["label"].numpy() == found["label"].numpy()).all()
