"""The doctor's reports: one screen of text, and a page with plots."""

import base64
import html
import io
import textwrap
from collections.abc import Sequence
from typing import Any

from bert_tf.diagnosis.findings import Diagnosis, Severity
from bert_tf.system.printable import escaped

WORDS = {Severity.SERIOUS: "SERIOUS", Severity.WARNING: "warning"}
WIDTH = 100
# On the screen, for each source; the page shows everything.
SHOWN_FINDINGS = 8
SHOWN_DETAILS = 3


def summary(diagnoses: Sequence[Diagnosis]) -> str:
    """Returns the number of findings of each severity, as a sentence."""
    severities: list[Severity] = []
    for diagnosis in diagnoses:
        severities += [finding.severity for finding in diagnosis.findings]
    if not severities:
        return "No problems found."
    serious = severities.count(Severity.SERIOUS)
    warnings = severities.count(Severity.WARNING)
    counts = []
    if serious:
        counts.append(f"{serious} serious")
    if warnings:
        counts.append(f"{warnings} warning{'s' * (warnings > 1)}")
    total = len(severities)
    return f"{total} finding{'s' * (total > 1)}: {', '.join(counts)}."


def screen(diagnoses: Sequence[Diagnosis]) -> str:
    """Returns the text to print: for each source its facts, then its findings, the worst first."""
    return "\n\n".join([*map(_screen_of, diagnoses), summary(diagnoses)])


def _screen_of(diagnosis: Diagnosis) -> str:
    def wrapped(text: str, margin: str) -> list[str]:
        return textwrap.wrap(text, WIDTH, initial_indent=margin, subsequent_indent=margin)

    lines = [f"{escaped(diagnosis.source)} ({diagnosis.kind})", *wrapped(_facts(diagnosis), "  ")]
    findings = diagnosis.worst_first()
    margin = " " * 11
    for finding in findings[:SHOWN_FINDINGS]:
        lines.append(f"  {WORDS[finding.severity]:8} {escaped(finding.title)}")
        lines += wrapped(f"{finding.measured}; expected {finding.expected}", margin)
        lines += wrapped(f"-> {finding.remedy}", margin)
        for detail in finding.details[:SHOWN_DETAILS]:
            lines.append(f"{margin}  {escaped(detail)[: WIDTH - 13]}")
    if len(findings) > SHOWN_FINDINGS:
        lines.append(f"  and {len(findings) - SHOWN_FINDINGS} more in the report")
    if not findings:
        lines.append("  nothing found")
    return "\n".join(lines)


def _facts(diagnosis: Diagnosis) -> str:
    return "; ".join(f"{name}: {value}" for name, value in diagnosis.facts.items())


STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 0 auto; padding: 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.15rem; overflow-wrap: anywhere; }
article { border-left: .35rem solid #b26a00; padding-left: .9rem; margin: 1.2rem 0; }
article.SERIOUS { border-color: #c62828; } h3, article p { font-size: 1rem; margin: .1rem 0; }
li { font: .8rem/1.5 ui-monospace, monospace; overflow-wrap: anywhere; }
.plots { overflow-x: auto; } img { width: 100%; min-width: 36rem; }
"""


def page(diagnoses: Sequence[Diagnosis]) -> str:
    """Returns the report as one HTML page that loads no other files."""
    body = "\n".join(map(_section, diagnoses))
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>bert_tf doctor</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        f"<h1>{summary(diagnoses)}</h1>\n{body}\n</body>\n</html>\n"
    )


def _section(diagnosis: Diagnosis) -> str:
    escape = html.escape
    parts = [f"<h2>{escape(diagnosis.source)} ({diagnosis.kind})</h2>"]
    parts.append(f"<p>{escape(_facts(diagnosis))}</p>")
    for finding in diagnosis.worst_first():
        word = WORDS[finding.severity]
        details = "".join(f"<li>{escape(detail)}</li>" for detail in finding.details)
        parts.append(
            f'<article class="{word}"><h3>{word}: {escape(finding.title)}</h3>\n'
            f"<p>{escape(finding.measured)}; expected {escape(finding.expected)}</p>\n"
            f"<p>{escape(finding.remedy)}</p>\n<ul>{details}</ul></article>"
        )
    if not diagnosis.findings:
        parts.append("<p>Nothing found.</p>")
    if diagnosis.plots:
        image = base64.b64encode(draw(diagnosis)).decode()
        parts.append(
            f'<div class="plots"><img alt="{escape(", ".join(diagnosis.plots))}" '
            f'src="data:image/svg+xml;base64,{image}"></div>'
        )
    return "<section>\n" + "\n".join(parts) + "\n</section>"


def draw(diagnosis: Diagnosis) -> bytes:
    """Returns one figure with all plots, as SVG: grey on transparent, for light and dark pages."""
    import matplotlib
    from matplotlib.figure import Figure

    rows = -(-len(diagnosis.plots) // 2)
    # "none" keeps text as text: a small file, shown in the reader's fonts.
    style: dict[Any, Any] = {"svg.fonttype": "none", "font.size": 9, "text.color": "grey"}
    style |= {f"axes.{part}color": "grey" for part in ("label", "edge")}
    style |= {f"{axis}tick.color": "grey" for axis in "xy"}
    with matplotlib.rc_context(style):
        figure = Figure(figsize=(9, 2.8 * rows), layout="constrained")
        cells = figure.subplots(rows, 2, squeeze=False).ravel()
        for axes in cells[len(diagnosis.plots) :]:
            axes.set_axis_off()
        for axes, (title, plot) in zip(cells, diagnosis.plots.items(), strict=False):
            axes.patch.set_alpha(0.0)
            axes.set_title(title)
            plot(axes)
        file = io.BytesIO()
        figure.savefig(file, format="svg", transparent=True)
    return file.getvalue()
