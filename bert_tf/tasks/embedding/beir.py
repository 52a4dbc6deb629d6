"""Reads retrieval collections from BEIR folders: documents, queries and relevance judgments.

  corpus.jsonl      {"_id": "4983", "title": "...", "text": "..."} per line; title may be missing
  queries.jsonl     {"_id": "0", "text": "..."} per line
  qrels/SPLIT.tsv   a header query-id, corpus-id, score; then one judgment per line

The files may be compressed (.xz, .gz, .bz2). Reference: Thakur et al. 2021, "BEIR".
"""

import os
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from bert_tf.tasks.base.examples.tables import read_cells, read_table

_ENDINGS = ("", ".xz", ".gz", ".bz2")
_HEADER = ("query-id", "corpus-id", "score")


class Beir(NamedTuple):
    """A collection with the judgments of one split."""

    documents: dict[str, str]  # id -> title, a space, text
    queries: dict[str, str]  # id -> text; only queries with judgments, in the order of the file
    qrels: dict[str, dict[str, int]]  # query id -> document id -> grade


def read_beir(folder: str | os.PathLike, split: str) -> Beir:
    """Reads a collection.

    Args:
      folder: the folder of the collection.
      split: train, dev or test, the name of the file in qrels/.

    Raises:
      ValueError: naming file and line, if a file is missing, empty or invalid, an id is repeated, a
        judgment names an unknown query or document, or a judged query has no relevant document.
    """
    folder = pathlib.Path(folder).expanduser()
    documents = dict(read_documents(find(folder, "corpus.jsonl")))
    queries = dict(read_queries(find(folder, "queries.jsonl")))
    path = find_judgments(folder, split)
    qrels: dict[str, dict[str, int]] = {}
    first: dict[str, str] = {}  # file and line of each query's first judgment
    for where, query, document, grade in _judgments(path):
        for kind, name, known in (("query", query, queries), ("document", document, documents)):
            if name not in known:
                file = "queries.jsonl" if kind == "query" else "corpus.jsonl"
                raise ValueError(
                    f"{where} names {kind} {name!r}, which {file} does not contain; the three "
                    f"files must belong to one collection."
                )
        if document in qrels.setdefault(query, {}):
            raise ValueError(f"{where} judges document {document!r} of query {query!r} again.")
        qrels[query][document] = grade
        first.setdefault(query, where)
    if not qrels:
        raise ValueError(f"{path} has no judgment; expected lines of {', '.join(_HEADER)}.")
    for query, grades in qrels.items():
        # nDCG divides by the best possible ranking, which has no gain without a relevant document.
        if max(grades.values()) <= 0:
            raise ValueError(
                f"{first[query]}: query {query!r} has no relevant document; delete its lines or "
                f"give one a score above 0."
            )
    # Queries of other splits have no judgments in this one.
    judged = {name: text for name, text in queries.items() if name in qrels}
    return Beir(documents, judged, {name: qrels[name] for name in judged})


def read_collections(folders: Sequence[str], split: str) -> dict[str, Beir]:
    """Reads collections, by the names of their folders; see `read_beir`."""
    collections: dict[str, Beir] = {}
    for folder in folders:
        name = pathlib.Path(folder).expanduser().name
        if name in collections:
            raise ValueError(f"{folder}: two folders are named {name!r}; rename one of them.")
        collections[name] = read_beir(folder, split)
    return collections


def find(folder: str | os.PathLike, name: str) -> str:
    """Returns the path of a file in a folder, which may be compressed."""
    if path := _existing(folder, name):
        return path
    raise ValueError(
        f"{folder} has no {name} (nor {name}.xz, .gz, .bz2); a BEIR folder has corpus.jsonl, "
        "queries.jsonl and qrels/SPLIT.tsv."
    )


def _existing(folder: str | os.PathLike, name: str) -> str:
    """Returns the path of a file that may be compressed; "" if it is missing."""
    paths = [pathlib.Path(folder, name + ending) for ending in _ENDINGS]
    return next((str(path) for path in paths if path.is_file()), "")


def find_judgments(folder: str | os.PathLike, split: str) -> str:
    """Returns the path of the judgments of a split."""
    folder = pathlib.Path(folder, "qrels")
    if path := _existing(folder, f"{split}.tsv"):
        return path
    splits = set()
    for ending in _ENDINGS:
        for file in folder.glob(f"*.tsv{ending}"):
            splits.add(file.name.partition(".tsv")[0])
    raise ValueError(
        f"{folder / split}.tsv is missing; the splits of {folder.parent} are {sorted(splits)}."
    )


def read_documents(path: str) -> Iterator[tuple[str, str]]:
    """Yields the id and the text, title included, of each document of a corpus.jsonl."""
    for where, name, row in _named(path):
        title = text_cell(row, "title", where)
        text = text_cell(row, "text", where)
        if row.get("text") is None and row.get("title") is None:
            raise ValueError(f"{where} has neither title nor text; give at least one.")
        yield name, f"{title} {text}".strip()


def read_queries(path: str) -> Iterator[tuple[str, str]]:
    """Yields the id and the text of each query of a queries.jsonl."""
    for where, name, row in _named(path):
        if not (text := text_cell(row, "text", where).strip()):
            raise ValueError(f"{where}: query {name!r} has no text.")
        yield name, text


def _named(path: str) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yields file and line, id and object for each line of a JSONL file, whose ids are unique."""
    seen: dict[str, str] = {}
    for where, row in read_table(path, None):
        name = row.get("_id")
        if isinstance(name, int) and not isinstance(name, bool):
            # Some collections have numbers here, but the judgments are read as text.
            name = str(name)
        if not isinstance(name, str) or not name:
            raise ValueError(f"{where}: _id is {name!r}, expected a non-empty string.")
        if name in seen:
            raise ValueError(f"{where} repeats the _id {name!r} of {seen[name]}; ids are unique.")
        seen[name] = where
        yield where, name, row


def text_cell(row: dict[str, Any], key: str, where: str) -> str:
    """Returns a text of a row; "" if it is missing or null."""
    value = row.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise ValueError(f"{where}: {key} is {value!r:.80}, expected a string.")
    return value


def _judgments(path: str) -> Iterator[tuple[str, str, str, int]]:
    """Yields file and line, query id, document id and grade of each judgment."""
    for number, (where, cells) in enumerate(read_cells(path)):
        if len(cells) != len(_HEADER):
            raise ValueError(
                f"{where} has {len(cells)} cells, expected {', '.join(_HEADER)}, separated by tabs."
            )
        query, document, text = cells
        if number == 0 and text == _HEADER[2]:
            # The header; some collections have none.
            continue
        try:
            grade = int(text)
        except ValueError:
            raise ValueError(f"{where}: the score is {text!r}, expected an integer.") from None
        yield where, query, document, grade
