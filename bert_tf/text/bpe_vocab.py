"""Vocabulary of byte-level BPE: pieces, merges, and how rows are made from them.

Read from a tokenizer.json of Hugging Face's `tokenizers`, or from GPT-2's two files, vocab.json and
merges.txt; written as a tokenizer.json, which `tokenizers` loads with the same results.
"""

import dataclasses
import functools
import json
import os
import pathlib
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import numpy as np

from bert_tf import bounded_files
from bert_tf.files import atomic_write, json_field, read_json, read_optional_json
from bert_tf.text.byte_level import BYTE_CHARACTERS, SPACE_MARK
from bert_tf.text.vocab import Pieces

TOKENIZER_FILE, VOCAB_FILE, MERGES_FILE = "tokenizer.json", "vocab.json", "merges.txt"
# RoBERTa's, and what the same tokens are called in files that follow BERT.
_NAMES = {
    "cls": ("<s>", "[CLS]"),
    "sep": ("</s>", "[SEP]"),
    "pad": ("<pad>", "[PAD]"),
    "unk": ("<unk>", "[UNK]"),
    "mask": ("<mask>", "[MASK]"),
}
_NEVER_IN_UTF8 = {0xC0, 0xC1, *range(0xF5, 0x100)}
# Files beside the vocabulary that say what the special tokens are called.
_COMPANIONS = ("special_tokens_map.json", "tokenizer_config.json")


@dataclasses.dataclass(frozen=True)
class AddedToken:
    """A piece that is found in a text before its words are, and is never part of one.

    Args:
      content: the piece.
      special: whether it is one of the model's signs, not text.
      lstrip: whether it takes all white space on its left.
      rstrip: whether it takes all white space on its right.
      normalized: whether it is looked for after the text is normalized, in what the others left.
    """

    content: str
    special: bool = True
    lstrip: bool = False
    rstrip: bool = False
    normalized: bool = False


@dataclasses.dataclass(frozen=True)
class BpeVocab(Pieces):
    """Immutable vocabulary of byte-level BPE; the sibling of `bert_tf.text.vocab.Vocab`.

    Args:
      tokens: pieces in id order, bytes written as `byte_level.BYTE_CHARACTERS`.
      merges: pairs of pieces, the first to be merged first.
      added_tokens: pieces found before the words are; the five special ones are among them.
      cls, sep, pad, unk, mask: the special pieces. No text gives `unk`.
      add_prefix_space: whether a text that begins without a space is read as if it had one.
      num_separators: `sep` so many times between two texts: RoBERTa 2, BERT 1.
      second_type: type id of the second text: RoBERTa, which has one type only, 0; BERT 1.
      normalizer: "NFC", or "" for none.
      trim_offsets: whether a piece's offsets leave out the space that it begins with.

    Raises:
      ValueError: if pieces stand twice, a merge and the pieces disagree, a byte has no piece, or a
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
        in_order = sorted(self.added_tokens, key=lambda token: self.ids.get(token.content, -1))
        object.__setattr__(self, "added_tokens", tuple(in_order))
        _check(self, "vocabulary")

    @classmethod
    def read(cls, path: str | os.PathLike) -> "BpeVocab":
        """Reads a tokenizer.json, or a vocab.json and the merges.txt beside it.

        Raises:
          ValueError: as the class, or if the file is for a tokenizer of another kind; the message
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
                    f"{path}: not as Hugging Face's tokenizers writes it ({error!r}); save it anew."
                ) from None
        return _from_vocab_and_merges(path, content)

    def write(self, path: str | os.PathLike) -> None:
        """Writes a tokenizer.json; the file is whole or absent."""
        with atomic_write(path) as file:
            json.dump(to_tokenizer_json(self), file, ensure_ascii=False, indent=1)
            file.write("\n")

    @functools.cached_property
    def special_ids(self) -> frozenset[int]:
        """Ids of the pieces that are signs, not text."""
        return frozenset(self.ids[token.content] for token in self.added_tokens if token.special)

    @functools.cached_property
    def is_continuation(self) -> np.ndarray:
        """bool [V], true where the piece continues a word: it does not begin with a space.

        Pieces found before the words are, special or not, continue none.
        """
        added = {token.content for token in self.added_tokens}
        return np.array([t not in added and not t.startswith(SPACE_MARK) for t in self.tokens])


