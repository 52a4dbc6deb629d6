"""Reads examples to train embeddings on, and scored pairs to evaluate them, from tables.

The names of the columns define the format of a table (`COLUMNS` lists all of them):

    query, positive                          pairs
    query, positive, negative, negative_2    triplets, with any number of negatives
    query, positives, negatives              lists of texts, in JSONL
    .. and score                             the similarity of a pair; with negatives, the teacher's
                                             margin, score(positive) - score(negative), for each
                                             negative
    text                                     single texts: each is its own positive

A .txt is read as a table if its first line has several columns or is the name of a column.
Otherwise each line is a single text, and blank lines are skipped. The files of the STS benchmark
(sts-dev.csv: tabs, no header) are recognized by their name; their scores are divided by 5.
"""

import contextlib
import pathlib
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from bert_tf.config.fine_tuning_config import TableConfig
from bert_tf.system.type_names import Labels, Texts
from bert_tf.tasks.base.examples import tables
from bert_tf.tasks.base.examples.cells import as_list
from bert_tf.tasks.base.examples.columns import as_cell, is_missing, read_column, read_tuples
from bert_tf.tasks.base.examples.row_errors import ACCEPTED, RowError, RowErrors, Unlabelled
from bert_tf.tasks.base.examples.row_values import number_of, numbered_negatives, texts_of
from bert_tf.tasks.classification.glue import read_sts_benchmark
from bert_tf.tasks.embedding.beir import read_beir

COLUMNS = {
    "query": ("query", "anchor", "question", "sentence1", "text_a"),
    "positive": ("positive", "positives", "pos", "document", "answer", "sentence2", "text_b"),
    "negative": ("negative", "negatives", "neg"),
    "score": ("score", "scores", "label", "similarity", "margin"),
    "text": ("text", "sentence"),
}
MAX_STS_SCORE = 5.0
UNSCORED = -1.0  # in place of a score, as in test sets of Hugging Face and TFDS


class EmbeddingExample(NamedTuple):
    """A text, a text that should be near it, and texts that should not."""

    # query, positive: the texts; the positive of a scored pair is its other text.
    query: str
    positive: str
    negatives: tuple[str, ...]  # texts that should be further away than the positive
    # The similarity of a pair, a single number; with negatives, a margin for each negative; or ().
    # For the loss `same_label`, the labels of both texts as 0 and 1, first those of the query.
    scores: tuple[float, ...]
    source: str  # file and line, for messages


def read_embedding_examples(
    paths: str,
    flag: str,
    query_column: str = "",
    positive_column: str = "",
    must_have: bool = True,
    reading: TableConfig | None = None,
    text_column: str | None = None,
) -> list[EmbeddingExample]:
    """Reads tables.

    Args:
      query_column, positive_column: names of columns; "": one of `COLUMNS`.
      must_have: whether tables must have these columns; otherwise tables without them may have
        columns of `COLUMNS`.
      text_column: reads single texts, of this column or else of one of `COLUMNS`; labels and other
        columns are ignored. None: reads pairs as well.

    Raises:
      ValueError: naming files and lines, if columns, texts or numbers are missing or invalid; or
        naming the flag, if there are no examples.
    """
    examples: list[EmbeddingExample] = []
    given = {"query": query_column, "positive": positive_column}
    known = set(given.values()).union(*COLUMNS.values())
    wanted = [name for name in given.values() if name and must_have]
    errors = RowErrors(reading)
    for path in tables.list_tables(paths, flag):
        names: dict[str, list[str]] = {}
        columns: tuple[str, ...] = ()
        for where, row in _rows(path, known, wanted, reading, errors):
            if errors.leaves_out(row, given.values() if "positive" in row else known):
                continue
            if "positive" in row and row.get("answer") == ACCEPTED:
                row = {name: value for name, value in row.items() if name != "answer"}
            if text_column is not None:
                row = _only_text(row, text_column)
            # Objects of a JSONL may have different keys, so that columns can change within a file.
            if tuple(row) != columns:
                has_all = all(name in row for name in given.values() if name)
                columns = tuple(row)
                names = _find_columns(row, where, given if must_have or has_all else {})
            with errors:
                examples += list(_examples(row, names, where))
    unscored = _unscored(examples)
    if unscored and len(unscored) < len(examples) and errors.skips_unlabelled:
        errors.num_skipped += len(unscored)
        errors.num_good -= len(unscored)
        left_out = {example.source for example in unscored}
        examples = [example for example in examples if example.source not in left_out]
        unscored = []
    errors.finish(paths)
    if not examples:
        raise ValueError(f"{flag}={paths} contains no examples; give a file with rows.")
    if unscored:
        shown = "the score -1, which marks a row without one" if unscored[0].scores else "no score"
        raise ValueError(
            f"{unscored[0].source} has {shown} ({len(unscored)} of {len(examples)} examples); "
            "score all or none, or leave these rows out: --skip_unlabelled."
        )
    return examples


