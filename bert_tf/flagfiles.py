"""Finds a `--flagfile` in the current folder, beside the file that names it, or in the package."""

import pathlib
from collections.abc import Sequence

_PACKAGE = pathlib.Path(__file__).resolve().parent
# An installed package carries the flagfiles inside it; in the source tree they stand beside it.
SHIPPED = next((f for f in (_PACKAGE / "configs", _PACKAGE.parent / "configs") if f.is_dir()), None)


def expanded(arguments: Sequence[str]) -> list[str]:
    """Replaces arguments that name flagfiles by the lines of those files.

    As in absl, the lines take the place of the argument, so that the last value wins, `#` and `//`
    begin comments, and a flagfile may name others. Unlike absl, it finds `base.flags` and
    `configs/base.flags` from any folder.

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
        lines = map(_stripped, path.read_text(encoding="utf8").splitlines())
        flags = [line for line in lines if line and not line.startswith(("#", "//"))]
        result += _lines(flags, (*inside, path.resolve()))
    return result


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
