"""MPNet, DeBERTa and XLNet: their special tokens in Python, in the graph and in written files."""

import dataclasses
import functools
import json
import pathlib
import shutil

import numpy as np
import pytest
import tensorflow as tf
import tokenizers

import bert_tf
from bert_tf.checkpoints.tokenizer_writing import write_tokenizer
from bert_tf.config import ModelConfig
from bert_tf.text import kinds
from bert_tf.text.graph_tokenization import make_graph_tokenizer
from bert_tf.text.packing import PackedText, pack, pack_pair, pack_windows, pad_batch
from bert_tf.text.sentencepiece import SentencePiece
from bert_tf.text.sentencepiece_graph import SentencePieceTokenizer
from bert_tf.text.sentencepiece_model import read_model
from bert_tf.text.tensor_packing import cut, cut_windows, longest_first_lengths, pack_rows
from bert_tf.text.text_tokenizer import TextTokenizer
from bert_tf.text.tokenization import read_vocab
from bert_tf.text.vocab import OPTIONS
from tests.shared_data import golden_file
from tests.slow_variants import slow_unless
from tests.text.tokenizer_test import byte_offsets, flat

FOLDERS = ("mpnet/masked_lm", "deberta_v2/masked_lm", "xlnet/lm_head")
NFKD_TEXTS = (
    "a\u0315\u0300\u0334b",
    "\u1e69\u0301x e\u0328\u0301",
    "\u0301\u0316\u0301\u0316",
    "q\u0323\u0307 q\u0307\u0323",
    "\ufb01\u0301 \u212b \uac00",
    "a\u0315\u0300<mask>\u0315\u0300",
)


def folder_of(name: str) -> pathlib.Path:
    return golden_file("families", *name.split("/"))


@functools.cache
def tokenizer_of(name: str) -> TextTokenizer:
    return bert_tf.load_tokenizer(folder_of(name))


@functools.cache
def graph_tokenizer(name: str):
    tokenizer = tokenizer_of(name)
    lower = getattr(tokenizer.tokenizer, "do_lower_case", False)
    return make_graph_tokenizer(tokenizer.vocab, lower)


@functools.cache
def golden_rows(name: str) -> list[dict]:
    return json.loads((folder_of(name) / "tokenizer_golden.json").read_text())


def copy_of(name: str, folder: pathlib.Path, *files: str) -> pathlib.Path:
    folder.mkdir()
    for file in files:
        shutil.copy(folder_of(name) / file, folder)
    return folder


@pytest.mark.parametrize("name", slow_unless("mpnet/masked_lm", FOLDERS))
def test_the_graph_packs_the_golden_texts_and_pairs(name):
    vocab = tokenizer_of(name).vocab
    graph = graph_tokenizer(name)
    singles = [row for row in golden_rows(name) if "pair" not in row]
    ids = graph.tokenize(tf.constant([row["text"] for row in singles])).merge_dims(1, 2)
    batch = {key: values.numpy() for key, values in pack_rows(vocab, ids).items()}
    for index, row in enumerate(singles):
        size = batch["input_mask"][index].sum()
        assert batch["input_word_ids"][index, :size].tolist() == row["ids"]
    pairs = [row for row in golden_rows(name) if row.get("pair")]
    for length in sorted({row.get("max_length") or 512 for row in pairs}):
        chosen = [row for row in pairs if (row.get("max_length") or 512) == length]
        columns = []
        for part in ("text", "pair"):
            texts = tf.constant([row[part] for row in chosen])
            columns.append(graph.tokenize(texts).merge_dims(1, 2))
        sizes = [column.row_lengths() for column in columns]
        kept = longest_first_lengths(vocab, *sizes, length, True)
        parts = [cut(column, size) for column, size in zip(columns, kept, strict=True)]
        packed = pack_rows(vocab, *parts, as_tokenizers=True)
        batch = {key: values.numpy() for key, values in packed.items()}
        for index, row in enumerate(chosen):
            size = batch["input_mask"][index].sum()
            assert batch["input_word_ids"][index, :size].tolist() == row["input_ids"]
            types = row.get("token_type_ids", [0] * size)
            assert batch["input_type_ids"][index, :size].tolist() == types


