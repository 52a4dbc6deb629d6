"""Serving answers equal those of the Python programs: tokenizer, packing, model, answers."""

import math

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.inference.serving_models import load
from bert_tf.network.encoder import BertEncoder
from bert_tf.pretraining.masked_words.gap_filling import MaskedModel, fill_text
from bert_tf.pretraining.masked_words.model import BertPretrainer
from bert_tf.pretraining.masked_words.scores import pseudo_log_likelihood, score_words
from bert_tf.tasks.base.serving.model import IDS
from bert_tf.tasks.classification.model import BertClassifier
from bert_tf.text.packing import pack, pad_batch
from bert_tf.text.tokenization import make_tokenizer
from bert_tf.text.vocab import MASK
from bert_tf.text.wordpiece import WordPiece
from tests.export.made_models import TEXTS, write_byte_bpe, write_model
from tests.float_bounds import assert_close
from tests.slow_variants import slow_unless

LENGTH = 24


def packed(served, texts, second_texts=None):
    """Returns the ids of texts as the programs make them."""
    tokenizer = WordPiece(served.vocab, True)
    seconds = second_texts or [""] * len(texts)
    rows = [
        pack(served.vocab, tokenizer.encode(a), tokenizer.encode(b), LENGTH)
        for a, b in zip(texts, seconds, strict=True)
    ]
    return pad_batch(rows)


def softmax(logits):
    exps = np.exp(logits - logits.max(-1, keepdims=True))
    return exps / exps.sum(-1, keepdims=True)


def answers(served, *texts):
    found = served.from_texts(*(tf.constant(list(column)) for column in texts))
    assert {value.shape[0] for value in found.values()} == {len(texts[0])}
    return {name: value.numpy() for name, value in found.items()}


def test_a_run_says_what_requests_hold(tmp_path) -> None:
    run = {"text_b_column": "b", "problem_type": "multi_label", "max_seq_length": str(LENGTH)}
    folder = write_model(tmp_path / "m", "classifier", run)
    served = load(str(folder))
    assert (served.kind, served.texts, served.max_seq_length) == (
        *("multi_label", ("text", "text_b")),
        LENGTH,
    )
    seconds = [text[:20] for text in TEXTS[::-1]]
    logits = BertClassifier.from_pretrained(folder)(packed(served, TEXTS, seconds)).numpy()
    found = answers(served, TEXTS, seconds)
    assert_close(found["probabilities"], 1 / (1 + np.exp(-logits)))
    for row, labels in zip(logits, found["labels"], strict=True):
        order = [i for i in np.argsort(-row, kind="stable") if row[i] > 0]
        expected = [served.labels[i] for i in order]
        assert [label.decode() for label in labels] == expected + [""] * (3 - len(expected))


def test_a_task_of_glue_tells_kind_and_inputs(tmp_path) -> None:
    run = {"task_name": "sts-b", "problem_type": "single_label"}
    served = load(str(write_model(tmp_path / "m", "regression", run)))
    assert (served.kind, served.texts) == ("regression", ("text", "text_b"))


@pytest.mark.parametrize(
    ("kind", "long_texts", "length", "kept"),
    slow_unless(
        ("classifier", "head", 6, ["abcd"]),
        [
            ("classifier", "head", 6, ["abcd"]),
            ("classifier", "tail", 6, ["defg"]),
            # No run says what these lost, so it is the end.
            ("embeddings", "", 7, ["abcde"]),
            ("next_sentence", "", 7, ["ab", "gf"]),
        ],
    ),
)
def test_a_long_text_loses_what_it_lost_in_training(tmp_path, kind, long_texts, length, kept):
    run = {"long_texts": long_texts} if long_texts else None
    served = load(str(write_model(tmp_path / "m", kind, run)), kind, max_seq_length=length)
    expected = [served.vocab.cls_id]
    for letters in kept:
        expected += [*(served.vocab.ids[letter] for letter in letters), served.vocab.sep_id]
    texts = ["a b c d e f g", "g f e d c b a"][: len(kept)]
    found = served.pack(*(tf.constant([text]) for text in texts))
    assert found["input_word_ids"].numpy().tolist() == [expected]


def check_mask_predict(folder, texts, rounds):
    """The graph's fillings are those of `fill_text`, a text at a time."""
    served = load(str(folder), max_seq_length=LENGTH, rounds=rounds)
    found = {n: v.numpy() for n, v in served.predict_texts(tf.constant(texts)).items()}
    model = BertPretrainer.from_pretrained(folder, use_next_sentence=False, use_pooler=False)
    masked = MaskedModel(model, make_tokenizer(served.vocab, served.do_lower_case))
    several = 0
    for row, text in enumerate(texts):
        pieces = [piece.decode() for piece in found["pieces"][row] if piece]
        if MASK not in text:
            assert found["text"][row].decode() == text and not pieces
            assert found["log_probability"][row] == 0
            continue
        (filling,) = fill_text(masked, text, rounds=rounds)
        several += len(filling.tokens) > 2
        assert found["text"][row].decode() == filling.text
        assert [piece.strip() for piece in pieces] == list(filling.tokens)
        assert found["log_probability"][row] == pytest.approx(filling.log_probability, rel=1e-5)
    assert several
    return served


