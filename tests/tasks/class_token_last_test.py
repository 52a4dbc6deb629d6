"""Rows of tasks and of pre-training for a vocabulary whose class token is the last one, XLNet's."""

import functools
import types

import numpy as np
import pytest
import tensorflow as tf

import bert_tf
from bert_tf.checkpoints.embedding import EmbeddingConfig
from bert_tf.config import DataConfig, MaskingConfig
from bert_tf.config.fine_tuning_config import SquadConfig
from bert_tf.corpus.example_shards import write_shards
from bert_tf.corpus.mask_draws import MaskDraws
from bert_tf.corpus.masking import mask_batch
from bert_tf.corpus.record_form import RecordForm
from bert_tf.corpus.token_store import TokenStore, write_part
from bert_tf.diagnosis.examples import Examples, find_faults
from bert_tf.pretraining.masked_words.answers import read_masked_text
from bert_tf.tasks.embedding.packing import pack_text, prompt_length
from bert_tf.tasks.question_answering.answers import SquadPredictions, rank_spans
from bert_tf.tasks.question_answering.features import make_features
from bert_tf.tasks.question_answering.questions import SquadAnswer, SquadQuestion
from bert_tf.tasks.question_answering.serving import QuestionAnsweringServing
from bert_tf.tasks.tagging.features import make_tag_rows
from bert_tf.tasks.tagging.sentences import TaggedSentence
from bert_tf.text.packing import PackedText, pad_batch
from bert_tf.text.text_tokenizer import TextTokenizer
from tests.corpus.example_shards_test import read
from tests.float_bounds import close_to
from tests.shared_data import golden_file

CONTEXT = "The first publication of the school was in September, and the second in June."


@functools.cache
def xlnet() -> TextTokenizer:
    return bert_tf.load_tokenizer(golden_file("families", "xlnet", "lm_head"))


def ask(text: str) -> SquadQuestion:
    answer = SquadAnswer(text, CONTEXT.index(text))
    return SquadQuestion("q", "When was it?", CONTEXT, answer, (answer,), False)


def test_windows_of_question_answering_end_with_the_class_token():
    vocab = xlnet().vocab
    question = ask("September")
    features = make_features(question, xlnet().tokenizer, 22, 5, 7)
    query = xlnet().tokenizer.encode(question.question)
    assert len(features) > 2
    found = 0
    for feature in features:
        ids = feature.ids.tolist()
        size = len(feature.starts)
        assert ids[: len(query)] == query and ids[len(query)] == vocab.sep_id
        assert ids[-2:] == [vocab.sep_id, vocab.cls_id] and feature.class_position == len(ids) - 1
        type_ids = [0] * (len(query) + 1) + [1] * (size + 1) + [2]
        assert feature.type_ids.tolist() == type_ids and feature.context_start == len(query) + 1
        if feature.start_position == feature.class_position:
            assert feature.end_position == feature.class_position
            continue
        positions = (feature.start_position, feature.end_position)
        span = CONTEXT[slice(*feature.span_offsets(CONTEXT, *positions))]
        assert span.strip() == "September"
        found += 1
    assert found


def test_no_answer_is_the_class_token_at_the_end_of_each_window():
    question = ask("September")
    features = make_features(question, xlnet().tokenizer, 22, 5, 7)
    longest = max(len(feature.ids) for feature in features)
    starts = np.full((len(features), longest), -9.0, np.float32)
    for row, feature in enumerate(features):
        starts[row, feature.class_position] = 2.0 + row
        starts[row, feature.context_start] = 1.0
    config = SquadConfig(version_2_with_negative=True)
    ranked = rank_spans([question], features, starts, starts.copy(), config)
    found = SquadPredictions.of_ranked(ranked, config)
    assert found.null_odds["q"] == close_to(2 * 2.0 - 2 * 1.0)
    assert found.predictions["q"] == ""


def test_the_graph_finds_the_windows_and_class_tokens_of_python():
    vocab = xlnet().vocab
    stub = types.SimpleNamespace(vocab=vocab, max_seq_length=22, num_special=3, doc_stride=5)
    question = ask("September")
    features = make_features(question, xlnet().tokenizer, 22, 5, 7)
    size = len(xlnet().tokenizer.encode(CONTEXT))
    lengths = tf.constant([7], tf.int64), tf.constant([size], tf.int64)
    windows = QuestionAnsweringServing.make_windows(stub, *lengths)
    assert windows.offsets.numpy().tolist() == [row.context_start for row in features]
    rows = [PackedText(row.ids.tolist(), row.type_ids.tolist()) for row in features]
    found = QuestionAnsweringServing.class_positions(stub, pad_batch(rows, vocab.pad_id))
    assert found.numpy().tolist() == [row.class_position for row in features]


