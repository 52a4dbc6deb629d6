"""SentencePiece in Python and in the graph equals `tokenizers` and the golden files."""

import base64
import dataclasses
import functools
import json
import random
import shutil

import pytest
import tensorflow as tf

import bert_tf
from bert_tf.text.normalization import align
from bert_tf.text.normalization_graph import NormalCharacters, make_steps
from bert_tf.text.packing import add_special_tokens
from bert_tf.text.sentencepiece import SentencePiece
from bert_tf.text.sentencepiece_graph import SentencePieceTokenizer
from bert_tf.text.sentencepiece_model import read_model
from bert_tf.text.sentencepiece_vocab import SPACE_SYMBOL, SentencePieceVocab
from bert_tf.text.tokenization import read_vocab
from tests.shared_data import golden_file
from tests.text.tokenizer_test import byte_offsets, flat

FOLDERS = (
    "xlm_roberta/tokenization",
    "xlm_roberta/masked_lm",
    "multilingual_sentence/paraphrase",
    "albert/masked_lm",
    "camembert/masked_lm",
    "mmbert/masked_lm",
    "deberta_v2/masked_lm",
    "xlnet/lm_head",
)
WITH_TEXTS = (*FOLDERS[:2], *FOLDERS[3:])
# Tracing takes seconds for each.
MODELS = {
    "xlm_roberta/tokenization": "sentencepiece.bpe.model",
    "camembert/masked_lm": "sentencepiece.bpe.model",
    "albert/masked_lm": "spiece.model",
    "deberta_v2/masked_lm": "spm.model",
    "xlnet/lm_head": "spiece.model",
}
ODD_TEXTS = ["", " ", "  ", "\x01\x02abc", "wait…", "3㎏", "e\u0301te\u0301", "ﬁ\u0301", "a\r\nb"]
ODD_TEXTS += ["a<mask>b  <mask> c", "<s>", "＜mask＞", "▁▁ a", "\u0600e\u0301", "ＨＥ  ｌｌｏ "]


WORD_PARTS = [
    "a",
    "bc",
    " ",
    "  ",
    SPACE_SYMBOL,
    "\u3000",
    "\x1c",
    "ﬁ",
    "e\u0301",
    "<mask>",
    "<s",
    ".",
]


@pytest.mark.parametrize("name", WITH_TEXTS)
def test_words_of_the_cache_have_the_ids_of_tokenizers(name) -> None:
    source = random.Random(5)
    tokenizer = SentencePiece(vocab_of(name))
    texts = [*golden_texts(name), *ODD_TEXTS]
    texts += ["".join(source.choices(WORD_PARTS, k=source.randrange(9))) for _ in range(500)]
    for text in texts:
        expected = tokenizer.encode_uncached(text)
        assert tokenizer.encode(text) == expected, ascii(text)
        assert tokenizer.encode(text) == expected, ascii(text)
    assert len(tokenizer._word_ids) > 50 or not tokenizer.vocab.is_unigram


def folder_of(name: str):
    return golden_file("families", *name.split("/"))


@functools.cache
def vocab_of(name: str) -> SentencePieceVocab:
    return SentencePieceVocab.read(folder_of(name) / "tokenizer.json")


@functools.cache
def graph_tokenizer(name: str, trim_offsets: bool = False) -> SentencePieceTokenizer:
    return SentencePieceTokenizer(dataclasses.replace(vocab_of(name), trim_offsets=trim_offsets))


@functools.cache
def golden_rows(name: str) -> list[dict]:
    return json.loads((folder_of(name) / "tokenizer_golden.json").read_text())


def golden_texts(name: str) -> list[str]:
    return [row["text"] for row in golden_rows(name) if "pair" not in row]


def random_text(source: random.Random) -> str:
    """Returns letters, marks, blanks, odd characters, and now and then an added token."""
    pools = (
        (0.5, range(0x20, 0x250)),
        (0.62, range(0x300, 0x370)),
        (0.75, (0x20, 0x20, 0x3000, 9, 10, 13, 0x85, 0x2581, 0x200B, 0x200D, 0)),
        (0.98, range(0x370, 0x1F000)),
        (1.0, range(0xE0000, 0x110000)),
    )
    characters = []
    for _ in range(source.randint(0, 14)):
        draw = source.random()
        pool = next(codes for bound, codes in pools if draw <= bound)
        code = source.choice(pool)
        if not 0xD800 <= code < 0xE000:
            characters.append(chr(code))
    if source.random() < 0.1:
        added = source.choice(["<mask>", "[MASK]", "<s>", "＜mask＞", "<ma\u0301sk>", "\0<ma\0sk>"])
        characters.insert(source.randint(0, len(characters)), added)
    return "".join(characters)