@pytest.mark.slow
def test_mpnet_has_the_golden_ids_and_offsets_in_python_and_in_the_graph():
    name = "mpnet/masked_lm"
    tokenizer = tokenizer_of(name)
    singles = [row for row in golden_rows(name) if "pair" not in row]
    texts = [row["text"] for row in singles]
    _, starts, ends = map(flat, graph_tokenizer(name).tokenize_with_offsets(tf.constant(texts)))
    for index, row in enumerate(singles):
        assert tokenizer(row["text"])["input_word_ids"].tolist() == row["ids"]
        _, first, last = tokenizer.tokenizer.tokenize_with_offsets(row["text"])
        offsets = [list(pair) for pair in zip(first, last, strict=True)]
        assert offsets == row["offsets"][1:-1]
        places = byte_offsets(row["text"])
        assert starts[index] == [places[place] for place in first]
        assert ends[index] == [places[place] for place in last]


@pytest.mark.parametrize("max_length", [23, 24])
def test_mpnet_and_the_others_truncate_as_tokenizers(max_length):
    for name in FOLDERS:
        tokenizer = tokenizer_of(name)
        reference = tokenizers.Tokenizer.from_file(str(folder_of(name) / "tokenizer.json"))
        reference.enable_truncation(max_length)
        for row in golden_rows(name):
            if not row.get("pair") or not tokenizer.tokenizer.encode(row["pair"]):
                continue
            found = tokenizer(row["text"], row["pair"], max_length)["input_word_ids"].tolist()
            assert found == reference.encode(row["text"], row["pair"]).ids


def test_mpnet_is_read_from_each_of_its_files_alone(tmp_path):
    name = "mpnet/masked_lm"
    expected = tokenizer_of(name).vocab
    assert expected.options.special_tokens == ("<pad>", "[UNK]", "<s>", "</s>", "<mask>")
    for number, files in enumerate(
        (("vocab.txt", "tokenizer_config.json"), ("tokenizer.json", "tokenizer_config.json"))
    ):
        folder = copy_of(name, tmp_path / str(number), *files)
        read = bert_tf.load_tokenizer(folder)
        assert read.vocab.tokens == expected.tokens
        assert read.vocab.options.added_tokens == expected.options.added_tokens
        assert read.tokenizer.encode("A <MASK>.") == tokenizer_of(name).tokenizer.encode("a<mask>.")
    # config.json says whose tokenizer it is where tokenizer_config.json does not.
    folder = copy_of(name, tmp_path / "model", "vocab.txt", "config.json")
    assert bert_tf.load_tokenizer(folder).vocab.cls == "<s>"


def test_mpnet_follows_the_flags_of_its_special_tokens(tmp_path):
    name = "mpnet/masked_lm"
    files = ("tokenizer.json", "tokenizer_config.json")
    folder = copy_of(name, tmp_path / "copy", *files)
    values = json.loads((folder / "tokenizer_config.json").read_text())
    mask = next(
        token for token in values["added_tokens_decoder"].values() if token["content"] == "<mask>"
    )
    mask |= {"normalized": False, "lstrip": False}
    (folder / "tokenizer_config.json").write_text(json.dumps(values))
    tokenizer = bert_tf.load_tokenizer(folder).tokenizer
    vocab = tokenizer.vocab
    assert vocab.mask_id in tokenizer.encode("a <mask>")
    assert vocab.mask_id not in tokenizer.encode("a <MASK>")
    assert tokenizer.tokenize_with_offsets("a <mask>")[1:] == ([0, 2], [1, 8])
    assert tokenizer_of(name).tokenizer.tokenize_with_offsets("a <mask>")[1:] == ([0, 1], [1, 8])


@pytest.mark.parametrize("name", FOLDERS)
def test_a_written_folder_is_read_by_tokenizers_and_by_us(name, tmp_path):
    tokenizer = tokenizer_of(name)
    vocab = tokenizer.vocab
    lower = getattr(tokenizer.tokenizer, "do_lower_case", False)
    config = ModelConfig(
        vocab_size=len(vocab),
        do_lower_case=lower,
        tokenizer=vocab.kind,
        pad_token_id=vocab.pad_id,
    )
    write_tokenizer(tmp_path, vocab, config)
    (tmp_path / "config.json").write_text(json.dumps({"vocab_size": len(vocab)}))
    assert bert_tf.load_tokenizer(tmp_path).vocab == vocab
    settings = json.loads((tmp_path / "tokenizer_config.json").read_text())
    assert (settings["cls_token"], settings["mask_token"]) == (vocab.cls, vocab.mask)
    assert (settings.get("padding_side") == "left") == vocab.class_at_end
    written = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    for row in golden_rows(name):
        if "pair" not in row:
            assert written.encode(row["text"]).ids == row["ids"]
        elif row["pair"] and not row.get("max_length"):
            encoding = written.encode(row["text"], row["pair"])
            assert encoding.ids == row["input_ids"]
            assert encoding.type_ids == row.get("token_type_ids", encoding.type_ids)