def test_tagged_words_are_at_the_positions_of_their_first_tokens():
    vocab = xlnet().vocab
    sentence = TaggedSentence(tuple(CONTEXT.replace(",", " ,").split()), None, "a line 1")
    rows = make_tag_rows([sentence], xlnet().tokenizer, 16)
    assert len(rows) > 1
    for row in rows:
        assert row.text.ids[-2:] == [vocab.sep_id, vocab.cls_id]
        for word, position in zip(row.words, row.positions, strict=True):
            first = xlnet().tokenizer.encode_word(sentence.words[word])[0]
            assert row.text.ids[position] == first


def test_a_prompt_begins_at_the_first_position():
    embedding = EmbeddingConfig(max_seq_length=40, include_prompt=False)
    row = pack_text(xlnet().tokenizer, embedding, "the school", "query: ")
    count = prompt_length(xlnet().tokenizer, embedding, "query: ")
    prompt = xlnet().tokenizer.encode("query: ")
    assert count == len(prompt) and row.ids[-1] == xlnet().vocab.cls_id


def test_a_masked_text_keeps_the_places_of_its_masks():
    row = read_masked_text("the [MASK] was", xlnet().tokenizer, 16)
    vocab = xlnet().vocab
    assert [row.ids[position] for position in row.positions] == [vocab.mask_id]
    assert row.ids[-2:] == [vocab.sep_id, vocab.cls_id]


@pytest.mark.parametrize("use_next_sentence", [True, False])
def test_examples_of_pretraining(tmp_path, use_next_sentence):
    vocab = xlnet().vocab
    generator = np.random.default_rng(0)
    documents = [
        [generator.integers(20, 300, n).tolist() for n in generator.integers(3, 9, 12)]
        for _ in range(8)
    ]
    write_part(tmp_path / "part-0.tokens", documents, 2)
    vocab.write(tmp_path / "tokenizer.json")
    paths = [tmp_path / "0.tfrecord"]
    data = DataConfig(
        vocab_file=str(tmp_path / "tokenizer.json"),
        max_seq_length=32,
        num_workers=1,
        use_next_sentence=use_next_sentence,
    )
    store = TokenStore([tmp_path / "part-0.tokens"])
    masking = MaskingConfig(max_predictions_per_seq=8)
    write_shards(store, np.arange(8), paths, tmp_path / "receipts", data, masking)
    features = read(paths)
    ids = features["input_ids"].astype(np.int32)
    mask = features["input_mask"].astype(np.int32)
    type_ids = features["segment_ids"].astype(np.int32)
    lengths = mask.sum(axis=1)
    for row, length in enumerate(lengths):
        assert ids[row, length - 2 : length].tolist() == [vocab.sep_id, vocab.cls_id]
        assert (ids[row, length:] == vocab.pad_id).all() and not type_ids[row, length:].any()
        first = ids[row].tolist().index(vocab.sep_id) + 1 if use_next_sentence else length - 1
        expected = [0] * first + [1] * (length - 1 - first) + [2]
        assert type_ids[row, :length].tolist() == expected
    assert lengths.max() == 32
    stored = {
        "input_word_ids": ids,
        "input_mask": mask,
        "input_type_ids": type_ids,
        "next_sentence_labels": features["next_sentence_labels"][:, 0],
    }
    examples = Examples(stored, RecordForm(False, {}, 32, 0), [""] * len(ids))
    assert examples.is_pair.all() == use_next_sentence
    faults = {name for name, rows in find_faults(examples, vocab).items() if rows.any()}
    assert faults == set()
    batch = {"input_word_ids": tf.constant(ids), "input_mask": tf.constant(mask)}
    numbers = tf.range(len(ids), dtype=tf.int64)
    masking = MaskingConfig(masked_lm_prob=0.25, max_predictions_per_seq=8)
    masked = mask_batch(batch, MaskDraws(numbers, 0 * numbers, vocab, masking, seed=1))
    chosen = masked["masked_lm_ids"].numpy()[masked["masked_lm_weights"].numpy() > 0]
    assert chosen.size and not set(chosen.tolist()) & set(vocab.never_masked)
    assert {vocab.cls_id, vocab.sep_id} <= set(vocab.never_masked)


def test_mpnet_selects_no_special_token_but_the_unknown_one():
    vocab = bert_tf.load_tokenizer(golden_file("families", "mpnet", "masked_lm")).vocab
    names = {vocab.tokens[index] for index in vocab.never_masked}
    assert names == {"<s>", "</s>", "<pad>", "<mask>"}
