"""Reads queries with documents to rank, and their labels, from files.

A row of a JSONL, CSV or TSV file is one of

  query, positive(s), negative(s)    one text each, or lists; also negative_1, negative_2 ...
  query, document, label             a pair; rows of one query are put together
  query, documents, labels           lists

A label is a relevance, 0 for none; `scores`, in the order positives, negatives, are a teacher's.
A folder is a BEIR collection, whose queries are joined with the documents of a TREC run.
"""

import math
import pathlib
import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from bert_tf.examples.cells import as_list
from bert_tf.examples.columns import as_cell, is_missing, read_column, read_tuples
from bert_tf.examples.tables import Row, RowError, RowErrors, list_tables, read_rows
from bert_tf.fine_tuning_config import TableConfig
from bert_tf.metrics.ranking import Run, rank
from bert_tf.tasks.embedding.beir import read_beir
from bert_tf.type_names import Labels, Texts


class RankingExample(NamedTuple):
    """A query with documents; lists are of one length."""

    source: str  # where it stands, for messages
    query: str
    documents: tuple[str, ...]
    labels: tuple[float, ...]  # relevance
    scores: tuple[float, ...]  # a teacher's; () for none
    query_id: str
    document_ids: tuple[str, ...]
    grades: dict[str, float]  # of all relevant documents, also of others than these


def read_ranking(
    path: str, must_label: bool = True, reading: TableConfig | None = None
) -> list[RankingExample]:
    """Reads tables; see above.

    Args:
      path: files and globs, separated by commas.
      must_label: whether labels are needed.
      reading: how the user's tables are read; None: the defaults.

    Raises:
      ValueError: naming files and lines, if a row is of another form, a text is empty, a number is
        not finite, or lists are of different lengths; or if there is no row.
    """
    errors = RowErrors()
    rows = (
        row
        for table in list_tables(path, "--train_file, --eval_file or --predict_file")
        for row in read_rows(table, reading, ("query",), errors)
    )
    skips = must_label and reading is not None and reading.skip_unlabelled
    found = _read(rows, path, errors, must_label, skips)
    if not found:
        raise ValueError(f"{path} has no rows; expected a query with documents on each.")
    return found


def read_ranking_columns(
    x: Texts, y: Labels | None = None, loss: str = "bce"
) -> list[RankingExample]:
    """Reads columns or lists of tuples, as tables are read.

    Args:
      x: columns, (queries, documents) or (queries, positives, negatives), or the same as a list of
        tuples. A query has a document, a positive or a negative, or a list of them; more columns
        hold more negatives.
      y: of documents their labels, which for mse are a teacher's scores; of positives and negatives
        the teacher's scores, a list for each query in this order. None: there are none.
      loss: name of the loss.

    Raises:
      ValueError: naming the examples that are wrong, if there are no examples, or columns have
        different lengths.
    """
    columns = read_tuples(x)
    if len(columns) < 2:
        raise ValueError("x is one column, expected (queries, documents).")
    values = None if y is None else read_column(y, "y")
    if values is not None and len(values) != len(columns[0]):
        raise ValueError(f"Got {len(values):,} labels y for {len(columns[0]):,} examples.")
    if len(columns) == 2 and values is None:
        raise ValueError(
            "y is missing: documents need labels. Give fit((queries, documents), labels), or "
            "positives and negatives."
        )
    rows = []
    for index, cells in enumerate(zip(*columns, strict=True)):
        value = None if values is None else as_cell(values[index])
        rows.append((f"x[{index}]", _row(cells, value, loss)))
    return _read(rows, "x", RowErrors())


def _row(cells: tuple[Any, ...], value: object, loss: str) -> Row:
    """Returns an example of columns as a row of a table."""
    query, second, *others = map(as_cell, cells)
    if others:
        row = {"query": query, "positive": second}
        row |= {f"negative_{number}": cell for number, cell in enumerate(others, 1)}
        return row if value is None else {**row, "scores": value}
    if isinstance(second, list):
        row = {"query": query, "documents": second, "labels": value}
        return {**row, "scores": value} if loss == "mse" else row
    row = {"query": query, "document": second, "label": value}
    return {**row, "score": value} if loss == "mse" else row


def _read(
    rows: Iterable[tuple[str, Row]],
    source: str,
    errors: RowErrors,
    must_label: bool = True,
    skips: bool = False,
) -> list[RankingExample]:
    """Reads rows; see `read_ranking`.

    Args:
      rows: where each row is, for messages, and its values.
      source: of the rows, for messages.
      errors: of the rows.
      must_label: whether labels are needed.
      skips: whether rows without a label are left out.
    """
    held: dict[str, tuple[str, list[Any], list[float], list[float]]] = {}
    num_rows = 0
    for where, row in rows:
        num_rows += 1
        with errors:
            if skips and _is_unlabelled(row):
                errors.num_skipped += 1
                continue
            query = _text(row.get("query"), "query", where)
            documents, labels, scores = _documents(row, where, must_label)
            # Pairs of one query become one list; lists stay separate.
            key = query if "document" in row else where
            before = held.setdefault(key, (where, [query], [], []))
            if bool(before[3]) != bool(scores) and len(before[1]) > 1:
                raise RowError(f"{where}: give scores in all rows of a query, or in none.")
            before[1].extend(documents)
            before[2].extend(labels)
            before[3].extend(scores)
    num_good = num_rows - len(errors.errors) - errors.num_skipped
    errors.finish(source, max(0, num_good))
    found = []
    for number, (where, (query, *documents), labels, scores) in enumerate(held.values(), 1):
        ids = tuple(str(rank) for rank in range(1, len(documents) + 1))
        grades = {name: label for name, label in zip(ids, labels, strict=True) if label > 0}
        texts = tuple(documents), tuple(labels), tuple(scores)
        found.append(RankingExample(where, query, *texts, str(number), ids, grades))
    return found