def check_scores(folder, texts):
    """The graph's scores are those of `score_words`, a text at a time; texts fill a row's room."""
    served = load(str(folder), max_seq_length=LENGTH)
    found = {n: v.numpy() for n, v in served.score_texts(tf.constant(texts)).items()}
    model = BertPretrainer.from_pretrained(folder, use_next_sentence=False, use_pooler=False)
    tokenizer = make_tokenizer(served.vocab.with_trimmed_offsets(), served.do_lower_case)
    masked = MaskedModel(model, tokenizer)
    for row, text in enumerate(texts):
        words = score_words(masked, text) if text else []
        names = [word.decode() for word in found["words"][row]]
        assert names == [word.text for word in words] + [""] * (len(names) - len(words))
        for index, word in enumerate(words):
            place = found["starts"][row, index], found["ends"][row, index]
            assert place == (word.start, word.end)
            alternative = found["alternatives"][row, index].decode()
            assert alternative == (word.alternative if word.is_known else "")
            expected = word.log_probability if word.is_known else 0.0
            assert found["log_probabilities"][row, index] == pytest.approx(expected, abs=2e-4)
        total = pseudo_log_likelihood(words)
        assert found["log_probability"][row] == pytest.approx(total, abs=1e-3)
        assert (found["starts"][row, len(words) :] == -1).all()
    return served, found


@pytest.mark.slow
def test_scores_of_words(tmp_path) -> None:
    """More pieces than the 64 rows that the model reads at once; an emoji that is no piece."""
    texts = ["the river w5 \U0001f600 a", "", *["The w1 w2 river the w3 b c"] * 8, "\U0001f600 w7"]
    served, found = check_scores(write_model(tmp_path / "m", "fill_mask"), texts)
    assert found["words"].shape == (11, 8)
    cut = served.score_texts(tf.constant(["the river " * 40]))
    assert cut["words"].shape == (1, LENGTH - 2)
    none = served.score_texts(tf.constant([], tf.string))
    assert none["words"].shape[0] == none["log_probability"].shape[0] == 0
    signature = served.text_signatures()["score"]
    again = signature(tf.constant(texts[:1]))
    np.testing.assert_allclose(again["log_probability"], found["log_probability"][:1], rtol=1e-4)


MASKED = (
    "the [MASK] river [MASK] a [MASK] [MASK]  b\u00a0[MASK]\u2009[MASK]!",
    "[MASK]",
    "no mask",
    "",
    "a[MASK][MASK]b c",
    "[MASK] " * 20,
)


@pytest.mark.slow
@pytest.mark.parametrize("rounds", [1, 10])
def test_rounds_of_mask_predict(tmp_path, rounds) -> None:
    check_mask_predict(write_model(tmp_path / "m", "fill_mask"), MASKED, rounds)


@pytest.mark.slow
def test_mask_predict(tmp_path) -> None:
    served = check_mask_predict(write_model(tmp_path / "m", "fill_mask"), MASKED, 3)
    cut = served.predict_texts(tf.constant(["[MASK] " * 60]))
    assert cut["text"].numpy()[0].count(b"[MASK]") == 60 - (LENGTH - 2)
    assert served.predict_texts(tf.constant([], tf.string))["text"].shape == (0,)
    signature = served.text_signatures()["mask_predict"]
    batch = served.pack(tf.constant(MASKED[:1]))
    row = served.id_signatures()["mask_predict"](*(batch[name] for name in IDS))
    expected = served.predict_ids(batch)
    for name, value in expected.items():
        assert_close(row[name], value)
    assert served.vocab.mask_id not in row["input_word_ids"].numpy()
    assert signature(tf.constant(MASKED[:1]))["pieces"].shape == (1, 6)


@pytest.mark.slow
def test_embeddings(tmp_path) -> None:
    folder = write_model(tmp_path / "m", "embeddings")
    served = load(str(folder), max_seq_length=LENGTH)
    batch = packed(served, TEXTS)
    vectors = BertEncoder.from_pretrained(folder)(batch)["sequence_output"].numpy()
    rows = [row[: mask.sum()] for row, mask in zip(vectors, batch["input_mask"], strict=True)]
    pool = {"cls": lambda row: row[0], "mean": lambda row: row.mean(0), "max": lambda r: r.max(0)}
    for pooling, of_row in pool.items():
        served = load(str(folder), max_seq_length=LENGTH, normalize=True, pooling=pooling)
        expected = np.stack([of_row(row) for row in rows])
        expected /= np.linalg.norm(expected, axis=1, keepdims=True)
        found = served.from_ids(batch)["embedding"]
        assert_close(found, expected)
    found = answers(served, TEXTS)["embedding"]
    assert_close(found, served.from_ids(batch)["embedding"])


