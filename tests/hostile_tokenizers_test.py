"""Tokenizers and adapters that attack: countless strings, endless tokens, slow patterns."""

import base64
import json
import pathlib
import shutil
import time

import pytest
from sentencepiece import sentencepiece_model_pb2

from bert_tf.checkpoints.formats import read_checkpoint
from bert_tf.checkpoints.load_tokenizer import load_tokenizer
from bert_tf.system.bounded_files import BoundedPatterns
from bert_tf.text.charsmap import check_charsmap, read_rules
from bert_tf.text.fast_tokenizers import MAX_TOKEN_CHARACTERS, check_pattern, make_fast_tokenizer
from bert_tf.text.sentencepiece_model import read_model
from bert_tf.text.vocab import SPECIAL_TOKENS, Vocab
from tests.hostile_files import refuses, shared_trie
from tests.shared_data import golden_file

LONG = "a" * (MAX_TOKEN_CHARACTERS + 1)


def unigram(normalizer: object = None, tokens: tuple[str, ...] = ()) -> dict:
    names = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
    return {
        "added_tokens": [
            {
                "id": index,
                "content": name,
                "special": True,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
            }
            for index, name in enumerate(names)
        ],
        "normalizer": normalizer,
        "pre_tokenizer": {
            "type": "Metaspace",
            "replacement": "\u2581",
            "prepend_scheme": "always",
            "split": True,
        },
        "post_processor": {
            "type": "RobertaProcessing",
            "sep": ["</s>", 2],
            "cls": ["<s>", 0],
            "trim_offsets": False,
            "add_prefix_space": True,
        },
        "model": {
            "type": "Unigram",
            "unk_id": 3,
            "vocab": [[name, 0.0] for name in (*names, "a", "\u2581a", *tokens)],
        },
    }


def write(folder: pathlib.Path, content: dict) -> pathlib.Path:
    path = folder / "tokenizer.json"
    path.write_text(json.dumps(content))
    return path


def precompiled(charsmap: object) -> dict:
    if isinstance(charsmap, bytes):
        charsmap = base64.b64encode(charsmap).decode()
    return {"type": "Precompiled", "precompiled_charsmap": charsmap}


def test_the_tokenizer_of_these_tests_can_be_read(tmp_path):
    tokenizer = load_tokenizer(write(tmp_path, unigram(precompiled(shared_trie(1, 40)), ("bcd",))))
    assert tokenizer.vocab.tokens[5:] == ("a", "\u2581a", "bcd")


def test_paths_of_a_trie_are_counted_and_not_its_nodes(tmp_path):
    charsmap = shared_trie()
    assert len(charsmap) < 8000
    for read in (check_charsmap, read_rules):
        with refuses():
            read(charsmap)
    with refuses():
        load_tokenizer(write(tmp_path, unigram(precompiled(charsmap))))
    # 200,000 strings of at most five bytes are allowed: here 20 + 20**2 + .. + 20**4.
    check_charsmap(shared_trie(4, 20))


def test_replacements_of_a_trie_have_a_limit():
    charsmap = shared_trie(1, 40)
    check_charsmap(charsmap[:-2] + b"x" * 1000 + b"\0")
    with refuses():
        check_charsmap(charsmap[:-2] + b"x" * 100_000 + b"\0")
    with refuses():
        check_charsmap(charsmap[:-1])


@pytest.mark.parametrize("charsmap", ["", None, 5, [], "%", b"abc", b"\4\0\0\0" + bytes(4)])
def test_charsmaps_that_end_the_library_in_a_panic(tmp_path, capfd, charsmap):
    with refuses():
        load_tokenizer(write(tmp_path, unigram(precompiled(charsmap))))
    assert "panicked" not in capfd.readouterr().err  # Nothing reached the library.


def test_a_panic_of_the_library_is_a_value_error():
    with pytest.raises(ValueError, match="precompiled"):
        make_fast_tokenizer({**unigram(precompiled("")), "version": "1.0"})
    with pytest.raises(ValueError):
        make_fast_tokenizer({})


def test_long_tokens_are_refused_before_the_library_reads_them(tmp_path):
    with refuses():
        load_tokenizer(write(tmp_path, unigram(tokens=(LONG,))))
    lines = tmp_path / "vocab.txt"
    lines.write_text("\n".join([*SPECIAL_TOKENS, LONG]))
    with refuses():
        Vocab.read(lines)
    Vocab((*SPECIAL_TOKENS, LONG[1:]))


