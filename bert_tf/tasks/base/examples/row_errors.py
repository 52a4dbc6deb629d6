"""Errors of a table's rows, which are reported together, and counts of the rows left out."""

import re
import types
from collections.abc import Collection, Mapping
from typing import Any

from absl import logging

from bert_tf.config.fine_tuning_config import TableConfig

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
_ACCEPTED = re.compile("(was_|is_)?accepted")


def is_void(row: Mapping[str, Any], columns: Collection[str] = ()) -> bool:
    """Returns whether the annotation of a row was rejected, skipped or not agreed on.

        answer: reject, ignore                  Prodigy
        status: discarded, rejected ...         Argilla
        was_cancelled, skipped: true            Label Studio
        is_rejected, is_deleted, ignored: true  others
        accepted, is_accepted: false            others
        gold_label: -                           SNLI and MultiNLI: the annotators did not agree

    Only rows that are read with their labels are left out: texts to predict are all answered.

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
            value = {"true": True, "false": False}.get(text)
        if value is True and _FLAGS.fullmatch(key):
            return True
        if value is False and _ACCEPTED.fullmatch(key):
            return True
    return False


MAX_SHOWN_ERRORS = 10


class RowError(ValueError):
    """An error of one row; others may be read, and reported together with it.

    Args:
      problem: names the file, the line and the fault.
      remedy: the advice, which is the same for all rows with this problem.
    """

    def __init__(self, problem: str, remedy: str = "") -> None:
        super().__init__(f"{problem}{'.' if remedy else ''} {remedy}".strip())
        self.problem = problem.rstrip(".")
        self.remedy = remedy


class Unlabelled(RowError):
    """A row without the label that it needs, which --skip_unlabelled leaves out."""


class RowErrors:
    """Collects the errors of rows: each row is read in a `with` block of this object.

    Args:
      reading: how the user's tables are read; None: the defaults.
    """

    def __init__(self, reading: TableConfig | None = None) -> None:
        self.skips_unlabelled = reading is not None and reading.skip_unlabelled
        self.errors: list[RowError] = []
        self.num_good = 0  # rows that were read without an error
        self.num_skipped = 0  # unlabelled rows that are left out
        self.num_void = 0  # rows left out because of `is_void`

    def __enter__(self) -> "RowErrors":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: types.TracebackType | None,
    ) -> bool:
        if error is None:
            self.num_good += 1
        elif isinstance(error, Unlabelled) and self.skips_unlabelled:
            self.num_skipped += 1
        elif isinstance(error, RowError):
            self.errors.append(error)
        return isinstance(error, RowError)

    def leaves_out(self, row: dict[str, Any], columns: Collection[str] = ()) -> bool:
        """Returns whether a row is void, and counts it; the arguments are those of `is_void`."""
        if not is_void(row, columns):
            return False
        self.num_void += 1
        return True

    def raise_any(self) -> None:
        """Raises one ValueError for all rows that are wrong."""
        if not self.errors:
            return
        if len(self.errors) == 1:
            raise self.errors[0]
        count = len(self.errors)
        num_rows = count + self.num_good + self.num_skipped + self.num_void
        shown = "; ".join(error.problem for error in self.errors[:MAX_SHOWN_ERRORS])
        more = f"; and {count - MAX_SHOWN_ERRORS:,} more" if count > MAX_SHOWN_ERRORS else ""
        remedies = " ".join(dict.fromkeys(error.remedy for error in self.errors if error.remedy))
        raise ValueError(
            f"{count:,} of {num_rows:,} rows are wrong: {shown}{more}. {remedies}".rstrip()
        )

    def finish(self, source: str) -> None:
        """Logs how many rows of a source are left out; raises as `raise_any` does."""
        self.raise_any()
        if self.num_void:
            logging.info(
                "%s: %d rows are left out, because their annotation was rejected, skipped or not "
                "agreed on.",
                source,
                self.num_void,
            )
        if self.num_skipped:
            logging.info("%s: %d unlabelled rows are left out.", source, self.num_skipped)
