"""Vocabulary of byte-level BPE: tokens, merges, and how sequences are packed.

It is read from a tokenizer.json of Hugging Face's `tokenizers`, or from GPT-2's two files,
vocab.json and merges.txt. It is written as a tokenizer.json, which `tokenizers` loads with the same
results.
"""

import dataclasses
import functools
import json
import os
import pathlib
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import numpy as np

from bert_tf.system import bounded_files
from bert_tf.system.files import atomic_write, json_field, read_json, read_optional_json
from bert_tf.text.added_tokens import AddedToken
from bert_tf.text.byte_level import BYTE_CHARACTERS, SPACE_MARK
from bert_tf.text.fast_tokenizers import check_token_lengths
from bert_tf.text.vocab import BaseVocab

TOKENIZER_FILE = "tokenizer.json"
VOCAB_FILE = "vocab.json"
MERGES_FILE = "merges.txt"
# The special tokens in files of RoBERTa, and in files that follow BERT.
_NAMES = {
    "cls": ("<s>", "[CLS]"),
    "sep": ("</s>", "[SEP]"),
    "pad": ("<pad>", "[PAD]"),
    "unk": ("<unk>", "[UNK]"),
    "mask": ("<mask>", "[MASK]"),
}
_NEVER_IN_UTF8 = {0xC0, 0xC1, *range(0xF5, 0x100)}
# Files in the same folder that may name the special tokens.
_COMPANIONS = ("special_tokens_map.json", "tokenizer_config.json")


@dataclasses.dataclass(frozen=True)
class BpeVocab(BaseVocab):
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

    file_name: ClassVar[str] = TOKENIZER_FILE

    def __post_init__(self) -> None:
        object.__setattr__(self, "tokens", tuple(self.tokens))
        object.__setattr__(self, "merges", tuple((left, right) for left, right in self.merges))
        # An added token without an id comes first here, and `_check` reports it.
        in_order = sorted(self.added_tokens, key=lambda token: self.ids.get(token.content, -1))
        object.__setattr__(self, "added_tokens", tuple(in_order))
        _check(self, "vocabulary")

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
            try:
                return _from_tokenizer_json(path, content)
            except (AttributeError, IndexError, KeyError, TypeError) as error:
                raise ValueError(
                    f"{path}: not in the format of Hugging Face's tokenizers ({error!r}); save the "
                    "tokenizer again."
                ) from None
        return _from_vocab_and_merges(path, content)

    def write(self, path: str | os.PathLike) -> None:
        """Writes a tokenizer.json atomically."""
        with atomic_write(path) as file:
            json.dump(to_tokenizer_json(self), file, ensure_ascii=False, indent=1)
            file.write("\n")

    @functools.cached_property
    def special_ids(self) -> frozenset[int]:
        """Ids of the control tokens, which are not text."""
        return frozenset(self.ids[token.content] for token in self.added_tokens if token.special)

    @functools.cached_property
    def is_continuation(self) -> np.ndarray:
        """bool [V], true where the token continues a word: it does not start with a space.

        Added tokens never continue a word.
        """
        added = {token.content for token in self.added_tokens}
        return np.array([t not in added and not t.startswith(SPACE_MARK) for t in self.tokens])


