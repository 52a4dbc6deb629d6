"""A token that is cut out of a text before the text is split into words."""

import dataclasses
from typing import Any


@dataclasses.dataclass(frozen=True)
class AddedToken:
    """A token that is cut out of a text before the text is split into words.

    Args:
      content: the token.
      special: whether it is a control token of the model, not text.
      lstrip: whether it includes all white space on its left.
      rstrip: whether it includes all white space on its right.
      normalized: whether it is searched for after the text is normalized, in the text between the
        other added tokens.
      single_word: whether it is found only where no letter, digit or underscore is next to it.
    """

    content: str
    special: bool = True
    lstrip: bool = False
    rstrip: bool = False
    normalized: bool = False
    single_word: bool = False

    def to_config(self) -> dict[str, Any]:
        """Returns the fields for JSON; without `single_word`, a later field, where it is False."""
        fields = dataclasses.asdict(self)
        if not self.single_word:
            del fields["single_word"]
        return fields
