"""Data with byte-level BPE: spaces between sentences, rows, padding, masks, hashes."""

import dataclasses
import hashlib

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.config import DataConfig, MaskingConfig
from bert_tf.corpus import masking
from bert_tf.corpus.example_files import write_examples
from bert_tf.corpus.manifests import vocabulary_hash
from bert_tf.corpus.mask_draws import MaskDraws
from bert_tf.corpus.pipeline import MaskedBatches
from bert_tf.corpus.static_masks import mask_rows
from bert_tf.corpus.tf_text_masking import group_words
from bert_tf.corpus.tfrecords import RecordFiles, encode_examples, write_records
from bert_tf.text.tokenization import make_tokenizer
from bert_tf.text.vocab import Vocab
from tests.conftest import CORPUS, tiny_tokens
from tests.tiny_bpe import tiny_bpe_vocab

VOCAB = tiny_bpe_vocab()
LENGTH = 32
MASKS = MaskingConfig(do_whole_word_mask=True, masked_lm_prob=0.3, max_predictions_per_seq=12)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("data")
    (path / "corpus.txt").write_text(CORPUS + "\n", encoding="utf8")
    VOCAB.write(path / "tokenizer.json")
    return path


def make_batches(folder, use_next_sentence: bool) -> dict[str, np.ndarray]:
    """Makes records of the corpus, read with masks drawn; returns all batches as one."""
    data = DataConfig(
        input_file=str(folder / "corpus.txt"),
        vocab_file=str(folder / "tokenizer.json"),
        max_seq_length=LENGTH,
        use_next_sentence=use_next_sentence,
        num_workers=1,
    )
    output = folder / f"{use_next_sentence}.tfrecord"
    write_examples([output], data, MASKS, do_lower_case=False)
    sizes = {"max_seq_length": LENGTH, "seed": 1}
    batches = list(MaskedBatches(RecordFiles([output]), VOCAB, MASKS, **sizes).evaluation(7))
    return {name: np.concatenate([b[name] for b in batches]) for name in batches[0]}


def unmasked(batch) -> np.ndarray:
    ids = batch["input_word_ids"].copy()
    rows, slots = np.nonzero(batch["masked_lm_weights"])
    ids[rows, batch["masked_lm_positions"][rows, slots]] = batch["masked_lm_ids"][rows, slots]
    return ids


def test_rows_of_full_sentences_are_running_text(folder):
    batch = make_batches(folder, use_next_sentence=False)
    assert not batch["input_type_ids"].any()
    ids, is_real = unmasked(batch), batch["input_mask"] > 0
    assert (ids[~is_real] == VOCAB.pad_id).all() and (~is_real).any()
    pieces = [i for row, real in zip(ids, is_real, strict=True) for i in row[real]]
    pieces = [i for i in pieces if i not in VOCAB.special_ids]
    # A document is one text with a space between its sentences.
    tokenizer = make_tokenizer(VOCAB, False)
    documents = [" ".join(text.splitlines()) for text in CORPUS.split("\n\n")]
    expected = [i for document in documents for i in tokenizer.encode(document)]
    assert sorted(pieces) == sorted(expected)


def test_pairs_have_both_separators(folder):
    batch = make_batches(folder, use_next_sentence=True)
    assert not batch["input_type_ids"].any()
    rows = batch["input_mask"].sum(axis=1) > 0
    ids = unmasked(batch)[rows]
    assert (ids[:, 0] == VOCAB.cls_id).all()
    for row in ids:
        (places,) = np.nonzero(row == VOCAB.sep_id)
        assert len(places) == 3 and places[1] == places[0] + 1 and places[2] <= LENGTH - 1


def slow_words(ids: list[int]) -> list[list[int]]:
    """Returns places of the pieces of each word, by the marks in the pieces themselves."""
    words: list[list[int]] = []
    for place, index in enumerate(ids):
        token = VOCAB.tokens[index]
        if token in ("<s>", "</s>", "<mask>", "<pad>", "<unk>"):
            continue
        if words and words[-1][-1] == place - 1 and token[0] != "\u0120":
            words[-1].append(place)
        else:
            words.append([place])
    return words


def made_rows() -> tuple[np.ndarray, np.ndarray]:
    tokenizer = make_tokenizer(VOCAB, False)
    lines = [" ".join(text.split())[:90] + " <mask> a<unk>b" for text in CORPUS.split("\n\n")]
    rows = [[VOCAB.cls_id, *tokenizer.encode(line)[:60], VOCAB.sep_id] for line in lines * 5]
    lengths = np.array([len(row) for row in rows])
    ids = np.full((len(rows), 70), VOCAB.pad_id)
    for row, values in zip(ids, rows, strict=True):
        row[: len(values)] = values
    return ids.astype(np.int32), lengths