def test_long_tokens_of_a_sentencepiece_model(tmp_path):
    source = golden_file("families", "xlm_roberta", "tokenization", "sentencepiece.bpe.model")
    proto = sentencepiece_model_pb2.ModelProto()
    proto.ParseFromString(source.read_bytes())
    proto.pieces.add(piece="a" * 1_000_000, score=-1.0)
    path = tmp_path / "spiece.model"
    path.write_bytes(proto.SerializeToString())
    with refuses():
        read_model(path, "XLMRobertaTokenizer", {})


def test_long_tokens_of_byte_level_bpe(tmp_path):
    source = golden_file("families", "roberta", "masked_lm")
    shutil.copytree(source, tmp_path / "model", copy_function=shutil.copyfile)
    path = tmp_path / "model" / "vocab.json"
    if not path.exists():
        path = path.with_name("tokenizer.json")
    content = json.loads(path.read_text())
    ids = content["model"]["vocab"] if path.name == "tokenizer.json" else content
    ids[LONG] = len(ids)
    path.write_text(json.dumps(content))
    with refuses():
        load_tokenizer(path)


@pytest.mark.parametrize(
    "decoder",
    [
        {"0": "x"},
        {"0": None},
        {"0": {}},
        {"0": {"content": 5}},
        {"0": {"content": "<s>", "lstrip": "yes"}},
        {"x": {"content": "<s>"}},
        {"9" * 5000: {"content": "<s>"}},
        [],
        "x",
        5,
    ],
)
def test_added_tokens_of_other_types_beside_a_model(decoder):
    source = golden_file("families", "xlm_roberta", "tokenization", "sentencepiece.bpe.model")
    with refuses():
        read_model(source, "XLMRobertaTokenizer", {"added_tokens_decoder": decoder})


SLOW = "(a+)+b"


@pytest.mark.parametrize("pattern", [SLOW, "(", "[", "a{99999}", "a+b", ".*.*x", "(?R)", "a" * 101])
@pytest.mark.parametrize("part", ["normalizer", "pre_tokenizer"])
def test_slow_patterns_of_a_tokenizer(tmp_path, pattern, part):
    kind = "Replace" if part == "normalizer" else "Split"
    step = {"type": kind, "pattern": {"Regex": pattern}, "content": "", "behavior": "Isolated"}
    with refuses():
        load_tokenizer(write(tmp_path, {**unigram(), part: {**step, "invert": False}}))


@pytest.mark.parametrize("pattern", [" {2,}", "[a b]+", r"\s+", "``", r"\.", "a?"])
def test_plain_patterns_of_a_tokenizer(pattern):
    check_pattern({"Regex": pattern})


MODULE = "base_model.model.bert.encoder.layer.0.attention.self.query"


@pytest.mark.parametrize("pattern", ["([a-z0-9.]+)+!", "(a|aa)*!", "((.*)*)*!", "(" * 400])
def test_patterns_of_an_adapter_end_soon(pattern):
    start = time.process_time()
    try:
        assert not BoundedPatterns("file", 0.2).matches(pattern, MODULE, "rank_pattern")
    except ValueError:
        pass
    assert time.process_time() - start < 3


@pytest.mark.parametrize("pattern", ["x{2000}", "a" * 1001, "(", "*", "(?R)"])
def test_patterns_of_an_adapter_that_are_refused(pattern):
    with refuses():
        BoundedPatterns("file").matches(pattern, MODULE, "rank_pattern")


def test_all_patterns_of_an_adapter_share_the_time():
    patterns = BoundedPatterns("file", 0.0)
    with refuses():
        patterns.matches(r"(.*)(.*)(.*)(.*)\1!.*", MODULE * 100 + "!", "rank_pattern")


def test_patterns_of_an_adapter_choose_the_ranks(tmp_path):
    folder = tmp_path / "lora"
    source = golden_file("families", "lora", "bert_classifier")
    shutil.copytree(source, folder, copy_function=shutil.copyfile)
    path = folder / "adapter" / "adapter_config.json"
    values = json.loads(path.read_text())
    path.write_text(json.dumps({**values, "rank_pattern": {"(.+)+!": 4, r".*\.(.+)+!": 4}}))
    start = time.process_time()
    try:
        read_checkpoint(folder / "adapter")
    except ValueError as error:
        assert path.name in str(error)
    assert time.process_time() - start < 5
