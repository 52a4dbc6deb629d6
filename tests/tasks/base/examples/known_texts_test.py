"""Texts of the development data that are in the training data as well, for each task."""

import pytest

from bert_tf.tasks.classification.model import BertClassifier
from bert_tf.tasks.embedding.model import BertEmbedder
from bert_tf.tasks.multiple_choice.model import BertMultipleChoice
from bert_tf.tasks.reranking.model import BertReranker
from bert_tf.tasks.tagging.model import BertTokenClassifier
from tests.fine_tune import WORDS, fine_tune, write_table
from tests.tiny_model import write_tiny_model

# The spelling of the second text differs from that of train, but its tokens do not.
TRAIN = ["film", "film dull", "a film"]
DEV = ["a dull film", "Film  DULL", "film"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_tiny_model(tmp_path_factory.mktemp("known") / "model", *WORDS, "film", "dull")


def lines(caplog) -> list[str]:
    return [text for record in caplog.records if "in train" in (text := record.getMessage())]


CASES = {
    "classifier": (BertClassifier, (TRAIN, ["a", "b", "a"]), (DEV, ["a", "b", "a"])),
    "tagger": (
        BertTokenClassifier,
        ([text.split() for text in TRAIN], [["a"] * len(text.split()) for text in TRAIN]),
        ([text.split() for text in DEV], [["b"] * len(text.split()) for text in DEV]),
    ),
    "choice": (
        BertMultipleChoice,
        ((TRAIN, [["film", "a"]] * 3), [0, 1, 0]),
        ((DEV, [["Film", "a"], ["a", "film"], ["film", "dull"]]), [0, 1, 0]),
    ),
    "embedder": (BertEmbedder, ((TRAIN, ["a", "dull", "film"]),), ((DEV, ["a", "film", "film"]),)),
    "reranker": (
        BertReranker,
        ((TRAIN, ["a", "dull", "film"]), [1, 0, 1]),
        ((DEV, ["a", "a", "a"]), [1, 0, 1]),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_fit_names_how_many_validation_texts_it_trains_on(folder, caplog, name):
    kind, train, dev = CASES[name]
    options = {"new_head": True}
    if kind in (BertClassifier, BertTokenClassifier):
        options = {"labels": ["a", "b"]}
    if kind is BertEmbedder:
        options = {"pooling": "mean"}
    model = kind.from_pretrained(folder, **options)
    caplog.clear()
    model.fit(*train, epochs=1, verbose=0, validation_data=dev if len(dev) > 1 else dev[0])
    (line,) = lines(caplog)
    # Of the choices only "film dull" with "a" and "film" are all in train.
    assert ("1 of 3" if name == "choice" else "2 of 3") in line


@pytest.mark.slow
def test_other_validation_texts_are_not_spoken_of(folder, caplog):
    model = BertClassifier.from_pretrained(folder, labels=["a", "b"])
    model.fit(TRAIN, ["a", "b", "a"], epochs=1, verbose=0, validation_data=(["dull"], ["a"]))
    assert not lines(caplog)


@pytest.mark.slow
@pytest.mark.parametrize("long_texts", ["head", pytest.param("windows", marks=pytest.mark.slow)])
def test_the_program_names_them_by_file(folder, tmp_path, caplog, long_texts):
    rows = [{"label": "ab"[i % 2], "text": f"{text} " * 20} for i, text in enumerate(TRAIN)]
    train = write_table(tmp_path / "train.tsv", rows)
    test = write_table(tmp_path / "test.tsv", [*rows[:1], {"label": "a", "text": "dull"}])
    caplog.set_level("INFO")
    assert not fine_tune(
        "run_classifier",
        init_checkpoint=folder,
        train_file=train,
        eval_file=train,
        predict_file=test,
        output_dir=tmp_path / "run",
        long_texts=long_texts,
        max_seq_length=16,
        num_train_epochs=1,
        do_train=True,
        do_eval=True,
        do_predict=True,
    )
    dev, predicted = lines(caplog)
    assert "3 of 3" in dev and "1 of 2" in predicted
