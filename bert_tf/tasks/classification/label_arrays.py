"""Labels of examples as arrays of numbers, the names of all labels, and their counts."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from bert_tf.tasks.base.examples.labels import LabelNames, unify_spellings
from bert_tf.tasks.classification.examples import TextExample, number_of, split_labels

MAX_SHOWN = 10
MAX_COUNTS = 20
_INTEGER = re.compile(r"[+-]?[0-9]+")


def label_names(examples: Iterable[TextExample], is_multi_label: bool = False) -> tuple[str, ...]:
    """Returns the labels that occur: by value if all are integers, else in the order of text.

    Spellings of one label are unified, see `tasks.base.examples.labels`. Several labels are
    separated by "|"; "" is the empty set.
    """
    found: dict[str, None] = {}
    for example in examples:
        for name in split_labels(example.label) if is_multi_label else (example.label,):
            if name == "":
                raise ValueError(
                    f"{example.source}: the label is empty; name the class, or delete the row."
                )
            if name is not None:
                found[name] = None
    if not found:
        raise ValueError("no example has a label; check --label_column.")
    names = unify_spellings(found)
    if all(map(_INTEGER.fullmatch, names)):
        # By value: 10 after 9. Equal values, such as 1 and +1, are sorted as text.
        return tuple(sorted(names, key=lambda name: (int(name), name)))
    return tuple(sorted(names))


def label_array(examples: Sequence[TextExample], labels: Sequence[str], kind: str) -> np.ndarray:
    """Returns the labels in the format of the losses: int32 [n], float32 [n] or float32 [n, C].

    Args:
      examples: n examples.
      labels: C names of classes; () for regression.
      kind: `single_label`, `regression` or `multi_label`.
    """
    if kind == "regression":
        return label_values(examples)
    if kind == "multi_label":
        return label_rows(examples, labels)
    return label_ids(examples, labels)


def label_ids(examples: Sequence[TextExample], labels: Sequence[str]) -> np.ndarray:
    """Returns the index of each example's label in `labels`: int32 [n]; -1: unlabelled."""
    known = LabelNames(labels)
    _check_known([(example, (example.label,)) for example in examples], known)
    indices = [-1 if example.label is None else known.find(example.label) for example in examples]
    return np.array(indices, np.int32)


def label_rows(examples: Sequence[TextExample], labels: Sequence[str]) -> np.ndarray:
    """Returns 1 where an example has a label, which are separated by "|", else 0: float32 [n, C].

    The row of an unlabelled example is 0, like that of an example with no label.
    """
    known = LabelNames(labels)
    names = [split_labels(example.label) for example in examples]
    _check_known(list(zip(examples, names, strict=True)), known)
    rows = np.zeros((len(examples), len(labels)), np.float32)
    for row, of_row in zip(rows, names, strict=True):
        for name in of_row:
            row[known.find(name)] = 1
    return rows


def label_values(examples: Sequence[TextExample]) -> np.ndarray:
    """Returns the labels as numbers, for regression: float32 [n]; NaN: unlabelled."""
    values = []
    for example in examples:
        label = example.label
        values.append(math.nan if label is None else number_of(label, example.source))
    return np.array(values, np.float32)


def _check_known(
    rows: Sequence[tuple[TextExample, Sequence[str | None]]], known: LabelNames
) -> None:
    """Raises ValueError if a label of a row is unknown."""
    unknown: list[tuple[TextExample, str]] = []
    for example, names in rows:
        bad = [name for name in names if name is not None and known.find(name) is None]
        if bad:
            unknown.append((example, bad[0]))
    if unknown:
        example, name = unknown[0]
        count = len(known.names)
        shown = ", ".join(map(repr, known.names[:MAX_SHOWN]))
        more = f" and {count - MAX_SHOWN} more" if count > MAX_SHOWN else ""
        raise ValueError(
            f"{example.source}: label {name!r} is not one of the known labels, {shown}{more}; "
            f"{len(unknown)} of {len(rows)} rows have such a label. Correct them, or add the label."
        )


def describe(examples: Sequence[TextExample], labels: Sequence[str]) -> str:
    """Returns a line for the log: how many examples, of each label, unlabelled, and half empty.

    A pair counts as empty if one of its texts is blank.

    Args:
      labels: those counted, the first 20 of them; () for regression.
    """
    known = LabelNames(labels)
    counts: Counter[str] = Counter()
    for example in examples:
        # A class may contain the separator: then the whole text is a known label.
        is_one = example.label is not None and known.find(example.label) is not None
        names = [example.label or ""] if is_one else split_labels(example.label)
        counts.update(map(known.name_of, names))
    parts = [f"{len(examples):,} examples"]
    if labels and counts:
        listed = ", ".join(f"{name} {counts[name]:,}" for name in labels[:MAX_COUNTS])
        more = f", {len(labels) - MAX_COUNTS} more" if len(labels) > MAX_COUNTS else ""
        parts.append(f"labels: {listed}{more}")
    if unlabelled := sum(example.label is None for example in examples):
        parts.append(f"{unlabelled:,} unlabelled")
    has_pairs = any(example.text_b for example in examples)
    # Texts that are empty as a whole are counted when they are packed.
    empty = sum(
        not example.text_a.strip() or not (example.text_b or "").strip()
        for example in examples
        if has_pairs
    )
    if empty:
        parts.append(f"{empty:,} pairs with an empty text")
    return "; ".join(parts)
