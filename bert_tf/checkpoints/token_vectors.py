"""How a model of late interaction makes a vector of each token, a part of `EmbeddingConfig`."""

import dataclasses
import string
from collections.abc import Mapping
from typing import Any, Self

SIDES = ("query", "document")
PUNCTUATION = tuple(string.punctuation)
QUERY_LENGTH = 32  # ColBERT's, for models that do not state one


@dataclasses.dataclass(frozen=True)
class TokenVectors:
    """The tokens that score, of queries and of documents."""

    # Maximum number of tokens of a query; documents have `max_seq_length`.
    query_length: int = QUERY_LENGTH
    # A query with fewer tokens is filled up to so many, and the added tokens score as well; 0:
    # queries are not expanded.
    expansion_length: int = QUERY_LENGTH
    expansion_token: str = ""  # the token that expands queries; "": the mask
    attends: bool = False  # whether the tokens of a query attend to those that expand it
    # Tokens that do not score. Those that the vocabulary lacks are ignored.
    skiplist: tuple[str, ...] = PUNCTUATION
    skiplist_sides: tuple[str, ...] = ("document",)  # sides on which they do not score
    kept_token_ids: tuple[int, ...] = ()  # if there are any, no other tokens of documents score
    # The vectors of a document are pooled to one for each `pool_factor`; 1: not.
    pool_factor: float = 1.0
    protected_tokens: int = 1  # number of first tokens of a document that are not pooled
    pool_normalizes: bool = True  # whether pooled vectors are scaled to length 1
    pool_sides: tuple[str, ...] = ("document",)  # sides whose vectors are pooled

    def __post_init__(self) -> None:
        check_types(self)
        for name in ("skiplist_sides", "pool_sides"):
            if unknown := set(getattr(self, name)) - {*SIDES}:
                raise ValueError(f"{name} has {min(unknown)!r}, expected some of {list(SIDES)}.")
        for name, kind in (("skiplist", str), ("kept_token_ids", int)):
            if wrong := [value for value in getattr(self, name) if type(value) is not kind]:
                raise ValueError(f"{name} has {wrong[0]!r:.60}, expected {kind.__name__}.")
        if self.query_length < max(3, self.expansion_length) or self.expansion_length < 0:
            raise ValueError(
                f"query_length is {self.query_length} and expansion_length "
                f"{self.expansion_length}; expected a query_length of at least 3 and of at least "
                "the expansion_length."
            )
        check_pooling(self.pool_factor, self.protected_tokens)

    @property
    def fills_padding(self) -> bool:
        """Whether positions that no token attends to have vectors that score."""
        return bool(self.expansion_length) and not self.attends

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Makes the settings from JSON, in which tuples are lists."""
        fields: dict[str, Any] = {}
        for name, value in values.items():
            fields[name] = tuple(value) if isinstance(value, list) else value
        return cls(**fields)


def check_types(settings: Any) -> None:
    """Raises ValueError if a field of a dataclass has another type than its default."""
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        kind = type(field.default)
        if field.default_factory is not dataclasses.MISSING:
            kind = type(field.default_factory())
        # True and False are ints as well, and 2 is a pool_factor.
        is_right = type(value) is kind or (kind is float and type(value) is int)
        if not is_right and field.default is not None:
            raise ValueError(f"{field.name} is {value!r:.60}, expected {kind.__name__}.")


def check_pooling(pool_factor: float, protected_tokens: int) -> None:
    """Raises ValueError for a factor below 1, or a negative number of tokens."""
    is_number = isinstance(pool_factor, int | float) and not isinstance(pool_factor, bool)
    if not is_number or not 1 <= pool_factor < float("inf"):
        raise ValueError(
            f"pool_factor is {pool_factor!r}, expected a number from 1 on; 2 keeps one vector for "
            "each two tokens."
        )
    if type(protected_tokens) is not int or protected_tokens < 0:
        raise ValueError(f"protected_tokens is {protected_tokens!r}, expected 0 or more.")
