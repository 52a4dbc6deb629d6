"""Vocabulary of byte-level BPE: tokens, merges, and how sequences are packed.

It is read from a tokenizer.json of Hugging Face's `tokenizers`, or from GPT-2's two files,
vocab.json and merges.txt. It is written as a tokenizer.json, which `tokenizers` loads with the same
results.
"""

import collections
import dataclasses
import os
import pathlib
from typing import Any, ClassVar, Literal

from bert_tf.system.files import json_field, read_json, read_lines, read_optional_json
from bert_tf.text.added_tokens import AddedToken
from bert_tf.text.byte_level import BYTE_CHARACTERS, BYTE_OF_CHARACTER, SPACE_MARK
from bert_tf.text.tokenizer_json import (
    TOKENIZER_FILE,
    TokenizerJsonVocab,
    added_token_values,
    bpe_model,
    check_packed_ids,
    make_vocab,
    naming_file,
    read_added_tokens,
    read_merge,
    read_post_processor,
    special_names,
    template_processing,
    tokens_in_id_order,
    unsupported,
)
from bert_tf.text.vocab import BYTE_BPE

VOCAB_FILE = "vocab.json"
MERGES_FILE = "merges.txt"
_NEVER_IN_UTF8 = {0xC0, 0xC1, *range(0xF5, 0x100)}


@dataclasses.dataclass(frozen=True)
class BpeVocab(TokenizerJsonVocab):
    """Immutable vocabulary of byte-level BPE, the counterpart of `bert_tf.text.vocab.Vocab`.

    Args:
      tokens: tokens in id order, bytes written as `byte_level.BYTE_CHARACTERS`.
      merges: pairs of tokens, in the order of merging.
      added_tokens: tokens that are cut out before a text is split into words, including the five
        special tokens.
      cls, sep, pad, unk, mask: the special tokens. No text is tokenized to `unk`.
      add_prefix_space: whether a text without a space at its start is read as if it had one.
      num_separators: the number of `sep` between two texts, 2 for RoBERTa and 1 for BERT.
      second_type: type id of the second text: 0 for RoBERTa, which has one type only, 1 for BERT.
      normalizer: "NFC", or "" for no normalization.
      trim_offsets: whether a token's offsets exclude the space at its start.

    Raises:
      ValueError: if a token is duplicated, a merge has an unknown token, a byte has no token, or a
        special token is missing.
    """

    tokens: tuple[str, ...]
    merges: tuple[tuple[str, str], ...]
    added_tokens: tuple[AddedToken, ...]
    cls: str = "<s>"
    sep: str = "</s>"
    pad: str = "<pad>"
    unk: str = "<unk>"
    mask: str = "<mask>"
    add_prefix_space: bool = False
    num_separators: int = 2
    second_type: int = 0
    normalizer: str = ""
    trim_offsets: bool = True

    kind: ClassVar[Literal["byte_bpe"]] = BYTE_BPE
    title: ClassVar[str] = "byte-level BPE"
    space_mark: ClassVar[str] = SPACE_MARK

    def __post_init__(self) -> None:
        super().__post_init__()
        _check(self)

    @classmethod
    def read(cls, path: str | os.PathLike) -> "BpeVocab":
        """Reads a tokenizer.json, or a vocab.json and the merges.txt in the same folder.

        Raises:
          ValueError: see the class; or if the file is for a tokenizer of another kind. The message
            names the file.
          OSError: if there is no such file.
        """
        path = pathlib.Path(path)
        if path.name == MERGES_FILE:
            path = path.with_name(VOCAB_FILE)
        content = read_json(path)
        if "model" in content and isinstance(content["model"], dict):
            with naming_file(path):
                return _from_tokenizer_json(path, content)
        return _from_vocab_and_merges(path, content)

    def to_tokenizer_json(self, with_rows: bool = True) -> dict[str, Any]:
        """Returns the content of a tokenizer.json; all rows have names in its model."""
        byte_level = {
            "type": "ByteLevel",
            "add_prefix_space": self.add_prefix_space,
            "trim_offsets": self.trim_offsets,
            "use_regex": True,
        }
        return {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": added_token_values(self.added_tokens, self.ids),
            "normalizer": {"type": self.normalizer} if self.normalizer else None,
            "pre_tokenizer": byte_level,
            "post_processor": _to_post_processor(self, byte_level),
            "decoder": byte_level,
            # Its tokens include the added ones: `tokenizers` would give missing ones new ids.
            "model": bpe_model(self),
        }

    def token_texts(self) -> tuple[str, ...]:
        """Returns the tokens as readable text, in which a part of a character is U+FFFD."""
        added = {token.content for token in self.added_tokens}
        texts = []
        for token in self.tokens:
            if token not in added:
                spelling = bytes(map(BYTE_OF_CHARACTER.__getitem__, token))
                token = spelling.decode("utf8", errors="replace")
            texts.append(token)
        return tuple(texts)


def _check(vocab: BpeVocab) -> None:
    """Raises ValueError for a repeated merge, a byte without a token, or another normalizer."""
    for pair, count in collections.Counter(vocab.merges).items():
        if count > 1:
            number = len(vocab.merges) - vocab.merges[::-1].index(pair)
            raise ValueError(f"merge {number}, {' '.join(pair)!r}, is listed twice.")
    lacking = []
    for byte, char in enumerate(BYTE_CHARACTERS):
        if char not in vocab.ids and byte not in _NEVER_IN_UTF8:
            lacking.append(byte)
    if lacking:
        raise ValueError(
            f"no token for the bytes {lacking[:5]} ({len(lacking)} bytes lack one); expected a "
            "vocabulary of byte-level BPE, which has one for each byte of UTF-8."
        )
    added = {token.content for token in vocab.added_tokens}
    if missing := [name for name in vocab.special_tokens if name not in added]:
        raise ValueError(f"the special tokens {missing} are not among the added tokens; add them.")
    if vocab.normalizer not in ("", "NFC"):
        raise ValueError(f"received normalizer {vocab.normalizer!r}, expected none or NFC.")


