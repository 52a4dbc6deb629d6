"""BpeVocab: both kinds of files, there and back; bad files are refused by name."""

import dataclasses
import json
import pathlib

import pytest

from bert_tf.text.bpe_vocab import AddedToken, BpeVocab
from bert_tf.text.byte_level import BYTE_CHARACTERS
from bert_tf.text.tokenization import make_tokenizer, read_vocab
from bert_tf.text.vocab import SPECIAL_TOKENS, Vocab
from tests.shared_data import golden_file

SPECIAL = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
MERGES = (("h", "e"), ("Ġ", "t"), ("Ġt", "he"), ("a", "a"), ("aa", "aa"))


def small_vocab(**changes: object) -> BpeVocab:
    """Returns special tokens, the bytes and a few merges."""
    tokens = (*SPECIAL[:4], *BYTE_CHARACTERS, *("".join(pair) for pair in MERGES), "<mask>")
    added = tuple(AddedToken(token, lstrip=token == "<mask>") for token in SPECIAL)
    return dataclasses.replace(BpeVocab(tokens, MERGES, added), **changes)


def write_pair(folder: pathlib.Path, ids: dict[str, int], merges: str) -> pathlib.Path:
    (folder / "merges.txt").write_text(merges, encoding="utf8")
    path = folder / "vocab.json"
    path.write_text(json.dumps(ids), encoding="utf8")
    return path


def test_ids_and_what_rows_need() -> None:
    vocab = small_vocab()
    ids = (vocab.cls_id, vocab.pad_id, vocab.sep_id, vocab.unk_id, vocab.mask_id)
    assert ids == (0, 1, 2, 3, len(vocab) - 1) and vocab.special_ids == set(ids)
    assert (vocab.num_separators, vocab.second_type, vocab.file_name) == (2, 0, "tokenizer.json")
    begins = [t for t, c in zip(vocab.tokens, vocab.is_continuation, strict=True) if not c]
    assert sorted(begins) == sorted([*SPECIAL, "Ġ", "Ġt", "Ġthe"])
    assert hash(vocab) == hash(small_vocab()) and vocab == small_vocab()
    word_piece = Vocab(SPECIAL_TOKENS)
    assert word_piece.special_ids == {0, 1, 2, 3, 4}
    assert (word_piece.num_separators, word_piece.second_type) == (1, 1)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"add_prefix_space": True, "trim_offsets": False},
        {"num_separators": 1, "second_type": 1, "normalizer": "NFC"},
        {"num_separators": 2, "second_type": 1, "trim_offsets": False},
    ],
)
def test_reading_inverts_writing_and_tokenizers_packs_alike(tmp_path, changes) -> None:
    vocab = small_vocab(**changes)
    path = tmp_path / "tokenizer.json"
    vocab.write(path)
    assert read_vocab(path) == vocab
    peer = pytest.importorskip("tokenizers").Tokenizer.from_file(str(path))
    pair = peer.encode("the", "a<mask>")
    encode = make_tokenizer(vocab, False).encode
    separators = [vocab.sep_id] * vocab.num_separators
    first, second = encode("the"), encode("a<mask>")
    assert pair.ids == [vocab.cls_id, *first, *separators, *second, vocab.sep_id]
    assert pair.type_ids[-1] == vocab.second_type and pair.type_ids[0] == 0


@pytest.mark.parametrize("family", ["roberta", "modernbert"])
def test_files_of_hugging_face(tmp_path, family) -> None:
    folder = golden_file("families", family, "masked_lm")
    vocab = read_vocab(folder / "tokenizer.json")
    vocab.write(tmp_path / "tokenizer.json")
    assert BpeVocab.read(tmp_path / "tokenizer.json") == vocab
    tokenizer = make_tokenizer(vocab, False)
    for row in json.loads((folder / "tokenizer_golden.json").read_text()):
        ids = [vocab.cls_id, *tokenizer.encode(row["text"]), vocab.sep_id]
        if "pair" in row:
            between = [vocab.sep_id] * (vocab.num_separators - 1)
            ids += [*between, *tokenizer.encode(row["pair"]), vocab.sep_id]
        assert ids == row.get("ids", row.get("input_ids"))
    if family == "roberta":
        assert read_vocab(folder / "vocab.json") == read_vocab(folder / "merges.txt") == vocab
        assert (vocab.num_separators, vocab.second_type, vocab.trim_offsets) == (2, 0, True)
    else:
        assert (vocab.num_separators, vocab.second_type, vocab.normalizer) == (1, 0, "NFC")