@pytest.mark.parametrize("name", FOLDERS)
def test_a_vocabulary_survives_its_configuration_and_its_file(name, tmp_path):
    vocab = tokenizer_of(name).vocab
    stored = json.loads(json.dumps(vocab.to_config()))
    assert kinds.vocab_from_config(stored) == vocab
    vocab.write(tmp_path / vocab.file_name)
    assert read_vocab(tmp_path / vocab.file_name) == vocab


def test_fields_of_a_layout_are_stored_only_where_it_is_used():
    unigram = read_vocab(golden_file("families", "albert", "masked_lm", "tokenizer.json"))
    assert not {"class_at_end", "class_type"} & unigram.to_config().keys()
    word_pieces = bert_tf.load_tokenizer(golden_file("families", "wordpiece", "added_tokens")).vocab
    options = word_pieces.to_config()[OPTIONS]
    assert not {"special_tokens", "num_separators", "second_type"} & options.keys()


@pytest.mark.slow
def test_rows_without_a_token_are_not_found_in_texts(tmp_path):
    vocab = tokenizer_of("deberta_v2/masked_lm").vocab
    config = json.loads((folder_of("deberta_v2/masked_lm") / "config.json").read_text())
    assert len(vocab) == config["vocab_size"] == len(vocab.scores) + 9
    twin = SentencePiece(vocab)
    reference = tokenizers.Tokenizer.from_file(
        str(folder_of("deberta_v2/masked_lm") / "tokenizer.json")
    )
    for text in (f"a {vocab.tokens[-1]}", "\uff3bMASK\uff3d [MASK]"):
        expected = reference.encode(text, add_special_tokens=False).ids
        assert twin.encode(text) == expected
        graph = graph_tokenizer("deberta_v2/masked_lm").tokenize(tf.constant([text]))
        assert flat(graph) == [expected]
    assert vocab.ids[vocab.tokens[-1]] not in twin.encode(vocab.tokens[-1])
    vocab.write(tmp_path / "tokenizer.json")
    assert len(read_vocab(tmp_path / "tokenizer.json")) == len(vocab)


@pytest.mark.slow
def test_nfkd_alone_sorts_marks_as_tokenizers_does():
    base = tokenizer_of("xlnet/lm_head").vocab
    # Each mark is a token, so that their order shows.
    marks = sorted({char for text in NFKD_TEXTS for char in text if char >= "\u0300"})
    marks += ["\u0307", "\u0328", "\u030a"]
    extra = [mark for mark in dict.fromkeys(marks) if mark not in base.ids]
    vocab = dataclasses.replace(
        base,
        tokens=(*base.tokens, *extra),
        scores=(*base.scores, *[-9.0] * len(extra)),
        normalizer=json.dumps({"type": "NFKD"}),
    )
    twin = SentencePiece(vocab)
    graph = SentencePieceTokenizer(vocab)
    ids, starts, _ = map(flat, graph.tokenize_with_offsets(tf.constant(NFKD_TEXTS)))
    for index, text in enumerate(NFKD_TEXTS):
        assert ids[index] == twin.encode(text), ascii(text)
        places = byte_offsets(text)
        assert starts[index] == [places[start] for start in twin.tokenize_with_offsets(text)[1]]
    first = [vocab.tokens[index] for index in ids[0]]  # of classes 1, 230 and 232
    assert first.index("\u0334") < first.index("\u0300") < first.index("\u0315")


@pytest.mark.parametrize("name", ["deberta_v2/masked_lm", "xlnet/lm_head"])
def test_settings_of_a_model_file_change_its_rules(name):
    path = folder_of(name)
    settings = json.loads((path / "tokenizer_config.json").read_text())
    file = path / ("spm.model" if name.startswith("deberta") else "spiece.model")
    tokenizer_class = settings["tokenizer_class"]

    def kinds_of(**changes) -> list[str]:
        vocab = read_model(file, tokenizer_class, {**settings, **changes})
        steps = [*vocab.normalizer_steps(), *vocab.pre_tokenizer_steps()]
        return [step["type"] for step in steps]

    # The special tokens of the class have its flags where no file states them.
    assert read_model(file, tokenizer_class, {}) == read_vocab(path / "tokenizer.json")
    plain = kinds_of()
    assert "Lowercase" not in plain
    assert "Lowercase" in kinds_of(do_lower_case=True)
    if name.startswith("xlnet"):
        kept = kinds_of(keep_accents=True)
        assert [step for step in plain if step not in ("NFKD", "StripAccents")] == kept
        return
    assert kinds_of(split_by_punct=True)[-2:] == ["Punctuation", "Metaspace"]