def read_beir_ranking(
    folder: str, split: str, run: Run, k: int, adds_relevant: bool
) -> list[RankingExample]:
    """Joins the queries of a BEIR folder with the best documents that a search found.

    Args:
      folder: the collection.
      split: its judgments.
      run: the scores of the documents found, by query and document id.
      k: how many documents of each query are taken.
      adds_relevant: puts all relevant documents first, for training; else the run alone decides.

    Raises:
      ValueError: if the run names an unknown document, or has none of the queries.
    """
    beir = read_beir(folder, split)
    if not beir.qrels.keys() & run.keys():
        raise ValueError(
            f"The run has none of the {len(beir.qrels)} queries of {folder}'s {split} split, but "
            f"{list(run)[:3]}; make it with a search of that split."
        )
    found = []
    for query, grades in beir.qrels.items():
        relevant = {name: float(grade) for name, grade in grades.items() if grade > 0}
        names = rank(run.get(query, {}))
        if adds_relevant:
            names = [*relevant, *(name for name in names if name not in relevant)]
        names = names[: max(k, len(relevant)) if adds_relevant else k]
        if unknown := next((name for name in names if name not in beir.documents), None):
            raise ValueError(
                f"The run finds document {unknown!r} for query {query!r}, which {folder} does not "
                f"contain; the run belongs to another collection."
            )
        found.append(
            RankingExample(
                f"{folder} query {query}",
                beir.queries[query],
                tuple(beir.documents[name] for name in names),
                tuple(relevant.get(name, 0.0) for name in names),
                (),
                query,
                tuple(names),
                relevant,
            )
        )
    return found


def is_folder(path: str) -> bool:
    """Tells a BEIR folder from tables."""
    return pathlib.Path(path).is_dir()


def _is_unlabelled(row: Row) -> bool:
    """Returns whether a pair, or a list, has no label."""
    name = "label" if "document" in row else "labels" if "documents" in row else ""
    return bool(name) and (is_missing(row.get(name)) or row.get(name) == "")


def _documents(
    row: Row, where: str, must_label: bool
) -> tuple[list[str], list[float], list[float]]:
    """Returns the documents of a row, their labels and the teacher's scores."""
    if "document" in row:
        texts = [_text(row["document"], "document", where)]
        labels = _numbers([row.get("label")], "label", where, must_label)
        scores = _numbers([row["score"]], "score", where) if "score" in row else []
    elif "documents" in row:
        texts = list(_texts(row, ("documents",), where))
        given = as_list(row.get("labels"))
        labels = _numbers(given, "labels", where) if given is not None or must_label else []
        labels = labels or [0.0] * len(texts)
        scores = _numbers(row["scores"], "scores", where) if row.get("scores") else []
    else:
        positives = list(_texts(row, ("positive", "positives"), where))
        numbered = [name for name in row if re.fullmatch(r"negative_\d+", name)]
        numbered.sort(key=lambda name: int(name.removeprefix("negative_")))
        negatives = list(_texts(row, ("negative", "negatives", *numbered), where))
        if not positives:
            raise ValueError(
                f"{where} has {', '.join(map(str, row))}; expected query with positive and "
                "negatives, with document and label, or with documents and labels."
            )
        if both := next((text for text in negatives if text in positives), ""):
            raise RowError(f"{where}: {both!r:.80} is both a positive and a negative; keep one.")
        texts = positives + negatives
        labels = [1.0] * len(positives) + [0.0] * len(negatives)
        scores = _numbers(row["scores"], "scores", where) if row.get("scores") else []
    for name, values in (("labels", labels), ("scores", scores)):
        if values and len(values) != len(texts):
            raise RowError(
                f"{where}: {len(texts)} documents, but {len(values)} {name}; give one per document."
            )
    return texts, labels, scores


def _texts(row: Row, names: tuple[str, ...], where: str) -> Iterator[str]:
    for name in names:
        value = row.get(name)
        if name.endswith("s"):  # A single text may be code that looks like a list.
            value = as_list(value)
        for item in value if isinstance(value, list) else [value] * (value is not None):
            yield _text(item, name, where)


def _text(value: object, name: str, where: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise RowError(f"{where}: {name} is {value!r:.80}, expected a text.")
    return value


def _numbers(values: object, name: str, where: str, must_be: bool = True) -> list[float]:
    values = as_list(values)
    if not isinstance(values, list):
        raise RowError(f"{where}: {name} is {values!r:.80}, expected a list of numbers.")
    found = []
    for value in values:
        if not must_be and value in (None, ""):
            value = 0.0
        try:
            number = math.nan if isinstance(value, bool) else float(value)
        except (TypeError, ValueError):
            number = math.nan
        if not math.isfinite(number):
            raise RowError(f"{where}: {name} is {value!r:.80}, expected a number.")
        found.append(number)
    return found