def test_names_of_special_tokens_are_read_beside_the_file(tmp_path) -> None:
    vocab = small_vocab()
    renamed = tuple("<|mask|>" if token == "<mask>" else token for token in vocab.tokens)
    added = (*vocab.added_tokens[:4], AddedToken("<|mask|>"))
    vocab = dataclasses.replace(vocab, tokens=renamed, added_tokens=added, mask="<|mask|>")
    vocab.write(tmp_path / "tokenizer.json")
    with pytest.raises(ValueError, match="tokenizer.json.*<mask>"):
        read_vocab(tmp_path / "tokenizer.json")
    names = {"mask_token": {"content": "<|mask|>"}, "unk_token": "<unk>"}
    (tmp_path / "special_tokens_map.json").write_text(json.dumps(names))
    assert read_vocab(tmp_path / "tokenizer.json") == vocab


def test_bad_pairs_of_files_are_refused(tmp_path) -> None:
    ids = {token: i for i, token in enumerate(small_vocab().tokens)}
    merges = "#version: 0.2\n" + "".join(f"{a} {b}\n" for a, b in MERGES)
    assert BpeVocab.read(write_pair(tmp_path, ids, merges)).merges == MERGES
    lacking = {token: i for i, token in enumerate(t for t in ids if t != "<mask>")}
    for bad_ids, bad_merges, message in (
        (ids, merges + "a b\n", "vocab.json: merge 6, 'a b',.*'ab'"),
        (ids, merges + "zz a\n", "vocab.json: merge 6, 'zz a'.*'zz'"),
        (ids, merges + "a a\n", "vocab.json: merge 6, 'a a'"),
        (ids, merges + "abc\n", "merges.txt, line 7.*'abc'"),
        ({**ids, "<mask>": 0}, merges, "vocab.json.*'<s>' .*'<mask>' .*id 0"),
        ({**ids, "<mask>": 999}, merges, f"vocab.json.*id {len(ids) - 1}, .*999"),
        (lacking, merges, r"vocab.json.*special tokens \['<mask>'\]"),
        ({**lacking, "<mask>": "7"}, merges, "vocab.json.*'7' .*'<mask>'"),
        (
            dict.fromkeys(SPECIAL, 0) | {t: i for i, t in enumerate(SPECIAL)},
            "",
            r"vocab.json.*bytes \[0, 1, ",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            BpeVocab.read(write_pair(tmp_path, bad_ids, bad_merges))
    (tmp_path / "merges.txt").unlink()
    with pytest.raises(ValueError, match=r"/merges\.txt.*vocab\.json"):
        BpeVocab.read(tmp_path / "vocab.json")


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("normalizer", {"type": "Lowercase"}),
        ("pre_tokenizer", {"type": "Whitespace"}),
        ("post_processor", None),
        ("added_tokens", [{"content": "x", "id": 9, "single_word": True}]),
        ("model", {"type": "WordPiece", "vocab": {}}),
        ("model", {"type": "BPE", "vocab": {}, "merges": [], "ignore_merges": True}),
    ],
)
def test_other_tokenizers_are_refused_by_name(tmp_path, part, value) -> None:
    path = tmp_path / "tokenizer.json"
    small_vocab().write(path)
    content = json.loads(path.read_text(encoding="utf8"))
    path.write_text(json.dumps({**content, part: value}), encoding="utf8")
    with pytest.raises(ValueError, match=f"tokenizer.json: {part.split('_')[0]}"):
        read_vocab(path)


def test_other_templates_are_refused(tmp_path) -> None:
    path = tmp_path / "tokenizer.json"
    small_vocab(num_separators=1, second_type=1, trim_offsets=False).write(path)
    content = json.loads(path.read_text(encoding="utf8"))
    template = content["post_processor"]
    template["pair"][2]["SpecialToken"]["type_id"] = 1  # the first text's </s>
    path.write_text(json.dumps(content), encoding="utf8")
    with pytest.raises(ValueError, match="tokenizer.json: post_processor .*CLS A SEP"):
        read_vocab(path)
    del template["pair"]
    path.write_text(json.dumps(content), encoding="utf8")
    with pytest.raises(ValueError, match="tokenizer.json: .*'pair'"):
        read_vocab(path)


def test_bytes_that_no_text_has_may_be_without_a_piece(tmp_path) -> None:
    tokens = small_vocab().tokens
    rare = {BYTE_CHARACTERS[0xC0], BYTE_CHARACTERS[0xFF]}
    vocab = small_vocab(tokens=tuple(token for token in tokens if token not in rare))
    assert make_tokenizer(vocab, False).tokenize("é") == ["Ã", "©"]


@pytest.mark.parametrize("content", [b"[]", b"{", b"\xff"])
def test_what_is_no_tokenizer_is_refused(tmp_path, content) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="tokenizer.json .*JSON"):
        read_vocab(path)
