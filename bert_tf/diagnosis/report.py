"""What the doctor found: one screen of text, and a page with the plots."""

import html
import textwrap
from collections.abc import Sequence

from bert_tf.diagnosis.charts import draw_svg
from bert_tf.diagnosis.findings import Diagnosis, Finding, Severity

WORDS = {Severity.SERIOUS: "SERIOUS", Severity.WARNING: "warning", Severity.NOTE: "note"}
COLOURS = {Severity.SERIOUS: "\033[31m", Severity.WARNING: "\033[33m", Severity.NOTE: "\033[36m"}
BOLD, PLAIN = "\033[1m", "\033[0m"
WIDTH = 100
SHOWN_FINDINGS, SHOWN_DETAILS = 8, 3  # of each place on the screen; the page has all


def screen(diagnoses: Sequence[Diagnosis], use_colour: bool) -> str:
    """Returns what is printed: each place with its facts, then its findings, the worst first."""
    parts = [_screen_of(diagnosis, use_colour) for diagnosis in diagnoses]
    return "\n\n".join([*parts, summary(diagnoses)])


def summary(diagnoses: Sequence[Diagnosis]) -> str:
    """Says how many findings of which severity there are."""
    found = [finding.severity for diagnosis in diagnoses for finding in diagnosis.findings]
    if not found:
        return "Nothing is wrong with what was looked at."
    counts = [
        f"{found.count(kind)} {word.lower()}" for kind, word in WORDS.items() if kind in found
    ]
    return f"{len(found)} finding{'s' * (len(found) > 1)}: {', '.join(counts)}."


def _screen_of(diagnosis: Diagnosis, use_colour: bool) -> str:
    bold, plain = (BOLD, PLAIN) if use_colour else ("", "")
    lines = [f"{bold}{diagnosis.place}{plain} ({diagnosis.kind})"]
    facts = "; ".join(f"{name}: {value}" for name, value in diagnosis.facts.items())
    lines += textwrap.wrap(facts, WIDTH, initial_indent="  ", subsequent_indent="  ")
    findings = diagnosis.worst_first()
    for finding in findings[:SHOWN_FINDINGS]:
        lines += _lines_of(finding, use_colour)
    if len(findings) > SHOWN_FINDINGS:
        lines.append(f"  and {len(findings) - SHOWN_FINDINGS} more in the report")
    if not findings:
        lines.append("  nothing found")
    return "\n".join(lines)


def _lines_of(finding: Finding, use_colour: bool) -> list[str]:
    colour, plain = (COLOURS[finding.severity], PLAIN) if use_colour else ("", "")
    word = WORDS[finding.severity]
    lines = [f"  {colour}{word:8}{plain} {finding.title}"]
    body = [f"{finding.measured}; expected {finding.expected}", f"-> {finding.remedy}"]
    for text in body:
        indent = " " * 11
        lines += textwrap.wrap(text, WIDTH, initial_indent=indent, subsequent_indent=indent)
    lines += [f"             {detail[: WIDTH - 13]}" for detail in finding.details[:SHOWN_DETAILS]]
    return lines


STYLE = """
:root { color-scheme: light dark; --line: #8884; --serious: #c62828; --warning: #b26a00;
  --note: #1565c0; }
@media (prefers-color-scheme: dark) {
  :root { --serious: #ff8a80; --warning: #ffcc80; --note: #90caf9; } }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 0 auto; padding: 1rem;
  background: Canvas; color: CanvasText; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.15rem; margin: 2rem 0 .5rem; overflow-wrap: anywhere; }
.kind { font-weight: normal; opacity: .7; }
dl { display: grid; grid-template-columns: repeat(auto-fill, minmax(10rem, 1fr)); gap: .5rem; }
dl div { border-left: 2px solid var(--line); padding-left: .6rem; }
dt { font-size: .8rem; opacity: .7; } dd { margin: 0; overflow-wrap: anywhere; }
article { border-left: .35rem solid var(--colour); padding: .1rem 0 .1rem .9rem; margin: 1.2rem 0; }
article h3 { margin: 0; font-size: 1rem; } article p { margin: .2rem 0; }
.word { color: var(--colour); text-transform: uppercase; font-size: .8rem; font-weight: bold; }
.SERIOUS { --colour: var(--serious); } .WARNING { --colour: var(--warning); }
.NOTE { --colour: var(--note); }
ul { margin: .3rem 0; padding-left: 1.2rem; font: .8rem/1.5 ui-monospace, monospace; }
li { overflow-wrap: anywhere; }
.plots { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(20rem, 100%), 1fr));
  gap: 1rem; }
figure { margin: 0; } figcaption { font-weight: 600; font-size: .9rem; }
svg { display: block; width: 100%; height: auto; }
"""


def page(diagnoses: Sequence[Diagnosis]) -> str:
    """Returns the report as one HTML page that needs nothing else."""
    body = "\n".join(map(_section, diagnoses))
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>bert_tf doctor</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        f"<h1>{html.escape(summary(diagnoses))}</h1>\n{body}\n</body>\n</html>\n"
    )


def _section(diagnosis: Diagnosis) -> str:
    facts = "".join(
        f"<div><dt>{html.escape(name)}</dt><dd>{html.escape(value)}</dd></div>"
        for name, value in diagnosis.facts.items()
    )
    findings = "\n".join(map(_article, diagnosis.worst_first())) or "<p>Nothing found.</p>"
    plots = "\n".join(
        f"<figure><figcaption>{html.escape(plot.title)}</figcaption>{draw_svg(plot)}</figure>"
        for plot in diagnosis.plots
    )
    return (
        f'<section>\n<h2>{html.escape(diagnosis.place)} <span class="kind">'
        f"{html.escape(diagnosis.kind)}</span></h2>\n<dl>{facts}</dl>\n{findings}\n"
        f'<div class="plots">{plots}</div>\n</section>'
    )


def _article(finding: Finding) -> str:
    details = "".join(f"<li>{html.escape(detail)}</li>" for detail in finding.details)
    return (
        f'<article class="{finding.severity.name}"><span class="word">{WORDS[finding.severity]}'
        f"</span><h3>{html.escape(finding.title)}</h3>\n"
        f"<p>{html.escape(finding.measured)}; expected {html.escape(finding.expected)}</p>\n"
        f"<p>{html.escape(finding.remedy)}</p>{f'<ul>{details}</ul>' if details else ''}</article>"
    )
