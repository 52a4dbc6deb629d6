"""Finds a `--flagfile` in the current folder, next to the file that names it, or in the package."""

import os
import pathlib
import re
from collections.abc import Sequence

from bert_tf.system.bounded_files import read_text

_PACKAGE = pathlib.Path(__file__).resolve().parents[1]
# An installed package contains the flagfiles; in the source tree they are next to the package.
SHIPPED = next((f for f in (_PACKAGE / "configs", _PACKAGE.parent / "configs") if f.is_dir()), None)
RECORD = re.compile(r"# \w+Config\n")  # first line of a run.flags, see `config_flags.flagfile`
MAX_BYTES = 1 << 20
# Flagfiles that name others, each as often as it is named: a chain of 30 files, each of which names
# the next one twice, would be a billion.
MAX_FILES = 100
# Lines of a flagfile that are dropped if the other flag is given in addition to the flagfile,
# because programs prefer a number of steps to a share of them.
REPLACED = {
    "warmup_proportion": {"num_warmup_steps", "warmup"},
    "cooldown_proportion": {"num_cooldown_steps", "cooldown"},
}


def expanded(arguments: Sequence[str], with_records: bool = True) -> list[str]:
    """Replaces arguments that name flagfiles by the lines of those files.

    As in absl, the lines replace the argument, so that the last value wins, `#` and `//` begin
    comments, and a flagfile may name others. Unlike absl, it finds `base.flags` and
    `configs/base.flags` from any folder, and drops the lines that `REPLACED` names.

    Args:
      arguments: a command line, starting with the program's name. `--` ends the search.
      with_records: whether to read the records of runs, which programs write.

    Raises:
      OSError: if a flagfile cannot be read.
      ValueError: if it names itself, has more than `MAX_BYTES`, or more than `MAX_FILES` are named.
    """
    given = list(arguments)
    end = given.index("--") if "--" in given else len(given)
    return [*given[:1], *_lines(given[1:end], (), [], with_records), *given[end:]]


def _lines(
    arguments: Sequence[str],
    inside: tuple[str, ...],
    opened: list[pathlib.Path],
    with_records: bool,
) -> list[str]:
    """Returns the arguments, or the lines of a flagfile, with the lines of flagfiles.

    `inside` are the real paths of the flagfiles that these lines are from, the outermost first;
    flagfiles that are read here are appended to `opened`.
    """
    result: list[str] = []
    rest = iter(arguments)
    given = set(map(_name, arguments))
    replaced: set[str] = set()
    # A flag that is given in addition to the flagfile replaces its alternatives there.
    for name in given & REPLACED.keys():
        replaced |= REPLACED[name] - given
    for argument in rest:
        name, equals, value = argument.partition("=")
        if name not in ("--flagfile", "-flagfile"):
            result.append(argument)
            continue
        # Either --flagfile=NAME, or the name as the next argument.
        path = _found(value if equals else next(rest, ""), inside)
        # Unlike `resolve`, this also takes a link that leads to itself.
        real_path = os.path.realpath(path)
        if real_path in inside:
            raise ValueError(
                f"{inside[-1]} includes {path}, which includes it: remove one of the two."
            )
        if not path.is_file():
            shipped = sorted(file.name for file in SHIPPED.glob("*.flags")) if SHIPPED else ["none"]
            raise FileNotFoundError(
                f"there is no file {path}; the package's flagfiles are {', '.join(shipped)}."
            )
        opened.append(path)
        if len(opened) > MAX_FILES:
            raise ValueError(
                f"{opened[0]} and the flagfiles that it names are more than {MAX_FILES}, {path} "
                "among them; expected fewer."
            )
        content = read_text(path, most=MAX_BYTES)
        if RECORD.match(content) and not with_records:
            continue
        text = map(_stripped, content.splitlines())
        flags = [line for line in text if line and not line.startswith(("#", "//"))]
        lines = _lines(flags, (*inside, real_path), opened, with_records)
        result += [line for line in lines if _name(line) not in replaced]
    return result


def _name(argument: str) -> str:
    return argument.partition("=")[0].lstrip("-")


def _stripped(line: str) -> str:
    """Strips the white space around a line; a prompt keeps the space at its end."""
    is_prompt = line.partition("=")[0].endswith("_prompt")
    return line.lstrip() if is_prompt else line.strip()


def _found(name: str, inside: tuple[str, ...]) -> pathlib.Path:
    """Returns the first path that exists, or the name unchanged."""
    path = pathlib.Path(name).expanduser()
    candidates = [path]
    if inside:
        candidates.append(pathlib.Path(inside[-1]).parent / path)
    if SHIPPED and path.parent in (pathlib.Path(), pathlib.Path("configs")):
        candidates.append(SHIPPED / path.name)
    return next((candidate for candidate in candidates if candidate.is_file()), path)
