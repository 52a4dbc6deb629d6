"""Spans of a text or of its words, as annotation tools write them, and the tags of the words.

    [0, 5, "LOC"]                                           characters, end excluded
    {"start_offset": 0, "end_offset": 5, "label": "LOC"}    the same
    [0, 0, "LOC"]                                           words, end included

Characters and words are counted from 0.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from bert_tf.metrics.entities import spans as entity_spans
from bert_tf.tasks.base.examples.offsets import code_points
from bert_tf.tasks.base.examples.row_errors import RowError, is_void
from bert_tf.text.unicode_tables import is_deleted, is_isolated, is_whitespace

# Keys of spans that are objects:
_START = ("start", "start_offset", "begin")
_END = ("end", "end_offset", "stop")
_LABEL = ("label", "labels", "type", "tag", "entity", "entity_group")


def are_spans(values: object) -> bool:
    """Returns whether values are a list of spans, by the first of them."""
    return isinstance(values, list) and bool(values) and isinstance(values[0], list | dict)


def _span_parts(value: object) -> tuple[Any, Any, Any]:
    """Returns start, end and label of a span, a list or an object; missing parts are None."""
    if isinstance(value, dict):
        start = _first_value(value, _START)
        end = _first_value(value, _END)
        label = _first_value(value, _LABEL)
        if isinstance(label, list) and len(label) == 1:
            # Label Studio writes a list of one label.
            label = label[0]
        return start, end, label
    if isinstance(value, list) and len(value) == 3:
        return value[0], value[1], value[2]
    return None, None, None


def _first_value(span: dict[str, Any], names: Sequence[str]) -> Any:
    """Returns the value of the first name that a span has; None if it has none."""
    for name in names:
        if name in span:
            return span[name]
    return None


def _is_offset(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


class Span(NamedTuple):
    """A labelled span of characters, end excluded, or of words, end included."""

    start: int
    end: int
    label: str


def read_spans(values: object, key: str, where: str) -> list[Span]:
    """Reads spans given as lists [start, end, label] or as objects; returns them sorted."""
    if not isinstance(values, list):
        raise RowError(f"{where}: {key!r} is {values!r:.40}, expected a list of spans")
    spans = set()  # Several annotators may have marked the same.
    for value in values:
        if isinstance(value, dict) and is_void(value):
            raise RowError(
                f"{where}: {key!r} holds {value!r:.80}, which was rejected", "Delete such spans."
            )
        start, end, label = _span_parts(value)
        has_label = isinstance(label, str) and label.strip()
        if not (_is_offset(start) and _is_offset(end) and has_label):
            raise RowError(
                f"{where}: {key!r} holds {value!r:.60}, expected [start, end, label] with whole "
                "numbers and a name"
            )
        spans.add(Span(start, end, label.strip()))
    return sorted(spans)


def read_text_spans(values: object, key: str, text: str, unit: str, where: str) -> list[Span]:
    """Reads spans of a text, in code points, whose offsets are counted in a unit of `offsets`."""
    spans = []
    for span in read_spans(values, key, where):
        try:
            start = code_points(text, span.start, unit)
            end = code_points(text, span.end, unit)
        except ValueError as error:
            raise RowError(f"{where}: span {[*span]}: {error}") from None
        if end > len(text):
            raise RowError(
                f"{where}: span [{start}, {end}, {span.label!r}] ends after the end of the text, "
                f"which has {len(text)} characters",
                "Count characters of this text, from 0.",
            )
        spans.append(Span(start, end, span.label))
    return spans


def tags_of_spans(
    spans: Sequence[Span], words: Sequence[str], offsets: Sequence[tuple[int, int]], where: str
) -> tuple[str, ...]:
    """Returns the B- and I- tags of words.

    Args:
      spans: sorted spans of characters, end excluded; without offsets, spans of words, end
        included.
      offsets: start and end of each word in the text; () if the spans are of words.
    """
    tags = ["O"] * len(words)
    for span in spans:
        shown = f"{where}: span [{span.start}, {span.end}, {span.label!r}]"
        if not offsets:
            if not 0 <= span.start <= span.end < len(words):
                raise RowError(f"{shown} is not within the {len(words)} words")
            inside = list(range(span.start, span.end + 1))
        else:
            inside = []
            for index, (start, end) in enumerate(offsets):
                if start < span.end and end > span.start:
                    inside.append(index)
            if not inside or span.start < 0:
                raise RowError(f"{shown} contains no word of the text")
            # A word that is partly in the span cannot get a tag that says so.
            if offsets[inside[0]][0] < span.start:
                raise RowError(f"{shown} begins within the word {words[inside[0]]!r}")
            if offsets[inside[-1]][1] > span.end:
                raise RowError(f"{shown} ends within the word {words[inside[-1]]!r}")
        for index in inside:
            if tags[index] != "O":
                raise RowError(
                    f"{shown} overlaps another at {words[index]!r}",
                    "A word has one tag: keep one of the spans.",
                )
            prefix = "B" if index == inside[0] else "I"
            tags[index] = f"{prefix}-{span.label}"
    return tuple(tags)


def word_offsets(text: str) -> Iterator[tuple[int, int]]:
    """Yields start and end of each word.

    Words are separated as in BERT's tokenizers: at white space, and around punctuation and CJK
    characters.
    """
    start = -1  # no word has begun
    for index, char in enumerate(text):
        is_word = is_isolated(char)  # punctuation or CJK
        is_between = char.isspace() or is_whitespace(char) or is_deleted(char)
        if start >= 0 and (is_between or is_word):
            yield start, index
            start = -1
        if is_word:
            yield index, index + 1
        elif start < 0 and not is_between:
            start = index
    if start >= 0:
        yield start, len(text)


def spans_of_tags(tags: Sequence[str], offsets: Sequence[tuple[int, int]]) -> list[list[Any]]:
    """Returns [start, end, label] of each entity, in the format that `tags_of_spans` reads.

    Args:
      tags: B- and I- tags of words; other tags have no entities.
    """
    try:
        entities = entity_spans(tags)
    except ValueError:
        # Tags that do not mark spans, such as parts of speech, have no entities.
        return []
    spans: list[list[Any]] = []
    for entity in entities:
        if offsets:
            # Characters, end excluded.
            start, _ = offsets[entity.start]
            _, end = offsets[entity.end - 1]
            spans.append([start, end, entity.type])
        else:
            # Words, end included.
            spans.append([entity.start, entity.end - 1, entity.type])
    return spans
