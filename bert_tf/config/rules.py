"""Tables of rules: the combinations of values that are refused, and the messages for them."""

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from bert_tf.config.combined import combined_form

# How messages name fields whose values have a form of their own in a combined flag.
FORMS = {"do_whole_word_mask": "--mask_unit=word", "use_next_sentence": "--pairs"}


class Rule(NamedTuple):
    """Whether configurations break the rule; and the message, in which c are the configurations."""

    is_broken: Callable[[Any], object]
    message: str


class Exclusion(NamedTuple):
    """A setting that excludes others.

    A setting is the name of a field that differs from its default, or NAME=VALUE as in a flag;
    `others` are several, with blanks between them.
    """

    setting: str
    reason: str
    others: str


def check_rules(rules: Iterable[Rule | Exclusion], configs: Any) -> None:
    """Raises ValueError for the first rule that is broken.

    Args:
      rules: those of `Rule` get `configs`.
      configs: for an `Exclusion`, the groups of a program's configuration.
    """
    for rule in rules:
        if isinstance(rule, Rule):
            if rule.is_broken(configs):
                raise ValueError(rule.message.format(c=configs))
        elif is_set(configs, rule.setting):
            for other in rule.others.split():
                if is_set(configs, other):
                    raise ValueError(
                        f"{spelled(configs, rule.setting)} {rule.reason}; it does not work with "
                        f"{spelled(configs, other)}: leave out or change one of them."
                    )


def is_set(groups: Iterable[Any], setting: str) -> bool:
    """Whether groups of a configuration have a setting; see `Exclusion`."""
    name, _, wanted = setting.partition("=")
    field, value = _find(groups, name)
    if wanted:
        return _text(value) == wanted
    return value != field.default


def _find(groups: Iterable[Any], name: str) -> tuple[dataclasses.Field, Any]:
    """Returns the field of this name, which only one group has, and its value."""
    for group in groups:
        for field in dataclasses.fields(group):
            if field.name == name:
                return field, getattr(group, name)
    raise KeyError(name)


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)


def spelled(groups: Iterable[Any], setting: str) -> str:
    """Returns a setting as a user writes its flag."""
    name = setting.partition("=")[0]
    field, value = _find(groups, name)
    form = FORMS.get(name, f"--{name}=VALUE")
    if name not in FORMS and field.metadata["within"]:
        form = combined_form(name, field.metadata["within"])
    return form.replace("VALUE", _text(value))
