"""Rows of annotation tools whose annotation does not count, because it was rejected or skipped.

    answer: reject, ignore                  Prodigy
    status: discarded, rejected ...         Argilla
    was_cancelled, skipped: true            Label Studio
    is_rejected, is_deleted, ignored: true  others
    gold_label: -                           SNLI and MultiNLI: the annotators did not agree

Only rows that are read with their labels are left out: texts to predict are all answered.
"""

import re
from collections.abc import Collection, Mapping
from typing import Any

ACCEPTED = "accept"  # Prodigy's answer for an annotation that counts
_ANSWERS = frozenset(("reject", "rejected", "ignore", "ignored"))
_STATUSES = _ANSWERS | {"discard", "discarded", "deleted", "skipped", "cancelled", "canceled"}
# Keys and the values that void a row.
_STATES = {
    "answer": _ANSWERS,
    "status": _STATUSES,
    "response_status": _STATUSES,
    "annotation_status": _STATUSES,
    "gold_label": frozenset("-"),
}
_FLAGS = re.compile(
    "(was_|is_)?(cancell?ed|skipped|rejected|discarded|deleted|ignored)|reject|ignore|skip"
)


def is_void(row: Mapping[str, Any], columns: Collection[str] = ()) -> bool:
    """Returns whether the annotation of a row was rejected, skipped or not agreed on.

    Args:
      columns: columns that are read as texts or labels; only `gold_label` also voids as a label.
    """
    for name, value in row.items():
        key = name.lower()
        if name in columns and key != "gold_label":
            continue
        if isinstance(value, str):
            text = value.strip().lower()
            if text in _STATES.get(key, ()):
                return True
            value = True if text == "true" else None
        if value is True and _FLAGS.fullmatch(key):
            return True
    return False