def _check(vocab: BpeVocab, source: str) -> None:
    """Raises the errors of `BpeVocab`, naming `source` and the token."""
    check_token_lengths(vocab.tokens, source)
    ids = vocab.ids
    for index, token in enumerate(vocab.tokens):
        if ids[token] != index:
            raise ValueError(
                f"{source}: {token!r} has the ids {index} and {ids[token]}; expected unique tokens."
            )
    seen = set()
    for number, pair in enumerate(vocab.merges, start=1):
        for token in (*pair, "".join(pair)):
            if token not in ids:
                raise ValueError(
                    f"{source}: merge {number}, {' '.join(pair)!r}, needs the token {token!r}, "
                    f"which is not among its {len(ids)}; the merges belong to another vocabulary."
                )
        if pair in seen:
            raise ValueError(f"{source}: merge {number}, {' '.join(pair)!r}, is listed twice.")
        seen.add(pair)
    lacking = []
    for byte, char in enumerate(BYTE_CHARACTERS):
        if char not in ids and byte not in _NEVER_IN_UTF8:
            lacking.append(byte)
    if lacking:
        raise ValueError(
            f"{source}: no token for the bytes {lacking[:5]} ({len(lacking)} bytes lack one); "
            "expected a vocabulary of byte-level BPE, which has one for each byte of UTF-8."
        )
    added = {token.content for token in vocab.added_tokens}
    names = (vocab.cls, vocab.sep, vocab.pad, vocab.unk, vocab.mask)
    missing = [name for name in names if name not in ids or name not in added]
    if missing:
        raise ValueError(
            f"{source}: the special tokens {missing} are missing among the {len(ids)} tokens; add "
            "each with a new id."
        )
    unknown = sorted(added - ids.keys())
    if unknown:
        raise ValueError(f"{source}: the added tokens {unknown} have no id.")
    if vocab.normalizer not in ("", "NFC"):
        raise ValueError(
            f"{source}: received normalizer {vocab.normalizer!r}, expected none or NFC."
        )


def tokens_in_id_order(path: pathlib.Path, ids: Mapping[str, int]) -> tuple[str, ...]:
    """Returns the tokens in id order.

    Raises:
      ValueError: if an id is used twice or missing.
    """
    tokens: dict[int, str] = {}
    for token, index in ids.items():
        if type(index) is not int:
            raise ValueError(f"{path}: received {index!r} for {token!r}, expected a whole number.")
        if index in tokens:
            raise ValueError(
                f"{path}: {tokens[index]!r} and {token!r} both have id {index}; expected one each."
            )
        tokens[index] = token
    for index in range(len(tokens)):
        if index not in tokens:
            raise ValueError(
                f"{path}: no token has id {index}, with ids up to {max(tokens)}; expected all ids "
                f"from 0 on: name the missing ones, for example '[unused0]'."
            )
    return tuple(tokens[index] for index in range(len(tokens)))


