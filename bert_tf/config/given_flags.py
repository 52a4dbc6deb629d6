"""Checks of flags that are in no configuration: missing ones, and those without effect."""

import os
import pathlib
from collections.abc import Iterable, Mapping

from absl import flags

from bert_tf.system.files import check_writable


def check_given(*names: str, advice: str = "give it") -> None:
    """Raises ValueError for the first of these flags that is empty."""
    for name in names:
        if not flags.FLAGS[name].value:
            raise ValueError(f"--{name} is empty; {advice}.")


def check_needs(needs: Mapping[str, str]) -> None:
    """Raises ValueError for a flag that is given but has no effect.

    Args:
      needs: by flag, the settings of which it needs one, with blanks between them: the name of a
        flag, or NAME=VALUE.
    """
    for name, settings in needs.items():
        if flags.FLAGS[name].present and not any(map(_is_set, settings.split())):
            raise ValueError(f"--{name} needs --{' or --'.join(settings.split())}.")


def check_unused(names: Iterable[str], reason: str) -> None:
    """Raises ValueError, with the reason, for a flag that has another value than its default."""
    for name in names:
        flag = flags.FLAGS[name]
        if flag.value != flag.default:
            raise ValueError(f"--{name}={flag.value}: {reason}; leave the flag out.")


def _is_set(setting: str) -> bool:
    name, _, wanted = setting.partition("=")
    value = flags.FLAGS[name].value
    return value == wanted if wanted else bool(value)


def check_new_file(name: str) -> None:
    """Raises ValueError if the file of a flag exists or cannot be written."""
    path = str(flags.FLAGS[name].value)
    if os.path.lexists(pathlib.Path(path).expanduser()):
        raise ValueError(f"--{name} {path} exists; delete it or name another.")
    check_writable(path, name)
