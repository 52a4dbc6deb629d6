"""Reads queries, documents to rank and labels from files or columns.

A row of a JSONL, CSV or TSV file has one of three formats:

  query, positive(s), negative(s)    a text each, or lists; also negative_1, negative_2 ...
  query, document, label             a pair; the rows of a query are joined
  query, documents, labels           lists

A label is a relevance: 0 for an irrelevant document, or a grade. `scores` are the scores of a
teacher, for positives and negatives in this order. A folder is a BEIR collection, whose queries are
joined with the documents of a TREC run.
"""

import itertools
import pathlib
from collections.abc import Iterable
from typing import Any, NamedTuple

from bert_tf.config.fine_tuning_config import TableConfig
from bert_tf.metrics.ranking import Run, rank
from bert_tf.system.type_names import Labels, Texts
from bert_tf.tasks.base.examples.cells import as_list
from bert_tf.tasks.base.examples.columns import as_cell, is_missing, read_column, read_tuples
from bert_tf.tasks.base.examples.row_errors import RowError, RowErrors, Unlabelled
from bert_tf.tasks.base.examples.row_values import number_of, numbered_negatives, text_of, texts_of
from bert_tf.tasks.base.examples.tables import Row, list_tables, read_rows
from bert_tf.tasks.embedding.beir import read_beir


class RankingExample(NamedTuple):
    """A query with documents. Lists have one entry per document."""

    source: str  # file and line, for messages
    query: str  # the text of the query
    documents: tuple[str, ...]  # the texts of the documents
    labels: tuple[float, ...]  # the relevance of the documents
    scores: tuple[float, ...]  # the scores of a teacher; () without a teacher
    query_id: str  # identifies the query in runs
    document_ids: tuple[str, ...]  # identify the documents in runs
    # Relevance, by document id, of all relevant documents, including those that are not among
    # `documents`: metrics need them.
    grades: dict[str, float]


def read_ranking(
    path: str, must_label: bool = True, reading: TableConfig | None = None
) -> list[RankingExample]:
    """Reads tables in the formats described above.

    Args:
      path: files and globs, separated by commas.
      must_label: whether labels are needed.
      reading: options for reading tables; None: the defaults.

    Raises:
      ValueError: naming files and lines, if a row has another format, a text is empty, a number is
        not finite, or lists have different lengths; or if there are no rows.
    """
    errors = RowErrors(reading)
    tables = list_tables(path, "--train_file, --eval_file or --predict_file")
    rows = itertools.chain.from_iterable(
        read_rows(table, reading, ("query",), errors) for table in tables
    )
    examples = _read(rows, path, errors, must_label)
    if not examples:
        raise ValueError(f"{path} has no rows; expected a query with documents on each.")
    return examples


