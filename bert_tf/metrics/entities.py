"""Precision, recall and F1 of entities, as conlleval computes them from rows of tags.

A tag is O, B-TYPE or I-TYPE. In BIO (IOB2) B- starts every entity; in IOB1 B- starts only an entity
directly after another of its type, and I- starts the others. conlleval and this module read both
with one rule: an entity starts at B-, and at I- after O, after another type or at the start of a
sentence. So no function needs the scheme, and invalid sequences need no repair. Only the accuracy
per token compares the tags as written, so both sides must have the same scheme.

BIOES and BILOU are read as well: S- and U- are an entity of one token, E- and L- end one, and the
next token begins another entity.

Reference: conlleval of the CoNLL-2000 shared task (Tjong Kim Sang and Buchholz 2000), version
2004-01-26; Ramshaw and Marcus 1995 for IOB1; Ratinov and Roth 2009 for BILOU.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple


class Span(NamedTuple):
    """An entity: its type and the tokens from `start` up to, but not with, `end`."""

    type: str
    start: int
    end: int


class EntityScores(NamedTuple):
    """Scores in percent, and counts: true, found and correctly found entities."""

    precision: float
    recall: float
    f1: float
    support: int
    found: int
    correct: int


class EntityReport(NamedTuple):
    """Scores of all entities and of each type in the order of the names, and of the tokens.

    `accuracy` is the percentage of the tokens whose two tags are the same.
    """

    overall: EntityScores
    types: dict[str, EntityScores]
    accuracy: float
    tokens: int


def spans(tags: Sequence[str]) -> list[Span]:
    """Returns the entities of the tags of one sentence, in order, also of invalid sequences.

    Args:
      tags: O, B-TYPE or I-TYPE for each token, or S-, U-, E- or L-TYPE. The type is the text after
        the first hyphen and may contain hyphens; B and I may also have no hyphen and type.

    Raises:
      ValueError: a tag of another form.

    Example: I-PER I-PER O I-LOC B-LOC I-ORG gives PER 0-2, LOC 3-4, LOC 4-5 and ORG 5-6.
    """
    entities: list[Span] = []
    last = ("O", "")
    for index, tag in enumerate(tags):
        part, kind = current = _split(tag, index)
        if part != "O":
            # A new entity starts at B-, S- and U-, after an end, and where the type changes.
            if part in "BSU" or last[0] in "OSUEL" or last[1] != kind:
                entities.append(Span(kind, index, index + 1))
            else:
                entities[-1] = entities[-1]._replace(end=index + 1)
        last = current
    return entities


def join_words(
    labels: Sequence[str], text: str, words: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Joins the tagged words of a text to entities.

    Args:
      labels: the labels of the tagger; if they do not follow a scheme above, each word with a label
        other than O is an entity.
      words: dicts with `label`, `score`, `start` and `end` in characters.

    Returns:
      A dict per entity: `type`, `start`, `end`, `text`, and `score`, the lowest of its words'.
    """
    # Labels of another form, such as parts of speech, are rejected by `spans`.
    try:
        spans(labels)
        join = spans
    except ValueError:
        join = _single_words
    entities = []
    for kind, first, last in join([word["label"] for word in words]):
        start = words[first]["start"]
        end = words[last - 1]["end"]
        score = min(word["score"] for word in words[first:last])
        entity = {"type": kind, "start": start, "end": end, "text": text[start:end]}
        entities.append({**entity, "score": score})
    return entities


def _single_words(tags: Sequence[str]) -> list[Span]:
    """Returns a span for each word whose tag is not O."""
    return [Span(tag, index, index + 1) for index, tag in enumerate(tags) if tag != "O"]


def evaluate_entities(
    true_rows: Sequence[Sequence[str]], predicted_rows: Sequence[Sequence[str]]
) -> EntityReport:
    """Scores predicted tags of sentences against true ones, as conlleval.

    No entity continues in the next sentence. A quotient with a denominator of 0 counts as 0.

    Args:
      true_rows: tags of each sentence, see `spans`, without the tokens that have no tag.
      predicted_rows: as many rows of the same lengths.

    Raises:
      ValueError: unequal numbers of rows or lengths, no token, or a tag of another form.

    Reference: conlleval; seqeval's default mode gives the same as fractions.
    """
    if len(true_rows) != len(predicted_rows):
        raise ValueError(
            f"{len(predicted_rows)} rows of predicted tags for {len(true_rows)} of true ones;"
            " expected one for each: predict every sentence."
        )
    true = Counter[str]()
    found = Counter[str]()
    correct = Counter[str]()
    tokens = same = 0
    for number, (true_row, predicted_row) in enumerate(zip(true_rows, predicted_rows, strict=True)):
        if len(true_row) != len(predicted_row):
            raise ValueError(
                f"row {number} has {len(predicted_row)} predicted tags for {len(true_row)} true"
                " ones; expected one for each token: was the sentence cut at max_seq_length?"
            )
        true_spans = _row_spans(true_row, number)
        predicted_spans = _row_spans(predicted_row, number)
        true.update(span.type for span in true_spans)
        found.update(span.type for span in predicted_spans)
        # Spans of one sentence are distinct, so sets lose none.
        correct.update(span.type for span in set(true_spans) & set(predicted_spans))
        tokens += len(true_row)
        same += sum(a == b for a, b in zip(true_row, predicted_row, strict=True))
    if not tokens:
        raise ValueError(
            f"{len(true_rows)} rows without a token; expected at least one tagged token."
        )
    # A type may occur on one side only.
    types = {}
    for name in sorted(true | found):
        types[name] = _scores(true[name], found[name], correct[name])
    overall = _scores(true.total(), found.total(), correct.total())
    return EntityReport(overall, types, 100 * same / tokens, tokens)


def format_conlleval(report: EntityReport) -> str:
    """Returns the lines that conlleval prints; each type's last number is that of found ones."""
    overall = report.overall
    lines = [
        f"processed {report.tokens} tokens with {overall.support} phrases;"
        f" found: {overall.found} phrases; correct: {overall.correct}.",
        f"accuracy: {report.accuracy:6.2f}%; {_columns(overall)}",
    ]
    for name, scores in report.types.items():
        lines.append(f"{name:>17}: {_columns(scores)}  {scores.found}")
    return "\n".join(lines) + "\n"


def _split(tag: str, index: int) -> tuple[str, str]:
    """Returns the part, a letter of the scheme, and the type."""
    part, hyphen, kind = tag.partition("-")
    if part not in ("B", "I") and tag != "O" and not (hyphen and part in ("S", "U", "E", "L")):
        raise ValueError(
            f"tag {tag!r} at token {index}; expected O, B-TYPE or I-TYPE, or those of BIOES or "
            "BILOU: bring other schemes into BIO first."
        )
    return part, kind


def _row_spans(tags: Sequence[str], number: int) -> list[Span]:
    try:
        return spans(tags)
    except ValueError as error:
        raise ValueError(f"row {number}: {error}") from None


def _scores(true: int, found: int, correct: int) -> EntityScores:
    precision = 100 * correct / found if found else 0.0
    recall = 100 * correct / true if true else 0.0
    total = precision + recall
    score = 2 * precision * recall / total if total else 0.0
    return EntityScores(precision, recall, score, true, found, correct)


def _columns(scores: EntityScores) -> str:
    return (
        f"precision: {scores.precision:6.2f}%; recall: {scores.recall:6.2f}%; FB1: {scores.f1:6.2f}"
    )