def _from_vocab_and_merges(path: pathlib.Path, ids: dict[str, int]) -> BpeVocab:
    merges_path = path.with_name(MERGES_FILE)
    if not merges_path.exists():
        raise ValueError(
            f"{merges_path}: not found; byte-level BPE needs it in the folder of {path.name} (or a "
            f"{TOKENIZER_FILE}, which has both)."
        )
    merges = []
    for number, line in enumerate(read_lines(merges_path, is_bounded=True), start=1):
        line = line.removesuffix("\r")
        # The first line of GPT-2's file; merges may also begin with #.
        if line and not line.startswith("#version"):
            merges.append(read_merge(f"{merges_path}, line {number}", line))
    names = special_names(path.parent, ids, {})
    added = []
    for content in dict.fromkeys(names.values()):
        # As in transformers for RoBERTa, the mask token includes the space on its left.
        is_mask = content == names["mask"]
        added.append(AddedToken(content, lstrip=is_mask, normalized=not is_mask))
    config_path = path.with_name("tokenizer_config.json")
    config = read_optional_json(config_path)
    return make_vocab(
        BpeVocab,
        path,
        tokens=tokens_in_id_order(path, ids),
        merges=merges,
        added_tokens=tuple(added),
        add_prefix_space=json_field(config, "add_prefix_space", bool, config_path) is True,
        trim_offsets=json_field(config, "trim_offsets", bool, config_path) is not False,
        **names,
    )


def _from_tokenizer_json(path: pathlib.Path, content: dict[str, Any]) -> BpeVocab:
    model = content["model"]
    _check_model(path, model)
    normalizer = _read_normalizer(path, content.get("normalizer"))
    pre_tokenizer = content.get("pre_tokenizer") or {}
    if pre_tokenizer.get("type") != "ByteLevel" or not pre_tokenizer.get("use_regex", True):
        raise unsupported(path, "pre_tokenizer", pre_tokenizer, "ByteLevel with its own regex")
    ids = dict(model["vocab"])
    added = read_added_tokens(path, content)
    for token, index in added.values():
        # Added tokens may be among the model's tokens; either way they have a row.
        if ids.setdefault(token.content, index) != index:
            raise ValueError(
                f"{path}: {token.content!r} has id {index} among the added tokens and "
                f"{ids[token.content]} in the vocabulary; expected one id."
            )
    packing: dict[str, Any] = read_post_processor(path, content.get("post_processor"))
    if "class_at_end" in packing:
        expected = "one that puts the class token first"
        raise unsupported(path, "post_processor", content["post_processor"], expected)
    names = {"cls": packing.pop("cls"), "sep": packing.pop("sep")}
    tokens = tokens_in_id_order(path, ids)
    check_packed_ids(path, content["post_processor"], tokens)
    return make_vocab(
        BpeVocab,
        path,
        tokens=tokens,
        merges=[read_merge(path, merge) for merge in model["merges"]],
        added_tokens=tuple(token for token, _ in added.values()),
        # True if absent, as in `tokenizers`; in tokenizer_config.json absent means False.
        add_prefix_space=json_field(pre_tokenizer, "add_prefix_space", bool, path) is not False,
        normalizer=normalizer,
        **packing,
        **special_names(path.parent, added, names),
    )


def _check_model(path: pathlib.Path, model: dict[str, Any]) -> None:
    """Raises ValueError if the model is not plain BPE over bytes."""
    if model.get("type", "BPE") != "BPE" or "merges" not in model:
        raise unsupported(path, "model type", model.get("type"), "BPE")
    for name in ("dropout", "continuing_subword_prefix", "end_of_word_suffix", "ignore_merges"):
        if model.get(name):
            raise unsupported(path, f"model {name}", model[name], "a model without it")


def _read_normalizer(path: pathlib.Path, normalizer: dict[str, Any] | None) -> str:
    if not normalizer:
        return ""
    parts = normalizer.get("normalizers") if normalizer.get("type") == "Sequence" else [normalizer]
    kinds = [part.get("type") for part in parts or ()]
    if kinds not in ([], ["NFC"]):
        raise unsupported(path, "normalizer", normalizer, "none or NFC")
    return "".join(kinds)


def _to_post_processor(vocab: BpeVocab, byte_level: dict[str, Any]) -> dict[str, Any]:
    cls = (vocab.cls, vocab.cls_id)
    sep = (vocab.sep, vocab.sep_id)
    # RoBERTa's released files have this processor; other forms need a template.
    if (vocab.num_separators, vocab.second_type) == (2, 0):
        return {
            "type": "RobertaProcessing",
            "sep": list(sep),
            "cls": list(cls),
            "trim_offsets": vocab.trim_offsets,
            "add_prefix_space": vocab.add_prefix_space,
        }
    template = template_processing(cls, sep, vocab.num_separators, vocab.second_type)
    if not vocab.trim_offsets:
        return template
    return {"type": "Sequence", "processors": [byte_level, template]}
