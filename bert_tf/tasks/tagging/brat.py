"""Reads brat's standoff format: entities in NAME.ann, and their text in NAME.txt.

    T1<tab>LOC 0 5<tab>Paris

Relations, events, attributes and notes are not read. Each line of the text is a sentence.

Reference: brat.nlplab.org/standoff.html.
"""

import contextlib
import pathlib
import re
from collections.abc import Iterator

from bert_tf.system.files import read_lines
from bert_tf.tasks.base.examples.offsets import code_points, find_unit, is_at
from bert_tf.tasks.base.examples.row_errors import RowError
from bert_tf.tasks.base.examples.tables import Row, read_plain_text

BRAT = ".ann"
_ENTITY = re.compile(r"T\S+\t(\S+) ([0-9]+) ([0-9]+(?:;[0-9]+ [0-9]+)*)\t(.*)")


def read_brat(path: str) -> Iterator[tuple[str, Row]]:
    """Yields the location of each line of the text, and a row of "text" and "label" with spans.

    Raises:
      ValueError: naming file and line, if there is no text, or an entity is in several parts, in
        several lines, or not the text at its offsets.
    """
    text_path = pathlib.Path(path).with_suffix(".txt")
    if not text_path.is_file():
        raise ValueError(
            f"{path} has entities of brat, but there is no {text_path} with their text; put it "
            "beside, under this name."
        )
    text = "\n".join(read_lines(text_path))
    entities = list(_entities(path))

    def count_wrong(unit: str) -> int:
        return sum(not is_at(words, text, start, unit) for _, start, _, _, words in entities)

    unit = find_unit(count_wrong, path)
    spans = []
    for where, start, end, label, words in entities:
        with contextlib.suppress(ValueError):  # Then the text at the offsets is another.
            start = code_points(text, start, unit)
            end = code_points(text, end, unit)
        if text[start:end] != words or "\n" in words:
            raise RowError(
                f"{where}: {words!r:.80} is not the text from {start} to {end} in one line of "
                f"{text_path}, which has {text[start:end]!r:.80}"
            )
        spans.append((start, end, label))
    begin = 0
    for number, line in enumerate(text.split("\n"), start=1):
        end_of_line = begin + len(line)
        if line.strip():
            inside = [
                [start - begin, end - begin, label]
                for start, end, label in spans
                if begin <= start < end_of_line
            ]
            yield f"{text_path} line {number}", {"text": line, "label": inside}
        begin = end_of_line + 1


def _entities(path: str) -> Iterator[tuple[str, int, int, str, str]]:
    """Yields location, start, end, type and text of each entity."""
    for where, line in read_plain_text(path):
        if not line.startswith("T"):
            continue
        match = _ENTITY.fullmatch(line)
        if match is None or ";" in match[3]:
            raise ValueError(
                f"{where}: {line!r:.80}; expected an entity in one part: T1, a tab, LOC 0 5, a "
                "tab and its text. Join or delete entities in several parts."
            )
        yield where, int(match[2]), int(match[3]), match[1], match[4]
