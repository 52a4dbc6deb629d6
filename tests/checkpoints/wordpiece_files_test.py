"""Rules of WordPiece in Hugging Face's folders, read and written back."""

import dataclasses
import json

import numpy as np
import pytest

from bert_tf.checkpoints.tokenizer_files import read_tokenizer, write_tokenizer
from bert_tf.text.wordpiece_options import DEFAULT_OPTIONS, WordPieceOptions
from tests.checkpoints.made_checkpoint import make_config, make_vocab

RULES = (
    (True, WordPieceOptions(strip_accents=False)),
    (False, WordPieceOptions(strip_accents=True)),
    (True, WordPieceOptions(splits_ideographs=False, max_word_characters=100)),
    (False, WordPieceOptions(max_word_characters=7)),
)


@pytest.mark.parametrize(("lower", "options"), RULES)
def test_rules_come_back(tmp_path, lower, options):
    config = make_config(np.random.default_rng(0), do_lower_case=lower)
    vocab = dataclasses.replace(make_vocab(70, lower), options=options)
    write_tokenizer(tmp_path, vocab, config)
    found = read_tokenizer(tmp_path, 70)
    assert (found.vocab, found.do_lower_case) == (vocab, lower)
    (tmp_path / "vocab.txt").unlink()
    assert read_tokenizer(tmp_path, 70).vocab == vocab


@pytest.mark.parametrize(
    ("limit", "expected"), [(100, DEFAULT_OPTIONS), (8, WordPieceOptions(max_word_characters=8))]
)
def test_the_limit_that_every_folder_has_is_not_a_rule(tmp_path, limit, expected):
    config = make_config(np.random.default_rng(0), do_lower_case=True)
    write_tokenizer(tmp_path, make_vocab(70, True), config)
    path = tmp_path / "tokenizer.json"
    values = json.loads(path.read_text())
    values["model"]["max_input_chars_per_word"] = limit
    path.write_text(json.dumps(values))
    assert read_tokenizer(tmp_path, 70).vocab.options == expected


@pytest.mark.parametrize("limit", [0, True, "100"])
def test_limits_that_are_no_numbers(tmp_path, limit):
    config = make_config(np.random.default_rng(0), do_lower_case=True)
    write_tokenizer(tmp_path, make_vocab(70, True), config)
    path = tmp_path / "tokenizer.json"
    values = json.loads(path.read_text())
    values["model"]["max_input_chars_per_word"] = limit
    path.write_text(json.dumps(values))
    with pytest.raises(ValueError, match="max_input_chars_per_word"):
        read_tokenizer(tmp_path, 70)