def _from_vocab_and_merges(path: pathlib.Path, ids: dict[str, int]) -> BpeVocab:
    merges_path = path.with_name(MERGES_FILE)
    if not merges_path.exists():
        raise ValueError(
            f"{merges_path}: not found; byte-level BPE needs it in the folder of {path.name} (or a "
            f"{TOKENIZER_FILE}, which has both)."
        )
    merges_bytes = bounded_files.read_bytes(merges_path)
    bounded_files.check_lines(merges_bytes, merges_path)
    lines = merges_bytes.decode("utf-8-sig").replace("\r\n", "\n").split("\n")
    merges = []
    for number, line in enumerate(lines, start=1):
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
    config = _companion(path.parent, config_path.name)
    return _build(
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
        raise _unsupported(path, "pre_tokenizer", pre_tokenizer, "ByteLevel with its own regex")
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
        raise _unsupported(path, "post_processor", content["post_processor"], expected)
    names = {"cls": packing.pop("cls"), "sep": packing.pop("sep")}
    return _build(
        path,
        tokens=tokens_in_id_order(path, ids),
        merges=[read_merge(path, merge) for merge in model["merges"]],
        added_tokens=tuple(token for token, _ in added.values()),
        # True if absent, as in `tokenizers`; in tokenizer_config.json absent means False.
        add_prefix_space=json_field(pre_tokenizer, "add_prefix_space", bool, path) is not False,
        normalizer=normalizer,
        **packing,
        **special_names(path.parent, added, names),
    )


def read_added_tokens(
    path: pathlib.Path, content: dict[str, Any]
) -> dict[str, tuple[AddedToken, int]]:
    """Returns the added tokens of a tokenizer.json with their ids, by content."""
    added = {}
    for token in content.get("added_tokens") or ():
        for flag in ("single_word", "special", "lstrip", "rstrip", "normalized"):
            json_field(token, flag, bool, path)
        if token.get("single_word"):
            raise _unsupported(path, "added token", token, "tokens with single_word false")
        fields = {field.name: token[field.name] for field in dataclasses.fields(AddedToken)}
        added[token["content"]] = (AddedToken(**fields), token["id"])
    return added


def read_merge(source: object, merge: object) -> tuple[str, str]:
    """Reads "left right" or ["left", "right"]."""
    pair = merge.split(" ") if isinstance(merge, str) else merge
    tokens = pair if isinstance(pair, list) else []
    if len(tokens) != 2 or not all(isinstance(token, str) and token for token in tokens):
        raise ValueError(
            f"{source}: received the merge {merge!r:.200}, expected two tokens with a space "
            "between."
        )
    return tokens[0], tokens[1]


def _build(path: pathlib.Path, **fields: Any) -> BpeVocab:
    try:
        return BpeVocab(**fields)
    except ValueError as error:
        raise ValueError(str(error).replace("vocabulary", str(path), 1)) from None


def _unsupported(path: pathlib.Path, part: str, received: object, expected: str) -> ValueError:
    return ValueError(
        f"{path}: {part} {json.dumps(received, ensure_ascii=False)[:200]} is not supported; "
        f"expected {expected}."
    )


def _check_model(path: pathlib.Path, model: dict[str, Any]) -> None:
    """Raises ValueError if the model is not plain BPE over bytes."""
    if model.get("type", "BPE") != "BPE" or "merges" not in model:
        raise _unsupported(path, "model type", model.get("type"), "BPE")
    for name in ("dropout", "continuing_subword_prefix", "end_of_word_suffix", "ignore_merges"):
        if model.get(name):
            raise _unsupported(path, f"model {name}", model[name], "a model without it")


def _read_normalizer(path: pathlib.Path, normalizer: dict[str, Any] | None) -> str:
    if not normalizer:
        return ""
    parts = normalizer.get("normalizers") if normalizer.get("type") == "Sequence" else [normalizer]
    kinds = [part.get("type") for part in parts or ()]
    if kinds not in ([], ["NFC"]):
        raise _unsupported(path, "normalizer", normalizer, "none or NFC")
    return "".join(kinds)


def read_post_processor(path: pathlib.Path, processor: dict[str, Any] | None) -> dict[str, Any]:
    """Returns the fields of BpeVocab for packing."""
    processor = processor or {}
    parts = processor["processors"] if processor.get("type") == "Sequence" else [processor]
    fields: dict[str, Any] = {"trim_offsets": False}
    for part in parts:
        kind = part.get("type")
        if kind == "RobertaProcessing":
            fields |= {"cls": part["cls"][0], "sep": part["sep"][0]}
            fields |= {"num_separators": 2, "second_type": 0}
            # One part of a sequence that trims the offsets is enough.
            fields["trim_offsets"] |= part.get("trim_offsets", True)
        elif kind == "BertProcessing":
            fields |= {"cls": part["cls"][0], "sep": part["sep"][0]}
            fields |= {"num_separators": 1, "second_type": 1}
        elif kind == "TemplateProcessing":
            fields |= _read_template(path, part)
        elif kind == "ByteLevel":
            fields["trim_offsets"] |= part.get("trim_offsets", True)
        else:
            expected = "RobertaProcessing, BertProcessing or TemplateProcessing"
            raise _unsupported(path, "post_processor", part or None, expected)
    if "cls" not in fields:
        raise _unsupported(path, "post_processor", processor, "one that adds special tokens")
    return fields


def _read_template(path: pathlib.Path, template: dict[str, Any]) -> dict[str, Any]:
    """Reads `cls A sep` and `cls A sep (sep) B sep`, with types 0 up to B.

    The class token may be the last one instead, with another type: `A sep B sep cls`.
    """
    items = [next(iter(item.values())) for item in template["pair"]]
    names = [item["id"] for item in items]
    types = [item["type_id"] for item in items]
    single_items = [next(iter(item.values())) for item in template["single"]]
    single = [item["id"] for item in single_items]
    single_types = [item["type_id"] for item in single_items]
    class_at_end = names[0] == "A"
    if class_at_end:
        # Compare with the usual order.
        for order in (names, types, single, single_types):
            order.insert(0, order.pop())
    cls = names[0]
    sep = names[-1]
    class_type = types[0]
    # A pair has CLS, A, B and the last SEP, and the separators between A and B.
    separators = len(names) - 4
    is_known = separators in (1, 2) and names == [cls, "A", *[sep] * separators, "B", sep]
    # The types of CLS; of A and the separators; of B and its SEP.
    is_typed = types == [class_type] + [0] * (1 + separators) + types[-1:] * 2
    is_typed &= single_types == [class_type, 0, 0] and (class_at_end or class_type == 0)
    if not (is_known and is_typed and single == [cls, "A", sep]):
        expected = (
            "CLS A SEP (SEP) B SEP with types 0 up to B, and CLS A SEP, or the same with CLS at "
            "the end"
        )
        raise _unsupported(path, "post_processor", template["pair"], expected)
    fields = {"cls": cls, "sep": sep, "num_separators": separators, "second_type": types[-1]}
    if class_at_end:
        fields |= {"class_at_end": True, "class_type": class_type}
    return fields


def _companion(folder: pathlib.Path, name: str) -> dict[str, Any]:
    path = folder / name
    return read_optional_json(path)


def special_names(
    folder: pathlib.Path, known: Iterable[str], given: dict[str, str]
) -> dict[str, str]:
    """Returns the special tokens by name: cls, sep, pad, unk, mask.

    Args:
      folder: the folder with special_tokens_map.json or tokenizer_config.json, if there is one.
      known: the tokens to choose from.
      given: the special tokens that are determined already.
    """
    known = set(known)
    names = dict(given)
    for companion in _COMPANIONS:
        content = _companion(folder, companion)
        for name in _NAMES:
            value = content.get(f"{name}_token")
            value = value.get("content") if isinstance(value, dict) else value
            if isinstance(value, str) and value in known:
                names.setdefault(name, value)
    for name, usual in _NAMES.items():
        # If none is known, the usual name stays, and `_check` reports it as missing.
        names.setdefault(name, next((token for token in usual if token in known), usual[0]))
    return names


def to_tokenizer_json(vocab: BpeVocab) -> dict[str, Any]:
    """Returns the content of a tokenizer.json."""
    byte_level = {
        "type": "ByteLevel",
        "add_prefix_space": vocab.add_prefix_space,
        "trim_offsets": vocab.trim_offsets,
        "use_regex": True,
    }
    added_tokens = []
    for token in sorted(vocab.added_tokens, key=lambda token: vocab.ids[token.content]):
        fields = dataclasses.asdict(token)
        added_tokens.append({"id": vocab.ids[token.content], "single_word": False, **fields})
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added_tokens,
        "normalizer": {"type": vocab.normalizer} if vocab.normalizer else None,
        "pre_tokenizer": byte_level,
        "post_processor": _to_post_processor(vocab, byte_level),
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            # Includes the added tokens: `tokenizers` would give missing ones new ids.
            "vocab": vocab.ids,
            "merges": [list(pair) for pair in vocab.merges],
        },
    }


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


