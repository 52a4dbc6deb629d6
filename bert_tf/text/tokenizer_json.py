"""The parts of a tokenizer.json of Hugging Face's `tokenizers` that BPE and SentencePiece share."""

import contextlib
import dataclasses
import functools
import json
import os
import pathlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

import numpy as np

from bert_tf.system.files import atomic_write, read_optional_json
from bert_tf.text.added_tokens import AddedToken, read_added_token
from bert_tf.text.fast_tokenizers import check_token_lengths
from bert_tf.text.vocab import BaseVocab

TOKENIZER_FILE = "tokenizer.json"
SPECIAL_TOKENS_MAP = "special_tokens_map.json"
# The special tokens in files of RoBERTa, and in files that follow BERT.
_NAMES = {
    "cls": ("<s>", "[CLS]"),
    "sep": ("</s>", "[SEP]"),
    "pad": ("<pad>", "[PAD]"),
    "unk": ("<unk>", "[UNK]"),
    "mask": ("<mask>", "[MASK]"),
}
# Files in the same folder that may name the special tokens.
_COMPANIONS = (SPECIAL_TOKENS_MAP, "tokenizer_config.json")
VocabT = TypeVar("VocabT", bound="TokenizerJsonVocab")


class TokenizerJsonVocab(BaseVocab):
    """Base class of the vocabularies that are written as a tokenizer.json.

    Attributes:
      added_tokens: tokens that are cut out of a text before it is split into words.
      trim_offsets: whether a token's offsets exclude the space at its start.
      space_mark: the character that is written for the space at the start of a token.
    """

    merges: tuple[tuple[str, str], ...]
    added_tokens: tuple[AddedToken, ...]
    trim_offsets: bool
    space_mark: ClassVar[str]
    file_name: ClassVar[str] = TOKENIZER_FILE
    sentence_separator: str = " "

    def __post_init__(self) -> None:
        # The classes are frozen, and callers may pass lists.
        object.__setattr__(self, "tokens", tuple(self.tokens))
        object.__setattr__(self, "merges", tuple((left, right) for left, right in self.merges))
        # An added token without an id comes first here, and the check reports it.
        in_order = sorted(self.added_tokens, key=lambda token: self.ids.get(token.content, -1))
        object.__setattr__(self, "added_tokens", tuple(in_order))
        _check_tokens(self)

    def to_tokenizer_json(self, with_rows: bool = True) -> dict[str, Any]:
        """Returns the content of a tokenizer.json.

        Args:
          with_rows: whether names of rows that no token has are among the added tokens, so that a
            reader knows how many rows there are.
        """
        raise NotImplementedError

    def write(self, path: str | os.PathLike) -> None:
        """Writes a tokenizer.json atomically."""
        with atomic_write(path) as file:
            json.dump(self.to_tokenizer_json(), file, ensure_ascii=False, indent=1)
            file.write("\n")

    @functools.cached_property
    def special_ids(self) -> frozenset[int]:
        """Ids of the control tokens, which are not text."""
        return frozenset(self.ids[token.content] for token in self.added_tokens if token.special)

    @property
    def never_masked(self) -> tuple[int, ...]:
        """Ids of the tokens that are not selected for masking: the special ones, ascending.

        All of them may occur, because they are read as such where a text has them.
        """
        return tuple(sorted(self.special_ids))

    @functools.cached_property
    def is_continuation(self) -> np.ndarray:
        """bool [V], true where the token continues a word: it does not start with a space.

        Added tokens never continue a word.
        """
        added = {token.content for token in self.added_tokens}
        return np.array([t not in added and not t.startswith(self.space_mark) for t in self.tokens])

    def to_config(self) -> dict[str, Any]:
        """Returns the fields for JSON."""
        fields = dataclasses.asdict(self)  # type: ignore[call-overload]
        fields["added_tokens"] = [token.to_config() for token in self.added_tokens]
        if not self.class_at_end:
            # Digests of vocabularies do not depend on these fields where they have no effect.
            fields.pop("class_at_end", None)
            fields.pop("class_type", None)
        return fields

    def with_trimmed_offsets(self: VocabT) -> VocabT:
        """Returns the vocabulary with `trim_offsets`: offsets exclude the space before a token."""
        if self.trim_offsets:
            return self
        return dataclasses.replace(self, trim_offsets=True)  # type: ignore[type-var]


