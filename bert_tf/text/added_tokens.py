"""Tokens that are cut out of a text before the text is split into words, and how Python finds them.

`AddedTokenSplitter` leaves the search to Hugging Face's `tokenizers`.
"""

import dataclasses
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import tokenizers

from bert_tf.system.files import json_field
from bert_tf.text.byte_level import SPACES, replace_surrogates


@dataclasses.dataclass(frozen=True)
class AddedToken:
    """A token that is cut out of a text before the text is split into words."""

    content: str  # the token
    special: bool = True  # whether it is a control token of the model, not text
    lstrip: bool = False  # whether it includes all white space on its left
    rstrip: bool = False  # whether it includes all white space on its right
    # Whether it is searched for after the text is normalized, in the text between the other added
    # tokens.
    normalized: bool = False
    # Whether it is found only where no letter, digit or underscore is next to it.
    single_word: bool = False

    def to_config(self) -> dict[str, Any]:
        """Returns the fields for JSON; without `single_word`, a later field, where it is False."""
        fields = dataclasses.asdict(self)
        if not self.single_word:
            del fields["single_word"]
        return fields


_FLAGS = ("special", "lstrip", "rstrip", "normalized", "single_word")


def read_added_token(values: object, path: str | os.PathLike) -> AddedToken:
    """Returns an added token of a tokenizer.json or tokenizer_config.json.

    Flags that are missing are those of Hugging Face's tokenizers.

    Raises:
      ValueError: if it has no content, or a flag is not true or false.
    """
    if not isinstance(values, dict) or not isinstance(values.get("content"), str):
        raise ValueError(f"{path}: {values!r:.200} is not an added token with a content.")
    flags = {name: json_field(values, name, bool, path, default=False) for name in _FLAGS}
    if not values["content"]:
        raise ValueError(f"{path}: an added token is empty; expected a text.")
    if "normalized" not in values:
        flags["normalized"] = not flags["special"]
    return AddedToken(values["content"], **flags)


def read_decoder(settings: dict[str, Any], path: str | os.PathLike) -> dict[int, AddedToken]:
    """Returns the added tokens of a tokenizer_config.json by their ids.

    Raises:
      ValueError: if an id is no number, or a value is no added token.
    """
    tokens = {}
    decoder = json_field(settings, "added_tokens_decoder", dict, path, default={})
    for key, values in decoder.items():
        if not key.isdecimal() or len(key) >= 10:
            raise ValueError(
                f"{path}: added_tokens_decoder has {values!r:.100} for {key!r:.20}, expected an id."
            )
        tokens[int(key)] = read_added_token(values, path)
    return tokens


class Part(NamedTuple):
    """A part of a text: an added token, or the text between two of them."""

    start: int  # its first character
    end: int  # the character after it
    token_id: int | None  # None for text


class AddedTokenSplitter:
    """Splits texts at added tokens: the leftmost first, and of those that start there the longest.

    Args:
      tokens: the tokens, all of them with or all without `AddedToken.normalized`.
      unread: contents that are found, so that no shorter token is found in them, but stay text.
      normalize: the normalizer's function, applied to the contents of normalized tokens.

    Raises:
      ValueError: if the tokens can overlap, see `check_overlaps`.
    """

    def __init__(
        self,
        tokens: Sequence[AddedToken],
        ids: Mapping[str, int],
        unread: Sequence[str] = (),
        normalize: Callable[[str], str] = str,
    ) -> None:
        check_overlaps(tokens)
        # Each text between two added tokens is one token of this model: the unknown one.
        model = tokenizers.models.WordLevel({"": 0}, unk_token="")
        self._tokenizer = tokenizers.Tokenizer(model)
        # `tokenizers` then finds special tokens but leaves them as text: these are the unread ones.
        self._tokenizer.encode_special_tokens = True
        contents: dict[str, AddedToken] = {}
        for token in tokens:
            contents.setdefault(normalize(token.content), token)
        contents.pop("", None)  # A token of deleted characters is never found.
        for are_unread in (True, False):
            added = []
            for content, token in contents.items():
                if (token.content in unread) == are_unread:
                    added.append(_for_tokenizers(content, token))
            if are_unread:
                self._tokenizer.add_special_tokens(added)
            else:
                self._tokenizer.add_tokens(added)
        # The token ids by those that `tokenizers` gave; its first one is text.
        self._ids: list[int | None] = [None] * self._tokenizer.get_vocab_size()
        for content, index in self._tokenizer.get_vocab().items():
            if content:
                self._ids[index] = ids[contents[content].content]
        self._beginnings = common_prefixes(list(contents))

    def split(self, text: str) -> list[Part]:
        """Returns the parts of a text in order."""
        # Searching a few prefixes is faster than searching every token.
        if not any(beginning in text for beginning in self._beginnings):
            return [Part(0, len(text), None)] if text else []
        encoding = self._tokenizer.encode(replace_surrogates(text), add_special_tokens=False)
        parts = []
        for index, (start, end) in zip(encoding.ids, encoding.offsets, strict=True):
            parts.append(Part(start, end, self._ids[index]))
        return parts


def check_overlaps(tokens: Iterable[AddedToken]) -> None:
    """Raises ValueError if one token can include the white space that another begins with."""
    rstrip = [token.content for token in tokens if token.rstrip]
    spaced = [token.content for token in tokens if token.content[:1] in (*SPACES,)]
    if rstrip and spaced:
        raise ValueError(
            f"The added token {spaced[0]!r} begins with white space, which {rstrip[0]!r} includes "
            "(rstrip): expected only one of the two. Remove the white space or the flag."
        )


def _for_tokenizers(content: str, token: AddedToken) -> tokenizers.AddedToken:
    return tokenizers.AddedToken(
        content,
        single_word=token.single_word,
        lstrip=token.lstrip,
        rstrip=token.rstrip,
        normalized=False,  # The text given to `split` is normalized already.
    )


def common_prefixes(contents: Sequence[str]) -> list[str]:
    """Returns the longest common prefix of the strings that begin with the same character.

    A text without any of these prefixes has none of the strings.
    """
    groups: dict[str, list[str]] = {}
    for content in contents:
        groups.setdefault(content[0], []).append(content)
    prefixes = []
    for group in groups.values():
        # It compares characters, not the parts of a path.
        prefixes.append(os.path.commonprefix(group))
    return prefixes
