"""Rows of the tasks with byte-level BPE."""

import dataclasses

import numpy as np
import pytest

from bert_tf.tasks.classification.examples import TextExample
from bert_tf.tasks.classification.features import make_examples
from bert_tf.tasks.multiple_choice.examples import ChoiceExample
from bert_tf.tasks.multiple_choice.features import make_examples as make_choices
from bert_tf.tasks.question_answering.features import make_features
from bert_tf.tasks.question_answering.questions import read_squad
from bert_tf.tasks.tagging.features import make_tag_rows
from bert_tf.tasks.tagging.sentences import TaggedSentence
from bert_tf.text.tokenization import make_tokenizer, read_vocab
from tests.shared_data import golden_file, shared_data
from tests.slow_variants import slow_unless
from tests.tasks.padded_features import pad_features
from tests.tiny_bpe import tiny_bpe_vocab

VOCAB = tiny_bpe_vocab()


def test_each_word_of_a_sentence_has_its_space():
    words = ("The", "mill", ",", "it's")
    tokenizer = make_tokenizer(VOCAB, False)
    (row,) = make_tag_rows([TaggedSentence(words, None, "here")], tokenizer, 32)
    assert row.text.ids[1:-1] == tokenizer.encode(" The mill , it's")
    starts = [VOCAB.tokens[row.text.ids[place]][0] for place in row.positions]
    assert starts == ["\u0120"] * 4


def test_texts_and_pairs_of_a_classifier():
    tokenizer = make_tokenizer(VOCAB, False)
    examples = [
        TextExample("The mill", "stood", "a", "0", "here"),
        TextExample("A boat", "", "b", "1", "here"),
    ]
    made = make_examples(examples, np.array([0, 1], np.int32), "single_label", tokenizer, 12)
    batch = made.rows.batch(np.array([0, 1]), 3, 12)
    first, second = tokenizer.encode("The mill"), tokenizer.encode("stood")
    cls, sep, pad = VOCAB.cls_id, VOCAB.sep_id, VOCAB.pad_id
    row = [cls, *first, sep, sep, *second, sep]
    assert batch["input_word_ids"][0].tolist() == (row + [pad] * 12)[:12]
    assert (batch["input_word_ids"][2] == pad).all() and not batch["input_type_ids"].any()


def test_choices_without_a_start_are_pairs():
    tokenizer = make_tokenizer(VOCAB, False)
    choices = [
        ChoiceExample("The mill", start, ("stood", "ran"), 0, "0", "") for start in ("", "It")
    ]
    rows = make_choices(choices, tokenizer, 32).rows.batch(np.arange(2), 2, 32)["input_word_ids"]
    pairs = [TextExample("The mill", text, None, "0", "") for text in ("stood", "ran", "It stood")]
    expected = make_examples(pairs, np.zeros(3, np.int32), "single_label", tokenizer, 32).rows
    ids = expected.batch(np.arange(3), 3, 32)["input_word_ids"]
    np.testing.assert_array_equal(rows.reshape(4, 32)[:3], ids)


@pytest.mark.needs(data="squad")
@pytest.mark.parametrize(
    "change", slow_unless({}, [{}, {"trim_offsets": False}, {"add_prefix_space": True}])
)
def test_answers_of_real_questions_are_the_fewest_pieces_that_hold_them(change):
    vocab = read_vocab(golden_file("vocab", "roberta-base", "vocab.json"))
    tokenizer = make_tokenizer(dataclasses.replace(vocab, **change), False)
    questions = read_squad(shared_data("squad", "v1.1-train36.json"), True, False)[:300]
    is_text = []
    for question in questions:
        (feature,) = make_features(question, tokenizer, 5000)
        positions = feature.start_position, feature.end_position
        first, last = (position - feature.context_start for position in positions)
        begin, end = question.answer.start, question.answer.start + len(question.answer.text)
        # Offsets grow, so the pieces before and behind end and start outside.
        assert feature.starts[first] <= begin < feature.ends[first]
        assert feature.starts[last] < end <= feature.ends[last]
        found = question.context[slice(*feature.span_offsets(question.context, *positions))]
        assert question.answer.text in found and found == found.lstrip(" ")
        is_text.append(found == question.answer.text)
        head = feature.ids[: feature.context_start].tolist()
        assert head[-2:] == [vocab.sep_id] * 2 and not feature.type_ids.any()
    assert np.mean(is_text) > 0.97
    batch = pad_features([feature], len(feature.ids) + 2, vocab.pad_id)
    assert batch["input_word_ids"][0, -2:].tolist() == [vocab.pad_id] * 2
