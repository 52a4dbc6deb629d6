"""Rules of WordPiece in Hugging Face's folders, read and written back."""

import dataclasses
import itertools
import json
import pathlib
import shutil

import numpy as np
import pytest
import tensorflow as tf
import tokenizers

from bert_tf.checkpoints.tokenizer_files import read_tokenizer
from bert_tf.checkpoints.tokenizer_writing import write_tokenizer
from bert_tf.text.added_tokens import AddedToken
from bert_tf.text.kinds import vocab_from_config
from bert_tf.text.tokenizer import BertTokenizer
from bert_tf.text.vocab import Vocab
from bert_tf.text.wordpiece import WordPiece
from bert_tf.text.wordpiece_options import DEFAULT_OPTIONS, WordPieceOptions
from tests.checkpoints.made_checkpoint import make_config, make_vocab
from tests.shared_data import golden_file
from tests.slow_variants import slow_unless

GOLDENS = ("keep_accents", "strip_accents_cased", "added_tokens", "additional_special")

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


def golden_rows(name: str) -> list[dict]:
    """Returns the texts of a golden folder with ids and offsets of Hugging Face."""
    path = golden_folder(name) / "tokenizer_golden.json"
    return [row for row in json.loads(path.read_text()) if "ids" in row]


def golden_folder(name: str) -> pathlib.Path:
    return pathlib.Path(golden_file("families", "wordpiece", name, "vocab.txt")).parent


def read_vocab_of(folder: pathlib.Path, as_transformers: bool) -> tuple[Vocab, bool]:
    found = read_tokenizer(folder, None, as_transformers=as_transformers)
    assert isinstance(found.vocab, Vocab)
    return found.vocab, bool(found.do_lower_case)


@pytest.mark.slow
@pytest.mark.parametrize("name", GOLDENS)
def test_golden_texts_as_transformers_reads_them(name):
    vocab, lower = read_vocab_of(golden_folder(name), as_transformers=True)
    tokenizer = WordPiece(vocab, lower)
    rows = golden_rows(name)
    graph_tokenizer = BertTokenizer(vocab, lower)
    columns = graph_tokenizer.tokenize_with_offsets(tf.constant([row["text"] for row in rows]))
    flat = [column.merge_dims(1, 2).to_list() for column in columns]
    for row, *in_graph in zip(rows, *flat, strict=True):
        text = row["text"]
        ids = row["ids"][1:-1]
        assert tokenizer.encode(text) == tokenizer.encode_uncached(text) == ids, text
        tokens, starts, ends = tokenizer.tokenize_with_offsets(text)
        assert [vocab.ids[token] for token in tokens] == ids
        assert [list(pair) for pair in zip(starts, ends, strict=True)] == row["offsets"][1:-1], text
        byte_of = list(itertools.accumulate((len(char.encode()) for char in text), initial=0))
        in_bytes = [[byte_of[at] for at in column] for column in (starts, ends)]
        assert in_graph == [ids, *in_bytes], text


@pytest.mark.parametrize("name", slow_unless("keep_accents", GOLDENS))
def test_special_tokens_are_ordinary_text_by_default(name):
    vocab, lower = read_vocab_of(golden_folder(name), as_transformers=False)
    tokenizer = WordPiece(vocab, lower)
    rows = golden_rows(name)
    graph_tokenizer = BertTokenizer(vocab, lower)
    in_graph = graph_tokenizer.tokenize(tf.constant([row["text"] for row in rows]))
    written = 0
    for row, graph_ids in zip(rows, in_graph.merge_dims(1, 2).to_list(), strict=True):
        ids = tokenizer.encode(row["text"])
        assert ids == graph_ids
        if "[NEW]" in row["text"] or "<ctl>" in row["text"]:
            continue  # Those are found here; the goldens were made without.
        assert ids == row.get("ids_split_special_tokens", row["ids"])[1:-1], row["text"]
        written += "ids_split_special_tokens" in row
    assert written > 10


@pytest.mark.parametrize("as_transformers", [False, True])
@pytest.mark.parametrize("name", GOLDENS)
def test_golden_folders_written_back(tmp_path, name, as_transformers):
    vocab, lower = read_vocab_of(golden_folder(name), as_transformers)
    config = make_config(np.random.default_rng(0), do_lower_case=lower)
    write_tokenizer(tmp_path, vocab, config)
    assert read_vocab_of(tmp_path, as_transformers) == (vocab, lower)
    theirs = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    for row in golden_rows(name):
        assert theirs.encode(row["text"]).ids == row["ids"]


@pytest.mark.parametrize("name", GOLDENS)
def test_vocabularies_with_added_tokens_as_our_own_files(tmp_path, name):
    vocab, _ = read_vocab_of(golden_folder(name), as_transformers=True)
    vocab.write(tmp_path / "vocab.txt")
    assert Vocab.read(tmp_path / "vocab.txt") == vocab
    assert vocab_from_config(json.loads(json.dumps(vocab.to_config()))) == vocab