@pytest.mark.parametrize("is_static", [True, False])
def test_whole_words_are_masked_and_no_special_token(is_static):
    ids, lengths = made_rows()
    if is_static:
        keys = np.arange(len(ids)).astype(np.uint64)
        masked = mask_rows(ids, lengths, keys, MASKS, VOCAB)._asdict()
    else:
        mask = (np.arange(ids.shape[1]) < lengths[:, None]).astype(np.int32)
        numbers = tf.range(len(ids), dtype=tf.int64)
        batch = {"input_word_ids": tf.constant(ids), "input_mask": tf.constant(mask)}
        draws = MaskDraws(numbers, tf.zeros_like(numbers), VOCAB, MASKS, seed=3)
        masked = masking.mask_batch(batch, draws)
        masked = {name: value.numpy() for name, value in masked.items()}
    several = 0
    for row in range(len(ids)):
        is_real = masked["masked_lm_weights"][row] > 0
        chosen = set(masked["masked_lm_positions"][row][is_real].tolist())
        words = slow_words(ids[row, : lengths[row]].tolist())
        assert chosen <= {place for word in words for place in word}
        assert all(chosen.issuperset(word) or not chosen & set(word) for word in words)
        several += sum(len(word) > 1 and chosen.issuperset(word) for word in words)
    assert several > len(ids)


@pytest.mark.parametrize("is_static", [True, False])
def test_a_document_begins_with_a_word(is_static):
    """One of five pieces is masked: were the two documents' words one, it would have no room."""
    (piece,) = make_tokenizer(VOCAB, False).encode("T")
    ids = np.array([[VOCAB.cls_id, piece, VOCAB.sep_id, piece, VOCAB.sep_id]], np.int32)
    masks = dataclasses.replace(MASKS, masked_lm_prob=0.15)
    if is_static:
        masked = mask_rows(ids, np.array([5]), np.zeros(1, np.uint64), masks, VOCAB)._asdict()
    else:
        batch = {"input_word_ids": tf.constant(ids), "input_mask": tf.ones_like(ids)}
        zero = tf.zeros(1, tf.int64)
        masked = masking.mask_batch(batch, MaskDraws(zero, zero, VOCAB, masks, seed=3))
    assert np.sum(masked["masked_lm_weights"]) == 1


def test_words_of_tensorflow_text_are_the_same():
    ids, lengths = made_rows()
    mask = (np.arange(ids.shape[1]) < lengths[:, None]).astype(np.int32)
    grouped = group_words(tf.constant(ids), tf.constant(mask), VOCAB).to_list()
    for row, length, words in zip(ids, lengths, grouped, strict=True):
        texts = [word for word in words if word[0] not in VOCAB.special_ids]
        slow = slow_words(row[:length].tolist())
        joined = [piece for word in texts for piece in word]
        assert joined == [row[place] for word in slow for place in word]


def test_googles_padding_becomes_the_vocabularys(tmp_path):
    ids = np.array([[0, 5, 6, 2, 0, 0]])
    features = {
        "input_ids": ids,
        "input_mask": np.array([[1, 1, 1, 1, 0, 0]]),
        "segment_ids": np.zeros_like(ids),
        "next_sentence_labels": np.zeros((1, 1), np.int64),
    }
    write_records(tmp_path / "r.tfrecord", encode_examples(features))
    sizes = {"max_seq_length": 6, "seed": 1}
    records = RecordFiles([tmp_path / "r.tfrecord"])
    (batch,) = MaskedBatches(records, VOCAB, MASKS, **sizes).evaluation(2)
    assert batch["input_word_ids"][0, 4:].numpy().tolist() == [VOCAB.pad_id] * 2
    assert (batch["input_word_ids"][1] == VOCAB.pad_id).numpy().all()


def test_a_vocabularys_hash_is_of_all_that_decides_its_pieces(tmp_path):
    wordpiece = tmp_path / "vocab.txt"
    Vocab(tuple(tiny_tokens())).write(wordpiece)
    # As ever, so that what is prepared stays found.
    assert vocabulary_hash(wordpiece) == hashlib.sha256(wordpiece.read_bytes()).hexdigest()
    others = [
        VOCAB,
        dataclasses.replace(VOCAB, merges=VOCAB.merges[::-1]),
        dataclasses.replace(VOCAB, add_prefix_space=True),
        dataclasses.replace(VOCAB, num_separators=1),
    ]
    hashes = set()
    for vocab in others:
        vocab.write(tmp_path / "tokenizer.json")
        hashes.add(vocabulary_hash(tmp_path / "tokenizer.json"))
    assert len(hashes) == len(others)