def _unscored(examples: list[EmbeddingExample]) -> list[EmbeddingExample]:
    """Returns the examples without a score where others have one.

    Data sets mark them by -1, which is a score only among cosines.
    """
    scores = [example.scores[0] for example in examples if example.scores]
    has_marks = bool(scores) and (max(scores) > 1 or max(scores) == UNSCORED)
    unscored = []
    for example in examples:
        is_marked = has_marks and example.scores == (UNSCORED,) and not example.negatives
        if is_marked or scores and not example.scores:
            unscored.append(example)
    return unscored


def read_embedding_columns(x: Texts, y: Labels | None = None) -> list[EmbeddingExample]:
    """Reads columns, or a list of tuples, as rows of a table.

    Args:
      x: columns (queries, positives) or (queries, positives, negatives), where positives and
        negatives may be lists, and further columns are further negatives; or the same as a list of
        tuples; or a list of single texts; or a list of `EmbeddingExample`.
      y: scores of pairs; with negatives, the teacher's margin for each negative; or None.

    Raises:
      ValueError: naming the invalid examples; or if there are no examples, or columns have
        different lengths.
    """
    if isinstance(x, list) and x and isinstance(x[0], EmbeddingExample):
        return x
    columns = read_tuples(x)
    count = len(columns[0])
    if len(columns) == 1:
        # Each single text is its own positive (SimCSE).
        columns *= 2
    scores = None if y is None else read_column(y, "y")
    if scores is not None and len(scores) != count:
        raise ValueError(f"Got {len(scores):,} scores y for {count:,} examples.")
    negatives = [f"negative_{number}" for number in range(1, len(columns) - 1)]
    names: dict[str, list[str]] = {
        "query": ["query"],
        "positive": ["positive"],
        "negative": negatives,
        "score": [] if scores is None else ["score"],
    }
    column_names = ["query", "positive", *negatives]
    examples: list[EmbeddingExample] = []
    errors = RowErrors()
    for index, cells in enumerate(zip(*columns, strict=True)):
        row = dict(zip(column_names, map(as_cell, cells), strict=True))
        if scores is not None:
            row["score"] = as_cell(scores[index])
        with errors:
            examples += list(_examples(row, names, f"x[{index}]"))
    errors.raise_any()
    return examples


def read_beir_examples(folder: str, split: str) -> list[EmbeddingExample]:
    """Returns an example for each relevant document of each query of a BEIR folder.

    The negatives are the documents that are judged irrelevant (grade 0 or less).
    """
    beir = read_beir(folder, split)
    examples = []
    for query, grades in beir.qrels.items():
        negatives = tuple(beir.documents[name] for name, grade in grades.items() if grade <= 0)
        for name, grade in grades.items():
            if grade > 0:
                example = EmbeddingExample(
                    query=beir.queries[query],
                    positive=beir.documents[name],
                    negatives=negatives,
                    scores=(),
                    source=f"{folder}, query {query!r}",
                )
                examples.append(example)
    return examples


