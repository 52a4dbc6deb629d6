"""Earlier names of flags and arguments, which are accepted with one warning each."""

import functools
from collections.abc import Callable, Mapping
from typing import ParamSpec, TypeVar

from absl import logging

# Earlier name -> name, of flags and of the arguments of methods.
RENAMED = {
    "may_miss": "allow_missing",
    "may_ignore": "allow_unexpected",
    "label_kind": "problem_type",
}
# Earlier values, by the setting's name of today.
RENAMED_VALUES = {
    "problem_type": {"class": "single_label", "number": "regression", "several": "multi_label"},
}

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
Value = TypeVar("Value")


def new_value(name: str, value: str) -> str:
    """Returns the value of a setting, replaced if it is an earlier spelling.

    Args:
      name: the setting's name of today.
      value: its value.
    """
    return RENAMED_VALUES.get(name, {}).get(value, value)


def with_new_settings(settings: Mapping[str, Value]) -> dict[str, Value | str]:
    """Returns recorded settings with the names and values of today."""
    renamed: dict[str, Value | str] = {}
    for earlier, value in settings.items():
        name = RENAMED.get(earlier, earlier)
        renamed[name] = new_value(name, value) if isinstance(value, str) else value
    return renamed


@functools.cache
def warn_of_earlier_name(earlier: str, name: str) -> None:
    """Logs once per process that an earlier name was used."""
    logging.warning("%s is now called %s; the earlier name still works.", earlier, name)


def accepts_earlier_names(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Lets a function take keyword arguments by the earlier names of `RENAMED`.

    Raises:
      ValueError: if an argument is given by both names.
    """

    @functools.wraps(function)
    def accepting(*arguments: Parameters.args, **options: Parameters.kwargs) -> Result:
        for earlier in RENAMED.keys() & options.keys():
            name = RENAMED[earlier]
            if name in options:
                raise ValueError(f"{earlier} is the earlier name of {name}: give one of them.")
            warn_of_earlier_name(earlier, name)
            (options[name],) = with_new_settings({earlier: options.pop(earlier)}).values()
        return function(*arguments, **options)

    return accepting


def with_new_names(arguments: list[str], defined: Callable[[str], bool]) -> list[str]:
    """Returns a command line with earlier names of flags replaced by their names.

    Args:
      arguments: command line without flagfiles. `--` ends the flags.
      defined: whether the program has a flag.
    """
    end = arguments.index("--") if "--" in arguments else len(arguments)
    renamed: list[str] = []
    valued = ""  # The renamed flag whose value is the next argument.
    for argument in arguments[:end]:
        flag, equals, value = argument.partition("=")
        earlier = flag.lstrip("-")
        if valued:
            argument = new_value(valued, argument)
            valued = ""
        elif flag.startswith("-") and earlier in RENAMED and defined(RENAMED[earlier]):
            name = RENAMED[earlier]
            warn_of_earlier_name(f"--{earlier}", f"--{name}")
            argument = f"--{name}{equals}{new_value(name, value)}"
            valued = "" if equals else name
        renamed.append(argument)
    return renamed + arguments[end:]
