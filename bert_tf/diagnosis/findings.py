"""Findings of the doctor: a measurement, its expected value and a remedy."""

import dataclasses
import enum
from collections.abc import Callable
from typing import Any, NamedTuple


class Severity(enum.IntEnum):
    """How bad a finding is; a serious one gives the program its exit status."""

    WARNING = 1
    SERIOUS = 2


class Bounds(NamedTuple):
    """Values at which a finding is a warning or serious; if serious < warning, small is bad."""

    warning: float
    serious: float
    is_share: bool = True

    def format(self, value: float) -> str:
        """Formats a value; a share in percent."""
        return percent(value) if self.is_share else f"{value:.4g}"


class Finding(NamedTuple):
    """One problem; `details` are lines, characters or records."""

    severity: Severity
    title: str
    measured: str
    expected: str
    remedy: str
    details: tuple[str, ...] = ()


@dataclasses.dataclass
class Diagnosis:
    """The results for one file or folder.

    Attributes:
      source: the file or folder.
      kind: corpus, labelled table, examples, pre-training run or fine-tuning run.
      facts: measurements by name, whether good or bad.
      findings: the problems.
      plots: functions that draw into matplotlib axes, by title.
    """

    source: str
    kind: str
    facts: dict[str, str] = dataclasses.field(default_factory=dict)
    findings: list[Finding] = dataclasses.field(default_factory=list)
    plots: dict[str, Callable[[Any], Any]] = dataclasses.field(default_factory=dict)

    def check(
        self,
        bounds: Bounds,
        value: float,
        title: str,
        remedy: str,
        measured: str = "",
        expected: str = "",
        details: tuple[str, ...] = (),
    ) -> None:
        """Adds a finding if `value` is at or beyond the bounds.

        Args:
          bounds: from which value on there is a finding.
          value: the measurement; nan, for no measurement, adds no finding.
          measured: description of the measurement; "": the value.
          expected: description of the expectation; "": the warning bound.
          details: examples of the problem.
        """
        # Where small values are bad, the negated ones are compared.
        sign = 1 if bounds.serious >= bounds.warning else -1
        if not sign * value >= sign * bounds.warning:  # Also for nan.
            return
        is_serious = sign * value >= sign * bounds.serious
        severity = Severity.SERIOUS if is_serious else Severity.WARNING
        side = "below" if sign > 0 else "above"
        expected = expected or f"{side} {bounds.format(bounds.warning)}"
        measured = measured or bounds.format(value)
        self.findings.append(Finding(severity, title, measured, expected, remedy, details))

    def worst_first(self) -> list[Finding]:
        """Returns the findings, the worst first; otherwise in the order they were added."""
        return sorted(self.findings, key=lambda finding: -finding.severity)


def percent(share: float) -> str:
    """Formats a share in percent; small ones keep two digits.

    >>> percent(0.5), percent(0.0712), percent(0.00012), percent(0)
    ('50 %', '7.1 %', '0.012 %', '0 %')
    """
    value = 100 * share
    if value == 0 or abs(value) >= 9.95:
        return f"{value:.0f} %"
    if abs(value) < 1:
        return f"{value:.2g} %"
    return f"{value:.1f} %"
