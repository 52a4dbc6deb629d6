"""Vocabulary and casing beside the weights: files that contradict each other are an error."""

import json

import numpy as np
import pytest

from bert_tf.checkpoints.casing import check_casing
from bert_tf.checkpoints.tokenizer_files import read_tokenizer
from bert_tf.checkpoints.tokenizer_writing import write_tokenizer
from bert_tf.text.vocab import Vocab
from bert_tf.text.wordpiece_options import DEFAULT_OPTIONS
from tests.checkpoints.made_checkpoint import make_config, make_vocab
from tests.shared_data import golden_file


@pytest.fixture(name="folder", params=[True, False])
def fixture_folder(tmp_path, request):
    """The files of an uncased, then of a cased tokenizer."""
    config = make_config(np.random.default_rng(0), do_lower_case=request.param)
    write_tokenizer(tmp_path, make_vocab(70, request.param), config)
    return tmp_path


def edit(path, **values):
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def is_lower(folder):
    return json.loads((folder / "tokenizer_config.json").read_text())["do_lower_case"]


@pytest.mark.parametrize("gone", [(), ("tokenizer.json",), ("vocab.txt",), ("tokenizer_config",)])
def test_each_file_alone_says_enough(folder, gone):
    lower, vocab = is_lower(folder), Vocab.read(folder / "vocab.txt")
    for name in gone:
        for path in folder.glob(f"{name}*"):
            path.unlink()
    files = read_tokenizer(folder, 70)
    assert files.vocab == vocab and files.do_lower_case == lower


def test_no_file_at_all(tmp_path):
    files = read_tokenizer(tmp_path, 70)
    assert (files.vocab, files.do_lower_case) == (None, None)
    assert read_tokenizer(tmp_path, 70, stated=False).do_lower_case is False


def test_casings_that_contradict_each_other(folder):
    lower = is_lower(folder)
    with pytest.raises(ValueError, match="do_lower_case.*configuration.*tokenizer_config.json"):
        read_tokenizer(folder, 70, stated=not lower)
    edit(folder / "tokenizer_config.json", do_lower_case=not lower)
    with pytest.raises(ValueError, match="do_lower_case.*tokenizer_config.json.*tokenizer.json"):
        read_tokenizer(folder, 70)


def test_vocabularies_that_contradict_each_other(folder):
    lines = (folder / "vocab.txt").read_text().splitlines()
    (folder / "vocab.txt").write_text("\n".join([*lines[:-1], "other"]) + "\n")
    with pytest.raises(ValueError, match="vocab.txt .*tokenizer.json .*vocabularies"):
        read_tokenizer(folder, 70)


def test_a_casing_that_contradicts_the_vocabulary(folder):
    if is_lower(folder):
        return
    (folder / "tokenizer.json").unlink()
    edit(folder / "tokenizer_config.json", do_lower_case=True)
    with pytest.raises(ValueError, match=r"do_lower_case .*cased: \d+ .* 70 tokens"):
        read_tokenizer(folder, 70)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"unk_token": "<unk>"}, "unk_token .*'<unk>', .*'.UNK.'"),
        ({"cls_token": {"content": "<s>"}}, "cls_token .*'<s>'"),
        ({"do_basic_tokenize": False}, "do_basic_tokenize .*False"),
        ({"tokenizer_class": "BertJapaneseTokenizer"}, "tokenizer_class .*BertJapanese"),
        ({"word_tokenizer_type": "mecab"}, "word_tokenizer_type .*'mecab'"),
        ({"wordpieces_prefix": "@@"}, "wordpieces_prefix .*'@@'"),
        ({"tokenize_chinese_chars": 1}, "tokenize_chinese_chars .*1"),
        ({"strip_accents": "no"}, "strip_accents .*'no'"),
        ({"do_lower_case": "true"}, "do_lower_case .*'true'"),
    ],
)
def test_tokenizers_that_we_do_not_have(folder, values, message):
    edit(folder / "tokenizer_config.json", **values)
    with pytest.raises(ValueError, match=message):
        read_tokenizer(folder, 70)


def test_rules_for_accents_that_contradict_each_other(folder):
    lower = is_lower(folder)
    edit(folder / "tokenizer_config.json", strip_accents=not lower)
    with pytest.raises(ValueError, match="strip_accents.*tokenizer_config.*tokenizer.json"):
        read_tokenizer(folder, 70)
    edit(folder / "tokenizer_config.json", strip_accents=lower)
    assert read_tokenizer(folder, 70).vocab.options == DEFAULT_OPTIONS


def test_rules_for_ideographs_that_contradict_each_other(folder):
    edit(folder / "tokenizer_config.json", tokenize_chinese_chars=False)
    with pytest.raises(ValueError, match="tokenize_chinese_chars"):
        read_tokenizer(folder, 70)


def test_another_kind_of_tokenizer_json(folder):
    path = folder / "tokenizer.json"
    values = json.loads(path.read_text())
    edit(path, model={**values["model"], "type": "BPE"})
    with pytest.raises(ValueError, match="WordPiece.* vocab.txt .*byte BPE"):
        read_tokenizer(folder, 70)
    edit(path, model={**values["model"], "vocab": {"[PAD]": 0, "x": 5}})
    with pytest.raises(ValueError, match="tokenizer.json: .* ids .* 0, 1, 2"):
        read_tokenizer(folder, 70)
    path.write_text('{"model": ')
    with pytest.raises(ValueError, match="tokenizer.json .*JSON: "):
        read_tokenizer(folder, 70)


def test_a_vocabulary_longer_than_its_table(folder):
    with pytest.raises(ValueError, match="70.*69 rows"):
        read_tokenizer(folder, 69)


@pytest.mark.parametrize(
    ("name", "lower", "wrong_is_an_error"),
    [
        ("bert-base-uncased", True, True),
        ("bert-base-cased", False, True),
        pytest.param("bert-base-multilingual-cased", False, True, marks=pytest.mark.slow),
        ("bert-base-chinese", True, False),  # Both casings are in use.
    ],
)
def test_released_vocabularies_tell_their_casing(name, lower, wrong_is_an_error):
    vocab = Vocab.read(golden_file("vocab", f"{name}-vocab.txt"))
    assert check_casing(vocab, None, name) == lower
    assert check_casing(vocab, lower, name) == lower
    if wrong_is_an_error:
        with pytest.raises(ValueError, match=name):
            check_casing(vocab, not lower, name)
    else:
        assert check_casing(vocab, not lower, name) != lower