@pytest.mark.slow
def test_odd_requests(tmp_path) -> None:
    served = load(str(write_model(tmp_path / "m", "tagger")), max_seq_length=LENGTH)
    call = served.text_signatures()["serving_default"]
    assert {value.shape[0] for value in call(tf.constant([], tf.string)).values()} == {0}
    assert served.from_words(tf.zeros([0, 0], tf.string))["tags"].shape == (0, 0)
    assert served.from_words(tf.zeros([2, 0], tf.string))["tags"].shape == (2, 0)
    many = answers(served, ["the river " * 1000])
    assert many["words"].shape == (1, 2000) and math.isfinite(many["scores"].sum())


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["tagger", "question_answering", "embeddings", "fill_mask"])
def test_bytes_that_are_not_utf8_are_replaced(tmp_path, kind) -> None:
    served = load(str(write_model(tmp_path / "m", kind)), max_seq_length=LENGTH)
    texts = [b"the river", b"\xff\xfe the caf\xe9 \xf0\x9f river", b"fine \xc3", b"\xed\xa0\x80"]
    columns = [texts] if len(served.texts) == 1 else [[b"river?"] * len(texts), texts]
    found = served.text_signatures()["serving_default"](*map(tf.constant, columns))
    replaced = []
    for column in columns:
        replaced.append([text.decode("utf-8", "replace") for text in column])
    expected = answers(served, *replaced)
    for name, values in expected.items():
        if values.dtype.kind == "f":
            assert_close(found[name], values)
        else:
            assert (found[name].numpy() == values).all()
    if kind == "tagger":  # The offsets count each U+FFFD.
        starts, ends = expected["starts"][1], expected["ends"][1]
        spans = [replaced[0][1][start:end] for start, end in zip(starts, ends, strict=True)]
        assert spans == [word.decode() for word in expected["words"][1]]
        assert spans[-1] == "river"


@pytest.mark.slow
def test_masks_of_byte_level_bpe(tmp_path) -> None:
    folder = write_byte_bpe(tmp_path / "m", "fill_mask")
    served = load(str(folder), max_seq_length=LENGTH, top_k=3)
    assert served.card()["mask"] == "<mask>"
    found = answers(served, ["The [MASK] stood on <mask>", "no mask", ""])
    assert (found["pieces"][0, :2] != b"").all() and (found["pieces"][1:] == b"").all()
    masked = ("The [MASK]  [MASK] stood on[MASK]", "[MASK] [MASK]", "no mask", "")
    check_mask_predict(folder, masked, 2)
    scored = ("The river stood on", "a slow  boat", "", "It")
    served, _ = check_scores(folder, scored)
    special = served.score_texts(tf.constant(["The <mask> stood"]))
    assert special["alternatives"].numpy()[0].tolist().count(b"") == 1  # Unknown.


@pytest.mark.parametrize("kind", ["regression", "reranker"])
def test_a_classifier_is_no_model_of_one_number(tmp_path, kind):
    folder = str(write_model(tmp_path / "m", "classifier"))
    with pytest.raises(ValueError, match=f"/m/.* 3 labels, .*{kind}"):
        load(folder, kind)


@pytest.mark.parametrize(
    ("kind", "option", "message"),
    [
        ("classifier", {"top_k": 3}, "^top_k .*fill_mask; .*/m.* classifier"),
        ("tagger", {"texts": ("text", "text_b")}, "^pair .*classifier, .*tagger"),
        ("classifier", {"pooling": "cls"}, "^pooling .*embeddings"),
        ("classifier", {"store": "int8"}, "^store .*search; .*classifier"),
    ],
)
def test_options_of_other_kinds_are_refused(tmp_path, kind, option, message):
    folder = str(write_model(tmp_path / "m", kind))
    with pytest.raises(ValueError, match=message):
        load(folder, **option)


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", slow_unless("classifier", ["classifier", "tagger", "fill_mask", "embeddings"])
)
def test_bfloat16_answers_nearly_the_same_with_half_the_weights(tmp_path, kind):
    """Eight bits of precision: a rounding error of 0.4 % in each product, added up in any order."""
    folder = str(write_model(tmp_path / "m", kind))
    whole, half = (load(folder, precision=name) for name in ("float32", "bfloat16"))
    texts = [text[:80].replace("word", "[MASK]") for text in TEXTS] + ["One [MASK] more."]
    for name, value in answers(whole, texts).items():
        if value.dtype.kind == "f":
            received = answers(half, texts)[name]
            assert received.dtype == np.float32
            assert np.abs(received - value).max() < 0.05 * max(1.0, np.abs(value).max())
    sizes = [
        sum(v.value.dtype.size * int(tf.size(v.value)) for v in one.model.trainable_variables)
        for one in (whole, half)
    ]
    assert sizes[0] == 2 * sizes[1]
