"""BertPreprocessor against packing on the host, wherever a layer can run."""

import dataclasses
import random
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.checkpoints.formats import write_checkpoint
from bert_tf.config import ModelConfig
from bert_tf.tasks.base.models.preprocessor import BertPreprocessor
from bert_tf.tasks.classification.model import BertClassifier
from bert_tf.text.packing import pack, pad_batch
from bert_tf.text.tokenization import make_tokenizer
from bert_tf.text.vocab import Vocab
from bert_tf.text.wordpiece import WordPiece
from tests.checkpoints.made_checkpoint import make_checkpoint
from tests.float_bounds import assert_close
from tests.shared_data import golden_file, shared_data
from tests.tiny_bpe import tiny_bpe_vocab

VOCAB = Vocab(("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcd", "##a", "##b", "E", "é", "."))
FIRST = ["abcd a b.", "", "a", "d é E  ab\u0301", "x [SEP] a", "." * 40, "ab" * 40]
SECOND = ["c", "b a", "", "ab ab ab ab ab", "É\u200b", "a " * 40, ""]


def packed(first, second=None, length=128, vocab=VOCAB, lower=True) -> dict[str, np.ndarray]:
    """The same rows made on the host."""
    encode = WordPiece(vocab, lower).encode
    second = second or [""] * len(first)
    pairs = zip(first, second, strict=True)
    return pad_batch([pack(vocab, encode(a), encode(b), length) for a, b in pairs])


def assert_same(received, expected) -> None:
    assert list(received) == list(expected)
    for name, value in expected.items():
        assert received[name].dtype == tf.int32
        np.testing.assert_array_equal(received[name], value, err_msg=name)


def test_rows_by_hand():
    cls, sep, a, b, continued = (VOCAB.ids[t] for t in ("[CLS]", "[SEP]", "a", "b", "##b"))
    batch = BertPreprocessor(VOCAB, True)(["AB", "a"], ["b a", ""])
    expected = [[cls, a, continued, sep, b, a, sep], [cls, a, sep, 0, 0, 0, 0]]
    np.testing.assert_array_equal(batch["input_word_ids"], expected)
    np.testing.assert_array_equal(batch["input_mask"], [[1] * 7, [1] * 3 + [0] * 4])
    np.testing.assert_array_equal(batch["input_type_ids"], [[0] * 4 + [1] * 3, [0] * 7])


@pytest.mark.slow
@pytest.mark.parametrize(("length", "lower"), [(7, True), (128, False)])
def test_equals_packing(length, lower):
    preprocessor = BertPreprocessor(VOCAB, lower, length)
    single = packed(FIRST, None, length, lower=lower)
    pairs = packed(FIRST, SECOND, length, lower=lower)
    assert_same(preprocessor(FIRST), single)
    assert_same(preprocessor(FIRST, SECOND), pairs)
    (mapped,) = tf.data.Dataset.from_tensors(FIRST).map(preprocessor)
    assert_same(mapped, single)
    (mapped,) = tf.data.Dataset.from_tensors((FIRST, SECOND)).map(preprocessor)
    assert_same(mapped, pairs)


@pytest.mark.slow
@pytest.mark.needs(data="glue/SST-2")
@pytest.mark.parametrize("casing", ["uncased", "cased"])
def test_equals_packing_on_real_text(casing):
    path, lower = golden_file("vocab", f"bert-base-{casing}-vocab.txt"), casing == "uncased"
    rows = shared_data("glue", "SST-2", "dev.tsv").read_text(encoding="utf8").splitlines()[1:301]
    texts = [row.split("\t")[0] for row in rows]
    others = random.Random(3).sample(texts, len(texts))
    preprocessor = BertPreprocessor(path, lower, max_seq_length=40)
    batches = tf.data.Dataset.from_tensor_slices((texts, others)).batch(32).map(preprocessor)
    for number, batch in enumerate(batches):
        part = slice(32 * number, 32 * number + 32)
        expected = packed(texts[part], others[part], 40, Vocab.read(path), lower)
        assert_same(batch, expected)
    assert number == 9


def test_rows_can_be_padded_to_one_length():
    preprocessor = BertPreprocessor(VOCAB, True, 9, pad_to_max_length=True)
    narrow = packed(["a b", "c"])
    batch = preprocessor(["a b", "c"])
    assert_same({n: v[:, :4] for n, v in batch.items()}, narrow)
    assert all(v.shape == (2, 9) and not v[:, 4:].numpy().any() for v in batch.values())
    data = tf.data.Dataset.from_tensor_slices(FIRST).batch(2).map(preprocessor)
    assert {spec.shape.as_list()[1] for spec in data.element_spec.values()} == {9}


def test_texts_come_as_lists_arrays_and_tensors():
    preprocessor, expected = BertPreprocessor(VOCAB, True), packed(["ab", "é"])
    for texts in (["ab", "é"], ("ab", "é"), np.array(["ab", "é"]), tf.constant(["ab", "é"])):
        assert_same(preprocessor(texts), expected)
    assert_same(preprocessor(np.array(["ab", "é"], object)), expected)
    assert_same(preprocessor([b"ab", "é".encode()]), expected)
    assert {len(v) for v in preprocessor(tf.constant([], tf.string)).values()} == {0}


