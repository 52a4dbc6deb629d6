"""Settings in the files of a tokenizer that change ids: read, or refused by name.

What each one changes was seen with transformers 5.23.
"""

import json
import pathlib
import shutil

import pytest

from bert_tf.checkpoints.tokenizer_files import read_tokenizer, truncates_beginning
from bert_tf.text.tokenization import make_tokenizer
from tests.shared_data import golden_file

FOLDERS = {
    "wordpiece": ("electra", "discriminator"),
    "bpe": ("roberta", "masked_lm"),
    "xlmr": ("xlm_roberta", "masked_lm"),
    "albert": ("albert", "masked_lm"),
    "deberta": ("deberta_v2", "masked_lm"),
}
CONFIG, WHOLE = "tokenizer_config.json", "tokenizer.json"
TEXTS = ("the cat is big", "a catalogue, thecat  [MASK] <mask> the", "Naïve café VU!")
PLAIN = {"lstrip": False, "rstrip": False, "single_word": False, "normalized": False}


def copy(name: str, folder: pathlib.Path) -> pathlib.Path:
    ignored = shutil.ignore_patterns("*.safetensors", "*.npz")
    return shutil.copytree(golden_file("families", *FOLDERS[name]), folder, ignore=ignored)


def change(path: pathlib.Path, **values) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def ids_of(folder: pathlib.Path) -> list[list[int]]:
    found = read_tokenizer(folder, None, None, True)
    tokenizer = make_tokenizer(found.vocab, bool(found.do_lower_case))
    return [list(tokenizer.encode(text)) for text in TEXTS]


@pytest.mark.parametrize("name", FOLDERS)
@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("additional_special_tokens", ["cat"]),
        ("extra_special_tokens", ["cat"]),
        ("extra_special_tokens", {"image_token": "cat"}),
        ("extra_special_tokens", True),
        ("additional_special_tokens", "cat"),
        ("bos_token", "the"),
        ("eos_token", {"content": "the", **PLAIN}),
        ("cls_token", "the"),
        ("sep_token", "[MASK]"),
        ("unk_token", "<mask>"),
        ("truncation_side", "both"),
        ("split_special_tokens", True),
    ],
)
def test_tokens_of_other_names_are_refused(tmp_path, name, key, value):
    folder = copy(name, tmp_path / "model")
    change(folder / CONFIG, **{key: value})
    with pytest.raises(ValueError, match=key):
        _ = read_tokenizer(folder, None) and truncates_beginning(folder)


@pytest.mark.parametrize("name", FOLDERS)
@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("cls_token", "the"),
        ("mask_token", {"content": "cat", **PLAIN}),
        ("additional_special_tokens", ["cat"]),
    ],
)
def test_special_tokens_map_counts_where_the_configuration_lists_no_tokens(
    tmp_path, name, key, value
):
    folder = copy(name, tmp_path / "model")
    expected = ids_of(folder)
    change(folder / "special_tokens_map.json", **{key: value})
    assert ids_of(folder) == expected
    settings = json.loads((folder / CONFIG).read_text())
    del settings["added_tokens_decoder"]
    (folder / CONFIG).write_text(json.dumps(settings))
    with pytest.raises(ValueError, match=f"special_tokens_map.json.*{key}"):
        read_tokenizer(folder, None)


@pytest.mark.parametrize(
    ("name", "key", "value", "without"),
    [
        ("xlmr", "tokenizer_class", "BertTokenizer", ""),
        ("deberta", "tokenizer_class", "RobertaTokenizerFast", ""),
        ("albert", "do_lower_case", False, ""),
        ("albert", "keep_accents", True, ""),
        ("albert", "add_prefix_space", False, WHOLE),
        ("albert", "add_bos_token", False, WHOLE),
        ("albert", "add_eos_token", True, WHOLE),
        ("deberta", "do_lower_case", True, ""),
        ("deberta", "split_by_punct", True, ""),
        ("xlmr", "add_prefix_space", False, ""),
        ("bpe", "added_tokens_decoder", {"1003": {"content": "cat", **PLAIN}}, ""),
        ("xlmr", "added_tokens_decoder", {"803": {"content": "cat", **PLAIN}}, ""),
        ("xlmr", "added_tokens_decoder", {"7": {"content": "<mask>", **PLAIN}}, ""),
        ("wordpiece", "do_lower_case", False, ""),
        ("wordpiece", "strip_accents", False, ""),
        ("wordpiece", "tokenize_chinese_chars", False, ""),
    ],
)
def test_settings_that_contradict_the_tokenizer_are_refused(tmp_path, name, key, value, without):
    folder = copy(name, tmp_path / "model")
    if without:
        (folder / without).unlink()
    change(folder / CONFIG, **{key: value})
    with pytest.raises(ValueError, match=key if name != "wordpiece" else CONFIG):
        read_tokenizer(folder, None)


