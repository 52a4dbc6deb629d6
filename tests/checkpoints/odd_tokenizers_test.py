"""Tokenizer files of WordPiece with tokens, ids or steps that this tokenizer does not have."""

import json
import pathlib

import numpy as np
import pytest

from bert_tf.checkpoints.formats import read_checkpoint, write_checkpoint
from bert_tf.checkpoints.load_tokenizer import load_tokenizer
from bert_tf.checkpoints.tokenizer_files import read_tokenizer
from bert_tf.checkpoints.tokenizer_writing import write_tokenizer
from tests.checkpoints.made_checkpoint import make_checkpoint, make_config, make_vocab

ROWS = 70
PLACES = ("tokenizer.json", "added_tokens.json", "tokenizer_config.json")


@pytest.fixture(name="folder")
def fixture_folder(tmp_path) -> pathlib.Path:
    """The files of an uncased tokenizer with 66 tokens."""
    write_tokenizer(
        tmp_path, make_vocab(66, True), make_config(np.random.default_rng(0), do_lower_case=True)
    )
    return tmp_path


def add(folder: pathlib.Path, place: str, tokens: list[tuple[str, object]]) -> None:
    """Writes added tokens and their ids where one of Hugging Face's files has them."""
    path = folder / place
    values = json.loads(path.read_text()) if path.exists() else {}
    if place == "tokenizer.json":
        values["added_tokens"] += [{"content": content, "id": index} for content, index in tokens]
    elif place == "added_tokens.json":
        values |= dict(tokens)
    else:
        values["added_tokens_decoder"] = {str(i): {"content": content} for content, i in tokens}
    path.write_text(json.dumps(values))


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    "token", ["[E1]", "@user", "<e>", "two words", "Covid", "[unused1]", "[D] ", "x" * 201]
)
def test_added_tokens_are_found_anywhere(folder, place, token):
    index = 2 if token == "[unused1]" else 66  # One that the vocabulary has.
    add(folder, place, [(token, index)])
    written = f"a{token}b"
    vocab = read_tokenizer(folder, ROWS).vocab
    assert vocab is not None and (vocab.tokens[index], len(vocab)) == (token, ROWS)
    tokenizer = load_tokenizer(folder).tokenizer
    assert tokenizer.encode(written).count(index) == 1
    ids, starts, ends = tokenizer.tokenize_with_offsets(written)
    position = ids.index(token)
    assert written[starts[position] : ends[position]] == token


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("index", [-1, ROWS, 10**9, 5, "66", True, 66.0, None])
def test_ids_of_added_tokens(folder, place, index):
    if place == "tokenizer_config.json" and index in ("66", True, 66.0):
        return  # A key is a string in any case.
    add(folder, place, [("covid", index)])
    with pytest.raises(ValueError, match="covid"):
        read_tokenizer(folder, ROWS)


def test_one_id_for_two_added_tokens_and_two_for_one(folder):
    add(folder, "tokenizer.json", [("covid", 66), ("sars", 66)])
    with pytest.raises(ValueError, match="sars"):
        read_tokenizer(folder, ROWS)
    add(folder, "tokenizer.json", [("covid", 67)])
    with pytest.raises(ValueError, match="covid"):
        read_tokenizer(folder, ROWS)


def test_two_files_with_different_ids_for_an_added_token(folder):
    add(folder, "tokenizer.json", [("covid", 66)])
    add(folder, "added_tokens.json", [("covid", 66)])
    vocab = read_tokenizer(folder, ROWS).vocab
    assert vocab is not None and vocab.tokens[66] == "covid"
    add(folder, "added_tokens.json", [("covid", 67)])
    with pytest.raises(ValueError, match="covid"):
        read_tokenizer(folder, ROWS)


SPLIT = {"type": "Split", "pattern": {"String": " "}, "behavior": "Isolated", "invert": False}


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("pre_tokenizer", {"type": "Whitespace"}),
        ("pre_tokenizer", {"type": "Sequence", "pretokenizers": [SPLIT]}),
        ("pre_tokenizer", {"type": "Sequence", "pretokenizers": None}),
        ("pre_tokenizer", {}),
        ("pre_tokenizer", None),
        ("pre_tokenizer", "BertPreTokenizer"),
        ("normalizer", {"type": "NFKC"}),
        ("normalizer", {"type": "Sequence", "normalizers": [{"type": "NFKC"}]}),
        ("normalizer", {"type": "BertNormalizer", "lowercase": True, "clean_text": False}),
        ("normalizer", {"type": "BertNormalizer", "lowercase": "yes"}),
        ("normalizer", None),
        ("post_processor", {"type": "RobertaProcessing"}),
        ("post_processor", None),
        ("post_processor", {"type": "TemplateProcessing", "single": [], "pair": []}),
        ("added_tokens", [{"id": 3}]),
        ("added_tokens", {"covid": 66}),
        ("model", {"type": "WordPiece", "vocab": {"[PAD]": 0, "x": True}}),
        ("model", {"type": "Unigram", "vocab": []}),
    ],
)
def test_parts_of_a_tokenizer_json(folder, part, value):
    path = folder / "tokenizer.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), part: value}))
    with pytest.raises(ValueError, match="tokenizer.json"):
        read_tokenizer(folder, ROWS)


@pytest.mark.parametrize(
    "values",
    [
        {"pad_token_id": 10**9},
        {"pad_token_id": -1},
        {"pad_token_id": "0"},
        {"pad_token_id": False},
        {"eos_token_id": 10**9},
        {"bos_token_id": -5},
        {"eos_token_id": [2, 10**6]},
        {"hidden_size": -8},
        {"hidden_size": "20"},
        {"num_hidden_layers": True},
        {"num_hidden_layers": 1.0},
        {"type_vocab_size": -1},
        {"max_position_embeddings": 0},
        {"hidden_dropout_prob": "0.1"},
        {"hidden_dropout_prob": False},
        {"layer_norm_eps": -1.0},
        {"problem_type": "ranking"},
        {"id2label": ["a"]},
        {"id2label": {"0": None}},
    ],
)
def test_nonsense_in_a_configuration(tmp_path, values):
    made = make_checkpoint("classifier", 1, num_hidden_layers=1)
    write_checkpoint(made, tmp_path / "model", "huggingface")
    path = tmp_path / "model" / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))
    with pytest.raises(ValueError, match=next(iter(values))):
        read_checkpoint(tmp_path / "model")


def test_padding_outside_of_the_vocabulary_of_a_google_checkpoint(tmp_path):
    write_checkpoint(make_checkpoint("encoder", 1), tmp_path / "model", "google")
    path = tmp_path / "model" / "bert_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "pad_token_id": 10**9}))
    with pytest.raises(ValueError, match="pad_token_id"):
        read_checkpoint(tmp_path / "model")


def test_weights_of_another_framework_come_with_a_way_to_convert_them(tmp_path):
    name = "flax_model.msgpack"
    write_checkpoint(make_checkpoint("encoder", 1), tmp_path / "model", "huggingface")
    (tmp_path / "model" / "model.safetensors").rename(tmp_path / "model" / name)
    with pytest.raises(ValueError, match=rf"{name}.*from_flax=True"):
        read_checkpoint(tmp_path / "model")
