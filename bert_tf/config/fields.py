"""Fields of configurations, with their help texts, choices and ranges, and the base class."""

import dataclasses
import functools
import math
import typing
from collections.abc import Iterable, Mapping
from typing import Any, Self

from bert_tf.config.rules import is_set


def option(
    default: Any,
    help_text: str,
    *,
    choices: tuple[str, ...] | None = None,
    lower: float | None = None,
    upper: float | None = None,
    may_change: bool = False,
    from_run: bool = False,
    of_data: bool = False,
    needs: tuple[str, ...] = (),
    conflicts: tuple[str, ...] = (),
    within: str = "",
) -> Any:
    """Declares one field with its metadata.

    Args:
      choices: the allowed values; None for any.
      lower, upper: bounds, inclusive.
      may_change: whether a run may be resumed with another value. Such fields control where and how
        the run is computed and reported. Its numbers change only by rounding and by the dropout
        masks, which depend on replicas and micro-batches (in a retriever only on the batch).
      from_run: whether an evaluation or prediction takes the value from the run of the weights.
      of_data: whether a field of a program's task controls how data are read or evaluated, so that
        it is not taken from the run if other data are evaluated.
      needs: the condition under which the field has an effect: the name of another field, then the
        values that it must have; without values, any but its default. See `Config.check_needs`.
      conflicts: settings of the same group that exclude all values but the default; see
        `rules.Exclusion`.
      within: the combined flag that sets the field, see `combined`; --help does not list the flag
        with the name of the field.
    """
    metadata = {
        "help": help_text,
        "choices": choices,
        "lower": lower,
        "upper": upper,
        "may_change": may_change,
        "from_run": from_run,
        "of_data": of_data,
        "needs": needs,
        "conflicts": conflicts,
        "within": within,
    }
    return dataclasses.field(default=default, metadata=metadata)


changeable = functools.partial(option, may_change=True)
share = functools.partial(option, lower=0.0, upper=1.0)


@dataclasses.dataclass(frozen=True)
class Config:
    """Base class of all groups; checks every field's type, choices and range."""

    def __post_init__(self) -> None:
        types = typing.get_type_hints(type(self))
        for field in dataclasses.fields(self):
            check_value(field, types[field.name], getattr(self, field.name))
        self._check_conflicts()
        self.check()

    def check(self) -> None:
        """Checks conditions that involve several fields; subclasses override it."""

    def check_needs(self, names: Iterable[str]) -> None:
        """Raises ValueError for a value that has no effect with the value of another field.

        Args:
          names: the fields to check: those that the user gave, not those of an earlier run.
        """
        fields = {field.name: field for field in dataclasses.fields(self)}
        for name in names:
            value = getattr(self, name)
            needs = fields[name].metadata["needs"]
            if value == fields[name].default or not needs:
                continue
            other, *allowed = needs
            other_value = getattr(self, other)
            # A field may list several values.
            others = {other_value, *str(other_value).split(",")}
            if allowed and others.isdisjoint(allowed):
                raise ValueError(
                    f"{name}={value} has no effect with {other} {other_value or 'empty'}; leave it "
                    f"out, or choose {' or '.join(allowed)}."
                )
            if not allowed and other_value == fields[other].default:
                raise ValueError(
                    f"{name}={value} has no effect without {other}; give {other} as well, or leave "
                    f"{name} out."
                )

    def _check_conflicts(self) -> None:
        for field in dataclasses.fields(self):
            for other in field.metadata["conflicts"]:
                if is_set([self], field.name) and is_set([self], other):
                    raise ValueError(f"{field.name} contradicts {other}; leave one of them out.")

    def to_dict(self) -> dict[str, Any]:
        """Returns the fields in declared order."""
        return dataclasses.asdict(self)

    @classmethod
    def names(cls, **metadata: bool) -> list[str]:
        """Returns the fields with this metadata, see `option`; all fields without arguments."""
        names = []
        for field in dataclasses.fields(cls):
            if all(field.metadata[key] == value for key, value in metadata.items()):
                names.append(field.name)
        return names

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Creates the object from a dict.

        Raises:
          ValueError: on an unknown key or a value out of range.
        """
        known = cls.names()
        unknown = sorted(set(values) - set(known))
        if unknown:
            raise ValueError(f"{cls.__name__}: unknown keys {unknown}; known keys are {known}.")
        return cls(**values)

    @classmethod
    def from_texts(cls, texts: Mapping[str, str]) -> Self:
        """Creates the object from recorded texts by name; "" and other names are left out.

        Raises:
          ValueError: if a text is no value of its field.
        """
        types = typing.get_type_hints(cls)
        values: dict[str, Any] = {}
        for name in cls.names():
            if text := texts.get(name, ""):
                # bool("false") is True.
                values[name] = text == "true" if types[name] is bool else types[name](text)
        return cls(**values)


def check_value(field: dataclasses.Field, kind: type, value: Any) -> None:
    """Raises ValueError or TypeError if `value` does not fit the field's type and range."""
    # JSON and command lines may have 1 for 1.0.
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    # bool is a subclass of int.
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise TypeError(
            f"{field.name}: expected {kind.__name__}, received {value!r} ({type(value).__name__})."
        )
    choices = field.metadata["choices"]
    lower = field.metadata["lower"]
    upper = field.metadata["upper"]
    if choices and value not in choices:
        raise ValueError(f"{field.name}: received {value!r}, expected one of {list(choices)}.")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{field.name}: received {value}, expected a finite number.")
    if lower is not None and value < lower:
        raise ValueError(f"{field.name}: received {value}, expected at least {lower}.")
    if upper is not None and value > upper:
        raise ValueError(f"{field.name}: received {value}, expected at most {upper}.")