def template_processing(
    cls: tuple[str, int],
    sep: tuple[str, int],
    num_separators: int = 1,
    second_type: int = 1,
    class_type_at_end: int | None = None,
) -> dict[str, Any]:
    """Returns the part of a tokenizer.json that adds special tokens to one or two texts.

    Args:
      cls, sep: name and id of the class token and of the separator.
      num_separators: the number of separators between two texts.
      second_type: the second text's token type.
      class_type_at_end: the class token's type where it is the last token; None where it is the
        first.
    """

    def special(name: str, kind: int) -> dict[str, Any]:
        return {"SpecialToken": {"id": name, "type_id": kind}}

    start = [special(cls[0], 0)]
    end = []
    if class_type_at_end is not None:
        start = []
        end = [special(cls[0], class_type_at_end)]
    first = [{"Sequence": {"id": "A", "type_id": 0}}, special(sep[0], 0)]
    between = [special(sep[0], 0)] * (num_separators - 1)
    second = [{"Sequence": {"id": "B", "type_id": second_type}}, special(sep[0], second_type)]
    return {
        "type": "TemplateProcessing",
        "single": [*start, *first, *end],
        "pair": [*start, *first, *between, *second, *end],
        "special_tokens": {
            name: {"id": name, "ids": [index], "tokens": [name]} for name, index in (cls, sep)
        },
    }