def test_added_tokens_with_blanks_at_their_ends(tmp_path):
    base = make_vocab(66, True)
    tokens = (AddedToken("[D] ", False), AddedToken("\n", False))
    contents = tuple(token.content for token in tokens)
    options = WordPieceOptions(added_tokens=tokens, only_added=contents)
    vocab = Vocab((*base.tokens, *contents), options)
    vocab.write(tmp_path / "vocab.txt")
    assert Vocab.read(tmp_path / "vocab.txt") == vocab
    assert WordPiece(vocab, True).encode("[D] \n") == [66, 67]
    path = tmp_path / "vocab.options.json"
    for row in (68, -1, "66"):
        path.write_text(json.dumps({**json.loads(path.read_text()), "rows": {"[D] ": row}}))
        with pytest.raises(ValueError, match=r"vocab.options.json.*\[D\]"):
            Vocab.read(tmp_path / "vocab.txt")


def test_options_of_another_vocabulary(tmp_path):
    vocab, _ = read_vocab_of(golden_folder("added_tokens"), as_transformers=False)
    vocab.write(tmp_path / "vocab.txt")
    lines = (tmp_path / "vocab.txt").read_text().replace("myTok", "other")
    (tmp_path / "vocab.txt").write_text(lines)
    with pytest.raises(ValueError, match=r"vocab.options.json.*myTok"):
        Vocab.read(tmp_path / "vocab.txt")


@pytest.mark.parametrize("flag", ["lstrip", "normalized", "single_word", "special"])
def test_flags_that_are_no_flags(tmp_path, flag):
    shutil.copytree(golden_folder("added_tokens"), tmp_path, dirs_exist_ok=True)
    path = tmp_path / "tokenizer.json"
    values = json.loads(path.read_text())
    values["added_tokens"][-1][flag] = "yes"
    path.write_text(json.dumps(values))
    with pytest.raises(ValueError, match=rf"tokenizer.json.*{flag}"):
        read_tokenizer(tmp_path, None)


def test_tokens_that_would_overlap(tmp_path):
    shutil.copytree(golden_folder("added_tokens"), tmp_path, dirs_exist_ok=True)
    path = tmp_path / "added_tokens.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), " x": 414}))
    with pytest.raises(ValueError, match=r"' x'.*<R>"):
        read_tokenizer(tmp_path, None)


LOWER, STRIP = {"type": "Lowercase"}, {"type": "Strip", "strip_left": True, "strip_right": True}
NORMAL_TEXTS = (" W3 été W4 ÉTÉ\u00a0Don 中W5 A\x00 ", "Éte\u0301 w7W7 Ｗ3")


def with_normalizer(folder: pathlib.Path, lower: bool, before: list, after: list) -> pathlib.Path:
    """Writes a tokenizer with steps before and after BertNormalizer, and no tokenizer_config."""
    config = make_config(np.random.default_rng(0), do_lower_case=lower)
    write_tokenizer(folder, make_vocab(70, lower), config)
    for name in ("tokenizer_config.json", "vocab.txt"):
        (folder / name).unlink()
    path = folder / "tokenizer.json"
    values = json.loads(path.read_text())
    steps = [*before, values["normalizer"], *after]
    path.write_text(
        json.dumps({**values, "normalizer": {"type": "Sequence", "normalizers": steps}})
    )
    return path


@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize(
    ("before", "after"), [([LOWER], []), ([], [LOWER]), ([STRIP], []), ([STRIP, LOWER], [STRIP])]
)
def test_steps_around_the_normalizer(tmp_path, lower, before, after):
    path = with_normalizer(tmp_path, lower, before, after)
    found = read_tokenizer(tmp_path, 70, as_transformers=True)
    theirs = tokenizers.Tokenizer.from_file(str(path))
    rewritten = tmp_path / "rewritten"
    rewritten.mkdir()
    config = make_config(np.random.default_rng(0), do_lower_case=found.do_lower_case)
    write_tokenizer(rewritten, found.vocab, config)
    again = tokenizers.Tokenizer.from_file(str(rewritten / "tokenizer.json"))
    for text in NORMAL_TEXTS:
        expected = theirs.encode(text).ids
        ids = WordPiece(found.vocab, found.do_lower_case).encode(text)
        assert ids == expected[1:-1] and again.encode(text).ids == expected
    read_again = read_tokenizer(rewritten, 70, as_transformers=True)
    assert read_again.vocab == found.vocab and read_again.do_lower_case == found.do_lower_case


@pytest.mark.parametrize("kind", ["NFKC", "NFC", "StripAccents", "Replace", None])
def test_steps_that_are_not_computed(tmp_path, kind):
    with_normalizer(tmp_path, True, [{"type": kind}, LOWER], [])
    with pytest.raises(ValueError, match=rf"tokenizer.json.*{kind}"):
        read_tokenizer(tmp_path, 70)


def test_a_step_that_contradicts_the_configuration(tmp_path):
    with_normalizer(tmp_path, False, [LOWER], [])
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": false}')
    with pytest.raises(ValueError, match="do_lower_case"):
        read_tokenizer(tmp_path, 70)