@pytest.mark.parametrize("name", WITH_TEXTS)
def test_ids_of_texts_and_pairs_are_the_golden_ones(name):
    tokenizer = bert_tf.load_tokenizer(folder_of(name))
    vocab = tokenizer.vocab
    for row in golden_rows(name):
        if "pair" not in row:
            packed = add_special_tokens(vocab, tokenizer.tokenizer.encode(row["text"]))
            assert packed.ids == row["ids"], ascii(row["text"])
            continue
        if row.get("truncation") in (None, True, "longest_first"):
            packed = tokenizer(row["text"], row["pair"] or None, row.get("max_length"))
            if row["pair"]:
                assert packed["input_word_ids"].tolist() == row["input_ids"], ascii(row["text"])
            if row["pair"] and "token_type_ids" in row:
                assert packed["input_type_ids"].tolist() == row["token_type_ids"]


@pytest.mark.slow
@pytest.mark.parametrize("name", FOLDERS)
@pytest.mark.parametrize("trim_offsets", [False, True])
def test_the_graph_gives_the_ids_and_offsets_of_python(name, trim_offsets):
    source = random.Random(name)
    texts = golden_texts("xlm_roberta/masked_lm") + ODD_TEXTS
    texts += [random_text(source) for _ in range(100)]
    tokenizer = graph_tokenizer(name, trim_offsets)
    twin = SentencePiece(tokenizer.vocab)
    strings = tf.constant(texts)
    ids, starts, ends = map(flat, tokenizer.tokenize_with_offsets(strings))
    assert flat(tokenizer.tokenize(strings)) == ids
    num_others = 0
    for index, text in enumerate(texts):
        assert ids[index] == twin.encode(text), ascii(text)
        _, first, last = twin.tokenize_with_offsets(text)
        to_bytes = byte_offsets(text)
        same = starts[index] == [to_bytes[position] for position in first]
        same &= ends[index] == [to_bytes[position] for position in last]
        assert same or "mask" in text, ascii(text)
        num_others += not same
    assert num_others < 20  # of about 100 with a mask


@pytest.mark.slow
@pytest.mark.parametrize("name", FOLDERS)
def test_every_code_point_alone_and_between_letters(name):
    twin = SentencePiece(vocab_of(name))
    codes = [code for code in range(0x110000) if not 0xD800 <= code < 0xE000]
    for form in ("{}", "a{}b"):
        for first in range(0, len(codes), 1 << 14):
            texts = [form.format(chr(code)) for code in codes[first : first + (1 << 14)]]
            ids = flat(graph_tokenizer(name).tokenize(tf.constant(texts)))
            assert ids == [twin.encode(text) for text in texts]


def test_offsets_cover_all_characters_that_a_token_came_from():
    twin = SentencePiece(vocab_of("xlm_roberta/tokenization"))
    expected = {
        "\x01\x02abc": [("▁", 2, 3), ("ab", 2, 4), ("c", 4, 5)],
        "3㎏ x": [("▁3", 0, 1), ("k", 1, 2), ("g", 1, 2), ("▁", 2, 3), ("x", 3, 4)],
        "e\u0301t": [("▁", 0, 2), ("<unk>", 0, 2), ("t", 2, 3)],
    }
    for text, tokens in expected.items():
        assert list(zip(*twin.tokenize_with_offsets(text), strict=True)) == tokens
    trimmed = SentencePiece(dataclasses.replace(twin.vocab, trim_offsets=True))
    _, starts, ends = trimmed.tokenize_with_offsets("Hello  world")
    assert "Hello  world"[starts[-1] : ends[-1]] == "world"


def replaced_in_the_graph(text: str, string: str) -> str:
    """Returns a text after the graph's step that replaces a string by x."""
    (step,) = make_steps([replacement_of(string)])
    size = len(text)
    code_points = tf.constant(list(map(ord, text)))
    positions = tf.range(size)
    characters = NormalCharacters(code_points, tf.zeros([size], tf.int64), positions, positions + 1)
    result = step(characters, tf.fill([size], True))
    return "".join(map(chr, result.code_points.numpy()))


def replacement_of(string: str) -> dict:
    return {"type": "Replace", "pattern": {"String": string}, "content": "x"}


@pytest.mark.parametrize("string", ["ab", "aa", "aaa", "a"])
def test_the_graph_replaces_the_strings_that_python_replaces(string):
    for text in ("ab", "aab", "aaaa", "baaaaab", "bbb", "abab"):
        expected = align(text, [replacement_of(string)])
        assert replaced_in_the_graph(text, string) == "".join(item.character for item in expected)


def test_a_string_that_overlaps_with_itself_is_refused_in_the_graph():
    with pytest.raises(ValueError, match="'aba'"):
        replaced_in_the_graph("ababa", "aba")


