"""Tests of examples/read_manuals.py on a package made here."""

import csv
import gzip
import json
import pathlib
import shutil
import subprocess
import sys

import pytest

SCRIPT = pathlib.Path(__file__).resolve().parents[1] / "examples" / "read_manuals.py"
PROGRAMS = ("groff", "dpkg-deb")
pytestmark = pytest.mark.skipif(
    not all(map(shutil.which, PROGRAMS)), reason=f"Needs the programs {' and '.join(PROGRAMS)}."
)

MANUAL = """'\\" t
.TH BEFEHL{0} 1
.SH BEZEICHNUNG
befehl{0} \\- Dateien der Größe {0} löschen
.SH BESCHREIBUNG
Dieser Befehl löscht \\fBalle\\fP Dateien,
die der Benutzer nennt.
.PP
Ohne \\fB\\-\\-force\\fP wird nachgefragt. {1}
.TS
allbox;
l l.
Name	Wert
eins	.....
.TE
.SH ÜBERSETZUNG
Diese Seite wurde von Freiwilligen ins Deutsche übersetzt.
"""


def lines_of(path: pathlib.Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_manuals_become_texts(tmp_path: pathlib.Path) -> None:
    package = tmp_path / "package"
    manuals = package / "usr/share/man/de/man1"
    manuals.mkdir(parents=True)
    (package / "DEBIAN").mkdir()
    control = ["Package: x", "Version: 1", "Architecture: all", "Maintainer: x", "Description: x"]
    (package / "DEBIAN/control").write_text("\n".join(control) + "\n", encoding="utf-8")
    for number in range(10):
        long = "Wort " * 100 if number == 0 else ""
        source = MANUAL.format(number, long).encode()
        (manuals / f"befehl{number}.1.gz").write_bytes(gzip.compress(source))
    (manuals / "anderer.1.gz").symlink_to("befehl0.1.gz")
    (manuals / "verweis.1.gz").write_bytes(gzip.compress(b".so man1/befehl0.1\n"))
    archive = tmp_path / "x.deb"
    subprocess.run(["dpkg-deb", "--build", package, archive], check=True, capture_output=True)
    folder = tmp_path / "german"
    subprocess.run([sys.executable, SCRIPT, archive, folder], check=True, capture_output=True)

    read = lines_of(folder / "manuals.jsonl")
    assert [manual["_id"] for manual in read] == [f"befehl{number}.1" for number in range(10)]
    assert read[1]["text"].split("\n") == [
        "BEZEICHNUNG",
        "befehl1 - Dateien der Größe 1 löschen",
        "BESCHREIBUNG",
        "Dieser Befehl löscht alle Dateien, die der Benutzer nennt.",
        "Ohne --force wird nachgefragt.",
        "Name Wert eins",
    ]
    passages = {passage["_id"]: passage["text"] for passage in lines_of(folder / "corpus.jsonl")}
    assert len(passages["befehl0.1#1"].split()) == 80 and passages["befehl0.1#2"][:4] == "Wort"
    passage = "Dieser Befehl löscht alle Dateien, die der Benutzer nennt. Ohne --force wird"
    assert passages["befehl1.1#1"] == f"{passage} nachgefragt. Name Wert eins"
    assert len(passages) == 11

    # Every tenth manual is kept for tests.
    with (folder / "pairs.csv").open(newline="", encoding="utf-8") as table:
        pairs = list(csv.DictReader(table))
    assert len(pairs) == 10 and "9" not in " ".join(pair["query"] for pair in pairs)
    assert pairs[2] == {
        "query": "Dateien der Größe 1 löschen",
        "positive": passages["befehl1.1#1"],
    }
    assert lines_of(folder / "queries.jsonl") == [
        {"_id": "befehl9.1", "text": "Dateien der Größe 9 löschen"}
    ]
    judgments = (folder / "qrels/test.tsv").read_text(encoding="utf-8").splitlines()
    assert judgments[1:] == ["befehl9.1\tbefehl9.1#1\t1"]
