"""Turns manual pages in any language into texts to train and search with.

    python examples/read_manuals.py manpages-de_*.deb german

reads the manuals of Debian packages (`apt-get download manpages-de`) with `dpkg-deb` and `groff`,
and writes a folder in BEIR's form: `manuals.jsonl` (a manual per line, for pre-training),
`corpus.jsonl` (passages of about 80 words), `pairs.csv` (the summary of a manual and one of its
first passages), and `queries.jsonl` with `qrels/test.tsv` (the summaries of every tenth manual,
which `pairs.csv` does not have). Passages come neither from the first section, which has the
summary, nor from the last, which names the translators.
"""

import argparse
import csv
import gzip
import json
import pathlib
import re
import subprocess
import tempfile

WORDS_PER_PASSAGE = 80
PAIRS_PER_MANUAL = 4
# Lines as long as paragraphs, no hyphenation, no bold type: plain text.
GROFF = "groff -k -t -Tutf8 -man -rLL=100000n -rLT=78n -rHY=0 -dAD=l -P-cbou".split()
# The rules of tables and other lines that are drawn with characters.
DRAWN = re.compile(r"[\u2500-\u259f]+|[+|]*([-_=*~#])\1{2,}[-+|_=*~#]*|\.(?: ?\.){3,}")


def read_sections(source: bytes) -> list[list[str]]:
    """Returns the sections of a manual, each a list of its heading and its paragraphs."""
    output = subprocess.run(GROFF, input=source, capture_output=True, check=True).stdout.decode()
    lines = output.strip().split("\n")[1:-1]  # Without the page's header and footer.
    sections: list[list[str]] = []
    is_new_paragraph = True
    for line in lines:
        words = " ".join(DRAWN.sub(" ", line).split())
        if not words and line.strip():  # Only the rule of a table.
            continue
        if not words:
            is_new_paragraph = True
        elif not line.startswith(" "):
            sections.append([words])
            is_new_paragraph = True
        elif sections:
            if is_new_paragraph:
                sections[-1].append(words)
            else:
                sections[-1][-1] += " " + words
            is_new_paragraph = False
    return sections


def cut_passages(paragraphs: list[str]) -> list[str]:
    """Joins paragraphs to passages of about WORDS_PER_PASSAGE words; longer ones are cut."""
    passages = []
    words: list[str] = []
    for paragraph in paragraphs:
        words += paragraph.split()
        while len(words) >= WORDS_PER_PASSAGE:
            passages.append(" ".join(words[:WORDS_PER_PASSAGE]))
            words = words[WORDS_PER_PASSAGE:]
    if len(words) >= 5:
        passages.append(" ".join(words))
    return passages


def write_lines(path: pathlib.Path, records: list[dict[str, str]]) -> None:
    lines = [json.dumps(record, ensure_ascii=False) + "\n" for record in records]
    path.write_text("".join(lines), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("packages", nargs="+", type=pathlib.Path, help="Debian packages")
    parser.add_argument("folder", type=pathlib.Path, help="where the texts are written")
    arguments = parser.parse_args()

    manuals, corpus, pairs, queries = [], [], [], []
    judgments = ["query-id\tcorpus-id\tscore\n"]
    with tempfile.TemporaryDirectory() as unpacked:
        for package in arguments.packages:
            subprocess.run(["dpkg-deb", "--extract", package, unpacked], check=True)
        files = sorted(pathlib.Path(unpacked).glob("usr/share/man/**/*.[1-8].gz"))
        for file in files:
            if file.is_symlink():  # Another name of the same manual.
                continue
            source = gzip.decompress(file.read_bytes())
            sections = read_sections(source)
            if not sections or len(sections[0]) != 2:  # A manual that only includes another one.
                continue
            name = file.name.removesuffix(".gz")
            summary = re.sub(r"^.*? [-–—] ", "", sections[0][1])
            lines = [line for section in sections[:-1] for line in section]
            manuals.append({"_id": name, "text": "\n".join(lines)})
            is_test = len(manuals) % 10 == 0
            if is_test:
                queries.append({"_id": name, "text": summary})
            number = 0
            for _, *paragraphs in sections[1:-1]:
                for passage in cut_passages(paragraphs):
                    number += 1
                    passage_id = f"{name}#{number}"
                    corpus.append({"_id": passage_id, "text": passage})
                    if is_test:
                        judgments.append(f"{name}\t{passage_id}\t1\n")
                    elif number <= PAIRS_PER_MANUAL:
                        pairs.append((summary, passage))

    (arguments.folder / "qrels").mkdir(parents=True, exist_ok=True)
    write_lines(arguments.folder / "manuals.jsonl", manuals)
    write_lines(arguments.folder / "corpus.jsonl", corpus)
    write_lines(arguments.folder / "queries.jsonl", queries)
    (arguments.folder / "qrels" / "test.tsv").write_text("".join(judgments), encoding="utf-8")
    with (arguments.folder / "pairs.csv").open("w", newline="", encoding="utf-8") as table:
        csv.writer(table).writerows([("query", "positive"), *pairs])
    print(f"{len(manuals):,} manuals, {len(corpus):,} passages, {len(pairs):,} pairs")


if __name__ == "__main__":
    main()
