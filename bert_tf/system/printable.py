"""Escapes text from files, servers and other machines before a terminal shows it.

Terminals interpret control characters: names of tensors, labels, file names and messages of servers
could clear the screen, hide text, or imitate a line of this program. All output of a program goes
through `show`, `print_error` or `LogFormatter`, so messages need no escaping elsewhere. Letters of
all languages are unchanged.
"""

import json
import logging
import os
import pathlib
import re
import sys
import traceback
import types

# Control characters except tab and line feed, marks of the writing direction, line separators, and
# halves of surrogate pairs, which represent bytes that are not UTF-8.
_CONTROLS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
# Further lines of a message are indented, as others would look like another message.
_FOREIGN_BREAK = re.compile(r"\n(?![ \t])")


def escaped(text: object) -> str:
    r"""Returns text on one line, with escapes for control characters and line breaks.

    >>> escaped("weight\n\x1b[2Jmü")
    'weight\\n\\x1b[2Jmü'
    """
    return escaped_lines(str(text)).replace("\n", r"\n").replace("\t", r"\t")


def escaped_lines(text: str) -> str:
    """Returns text of several lines with escapes for control characters other than line breaks."""
    return _CONTROLS.sub(_escape, text)


def message(text: str) -> str:
    """Returns a message that cannot be mistaken for several messages.

    Line breaks stay where the next line is indented, as our own messages of several lines are; all
    others are escaped.
    """
    return _FOREIGN_BREAK.sub(r"\\n", escaped_lines(text.strip("\n")))


def first_line(error: BaseException) -> str:
    """Returns the first line of an error's message without a period, or the name of its type."""
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")


def json_line(value: object) -> str:
    """Returns JSON on one line that a terminal shows as it is, and that parses to the same value.

    Raises:
      TypeError: if the value has no form in JSON.
    """
    # Outside of strings JSON has no control characters, and inside these escapes are its own.
    return _CONTROLS.sub(_escape_for_json, json.dumps(value, ensure_ascii=False))


def show(text: str = "") -> None:
    """Prints text of several lines to standard output; cells with foreign text: see `escaped`."""
    print(escaped_lines(text), flush=True)


def open_closed_streams() -> None:
    """Opens the null device for standard streams that were closed, as by `>&-` in a shell."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        # Else the next file to be opened has the descriptor, and gets what C++ code prints.
        if getattr(sys, name) is None:
            setattr(sys, name, pathlib.Path(os.devnull).open(mode, encoding="utf8"))


def print_error(text: str) -> None:
    """Prints the line of an error to standard error."""
    print_notice(f"ERROR: {text}")


def print_notice(text: str) -> None:
    """Prints a message to standard error."""
    print(message(text), file=sys.stderr, flush=True)


class LogFormatter(logging.Formatter):
    """Escapes the arguments of a log line, and the line itself."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(message)s", "%H:%M:%S")

    def formatMessage(self, record: logging.LogRecord) -> str:
        record.message = message(_with_escaped_arguments(record).getMessage())
        return super().formatMessage(record)

    def format(self, record: logging.LogRecord) -> str:
        return escaped_lines(super().format(record))  # With the traceback, if there is one.


def show_uncaught(
    kind: type[BaseException], error: BaseException, trace: types.TracebackType | None
) -> None:
    """Prints a traceback, as `sys.excepthook` does."""
    text = "".join(traceback.format_exception(kind, error, trace))
    print(escaped_lines(text), end="", file=sys.stderr)


def _with_escaped_arguments(record: logging.LogRecord) -> logging.LogRecord:
    """Returns a record whose texts, paths and errors are escaped; "%s" alone is a whole message."""
    if record.msg == "%s" or not isinstance(record.args, tuple):
        return record
    changed = logging.makeLogRecord(vars(record))
    texts = (str, os.PathLike, BaseException)
    changed.args = tuple(
        escaped(value) if isinstance(value, texts) else value for value in record.args
    )
    return changed


def _escape(match: re.Match[str]) -> str:
    return repr(match[0])[1:-1]


def _escape_for_json(match: re.Match[str]) -> str:
    return f"\\u{ord(match[0]):04x}"