def read_ranking_columns(
    x: Texts, y: Labels | None = None, loss: str = "bce"
) -> list[RankingExample]:
    """Reads columns, or a list of tuples, as rows of a table.

    Args:
      x: columns (queries, documents) or (queries, positives, negatives), or the same as a list of
        tuples. A cell is a text or a list of texts. Further columns are further negatives.
      y: labels of the documents, which for mse are a teacher's scores; with positives and
        negatives, a list of a teacher's scores for each query, in this order, or None.
      loss: name of the loss.

    Raises:
      ValueError: naming the invalid examples; or if there are no examples, or columns have
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
    """Converts an example of columns to a row of a table."""
    query, second, *negatives = map(as_cell, cells)
    if negatives:
        row = {"query": query, "positive": second}
        for number, negative in enumerate(negatives, 1):
            row[f"negative_{number}"] = negative
        if value is not None:
            row["scores"] = value
        return row
    if isinstance(second, list):
        row = {"query": query, "documents": second, "labels": value}
        # mse learns y as scores. As labels, these only decide which documents come first.
        if loss == "mse":
            row["scores"] = value
        return row
    row = {"query": query, "document": second, "label": value}
    if loss == "mse":
        row["score"] = value
    return row


class _List(NamedTuple):
    """The documents of a query, of one or more rows."""

    source: str
    query: str
    documents: list[str]
    labels: list[float]
    scores: list[float]


def _read(
    rows: Iterable[tuple[str, Row]], source: str, errors: RowErrors, must_label: bool = True
) -> list[RankingExample]:
    """Reads rows, each with its file and line for messages; see `read_ranking`."""
    lists: dict[str, _List] = {}
    for where, row in rows:
        if must_label and errors.leaves_out(row):
            continue
        with errors:
            if must_label:
                _check_labelled(row, where)
            query = text_of(row.get("query"), "query", where)
            documents, labels, scores = _documents(row, where, must_label)
            # Pairs with the same query become one list; rows with lists stay separate.
            key = query if "document" in row else where
            joined = lists.setdefault(key, _List(where, query, [], [], []))
            if joined.documents and bool(joined.scores) != bool(scores):
                raise RowError(f"{where}: give scores in all rows of a query, or in none.")
            joined.documents.extend(documents)
            joined.labels.extend(labels)
            joined.scores.extend(scores)
    errors.finish(source)
    examples = []
    for number, joined in enumerate(lists.values(), 1):
        # Tables have no ids: documents are numbered within their query.
        ids = tuple(map(str, range(1, len(joined.documents) + 1)))
        labels_of_ids = zip(ids, joined.labels, strict=True)
        example = RankingExample(
            source=joined.source,
            query=joined.query,
            documents=tuple(joined.documents),
            labels=tuple(joined.labels),
            scores=tuple(joined.scores),
            query_id=str(number),
            document_ids=ids,
            grades={name: label for name, label in labels_of_ids if label > 0},
        )
        examples.append(example)
    return examples


def read_beir_ranking(
    folder: str, split: str, run: Run, k: int, adds_relevant: bool
) -> list[RankingExample]:
    """Joins the queries of a BEIR folder with the best documents of a first-stage search.

    Args:
      split: the split whose judgments are used.
      run: scores of the search, by query id and document id.
      k: number of documents per query.
      adds_relevant: whether all relevant documents come first, for training; otherwise only
        documents of the run are used, as in a search.
    """
    beir = read_beir(folder, split)
    if not beir.qrels.keys() & run.keys():
        raise ValueError(
            f"The run has queries {list(run)[:3]}, but no query of the {split} split of {folder}, "
            f"which has {len(beir.qrels)}; make the run by a search of that split."
        )
    examples = []
    for query, grades in beir.qrels.items():
        relevant = {name: float(grade) for name, grade in grades.items() if grade > 0}
        # A query of the split may be missing from the run; then it has no candidates.
        names = rank(run.get(query, {}))
        num_documents = k
        if adds_relevant:
            # The search may have missed relevant documents, which are needed as positives.
            others = [name for name in names if name not in relevant]
            names = [*relevant, *others]
            # All relevant documents are kept, even if there are more than k.
            num_documents = max(k, len(relevant))
        names = names[:num_documents]
        if unknown := next((name for name in names if name not in beir.documents), None):
            raise ValueError(
                f"The run has document {unknown!r} for query {query!r}, which {folder} does not "
                f"contain; the run belongs to another collection."
            )
        examples.append(
            RankingExample(
                source=f"{folder} query {query}",
                query=beir.queries[query],
                documents=tuple(beir.documents[name] for name in names),
                labels=tuple(relevant.get(name, 0.0) for name in names),
                scores=(),
                query_id=query,
                document_ids=tuple(names),
                grades=relevant,
            )
        )
    return examples


def is_folder(path: str) -> bool:
    """Returns whether a path is a BEIR folder rather than a list of tables."""
    return pathlib.Path(path).is_dir()


def _check_labelled(row: Row, where: str) -> None:
    """Raises `Unlabelled` for a pair without a label, or a list without labels."""
    # Positives and negatives are labels.
    for texts, name in (("document", "label"), ("documents", "labels")):
        if texts in row and (is_missing(row.get(name)) or row[name] == ""):
            raise Unlabelled(f"{where}: {name} is {row.get(name)!r}, expected a number for each.")


def _documents(
    row: Row, where: str, must_label: bool
) -> tuple[list[str], list[float], list[float]]:
    """Returns the documents of a row, their labels and the teacher's scores."""
    if "document" in row:
        texts = [text_of(row["document"], "document", where)]
        labels = _numbers([row.get("label")], "label", where, must_label)
        scores = _numbers([row["score"]], "score", where) if "score" in row else []
    elif "documents" in row:
        texts = texts_of(row, ("documents",), where)
        given = as_list(row.get("labels"))
        labels = _numbers(given, "labels", where) if given is not None or must_label else []
        labels = labels or [0.0] * len(texts)  # Documents to rank have no labels.
        scores = _numbers(row["scores"], "scores", where) if row.get("scores") else []
    else:
        known = {name: value for name, value in row.items() if value is not None}
        positives = texts_of(known, filter(known.__contains__, ("positive", "positives")), where)
        names = filter(known.__contains__, ("negative", "negatives"))
        negatives = texts_of(known, [*names, *numbered_negatives(known)], where)
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


def _numbers(values: object, name: str, where: str, must_be: bool = True) -> list[float]:
    """Reads a list of finite numbers; unless they must be given, missing numbers are 0."""
    values = as_list(values)
    if not isinstance(values, list):
        raise RowError(f"{where}: {name} is {values!r:.80}, expected a list of numbers.")
    numbers = []
    for value in values:
        is_missing_label = not must_be and value in (None, "")
        numbers.append(0.0 if is_missing_label else number_of(value, name, where))
    return numbers