@pytest.mark.parametrize("name", ["bpe", "xlmr"])
def test_an_added_token_that_is_no_text_is_refused(tmp_path, name):
    folder = copy(name, tmp_path / "model")
    change(folder / CONFIG, added_tokens_decoder={"4": {"content": [["<mask>"]], **PLAIN}})
    with pytest.raises(ValueError, match=CONFIG):
        read_tokenizer(folder, None)


@pytest.mark.parametrize("name", ["bpe", "xlmr", "albert", "deberta"])
def test_other_ids_of_special_tokens_are_refused(tmp_path, name):
    folder = copy(name, tmp_path / "model")
    processor = json.loads((folder / WHOLE).read_text())["post_processor"]
    if "cls" in processor:
        processor["cls"][1] = 7
    for token in processor.get("special_tokens", {}).values():
        token["ids"] = [7]
    change(folder / WHOLE, post_processor=processor)
    with pytest.raises(ValueError, match="post_processor"):
        read_tokenizer(folder, None)


@pytest.mark.parametrize("name", ["bpe", "xlmr", "albert"])
def test_flags_of_added_tokens_in_the_configuration_have_the_last_word(tmp_path, name):
    """The mask takes the spaces on its left in both files of the golden folders."""
    folder = copy(name, tmp_path / "model")
    expected = ids_of(folder)
    tokens = json.loads((folder / WHOLE).read_text())["added_tokens"]
    without = [{**token, "lstrip": False} for token in tokens]
    change(folder / WHOLE, added_tokens=without)
    assert ids_of(folder) == expected
    change(folder / CONFIG, added_tokens_decoder={})
    assert ids_of(folder) != expected


@pytest.mark.parametrize("name", FOLDERS)
@pytest.mark.parametrize("stated", [True, False])
def test_the_configuration_says_whether_an_added_token_is_searched_for_in_normal_text(
    tmp_path, name, stated
):
    """The content is normalized too: by lower case the token is found in both forms, else in one.

    Only ALBERT's and this WordPiece's normalizers change case.
    """
    folder = copy(name, tmp_path / "model")
    whole = json.loads((folder / WHOLE).read_text())
    index = len(read_tokenizer(folder, None).vocab)
    token = {"content": "Zork", **PLAIN, "special": False, "normalized": not stated}
    change(folder / WHOLE, added_tokens=[*whole["added_tokens"], {"id": index, **token}])
    decoder = json.loads((folder / CONFIG).read_text())["added_tokens_decoder"]
    decoder[str(index)] = {**token, "normalized": stated}
    change(folder / CONFIG, added_tokens_decoder=decoder)
    if name in ("albert", "deberta", "xlmr"):
        for file in folder.glob("*.model"):
            file.unlink()
    vocab = read_tokenizer(folder, None, None, True).vocab
    tokenizer = make_tokenizer(vocab, name == "wordpiece")
    lowers = name in ("albert", "wordpiece")
    for text, is_found in (("a Zork", True), ("a zork", stated and lowers)):
        assert (index in tokenizer.encode(text)) == is_found, text


@pytest.mark.parametrize("name", FOLDERS)
def test_settings_without_effect_on_ids(tmp_path, name):
    """Rows are padded and cut elsewhere; sampling is off in transformers, too."""
    folder = copy(name, tmp_path / "model")
    expected = ids_of(folder)
    change(folder / CONFIG, padding_side="left", never_split=["cat"], trim_offsets=False)
    change(folder / CONFIG, sp_model_kwargs={"enable_sampling": True}, return_token_type_ids=False)
    padding = {"strategy": {"Fixed": 12}, "direction": "Left", "pad_id": 0, "pad_token": "[PAD]"}
    truncation = {"direction": "Right", "max_length": 6, "strategy": "OnlyFirst", "stride": 2}
    change(folder / WHOLE, padding=padding, truncation=truncation)
    assert ids_of(folder) == expected
