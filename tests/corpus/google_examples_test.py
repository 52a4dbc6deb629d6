"""Google-identical examples: golden records of the original program, and bad input."""

import bz2
import gzip
import json
import lzma

import numpy as np
import pytest

from bert_tf.config import DataConfig, MaskingConfig
from bert_tf.corpus.google_examples import (
    make_google_examples,
    pad_examples,
    read_google_documents,
)
from bert_tf.corpus.tfrecords import encode_examples, write_records
from bert_tf.text.tokenization import make_tokenizer
from bert_tf.text.vocab import Vocab
from bert_tf.text.wordpiece import WordPiece
from tests.shared_data import golden_file
from tests.tiny_bpe import tiny_bpe_vocab

# The flags with which the original program was run; the others at their defaults.
GOLDEN = {
    "default_128_dupe10": ({}, {}),
    "wwm_64_dupe3": (
        {"max_seq_length": 64, "dupe_factor": 3, "random_seed": 7},
        {"do_whole_word_mask": True, "max_predictions_per_seq": 10},
    ),
    "long_512_dupe2": ({"max_seq_length": 512, "dupe_factor": 2}, {"max_predictions_per_seq": 76}),
    "short_32_p30": (
        {"max_seq_length": 32, "short_seq_prob": 0.5, "dupe_factor": 4, "random_seed": 99},
        {"max_predictions_per_seq": 5, "masked_lm_prob": 0.3},
    ),
}
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
TOKENIZER = WordPiece(Vocab((*SPECIAL, "a", "b", "c")), True)


@pytest.mark.parametrize("name", GOLDEN)
def test_equals_the_original_program(name):
    data_flags, masking_flags = GOLDEN[name]
    data, masking = DataConfig(**data_flags), MaskingConfig(**masking_flags)
    vocab = Vocab.read(golden_file("vocab", "bert-base-uncased-vocab.txt"))
    corpus = golden_file("google-bert-sample_text.txt")
    golden = golden_file("google-pretraining-records", f"{name}.jsonl.xz")
    with lzma.open(golden, "rt", encoding="utf8") as file:
        expected = [json.loads(line) for line in file]

    documents = read_google_documents(str(corpus), WordPiece(vocab, True))
    examples = make_google_examples(documents, data, masking, vocab)
    features = pad_examples(examples, data.max_seq_length, masking.max_predictions_per_seq)

    assert len(examples) == len(expected)
    assert set(features) == set(expected[0])
    for feature, rows in features.items():
        np.testing.assert_array_equal(rows, [example[feature] for example in expected], feature)


def test_documents_end_at_blank_lines_but_not_at_the_end_of_a_file(tmp_path):
    (tmp_path / "1.txt").write_bytes(b"a\n\n  \nb\n")
    (tmp_path / "2.txt").write_bytes(b"c c\n\n")
    documents = read_google_documents(f"{tmp_path}/*.txt", TOKENIZER)
    assert documents == [[[5]], [[6], [7, 7]]]


def test_of_byte_level_bpe_all_but_a_first_sentence_begin_with_a_space(tmp_path):
    tokenizer = make_tokenizer(tiny_bpe_vocab(), False)
    (tmp_path / "a.txt").write_text("a boat\nthe mill\n\na boat\na boat\nthe mill\n")
    a_boat, then_a_boat, mill = map(tokenizer.encode, ("a boat", " a boat", " the mill"))
    assert a_boat != then_a_boat
    assert read_google_documents(str(tmp_path / "a.txt"), tokenizer) == [
        [a_boat, mill],
        [a_boat, then_a_boat, mill],
    ]


@pytest.mark.parametrize(
    "compress", [gzip.compress, pytest.param(lzma.compress, marks=pytest.mark.slow), bz2.compress]
)
def test_compressed_files_are_read_as_plain_ones(tmp_path, compress):
    text = b"a\n\nb\nc c\n" * 5_000
    (tmp_path / "plain").write_bytes(text)
    (tmp_path / "compressed").write_bytes(compress(text))
    plain, compressed = (
        read_google_documents(str(tmp_path / name), TOKENIZER) for name in ("plain", "compressed")
    )
    assert plain == compressed and len(plain) == 5_001


def test_only_lines_takes_any_text(tmp_path):
    (tmp_path / "text").write_bytes(b'{"a": 1}\n')
    documents = read_google_documents(f"{tmp_path}/text", TOKENIZER, "lines")
    assert len(documents) == 1
    write_records(tmp_path / "records", encode_examples({"input_ids": np.ones((1, 8), int)}))
    with pytest.raises(
        ValueError, match="records.* tfrecord.*--google_identical.*--input_format=lines"
    ):
        read_google_documents(f"{tmp_path}/records", TOKENIZER)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "/text'"),
        (b"", "/text'.*sentence"),
        (b"good\nbad \xff\n", r"text, line 2.*xff.*UTF-8"),
        (b'{"text": "a"}\n', "text .*jsonl.*--input_format=lines"),
        (gzip.compress(b"a\n" * 50_000, mtime=0)[:100], "/text: .*compressed"),
        (lzma.compress(b"a\n" * 50_000)[:100] + bytes(100), "/text: .*compressed"),
    ],
)
def test_bad_input(tmp_path, content, message):
    if content is not None:
        (tmp_path / "text").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        read_google_documents(f"{tmp_path}/text", TOKENIZER)