def test_the_model_s_type_says_whose_rows_a_model_file_has(tmp_path):
    folder = copy_of("deberta_v2/masked_lm", tmp_path / "copy", "spm.model", "config.json")
    assert bert_tf.load_tokenizer(folder).vocab == tokenizer_of("deberta_v2/masked_lm").vocab


@pytest.mark.slow
def test_punctuation_splits_in_the_graph_as_in_python():
    settings = json.loads((folder_of("deberta_v2/masked_lm") / "tokenizer_config.json").read_text())
    settings["split_by_punct"] = True
    path = folder_of("deberta_v2/masked_lm") / "spm.model"
    vocab = read_model(path, "DebertaV2Tokenizer", settings)
    texts = ["don't (stop), now", "a-b..c", "¿a? «b»", " . ", "x,<s>,[SEP].", "a$b+c", "1,000"]
    twin = SentencePiece(vocab)
    plain = tokenizer_of("deberta_v2/masked_lm").tokenizer
    assert twin.tokenize("a,b") != plain.tokenize("a,b")
    graph = SentencePieceTokenizer(vocab)
    ids, starts, _ = map(flat, graph.tokenize_with_offsets(tf.constant(texts)))
    for index, text in enumerate(texts):
        assert ids[index] == twin.encode(text)
        places = byte_offsets(text)
        assert starts[index] == [places[start] for start in twin.tokenize_with_offsets(text)[1]]


def test_a_mask_takes_all_blanks_before_it():
    tokens, starts, ends = tokenizer_of("xlnet/lm_head").tokenizer.tokenize_with_offsets(
        "a   <mask> b"
    )
    assert (tokens[1], starts[1], ends[1]) == ("<mask>", 1, 10)


def test_the_class_token_is_packed_last():
    vocab = tokenizer_of("xlnet/lm_head").vocab
    cls, sep = vocab.cls_id, vocab.sep_id
    assert vocab.text_start == 0
    assert pack(vocab, [20, 21, 22], None, 4) == PackedText([20, 21, sep, cls], [0, 0, 0, 2])
    pair = PackedText([20, 21, sep, 30, sep, cls], [0, 0, 0, 1, 1, 2])
    assert pack(vocab, [20, 21, 22], [30], 6) == pair
    assert pack(vocab, [19, 20, 21], [30], 6, keep_tail=True).ids == [20, 21, sep, 30, sep, cls]
    assert pack_pair(vocab, [20], [], 6) == PackedText([20, sep, sep, cls], [0, 0, 1, 2])
    batch = pad_batch([pair, pack(vocab, [20], None, 9)], vocab.pad_id)
    assert batch["input_word_ids"][1].tolist() == [20, sep, cls, *[vocab.pad_id] * 3]
    assert batch["input_type_ids"][1].tolist() == [0, 0, 2, 0, 0, 0]


@pytest.mark.parametrize("max_seq_length", [4, 5, 8])
@pytest.mark.parametrize("is_pair", [True, False])
def test_windows_with_the_class_token_last_are_those_of_python(max_seq_length, is_pair):
    vocab = tokenizer_of("xlnet/lm_head").vocab
    rows = []
    columns: tuple[list, list] = ([], [])
    for first in range(9):
        for second in range(9):
            ids_a = list(range(20, 20 + first))
            ids_b = list(range(40, 40 + second)) if is_pair else None
            columns[0].append(ids_a)
            columns[1].append(ids_b or [])
            rows += pack_windows(vocab, ids_a, ids_b, max_seq_length)
    firsts, seconds = (tf.ragged.constant(column, tf.int32) for column in columns)
    found = cut_windows(vocab, firsts, seconds if is_pair else None, max_seq_length)
    batch = pack_rows(vocab, found.first, found.second)
    for name, expected in pad_batch(rows, vocab.pad_id).items():
        np.testing.assert_array_equal(batch[name], expected, name)
