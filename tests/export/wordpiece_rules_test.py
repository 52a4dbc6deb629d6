"""A tokenizer with added tokens and rules of its folder goes with the model into every file."""

import dataclasses
import pathlib
import types
import zipfile

import pytest
import tensorflow as tf

from bert_tf.checkpoints.checkpoint import Checkpoint
from bert_tf.checkpoints.formats import read_checkpoint, write_checkpoint
from bert_tf.checkpoints.load_tokenizer import load_tokenizer
from bert_tf.checkpoints.tokenizer_files import read_tokenizer
from bert_tf.inference.serving_models import load
from bert_tf.tasks.base.serving import lite_model
from bert_tf.tasks.base.serving.saving.writing import save
from bert_tf.tasks.classification.model import BertClassifier
from export.lite import conversion
from tests.checkpoints.made_checkpoint import make_checkpoint
from tests.export.made_models import SHAPE
from tests.float_bounds import assert_close
from tests.shared_data import golden_file

TEXTS = ["a myTok<L> b [MASK]", "COVID19 <ctl> x", "ab", "plain"]


@pytest.fixture(name="made", scope="module")
def fixture_made() -> Checkpoint:
    """A classifier with the tokenizer of a golden folder."""
    vocab_file = golden_file("families", "wordpiece", "additional_special", "vocab.txt")
    vocab = read_tokenizer(pathlib.Path(vocab_file).parent, None, as_transformers=True).vocab
    assert vocab is not None
    made = make_checkpoint("classifier", seed=5, **{**SHAPE, "vocab_size": len(vocab)})
    return dataclasses.replace(made, vocab=vocab)


@pytest.mark.slow
def test_saved_models(tmp_path, made) -> None:
    write_checkpoint(made, tmp_path / "run", "bert_tf")
    assert load_tokenizer(tmp_path / "run").vocab == made.vocab
    served = load(str(tmp_path / "run"))
    texts_folder, _ = save(served, tmp_path / "serving" / "toy", 3, "run")
    assert load_tokenizer(texts_folder).vocab == made.vocab
    signature = tf.saved_model.load(str(texts_folder)).signatures["serving_default"]
    answers = signature(text=tf.constant(TEXTS))
    for name, expected in served.from_texts(tf.constant(TEXTS)).items():
        if expected.dtype != tf.string:
            assert_close(answers[name], expected)


def test_keras_files(tmp_path, made) -> None:
    write_checkpoint(made, tmp_path / "run", "bert_tf")
    BertClassifier.from_pretrained(tmp_path / "run").save(tmp_path / "model.keras")
    assert load_tokenizer(tmp_path / "model.keras").vocab == made.vocab


def test_lite_files(tmp_path, made) -> None:
    serving = types.SimpleNamespace(vocab=made.vocab)
    path = tmp_path / "model.tflite"
    path.write_bytes(conversion._with_files(b"model", {}, serving))
    with zipfile.ZipFile(path) as archive:
        assert lite_model._read_vocab(archive, path) == made.vocab


def test_formats_with_and_without_such_rules(tmp_path, made) -> None:
    write_checkpoint(made, tmp_path / "huggingface", "huggingface")
    vocab = read_checkpoint(tmp_path / "huggingface").vocab
    options = dataclasses.replace(made.vocab.options, reads_special_tokens=False)
    assert vocab == dataclasses.replace(made.vocab, options=options)
    for form in ("google", "keras_hub"):
        with pytest.raises(ValueError, match=f"{form}.*added_tokens"):
            write_checkpoint(made, tmp_path / form, form)
