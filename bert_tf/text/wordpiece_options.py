"""How WordPiece splits texts where a model's tokenizer differs from google-research/bert's."""

import dataclasses
from collections.abc import Mapping
from typing import Any

MAX_WORD_CHARACTERS = 200


@dataclasses.dataclass(frozen=True)
class WordPieceOptions:
    """How WordPiece splits texts; the defaults are google-research/bert's rules.

    Args:
      strip_accents: whether accents are removed; None: exactly where text is lower-cased.
      splits_ideographs: whether each Chinese, Japanese or Korean ideograph is a word by itself.
      max_word_characters: a word with more characters is one [UNK].
    """

    strip_accents: bool | None = None
    splits_ideographs: bool = True
    max_word_characters: int = MAX_WORD_CHARACTERS

    def strips_accents(self, do_lower_case: bool) -> bool:
        """Returns whether accents are removed from text of this casing."""
        if self.strip_accents is None:
            return do_lower_case
        return self.strip_accents

    def to_config(self) -> dict[str, Any]:
        """Returns the fields for JSON."""
        return dataclasses.asdict(self)

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
        options = cls(**config)
        options.check(source)
        return options

    def check(self, source: str) -> None:
        """Raises ValueError if a field has a value that it cannot have."""
        allowed = {
            "strip_accents": self.strip_accents in (None, True, False),
            "splits_ideographs": isinstance(self.splits_ideographs, bool),
            "max_word_characters": type(self.max_word_characters) is int
            and self.max_word_characters > 0,
        }
        for name, is_allowed in allowed.items():
            if not is_allowed:
                raise ValueError(f"{source}: {name} cannot be {getattr(self, name)!r}.")


DEFAULT_OPTIONS = WordPieceOptions()
