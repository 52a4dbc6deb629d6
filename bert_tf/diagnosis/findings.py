"""A finding: what was measured, what was expected, what to do; and what a place gave in all."""

import dataclasses
import enum
from collections.abc import Callable
from typing import Any

from bert_tf.diagnosis.thresholds import THRESHOLDS


class Severity(enum.IntEnum):
    """How bad a finding is; a serious one gives the program its exit status."""

    NOTE = 0
    WARNING = 1
    SERIOUS = 2


@dataclasses.dataclass(frozen=True)
class Finding:
    """One thing that is not as it should be.

    Attributes:
      severity: how bad it is.
      title: the thing in a few words.
      measured: the number, and of what.
      expected: what the number should be.
      remedy: what to do.
      details: examples: lines, characters, records.
    """

    severity: Severity
    title: str
    measured: str
    expected: str
    remedy: str
    details: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Plot:
    """A picture of the report.

    Attributes:
      title: what it shows.
      draw: draws it into matplotlib axes.
    """

    title: str
    draw: Callable[[Any], None]


@dataclasses.dataclass(frozen=True)
class Diagnosis:
    """All that was found in one place.

    Attributes:
      place: file or folder.
      kind: what it is: corpus, examples, pre-training run, fine-tuning run.
      facts: numbers by name, good and bad, in the order in which they are shown.
      findings: what is not as it should be.
      plots: pictures of the report.
    """

    place: str
    kind: str
    facts: dict[str, str]
    findings: list[Finding]
    plots: list[Plot] = dataclasses.field(default_factory=list)

    def worst_first(self) -> list[Finding]:
        """Returns the findings, the worst first; of equal ones in the order they were made."""
        return sorted(self.findings, key=lambda finding: -finding.severity)


def judge(
    name: str,
    value: float,
    title: str,
    measured: str,
    remedy: str,
    details: tuple[str, ...] = (),
    expected: str = "",
) -> list[Finding]:
    """Returns the finding that a number gives against the threshold of that name: none or one.

    Args:
      name: of the threshold.
      value: the number; nan, where nothing was measured, gives none.
      title, measured, remedy, details: of the finding.
      expected: in the place of the threshold's own words.
    """
    threshold = THRESHOLDS[name]
    sign = -1 if threshold.is_lower_bound else 1
    if threshold.serious is not None and sign * value >= sign * threshold.serious:
        found = Severity.SERIOUS
    elif threshold.warning is not None and sign * value >= sign * threshold.warning:
        found = Severity.WARNING
    else:
        return []
    return [Finding(found, title, measured, expected or threshold.expected(), remedy, details)]


def percent(share: float) -> str:
    """Writes a share so that small ones keep two digits.

    >>> percent(0.5), percent(0.0712), percent(0.00012), percent(0)
    ('50 %', '7.1 %', '0.012 %', '0 %')
    """
    value = 100 * share
    if value == 0 or value >= 9.95:
        return f"{value:.0f} %"
    return f"{value:.2g} %" if value < 1 else f"{value:.1f} %"
