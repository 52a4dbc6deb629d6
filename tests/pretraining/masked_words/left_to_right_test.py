"""Texts scored and continued from left to right, against one call for each token."""

import dataclasses
import types

import keras
import numpy as np
import pytest

import bert_tf
from bert_tf.inference.output_answers import output_answers
from bert_tf.pretraining.masked_words.left_to_right import join_wordpieces
from bert_tf.pretraining.masked_words.model import BertPretrainer
from bert_tf.tasks.base.models.preprocessor import BertPreprocessor
from tests.float_bounds import assert_close
from tests.pretraining.masked_words.gap_filling_test import CONFIG, FIRST, VOCAB, WORDS

TEXTS = ["the cat sat .", "a dog", "the dogs ran home .", "the zebra sat"]


@pytest.fixture(scope="module", name="model")
def fixture_model() -> BertPretrainer:
    keras.utils.set_random_seed(3)
    config = dataclasses.replace(CONFIG, num_hidden_layers=2, reads_left_to_right=True)
    return BertPretrainer(
        config,
        use_next_sentence=False,
        use_pooler=False,
        preprocessor=BertPreprocessor(VOCAB, do_lower_case=True, max_seq_length=12),
    )


def next_log_shares(model: BertPretrainer, row: list[int]) -> np.ndarray:
    """Returns the log-probabilities of the token after a row, whatever comes after it."""
    ids = np.array([[*row, FIRST + len(row) % 7]], np.int32)
    order = np.arange(len(row) + 1, dtype=np.int32)[None]
    outputs = model(
        {
            "input_word_ids": ids,
            "input_mask": np.ones_like(ids),
            "input_type_ids": np.zeros_like(ids),
            "key_ranks": order,
            "query_ranks": order + 1,
            "masked_lm_positions": np.array([[len(row) - 1]], np.int32),
        }
    )
    logits = np.asarray(outputs["masked_lm_logits"])[0, 0].astype(np.float64)
    logits[:FIRST] = -np.inf
    return logits - np.log(np.exp(logits).sum())


def row_of(model: BertPretrainer, text: str) -> list[int]:
    return [VOCAB.cls_id, *model.tokenizer.encode(text)]


def test_scores_are_those_of_one_token_after_the_other(model):
    expected = []
    for text in TEXTS:
        row = row_of(model, text)
        total = 0.0
        for length in range(1, len(row)):
            if row[length] != VOCAB.unk_id:
                total += next_log_shares(model, row[:length])[row[length]]
        expected.append(total)
    assert_close(model.score(TEXTS), expected)
    assert_close(model.score(TEXTS, batch_size=1), expected)


def test_the_likeliest_continuation(model):
    continued = model.continue_text(TEXTS[:2], max_new_tokens=4)
    for text, whole in zip(TEXTS, continued, strict=False):
        row = row_of(model, text)
        tokens = []
        for _ in range(4):
            row.append(int(next_log_shares(model, row).argmax()))
            tokens.append(VOCAB.tokens[row[-1]])
        assert whole == join_wordpieces(text, tokens)
    # Rows end at the model's length: [CLS] and eleven tokens.
    assert model.continue_text(["a dog"], max_new_tokens=99) == model.continue_text(
        ["a dog"], max_new_tokens=9
    )


def test_draws_follow_the_probabilities(model):
    """The first drawn token of 2,000 equal texts, each with its own seed: chi-squared, 9 degrees
    of freedom; the bound fails one time in 10^6."""
    shares = np.exp(next_log_shares(model, row_of(model, "the")))[FIRST:]
    texts = ["the"] * 2000
    drawn = model.continue_text(texts, max_new_tokens=1, temperature=1.0, seed=5, batch_size=500)
    texts_of_words = [join_wordpieces("the", [word]) for word in WORDS]
    expected = dict(zip(texts_of_words, shares, strict=True))
    counts = np.array([drawn.count(text) for text in expected])
    wanted = 2000 * np.array(list(expected.values()))
    assert counts.sum() == 2000
    assert ((counts - wanted) ** 2 / wanted).sum() < 45
    again = model.continue_text(texts[:7], max_new_tokens=1, temperature=1.0, seed=5, batch_size=3)
    assert again == drawn[:7]
    likeliest = model.continue_text(texts[:3], max_new_tokens=1, temperature=1.0, top_k=1)
    assert set(likeliest) == set(model.continue_text(["the"], max_new_tokens=1))


def test_join_wordpieces():
    assert join_wordpieces("The cat", ["##s", "sat", ".", "they"]) == "The cats sat. they"
    assert join_wordpieces("", ["the", "cat"]) == "the cat"


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"max_new_tokens": 0}, "max_new_tokens"),
        ({"temperature": -1.0}, "temperature"),
        ({"top_k": -1}, "top_k"),
        ({"top_p": 0.0}, "top_p"),
    ],
)
def test_arguments_out_of_range(model, options, name):
    with pytest.raises(ValueError, match=name):
        model.continue_text(["the"], **options)


def test_texts_that_have_no_score(model):
    with pytest.raises(ValueError, match=r"texts\[1\]"):
        model.score(["the cat", ""])
    with pytest.raises(ValueError, match=r"texts\[0\]"):
        model.continue_text(["the cat " * 9])
    assert model.score([]) == []
    config = dataclasses.replace(model.config, reads_left_to_right=False)
    masked = BertPretrainer(
        config,
        use_next_sentence=False,
        use_pooler=False,
        preprocessor=model.preprocessor,
    )
    with pytest.raises(ValueError, match="causal_share"):
        masked.score(["the cat"])


def test_loaded_from_files(model, tmp_path):
    """As a .keras file."""
    model.save(tmp_path / "model.keras")
    loaded = bert_tf.load(tmp_path / "model.keras")
    assert_close(loaded.score(TEXTS[:3]), model.score(TEXTS[:3]))
    assert loaded.continue_text(["a"], max_new_tokens=3) == model.continue_text(
        ["a"], max_new_tokens=3
    )


def test_exported_models_refuse():
    """Their functions compute masks alone."""
    card = {"kind": "fill_mask", "labels": [], "inputs": ["text"], "max_seq_length": 12}
    answers = output_answers(types.SimpleNamespace(card=card))
    for method in (answers.score, answers.continue_text):
        with pytest.raises(ValueError, match=method.__name__):
            method(["the cat"])