def _check(vocab: BpeVocab, source: str) -> None:
    """Raises ValueError naming `source` and the piece, as the class says."""
    ids = vocab.ids
    if len(ids) < len(vocab.tokens):
        index = next(i for i, token in enumerate(vocab.tokens) if ids[token] != i)
        token = vocab.tokens[index]
        raise ValueError(
            f"{source}: {token!r} has the ids {index} and {ids[token]}; expected unique pieces."
        )
    seen = set()
    for number, pair in enumerate(vocab.merges, start=1):
        for piece in (*pair, "".join(pair)):
            if piece not in ids:
                raise ValueError(
                    f"{source}: merge {number}, {' '.join(pair)!r}, needs the piece {piece!r}, "
                    f"which is not among its {len(ids)}; the merges belong to another vocabulary."
                )
        if pair in seen:
            raise ValueError(f"{source}: merge {number}, {' '.join(pair)!r}, is listed twice.")
        seen.add(pair)
    lacking = [
        byte
        for byte, char in enumerate(BYTE_CHARACTERS)
        if char not in ids and byte not in _NEVER_IN_UTF8
    ]
    if lacking:
        raise ValueError(
            f"{source}: no piece for the bytes {lacking[:5]} ({len(lacking)} lack one); expected "
            "a vocabulary of byte-level BPE, which has one for each byte of UTF-8."
        )
    added = {token.content for token in vocab.added_tokens}
    names = (vocab.cls, vocab.sep, vocab.pad, vocab.unk, vocab.mask)
    missing = [name for name in names if name not in ids or name not in added]
    if missing:
        raise ValueError(
            f"{source}: the special tokens {missing} are missing among its {len(ids)} pieces; add "
            f"them, each with its own id."
        )
    unknown = sorted(added - ids.keys())
    if unknown:
        raise ValueError(f"{source}: the added tokens {unknown} have no id.")
    if vocab.normalizer not in ("", "NFC"):
        raise ValueError(
            f"{source}: received normalizer {vocab.normalizer!r}, expected none or NFC."
        )


