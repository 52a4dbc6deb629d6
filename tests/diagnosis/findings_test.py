"""Findings: where a threshold fires, how shares are written, and what screen and page say."""

import html.parser
import re

import pytest

from bert_tf.diagnosis.charts import bars, histogram, lines
from bert_tf.diagnosis.findings import Diagnosis, Finding, Plot, Severity, judge
from bert_tf.diagnosis.report import page, screen, summary
from bert_tf.diagnosis.thresholds import THRESHOLDS
from tests.shared_data import ROOT


def finding(severity: Severity, title: str, **changes) -> Finding:
    texts = {"measured": "3 <of> 4", "expected": "below 1 %", "remedy": "Do & say."}
    return Finding(severity, title, **{**texts, **changes})


@pytest.mark.parametrize(
    ("value", "severity"),
    [(0.0, None), (0.049, None), (0.05, Severity.WARNING), (0.3, Severity.SERIOUS)],
)
def test_severity_is_the_thresholds(value, severity):
    # duplicate_lines: a warning from 5 %, serious from 30 %.
    found = judge("duplicate_lines", value, "title", "measured", "remedy")
    assert [one.severity for one in found] == ([] if severity is None else [severity])
    assert all(one.expected == "below 5 %" for one in found)


@pytest.mark.parametrize(
    ("value", "severity"),
    [(100.5, None), (100, Severity.WARNING), (2, Severity.WARNING), (1, Severity.SERIOUS)],
)
def test_small_numbers_are_the_bad_ones_of_a_lower_bound(value, severity):
    found = judge("few_documents", value, "title", "measured", "remedy")
    assert [one.severity for one in found] == ([] if severity is None else [severity])
    assert all(one.expected == "above 100" for one in found)


def test_what_was_not_measured_is_no_finding():
    for name in THRESHOLDS:
        assert judge(name, float("nan"), "title", "measured", "remedy") == []


def test_serious_lies_beyond_warning_and_each_has_a_reason():
    for name, threshold in THRESHOLDS.items():
        assert threshold.reason and threshold.what, name
        bounds = [b for b in (threshold.warning, threshold.serious) if b is not None]
        assert bounds == sorted(bounds, reverse=threshold.is_lower_bound), name


def table_rows() -> list[str]:
    """Returns the rows of the table in docs/doctor.md."""
    return [
        f"| {t.what} | {t.text(t.warning)} | {t.text(t.serious)} | {t.reason} |"
        for t in THRESHOLDS.values()
    ]


def test_the_table_of_thresholds_is_documented():
    documented = (ROOT / "docs" / "doctor.md").read_text(encoding="utf8")
    missing = [row for row in table_rows() if row not in documented]
    assert not missing, "\n".join(missing)


def made_diagnosis() -> Diagnosis:
    findings = [
        finding(Severity.NOTE, "small"),
        finding(Severity.SERIOUS, "large", details=("first", "<script>alert(1)</script>")),
        finding(Severity.WARNING, "middling"),
    ]
    plots = [
        Plot("lengths", histogram([1, 2, 3, 300], "pieces", is_log=True)),
        Plot("shares", bars(["a", "b"], [0.8, 0.2], [0.7, 0.3])),
        Plot("loss", lines({"training": ([1, 2], [3.0, float("nan")])}, {"floor": 1.0})),
    ]
    return Diagnosis("runs/<mine>", "corpus", {"documents": "12"}, findings, plots)


def test_screen_shows_the_worst_first():
    text = screen([made_diagnosis()], use_colour=False)
    places = [text.index(title) for title in ("large", "middling", "small")]
    assert places == sorted(places)
    assert "\033" not in text and "\033" in screen([made_diagnosis()], use_colour=True)
    assert "3 <of> 4; expected below 1 %" in text and "-> Do & say." in text
    assert text.endswith("3 findings: 1 serious, 1 warning, 1 note.")
    assert all(len(line) <= 100 for line in text.splitlines())


def test_many_findings_are_one_screen():
    many = [finding(Severity.WARNING, f"number {n}") for n in range(20)]
    text = screen([Diagnosis("x", "corpus", {}, many)], use_colour=False)
    assert "number 7" in text and "number 8" not in text and "12 more in the report" in text
    assert summary([Diagnosis("x", "corpus", {}, [])]).startswith("Nothing is wrong")


class Tags(html.parser.HTMLParser):
    """Collects the tags that a page opens, and checks that they are closed in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open, self.seen, self.links = [], [], []

    def handle_starttag(self, tag, attributes):
        self.seen.append(tag)
        self.links += [v for name, v in attributes if name in ("src", "href", "xlink:href")]
        if tag not in ("meta", "use", "path", "rect", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in ("meta", "use", "path", "rect", "br"):
            assert self.open.pop() == tag


def test_page_is_whole_and_needs_nothing_else():
    text = page([made_diagnosis()])
    tags = Tags()
    tags.feed(text)
    assert not tags.open
    assert tags.seen.count("svg") == 3 and "script" not in tags.seen
    # Only references within the page: nothing is fetched.
    assert all(link.startswith("#") for link in tags.links)
    assert not re.search(r"url\((?!#)", text) and "@import" not in text
    assert "prefers-color-scheme: dark" in text and 'name="viewport"' in text
    assert "runs/&lt;mine&gt;" in text and "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    # Ids of one drawing are not those of another, or its shapes would be drawn in their place.
    assert len(set(ids := re.findall(r' id="([^"]+)"', text))) == len(ids)