def _rows(
    path: str, known: set[str], wanted: list[str], reading: TableConfig | None, errors: RowErrors
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Returns the rows of STS-B, or of a table, which has `known` columns, or lines of text."""
    if re.fullmatch(r"sts-\w+\.csv", pathlib.PurePath(path).name):
        return _sts_rows(path)
    if tables.is_plain_text(path, known):
        return ((where, {"text": line}) for where, line in tables.read_plain_text(path))
    return tables.read_rows(path, reading, wanted, errors)


def _sts_rows(path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for where, row in read_sts_benchmark(path):
        score: float | str = row["score"]
        with contextlib.suppress(RowError):
            number = number_of(score, "score", where)
            # The reader of rows reports what is no score.
            score = number / MAX_STS_SCORE if 0 <= number <= MAX_STS_SCORE else ""
        yield where, {"sentence1": row["sentence1"], "sentence2": row["sentence2"], "score": score}


def _only_text(row: dict[str, Any], column: str) -> dict[str, Any]:
    """Returns the text of a row; a row without one as it is, but for its label."""
    for name in (column, *COLUMNS["text"]):
        if name in row:
            return {"text": row[name]}
    return {name: value for name, value in row.items() if name not in COLUMNS["score"]}


def _find_columns(row: dict[str, Any], where: str, given: dict[str, str]) -> dict[str, list[str]]:
    """Returns the columns of each part of an example; parts are the keys of `COLUMNS`."""
    if missing := [name for name in given.values() if name and name not in row]:
        raise ValueError(f"{where}: no column {missing[0]!r}; the columns are {', '.join(row)}.")
    names: dict[str, list[str]] = {}
    for part, known in COLUMNS.items():
        if given.get(part):
            names[part] = [given[part]]
        else:
            # A column that a flag names has that part only, whatever else its name may mean.
            names[part] = [name for name in known if name in row and name not in given.values()]
    names["negative"] += numbered_negatives(row)
    for part in ("query", "positive", "score"):
        if len(names[part]) > 1:
            raise ValueError(
                f"{where}: {' and '.join(names[part])} could both be the {part}; rename one, or "
                "give --query_column and --positive_column."
            )
    if not names["query"] and not names["positive"] and len(names["text"]) == 1:
        # Single texts: each is its own positive (SimCSE).
        return {**names, "query": names["text"], "positive": names["text"]}
    if not names["query"] or not names["positive"]:
        raise ValueError(
            f"{where}: the columns are {', '.join(row)}; expected a query ("
            f"{', '.join(COLUMNS['query'])}) and a positive ({', '.join(COLUMNS['positive'])}), "
            "or only text. Give --query_column and --positive_column if they have other names."
        )
    return names


def _examples(
    row: dict[str, Any], names: dict[str, list[str]], where: str
) -> Iterator[EmbeddingExample]:
    """Yields an example for each positive of a row; see `_find_columns` for `names`."""
    for name in names["score"]:
        if is_missing(row[name]) or row[name] == "":
            raise Unlabelled(f"{where}: {name} is {row[name]!r}, expected a number.")
    queries = texts_of(row, names["query"], where)
    if len(queries) != 1:
        raise RowError(
            f"{where}: {names['query'][0]} has {len(queries)} texts, expected one; write a row for "
            "each."
        )
    (query,) = queries
    positives = texts_of(row, names["positive"], where)
    negatives = texts_of(row, names["negative"], where)
    if not positives:
        raise RowError(f"{where} has no positive; give one.")
    # A text as its own negative would be pushed away from itself.
    if both := set(negatives) & {query, *positives}:
        raise RowError(
            f"{where}: {min(both)[:60]!r} is both a negative and the query or a positive; "
            f"remove one."
        )
    scores: tuple[float, ...] = ()
    if names["score"]:
        name = names["score"][0]
        value = as_list(row[name])
        values = value if isinstance(value, list) else [value]
        for one in values:
            # The labels of pairs may be true and false.
            number = float(one) if isinstance(one, bool) else number_of(one, name, where)
            scores = (*scores, number)
        if len(scores) != max(1, len(negatives)):
            raise RowError(
                f"{where}: {len(scores)} numbers in {name}, expected {max(1, len(negatives))}: one "
                f"for a pair, or one per negative."
            )
    for positive in positives:
        yield EmbeddingExample(query, positive, tuple(negatives), scores, where)
