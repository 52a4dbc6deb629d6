"""Findings: where bounds begin, and what screen and page say."""

import base64
import re
from xml.etree import ElementTree

import pytest

from bert_tf.diagnosis.findings import Bounds, Diagnosis, Finding, Severity
from bert_tf.diagnosis.report import page, screen


@pytest.mark.parametrize(
    ("bounds", "values"),
    [
        (Bounds(0.05, 0.3), [0.049, 0.05, 0.299, 0.3]),
        (Bounds(100, 1, is_share=False), [100.5, 100, 2, 1]),  # small numbers are the bad ones
    ],
)
def test_severity_is_that_of_the_bounds(bounds, values):
    found = Diagnosis("a", "corpus")
    for value in [float("nan"), *values]:  # What was not measured is no finding.
        found.check(bounds, value, "title", "remedy")
    assert [finding.severity.name for finding in found.findings] == ["WARNING"] * 2 + ["SERIOUS"]
    assert found.findings[0].expected == ("below 5.0 %" if bounds.is_share else "above 100")
    assert found.worst_first()[0].severity == Severity.SERIOUS


def made_diagnosis() -> Diagnosis:
    findings = [
        Finding(Severity.WARNING, f"number {n}", "3 <of> 4", "below 1 %", "Do & say.")
        for n in range(9)
    ]
    bad = Finding(Severity.SERIOUS, "large", "1", "none", "Do.", ("<script>alert(1)</script>",))
    plots = {name: lambda axes: axes.plot([1, 2], [3, 4]) for name in ("loss", "<rate>", "norm")}
    return Diagnosis("runs/<mine>", "corpus", {"documents": "12"}, [*findings, bad], plots)


def test_the_screen_shows_the_worst_first():
    text = screen([made_diagnosis()])
    places = [text.index(title) for title in ("large", "number 0", "number 6", "2 more in")]
    assert places == sorted(places) and "number 7" not in text
    assert "3 <of> 4; expected below 1 %" in text and "-> Do & say." in text
    assert re.search(r"\n10 findings.* 1 .* 9 .*\.$", text)
    assert all(len(line) <= 100 for line in text.splitlines())
    assert not re.search(r"\d+ findings?\b", screen([Diagnosis("x", "corpus")]))


def test_the_page_is_whole_and_needs_nothing_else():
    text = page([made_diagnosis()])
    # With its one kind of open tag closed it is XML: every other tag is closed, in order.
    body = ElementTree.fromstring(re.sub(r"<(meta|img)([^>]*)>", r"<\1\2/>", text))
    assert body.find(".//script") is None
    (image,) = body.iter("img")
    head, _, data = image.get("src").partition(",")
    assert head == "data:image/svg+xml;base64"
    svg = base64.b64decode(data).decode()
    assert all(name in svg for name in ("loss", "&lt;rate&gt;", "norm"))
    assert not re.search(r"https?://|@import", re.sub(r"<style>.*?</style>", "", text, flags=re.S))
    assert "runs/&lt;mine&gt;" in text and "&lt;script&gt;alert(1)&lt;/script&gt;" in text