@pytest.mark.parametrize("name", WITH_TEXTS)
def test_offsets_are_the_golden_ones_where_the_normalizer_changes_nothing(name):
    vocab = bert_tf.load_tokenizer(folder_of(name)).vocab
    twin = SentencePiece(vocab)
    num_compared = 0
    for row in golden_rows(name):
        if "pair" in row or not row["text"].isascii() or "  " in row["text"]:
            continue
        if any(code < " " for code in row["text"]) or "`" in row["text"] or "''" in row["text"]:
            continue
        _, starts, ends = twin.tokenize_with_offsets(row["text"])
        offsets = row["offsets"][vocab.text_start :][: len(starts)]
        assert [list(pair) for pair in zip(starts, ends, strict=True)] == offsets
        num_compared += 1
    assert num_compared > 20


@pytest.mark.slow
def test_a_saved_module_tokenizes_without_this_package_s_tables(tmp_path):
    tokenizer = graph_tokenizer("xlm_roberta/masked_lm")
    tf.saved_model.save(tokenizer, str(tmp_path))
    loaded = tf.saved_model.load(str(tmp_path))
    texts = tf.constant(ODD_TEXTS)
    assert flat(loaded.tokenize(texts)) == flat(tokenizer.tokenize(texts))


@pytest.mark.parametrize("name", MODELS)
def test_a_model_file_gives_the_tokenizer_of_tokenizer_json(name, tmp_path):
    settings = json.loads((folder_of(name) / "tokenizer_config.json").read_text())
    path = folder_of(name) / MODELS[name]
    assert read_model(path, settings["tokenizer_class"], settings) == vocab_of(name)
    without = read_model(path, settings["tokenizer_class"], {})
    assert (without.tokens, without.scores) == (vocab_of(name).tokens, vocab_of(name).scores)
    for file in (MODELS[name], "tokenizer_config.json"):
        shutil.copy(folder_of(name) / file, tmp_path)
    assert bert_tf.load_tokenizer(tmp_path).vocab == vocab_of(name)


@pytest.mark.parametrize("name", FOLDERS)
def test_a_written_vocabulary_is_the_same(name, tmp_path):
    path = tmp_path / "tokenizer.json"
    vocab_of(name).write(path)
    assert read_vocab(path) == vocab_of(name)
    before = json.loads((folder_of(name) / "tokenizer.json").read_text())
    after = json.loads(path.read_text())
    for key in ("added_tokens", "normalizer", "pre_tokenizer", "post_processor", "model"):
        assert after[key] == before[key], key


def copy_with(tmp_path, change):
    """Copies a golden folder with another tokenizer.json."""
    folder = tmp_path / "copy"
    shutil.copytree(folder_of("xlm_roberta/masked_lm"), folder)
    path = folder / "tokenizer.json"
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))
    return folder


def swap_two_tokens(content):
    vocab = content["model"]["vocab"]
    vocab[10], vocab[11] = vocab[11], vocab[10]


def change_a_score(content):
    content["model"]["vocab"][10][1] -= 1.0


def remove_the_unknown_token(content):
    content["model"]["unk_id"] = None


def break_the_charsmap(content):
    charsmap = bytearray(
        base64.b64decode(content["normalizer"]["normalizers"][0]["precompiled_charsmap"])
    )
    charsmap[4:12] = b"\xff" * 8
    content["normalizer"]["normalizers"][0]["precompiled_charsmap"] = base64.b64encode(
        charsmap
    ).decode()


def cut_the_charsmap(content):
    step = content["normalizer"]["normalizers"][0]
    step["precompiled_charsmap"] = base64.b64encode(b"\x00\x10\x00\x00abc").decode()


def add_an_unknown_normalizer(content):
    content["normalizer"]["normalizers"].append({"type": "Nmt"})


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (swap_two_tokens, "sentencepiece.bpe.model"),
        (change_a_score, "sentencepiece.bpe.model"),
        (remove_the_unknown_token, "unk_id"),
        (break_the_charsmap, "charsmap"),
        (cut_the_charsmap, "charsmap"),
        (add_an_unknown_normalizer, "Nmt"),
    ],
)
def test_damaged_and_contradicting_files_are_refused(tmp_path, change, named):
    folder = copy_with(tmp_path, change)
    with pytest.raises(ValueError, match=named):
        bert_tf.load_tokenizer(folder)


def test_a_damaged_model_file_is_refused(tmp_path):
    shutil.copytree(folder_of("multilingual_sentence/e5"), tmp_path, dirs_exist_ok=True)
    path = tmp_path / "sentencepiece.bpe.model"
    path.write_bytes(b"\xff" * 100)
    with pytest.raises(ValueError, match=path.name):
        bert_tf.load_tokenizer(tmp_path)


def test_a_table_that_is_shorter_than_the_tokenizer_is_refused(tmp_path):
    folder = copy_with(tmp_path, lambda content: None)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "vocab_size": 700}))
    with pytest.raises(ValueError, match="803 tokens.* 700 rows"):
        bert_tf.load_tokenizer(folder)
