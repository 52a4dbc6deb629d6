"""Regular expressions that come from files, within a limit on their length and on the time."""

import os
import time

import regex

MAX_CHARACTERS = 1000
SECONDS = 1.0
# Counted repetitions of repetitions multiply while an expression is compiled, and recursion takes a
# gigabyte a second: neither stops at the limit on the time.
_UNBOUNDED = regex.compile(r"\{[0-9]+|\(\?(?!:)")


class BoundedPatterns:
    """Matches texts with expressions of a file, all of which share a limit on the time."""

    def __init__(self, source: str | os.PathLike, seconds: float = SECONDS) -> None:
        self.source = source
        self._seconds = seconds

    def matches(self, pattern: str, text: str, key: str) -> bool:
        """Returns whether a text matches an expression as a whole; `key` names its setting.

        Raises:
          ValueError: if it is too long or no expression, counts, recurs, or the time is up.
        """
        where = f"{self.source}: {key} has {pattern!r:.100}"
        if len(pattern) > MAX_CHARACTERS or _UNBOUNDED.search(pattern):
            raise ValueError(
                f"{where}; expected an expression of at most {MAX_CHARACTERS} characters without "
                "counts in braces and (?."
            )
        start = time.monotonic()
        try:
            found = regex.fullmatch(pattern, text, timeout=max(self._seconds, 1e-3))
        except (regex.error, RecursionError) as error:
            raise ValueError(f"{where}, which is no regular expression: {error}.") from None
        except TimeoutError:
            raise ValueError(
                f"{where}, which takes too long; expected names, or names with .* for any text."
            ) from None
        finally:
            self._seconds -= time.monotonic() - start
        return found is not None
