"""How WordPiece splits and packs texts where a tokenizer differs from google-research/bert's."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from bert_tf.text.added_tokens import AddedToken, check_overlaps

MAX_WORD_CHARACTERS = 200


@dataclasses.dataclass(frozen=True)
class WordPieceOptions:
    """How WordPiece splits and packs texts; the defaults are google-research/bert's rules."""

    # Whether accents are removed; None: exactly where text is lower-cased.
    strip_accents: bool | None = None
    # Whether each Chinese, Japanese or Korean ideograph is a word by itself.
    splits_ideographs: bool = True
    max_word_characters: int = MAX_WORD_CHARACTERS  # a word with more characters is one [UNK]
    # Tokens that are found anywhere in a text, also inside words.
    added_tokens: tuple[AddedToken, ...] = ()
    # The contents of those that are found in no other way: no word is split into them.
    only_added: tuple[str, ...] = ()
    # Whether [CLS], [SEP], [MASK], [PAD] and [UNK] written in a text are the special tokens, as in
    # Hugging Face's tokenizers, instead of ordinary text.
    reads_special_tokens: bool = False
    # The padding, unknown, class, separator and mask tokens in this order; empty for [PAD], [UNK],
    # [CLS], [SEP], [MASK].
    special_tokens: tuple[str, ...] = ()
    num_separators: int = 1  # the number of separators between two texts
    second_type: int = 1  # the type id of the second text
    # Whether pairs are packed as by Hugging Face's tokenizers, see `packing.packs_as_google`. It
    # changes no tokens, so options that differ in it are equal.
    keeps_blank_seconds: bool = dataclasses.field(default=False, compare=False)

    @property
    def is_default(self) -> bool:
        """Whether nothing differs from google-research/bert's rules, packing included."""
        return self == DEFAULT_OPTIONS and not self.keeps_blank_seconds

    def strips_accents(self, do_lower_case: bool) -> bool:
        """Returns whether accents are removed from text of this casing."""
        if self.strip_accents is None:
            return do_lower_case
        return self.strip_accents

    def tokens_to_find(self, special: Sequence[str]) -> tuple[AddedToken, ...]:
        """Returns the tokens that are searched for in texts.

        Args:
          special: the special tokens of the vocabulary. They are among the result even where they
            are not read: "[MASK]" as ordinary text hides an added token that is a part of it.
        """
        if not self.added_tokens and not self.reads_special_tokens:
            return ()
        contents = {token.content for token in self.added_tokens}
        others = [AddedToken(token) for token in special if token not in contents]
        return (*others, *self.added_tokens)

    def to_config(self) -> dict[str, Any]:
        """Returns the fields for JSON; those of a rare layout only if it has one."""
        fields = dataclasses.asdict(self)
        fields["added_tokens"] = [token.to_config() for token in self.added_tokens]
        for name in _LAYOUT_FIELDS:
            if getattr(self, name) == getattr(DEFAULT_OPTIONS, name):
                del fields[name]
        return fields

    @classmethod
    def from_config(cls, config: Mapping[str, Any], source: str) -> "WordPieceOptions":
        """Makes options from the result of `to_config`.

        Raises:
          ValueError: naming `source`, if a field is unknown or has a value of another type.
        """
        known = {field.name for field in dataclasses.fields(cls)}
        if unknown := sorted(set(config) - known):
            raise ValueError(
                f"{source}: received the field {unknown[0]!r}, expected {sorted(known)}; a newer "
                "bert_tf may have written it."
            )
        fields = dict(config)
        try:
            added = fields.get("added_tokens", ())
            fields["added_tokens"] = tuple(AddedToken(**token) for token in added)
            fields["only_added"] = tuple(fields.get("only_added", ()))
            fields["special_tokens"] = tuple(fields.get("special_tokens", ()))
        except TypeError as error:
            raise ValueError(
                f"{source}: the added or special tokens are damaged ({error})."
            ) from None
        options = cls(**fields)
        options.check(source)
        return options

    def check(self, source: str) -> None:
        """Raises ValueError if a field has a value that it cannot have."""
        allowed = {
            "strip_accents": self.strip_accents in (None, True, False),
            "splits_ideographs": isinstance(self.splits_ideographs, bool),
            # Not by isinstance: True is an int as well.
            "max_word_characters": type(self.max_word_characters) is int
            and self.max_word_characters > 0,
            "added_tokens": all(map(_is_token, self.added_tokens)),
            "only_added": set(self.only_added) <= {token.content for token in self.added_tokens},
            "reads_special_tokens": isinstance(self.reads_special_tokens, bool),
            "special_tokens": _are_special_tokens(self.special_tokens),
            "num_separators": self.num_separators in (1, 2),
            "second_type": self.second_type in (0, 1),
            "keeps_blank_seconds": isinstance(self.keeps_blank_seconds, bool),
        }
        for name, is_allowed in allowed.items():
            if not is_allowed:
                raise ValueError(f"{source}: {name} cannot be {getattr(self, name)!r}.")
        try:
            check_overlaps(self.added_tokens)
        except ValueError as error:
            raise ValueError(f"{source}: {error}") from None


def _is_token(token: AddedToken) -> bool:
    flags = (token.special, token.lstrip, token.rstrip, token.normalized, token.single_word)
    has_content = isinstance(token.content, str) and token.content != ""
    return has_content and all(isinstance(flag, bool) for flag in flags)


def _are_special_tokens(tokens: tuple[str, ...]) -> bool:
    """Returns whether these are five texts, or none."""
    are_texts = all(isinstance(token, str) and token for token in tokens)
    return are_texts and len(tokens) in (0, 5)


_LAYOUT_FIELDS = ("special_tokens", "num_separators", "second_type", "keeps_blank_seconds")
DEFAULT_OPTIONS = WordPieceOptions()
