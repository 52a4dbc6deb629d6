"""A token that is cut out of a text before the text is split into words."""

import dataclasses


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
    """

    content: str
    special: bool = True
    lstrip: bool = False
    rstrip: bool = False
    normalized: bool = False
