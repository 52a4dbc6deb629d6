"""Finds a `--flagfile` in the current folder, beside the file that names it, or in the package."""

import pathlib
from collections.abc import Sequence

_PACKAGE = pathlib.Path(__file__).resolve().parent
# An installed package carries the flagfiles inside it; in the source tree they stand beside it.
SHIPPED = next((f for f in (_PACKAGE / "configs", _PACKAGE.parent / "configs") if f.is_dir()), None)
# What a flagfile's line gives way to, if that is given beside the flagfile: programs take a number
# of steps before a share of them.
REPLACED = {
    "warmup_proportion": "num_warmup_steps",
    "cooldown_proportion": "num_cooldown_steps",
}


def expanded(arguments: Sequence[str]) -> list[str]:
    """Replaces arguments that name flagfiles by the lines of those files.

    As in absl, the lines take the place of the argument, so that the last value wins, `#` and `//`
    begin comments, and a flagfile may name others. Unlike absl, it finds `base.flags` and
    `configs/base.flags` from any folder, and leaves out what `REPLACED` names.

    Args:
      arguments: a command line, starting with the program's name. `--` ends the search.

    Raises:
      OSError: if a flagfile cannot be read; ValueError: if one names itself.
    """
    given = list(arguments)
    end = given.index("--") if "--" in given else len(given)
    return [*given[:1], *_lines(given[1:end], ()), *given[end:]]


def _lines(arguments: Sequence[str], inside: tuple[pathlib.Path, ...]) -> list[str]:
    result: list[str] = []
    rest = iter(arguments)
    given = set(map(_name, arguments))
    replaced = {REPLACED[name] for name in given & REPLACED.keys()} - given
    for argument in rest:
        name, equals, value = argument.partition("=")
        if name not in ("--flagfile", "-flagfile"):
            result.append(argument)
            continue
        path = _found(value if equals else next(rest, ""), inside)
        if path.resolve() in inside:
            raise ValueError(
                f"{inside[-1]} includes {path}, which includes it: remove one of the two."
            )
        if not path.is_file():
            shipped = sorted(file.name for file in SHIPPED.glob("*.flags")) if SHIPPED else ["none"]
            raise FileNotFoundError(
                f"there is no file {path}; the package's flagfiles are {', '.join(shipped)}."
            )
        text = map(_stripped, path.read_text(encoding="utf8").splitlines())
        flags = [line for line in text if line and not line.startswith(("#", "//"))]
        lines = _lines(flags, (*inside, path.resolve()))
        result += [line for line in lines if _name(line) not in replaced]
    return result


def _name(argument: str) -> str:
    return argument.partition("=")[0].lstrip("-")


def _stripped(line: str) -> str:
    """Returns a line without white space around it; a prompt keeps the space at its end."""
    is_prompt = line.partition("=")[0].endswith("_prompt")
    return line.lstrip() if is_prompt else line.strip()


def _found(name: str, inside: tuple[pathlib.Path, ...]) -> pathlib.Path:
    """Returns the first path that exists, or the name unchanged."""
    path = pathlib.Path(name).expanduser()
    places = [path]
    if inside:
        places.append(inside[-1].parent / path)
    if SHIPPED and path.parent in (pathlib.Path(), pathlib.Path("configs")):
        places.append(SHIPPED / path.name)
    return next((place for place in places if place.is_file()), path)