def test_what_is_no_batch_of_texts_is_refused():
    preprocessor = BertPreprocessor(VOCAB, True, 3)
    with pytest.raises(ValueError, match=r"texts.* int32 .*\(2,\).*string"):
        preprocessor([1, 2])
    with pytest.raises(ValueError, match=r"texts.* string .*\(\).*\[B\].*batch"):
        preprocessor("a")
    with pytest.raises(ValueError, match=r"texts.*\(2, 1\).*second_texts"):
        preprocessor((["a"], ["b"]))
    with pytest.raises(ValueError, match=r"texts.*\['a', None\].*strings"):
        preprocessor(["a", None])
    with pytest.raises(ValueError, match="max_seq_length .*3; .* 4"):
        preprocessor(["a"], ["b"])
    with pytest.raises(ValueError, match="max_seq_length .*2; .* 3"):
        BertPreprocessor(VOCAB, True, 2)
    with pytest.raises(ValueError, match="2 texts .*1 second texts"):
        BertPreprocessor(VOCAB, True)(["a", "b"], ["c"])
    with pytest.raises(ValueError, match="second_texts: .*int32"):
        tf.data.Dataset.from_tensors((["a"], [1])).map(BertPreprocessor(VOCAB, True))
    with pytest.raises(ValueError, match="texts: .*float32"):
        preprocessor(keras.Input(()))


@pytest.mark.parametrize("form", [pytest.param("huggingface", marks=pytest.mark.slow), "google"])
def test_vocabulary_and_casing_come_from_a_checkpoint(tmp_path, form):
    changes = {"hidden_act": "gelu_tanh", "layer_norm_eps": 1e-12, "type_vocab_size": 2}
    changes["num_hidden_layers"] = 1
    made = make_checkpoint("encoder with pooler", do_lower_case=False, **changes)
    made = dataclasses.replace(made, form=form, stated_casing=False)
    write_checkpoint(made, tmp_path / "model", form)
    positions = made.config.max_position_embeddings
    preprocessor = BertPreprocessor.from_pretrained(tmp_path / "model", positions)
    assert preprocessor.vocab == made.vocab and not preprocessor.do_lower_case
    assert preprocessor.max_seq_length == positions
    expected = packed(["été the ÉTÉ", "A ab"], None, positions, made.vocab, False)
    assert_same(preprocessor(["été the ÉTÉ", "A ab"]), expected)
    with pytest.raises(
        ValueError, match=f"max_seq_length .*{positions + 1}, .*/model .*{positions} positions"
    ):
        BertPreprocessor.from_pretrained(tmp_path / "model", positions + 1)


def test_a_checkpoint_without_vocabulary_is_refused(tmp_path):
    made = dataclasses.replace(make_checkpoint("encoder with pooler"), vocab=None)
    write_checkpoint(made, tmp_path / "model", "huggingface")
    with pytest.raises(ValueError, match=r"/model .*BertPreprocessor.*vocab\.txt"):
        BertPreprocessor.from_pretrained(tmp_path / "model", 4)


def text_model() -> keras.Model:
    """A model from pairs of raw strings to scores."""
    off = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    config = ModelConfig(len(VOCAB), 8, 1, 2, 16, **off)
    first, second = keras.Input((), dtype="string"), keras.Input((), dtype="string")
    inputs = BertPreprocessor(VOCAB, False, 12, True)(first, second)
    model = keras.Model([first, second], BertClassifier(config, 3)(inputs))
    for variable in model.trainable_variables:
        variable.assign(np.random.default_rng(5).normal(0.0, 0.5, variable.shape))
    return model


IN_A_FRESH_PROCESS = """
import sys
import keras, numpy as np, tensorflow as tf
import bert_tf.tasks.classification.model, bert_tf.tasks.base.models.preprocessor
model = keras.models.load_model(sys.argv[1])
texts = [tf.constant(["a é x", "", "ab"]), tf.constant(["E", "c", ""])]
np.save(sys.argv[2], model.predict(texts, verbose=0))
"""


@pytest.mark.slow
def test_model_of_strings_is_trained_saved_and_loaded_elsewhere(tmp_path):
    texts = [tf.constant(["a é x", "", "ab"]), tf.constant(["E", "c", ""])]
    model = text_model()
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.01), loss)
    history = model.fit(texts, np.array([0, 1, 2]), epochs=25, verbose=0).history["loss"]
    assert history[-1] < 0.5 * history[0]
    expected = model.predict(texts, verbose=0)
    path = tmp_path / "model.keras"
    model.save(path)
    command = [sys.executable, "-c", IN_A_FRESH_PROCESS, str(path), str(tmp_path / "scores.npy")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert_close(np.load(tmp_path / "scores.npy"), expected)
    loaded = keras.models.load_model(path)
    layer = loaded.get_layer("bert_preprocessor")
    assert layer.vocab == VOCAB and not layer.do_lower_case and layer.max_seq_length == 12
    assert layer.pad_to_max_length
    loaded.export(tmp_path / "exported", verbose=False)
    server = tf.saved_model.load(str(tmp_path / "exported"))
    assert_close(server.serve(texts), expected)


@pytest.mark.slow
def test_byte_level_bpe_equals_packing_also_when_saved(tmp_path):
    vocab = tiny_bpe_vocab()
    encode = make_tokenizer(vocab, False).encode
    first = ["The mill <mask> stood", "", "a b", "x" * 30, "Caf\u00e9 \U0001f600\n now", "it's"]
    second = ["on the river", "x", "", "y" * 30, " ", "10 o'clock"]
    layer = BertPreprocessor(vocab, False, max_seq_length=14)
    rows = [pack(vocab, encode(a), encode(b), 14) for a, b in zip(first, second, strict=True)]
    assert_same(layer(first, second), pad_batch(rows, vocab.pad_id))
    single = [pack(vocab, encode(a), None, 14) for a in first]
    assert_same(layer(first), pad_batch(single, vocab.pad_id))
    texts = keras.Input((), dtype="string")
    keras.Model(texts, layer(texts)).save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert_same(loaded(tf.constant(first)), pad_batch(single, vocab.pad_id))
    assert loaded.layers[-1].vocab == vocab