def _in_id_order(path: pathlib.Path, ids: Mapping[str, int]) -> tuple[str, ...]:
    """Returns the pieces by id.

    Raises:
      ValueError: if an id is taken twice, or left out.
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
    holes = [index for index in range(len(tokens)) if index not in tokens]
    if holes:
        raise ValueError(
            f"{path}: no piece has id {holes[0]}, with ids up to {max(tokens)}; expected all ids "
            f"from 0 on: name the missing ones, for example '[unused0]'."
        )
    return tuple(tokens[index] for index in range(len(tokens)))


def _from_vocab_and_merges(path: pathlib.Path, ids: dict[str, int]) -> BpeVocab:
    merges_path = path.with_name(MERGES_FILE)
    if not merges_path.exists():
        raise ValueError(
            f"{merges_path}: not found; byte-level BPE needs it beside {path.name} (or a "
            f"{TOKENIZER_FILE}, which holds both)."
        )
    content = bounded_files.read_bytes(merges_path)
    bounded_files.check_lines(content, merges_path)
    lines = content.decode("utf-8").replace("\r\n", "\n").split("\n")
    merges = [
        _read_merge(f"{merges_path}, line {number}", line)
        for number, line in enumerate(lines, start=1)
        if line and not line.startswith("#version")
    ]
    names = _special_names(path.parent, ids, {})
    # As transformers has it for RoBERTa: the mask takes the space on its left.
    added = tuple(
        AddedToken(content, lstrip=content == names["mask"], normalized=content != names["mask"])
        for content in dict.fromkeys(names.values())
    )
    config_path = path.with_name("tokenizer_config.json")
    config = _companion(path.parent, config_path.name)
    return _build(
        path,
        tokens=_in_id_order(path, ids),
        merges=merges,
        added_tokens=added,
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
    added = []
    for token in content.get("added_tokens") or ():
        for flag in ("single_word", "special", "lstrip", "rstrip", "normalized"):
            json_field(token, flag, bool, path)
        if token.get("single_word"):
            raise _unsupported(path, "added token", token, "tokens with single_word false")
        if ids.setdefault(token["content"], token["id"]) != token["id"]:
            raise ValueError(
                f"{path}: {token['content']!r} has id {token['id']} among the added tokens and "
                f"{ids[token['content']]} in the vocabulary; expected one id."
            )
        fields = {field.name: token[field.name] for field in dataclasses.fields(AddedToken)}
        added.append(AddedToken(**fields))
    packing: dict[str, Any] = _read_post_processor(path, content.get("post_processor"))
    found = {"cls": packing.pop("cls"), "sep": packing.pop("sep")}
    return _build(
        path,
        tokens=_in_id_order(path, ids),
        merges=[_read_merge(path, merge) for merge in model["merges"]],
        added_tokens=tuple(added),
        add_prefix_space=json_field(pre_tokenizer, "add_prefix_space", bool, path) is not False,
        normalizer=normalizer,
        **packing,
        **_special_names(path.parent, {token.content for token in added}, found),
    )


def _read_merge(source: object, merge: object) -> tuple[str, str]:
    """Reads "left right" or ["left", "right"]."""
    pair = merge.split(" ") if isinstance(merge, str) else merge
    if not isinstance(pair, list) or len(pair) != 2 or not all(pair):
        raise ValueError(
            f"{source}: received the merge {merge!r}, expected two pieces with a space between."
        )
    return pair[0], pair[1]


def _build(path: pathlib.Path, **fields: Any) -> BpeVocab:
    try:
        return BpeVocab(**fields)
    except ValueError as error:
        raise ValueError(str(error).replace("vocabulary", str(path), 1)) from None


def _unsupported(path: pathlib.Path, part: str, received: Any, expected: str) -> ValueError:
    return ValueError(
        f"{path}: {part} {json.dumps(received, ensure_ascii=False)[:200]} is not supported; "
        f"expected {expected}."
    )


def _check_model(path: pathlib.Path, model: dict[str, Any]) -> None:
    """Raises ValueError for what is not plain BPE over bytes."""
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


def _read_post_processor(path: pathlib.Path, processor: dict[str, Any] | None) -> dict[str, Any]:
    """Returns the fields of BpeVocab that say how rows are made."""
    processor = processor or {}
    parts = processor["processors"] if processor.get("type") == "Sequence" else [processor]
    fields: dict[str, Any] = {"trim_offsets": False}
    for part in parts:
        kind = part.get("type")
        if kind == "RobertaProcessing":
            fields |= {"cls": part["cls"][0], "sep": part["sep"][0]}
            fields |= {"num_separators": 2, "second_type": 0}
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
    """Reads `cls A sep` and `cls A sep (sep) B sep`, with types 0 up to B."""
    items = [next(iter(item.values())) for item in template["pair"]]
    names, types = [item["id"] for item in items], [item["type_id"] for item in items]
    cls, sep, separators = names[0], names[-1], len(names) - 4
    single = [next(iter(item.values()))["id"] for item in template["single"]]
    is_known = separators in (1, 2) and names == [cls, "A", *[sep] * separators, "B", sep]
    is_typed = types == [0] * (2 + separators) + types[-1:] * 2
    if not (is_known and is_typed and single == [cls, "A", sep]):
        expected = "CLS A SEP (SEP) B SEP with types 0 up to B, and CLS A SEP"
        raise _unsupported(path, "post_processor", template["pair"], expected)
    return {"cls": cls, "sep": sep, "num_separators": separators, "second_type": types[-1]}


def _companion(folder: pathlib.Path, name: str) -> dict[str, Any]:
    path = folder / name
    return read_optional_json(path)


def _special_names(
    folder: pathlib.Path, known: Iterable[str], found: dict[str, str]
) -> dict[str, str]:
    """Returns what the special tokens are called.

    Args:
      folder: where special_tokens_map.json or tokenizer_config.json may say it.
      known: the pieces they can be.
      found: the names that are known.
    """
    known = set(known)
    names = dict(found)
    for companion in _COMPANIONS:
        content = _companion(folder, companion)
        for name in _NAMES:
            value = content.get(f"{name}_token")
            value = value.get("content") if isinstance(value, dict) else value
            if isinstance(value, str) and value in known:
                names.setdefault(name, value)
    for name, usual in _NAMES.items():
        names.setdefault(name, next((token for token in usual if token in known), usual[0]))
    return names


def to_tokenizer_json(vocab: BpeVocab) -> dict[str, Any]:
    """Returns the content of a tokenizer.json, from which `tokenizers` makes the same tokenizer."""
    byte_level = {
        "type": "ByteLevel",
        "add_prefix_space": vocab.add_prefix_space,
        "trim_offsets": vocab.trim_offsets,
        "use_regex": True,
    }
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": vocab.ids[token.content], "single_word": False, **dataclasses.asdict(token)}
            for token in sorted(vocab.added_tokens, key=lambda token: vocab.ids[token.content])
        ],
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
            # With the added tokens: `tokenizers` gives those that are not here ids of its own.
            "vocab": vocab.ids,
            "merges": [list(pair) for pair in vocab.merges],
        },
    }


def _to_post_processor(vocab: BpeVocab, byte_level: dict[str, Any]) -> dict[str, Any]:
    cls, sep = (vocab.cls, vocab.cls_id), (vocab.sep, vocab.sep_id)
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
    cls: tuple[str, int], sep: tuple[str, int], num_separators: int = 1, second_type: int = 1
) -> dict[str, Any]:
    """Returns the part of a tokenizer.json that adds special tokens to one or two texts.

    Args:
      cls, sep: name and id of the first token and of the separator.
      num_separators: how many stand between two texts.
      second_type: the second text's token type.
    """

    def special(name: str, kind: int) -> dict[str, Any]:
        return {"SpecialToken": {"id": name, "type_id": kind}}

    single = [special(cls[0], 0), {"Sequence": {"id": "A", "type_id": 0}}, special(sep[0], 0)]
    between = [special(sep[0], 0)] * (num_separators - 1)
    second = [{"Sequence": {"id": "B", "type_id": second_type}}, special(sep[0], second_type)]
    return {
        "type": "TemplateProcessing",
        "single": single,
        "pair": [*single, *between, *second],
        "special_tokens": {
            name: {"id": name, "ids": [index], "tokens": [name]} for name, index in (cls, sep)
        },
    }