def _check_tokens(vocab: TokenizerJsonVocab) -> None:
    """Raises ValueError for repeated tokens, or tokens of merges or roles without an id."""
    check_token_lengths(vocab.tokens, "the vocabulary")
    ids = vocab.ids
    for index, token in enumerate(vocab.tokens):
        if ids[token] != index:
            raise ValueError(f"{token!r} has the ids {index} and {ids[token]}; expected one id.")
    for number, pair in enumerate(vocab.merges, start=1):
        for token in (*pair, "".join(pair)):
            if token not in ids:
                raise ValueError(
                    f"merge {number}, {' '.join(pair)!r}, needs the token {token!r}, which is not "
                    f"among the {len(ids)}; the merges belong to another vocabulary."
                )
    names = (*vocab.special_tokens, *(token.content for token in vocab.added_tokens))
    missing = [name for name in dict.fromkeys(names) if name not in ids]
    if missing:
        raise ValueError(
            f"the special tokens {missing} are missing among {len(ids)} tokens; add each with a "
            "new id."
        )


@contextlib.contextmanager
def naming_file(path: pathlib.Path) -> Iterator[None]:
    """Turns errors of a tokenizer.json with another structure into a ValueError that names it."""
    try:
        yield
    except (AttributeError, IndexError, KeyError, TypeError) as error:
        raise ValueError(
            f"{path}: not in the format of Hugging Face's tokenizers ({error!r}); save the "
            "tokenizer again."
        ) from None


def make_vocab(kind: type[VocabT], path: pathlib.Path, **fields: Any) -> VocabT:
    """Makes a vocabulary of the fields in a file; its errors name the file."""
    try:
        return kind(**fields)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def tokens_in_id_order(path: pathlib.Path, ids: Mapping[str, int]) -> tuple[str, ...]:
    """Returns the tokens in id order; ValueError if an id is used twice or missing."""
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


def read_added_tokens(
    path: pathlib.Path, content: dict[str, Any]
) -> dict[str, tuple[AddedToken, int]]:
    """Returns the added tokens of a tokenizer.json with their ids, by content."""
    added = {}
    for token in content.get("added_tokens") or ():
        made = read_added_token(token, path)
        if made.single_word:
            raise unsupported(path, "added token", token, "tokens with single_word false")
        added[made.content] = (made, token["id"])
    return added


def added_token_values(
    tokens: Iterable[AddedToken], ids: Mapping[str, int]
) -> list[dict[str, Any]]:
    """Returns the added tokens as a tokenizer.json has them, in the order given."""
    return [{"id": ids[token.content], **dataclasses.asdict(token)} for token in tokens]


def bpe_model(vocab: TokenizerJsonVocab, unk_token: str | None = None) -> dict[str, Any]:
    """Returns the model of a tokenizer.json of BPE.

    `unk_token` is that of a model which spells unknown characters as bytes; None for one whose
    tokens are bytes.
    """
    return {
        "type": "BPE",
        "dropout": None,
        "unk_token": unk_token,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": unk_token is not None,
        "byte_fallback": unk_token is not None,
        "ignore_merges": False,
        "vocab": vocab.ids,
        "merges": list(map(list, vocab.merges)),
    }


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


def unsupported(path: pathlib.Path, part: str, received: object, expected: str) -> ValueError:
    """Returns the error for a part of a tokenizer.json that bert_tf does not have."""
    return ValueError(
        f"{path}: {part} {json.dumps(received, ensure_ascii=False)[:200]} is not supported; "
        f"expected {expected}."
    )


def check_packed_ids(path: pathlib.Path, processor: dict[str, Any], tokens: Sequence[str]) -> None:
    """Raises ValueError if a post_processor gives a special token another id than the vocabulary.

    Args:
      processor: the post_processor of a tokenizer.json.
      tokens: the tokens in id order.
    """
    for part in processor.get("processors", [processor]):
        pairs = [part[name] for name in ("cls", "sep") if name in part]
        for name, values in part.get("special_tokens", {}).items():
            pairs += [(name, index) for index in values["ids"]]
        for name, index in pairs:
            if tokens[index : index + 1] != (name,):
                raise ValueError(
                    f"{path}: post_processor gives {name!r} the id {index}, where the vocabulary "
                    f"has {tokens[index : index + 1]}; expected the same token."
                )


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
            raise unsupported(path, "post_processor", part or None, expected)
    if "cls" not in fields:
        raise unsupported(path, "post_processor", processor, "one that adds special tokens")
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
        raise unsupported(path, "post_processor", template["pair"], expected)
    fields = {"cls": cls, "sep": sep, "num_separators": separators, "second_type": types[-1]}
    if class_at_end:
        fields |= {"class_at_end": True, "class_type": class_type}
    return fields


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
        content = read_optional_json(folder / companion)
        for name in _NAMES:
            value = content.get(f"{name}_token")
            value = value.get("content") if isinstance(value, dict) else value
            if isinstance(value, str) and value in known:
                names.setdefault(name, value)
    for name, usual in _NAMES.items():
        # If none is known, the usual name stays, and `_check` reports it as missing.
        names.setdefault(name, next((token for token in usual if token in known), usual[0]))
    return names


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
