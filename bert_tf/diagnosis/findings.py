"""A finding (what was measured, what was expected, what to do), and all findings of a place."""

import dataclasses
import enum
from collections.abc import Callable
from typing import Any, NamedTuple


class Severity(enum.IntEnum):
    """How bad a finding is; a serious one gives the program its exit status."""

    WARNING = 1
    SERIOUS = 2


class Bounds(NamedTuple):
    """The first values that are a warning and serious; if `serious` is less, small ones are bad."""

    warning: float
    serious: float
    is_share: bool = True

    def write(self, value: float) -> str:
        """Writes a value of this number: a share in percent."""
        return percent(value) if self.is_share else f"{value:.4g}"


class Finding(NamedTuple):
    """One thing that is not as it should be; `details` are lines, characters, records."""

    severity: Severity
    title: str
    measured: str
    expected: str
    remedy: str
    details: tuple[str, ...] = ()


@dataclasses.dataclass
class Diagnosis:
    """What was found in one place.

    Attributes:
      place: file or folder.
      kind: corpus, labelled table, examples, pre-training run or fine-tuning run.
      facts: numbers by name, good and bad.
      findings: what is not as it should be.
      plots: by title, what draws into matplotlib axes.
    """

    place: str
    kind: str
    facts: dict[str, str] = dataclasses.field(default_factory=dict)
    findings: list[Finding] = dataclasses.field(default_factory=list)
    plots: dict[str, Callable[[Any], Any]] = dataclasses.field(default_factory=dict)

    def judge(
        self,
        bounds: Bounds,
        value: float,
        title: str,
        remedy: str,
        measured: str = "",
        expected: str = "",
        details: tuple[str, ...] = (),
    ) -> None:
        """Adds a finding if `value` is at or beyond the bounds; nan, nothing measured, never is.

        `measured` and `expected` say more than the value and the bound by themselves.
        """
        sign = 1 if bounds.serious >= bounds.warning else -1
        if not sign * value >= sign * bounds.warning:
            return
        is_serious = sign * value >= sign * bounds.serious
        severity = Severity.SERIOUS if is_serious else Severity.WARNING
        expected = expected or f"{'below' if sign > 0 else 'above'} {bounds.write(bounds.warning)}"
        measured = measured or bounds.write(value)
        self.findings.append(Finding(severity, title, measured, expected, remedy, details))

    def worst_first(self) -> list[Finding]:
        """Returns the findings, the worst first; of equal ones in the order they were made."""
        return sorted(self.findings, key=lambda finding: -finding.severity)


def percent(share: float) -> str:
    """Writes a share so that small ones keep two digits.

    >>> percent(0.5), percent(0.0712), percent(0.00012), percent(0)
    ('50 %', '7.1 %', '0.012 %', '0 %')
    """
    value = 100 * share
    if value == 0 or abs(value) >= 9.95:
        return f"{value:.0f} %"
    return f"{value:.2g} %" if abs(value) < 1 else f"{value:.1f} %"
