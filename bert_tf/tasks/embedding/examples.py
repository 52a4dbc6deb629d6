"""Reads examples to train embeddings on, and scored pairs to evaluate them, from tables.

The names of its columns define the form of a table (`COLUMNS` lists all of them):

    query, positive                          pairs
    query, positive, negative, negative_2    triplets, with any number of negatives
    query, positives, negatives              lists of texts, in JSONL
    .. and score                             of pairs: how like they are; with negatives: the
                                             teacher's margin, score(positive) - score(negative),
                                             one for each negative
    text                                     texts alone: each is its own positive

A .txt whose first line is neither a row of columns nor the name of one is no table: each of its
lines is a text alone; blank ones are skipped.
The files of the STS benchmark (sts-dev.csv: tabs, no header) are known by their name; their scores
are divided by 5.
"""

import pathlib
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from bert_tf.examples.cells import as_list
from bert_tf.examples.columns import as_cell, is_missing, read_column, read_tuples
from bert_tf.examples.tables import (
    RowError,
    RowErrors,
    is_plain_text,
    list_tables,
    read_plain_text,
    read_rows,
)
from bert_tf.fine_tuning_config import TableConfig
from bert_tf.tasks.classification.glue import read_sts_benchmark
from bert_tf.tasks.embedding.beir import read_beir
from bert_tf.type_names import Labels, Texts

COLUMNS = {
    "query": ("query", "anchor", "question", "sentence1", "text_a"),
    "positive": ("positive", "positives", "pos", "document", "answer", "sentence2", "text_b"),
    "negative": ("negative", "negatives", "neg"),
    "score": ("score", "scores", "label", "similarity", "margin"),
    "text": ("text", "sentence"),
}
_NUMBERED = re.compile(r"negative_(\d+)")
# In these a list may be written out in a cell; a single text may be code that looks like one.
_OF_LISTS = ("positives", "pos", "negatives", "neg")
MOST_STS = 5.0


class EmbeddingExample(NamedTuple):
    """A text with one that should be near it, and others that should not.

    Attributes:
      query, positive: the texts; of scored pairs the positive is the other text.
      negatives: texts that should be further away than the positive.
      scores: of a pair its similarity, one number; with negatives a margin for each; or (). For
        the loss `same_label`, the labels of both texts as 0 and 1, first those of the query.
      source: where it stands, for messages.
    """

    query: str
    positive: str
    negatives: tuple[str, ...]
    scores: tuple[float, ...]
    source: str


def read_embedding_examples(
    paths: str,
    flag: str,
    query_column: str = "",
    positive_column: str = "",
    must_have: bool = True,
    reading: TableConfig | None = None,
) -> list[EmbeddingExample]:
    """Reads tables.

    Args:
      paths: files, globs or tfds:NAME, separated by commas.
      flag: names them in messages.
      query_column, positive_column: names of columns; "": found by `COLUMNS`.
      must_have: whether rows without these columns are refused; else theirs are found, too.
      reading: how the user's tables are read; None: the defaults.

    Raises:
      ValueError: naming files and lines, if columns, texts or numbers are missing or others than
        above; or naming the flag, if there is no example.
    """
    examples: list[EmbeddingExample] = []
    given = {"query": query_column, "positive": positive_column}
    known = set(given.values()).union(*COLUMNS.values())
    errors = RowErrors()
    num_rows = 0
    for path in list_tables(paths, flag):
        if re.fullmatch(r"sts-\w+\.csv", pathlib.PurePath(path).name):
            rows = _sts_rows(path)
        elif is_plain_text(path, known):
            rows = ((where, {"text": line}) for where, line in read_plain_text(path))
        else:
            wanted = [name for name in given.values() if name]
            rows = read_rows(path, reading, wanted if must_have else (), errors)
        names: dict[str, list[str]] = {}
        found: tuple[str, ...] = ()
        for where, row in rows:
            if tuple(row) != found:
                has_all = all(name in row for name in given.values() if name)
                found = tuple(row)
                names = _find_columns(row, where, given if must_have or has_all else {})
            num_rows += 1
            with errors:
                if reading and reading.skip_unlabelled and _is_unlabelled(row, names):
                    errors.num_skipped += 1
                    continue
                examples += list(_examples(row, names, where))
    num_good = num_rows - len(errors.errors) - errors.num_skipped
    errors.finish(paths, max(0, num_good))
    if not examples:
        raise ValueError(f"{flag}={paths} holds no examples; give a file with rows.")
    widths = {(bool(e.negatives), bool(e.scores)) for e in examples}
    if len({has_scores for _, has_scores in widths}) > 1:
        bare = next(e for e in examples if not e.scores)
        raise ValueError(f"{bare.source} has no score, but other examples have; score all or none.")
    return examples


def read_embedding_columns(x: Texts, y: Labels | None = None) -> list[EmbeddingExample]:
    """Reads columns or lists of tuples, as tables are read.

    Args:
      x: columns, (queries, positives) or (queries, positives, negatives), where a query may have a
        list of positives or of negatives, and more columns hold more negatives; or the same as a
        list of tuples; or a list of single texts; or a list of `EmbeddingExample`.
      y: scores of pairs; with negatives the teacher's margins, one for each negative. None: there
        are none.

    Raises:
      ValueError: naming the examples that are wrong, if there are no examples, or columns have
        different lengths.
    """
    if isinstance(x, list) and x and isinstance(x[0], EmbeddingExample):
        return x
    columns = read_tuples(x)
    count = len(columns[0])
    if len(columns) == 1:  # Single texts: each is its own positive.
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
    errors.raise_any(count - len(errors.errors))
    return examples


def read_beir_examples(folder: str, split: str) -> list[EmbeddingExample]:
    """Returns an example for each relevant document of each query of a BEIR folder.

    Documents judged as not relevant (grade 0 or less) are its negatives.

    Raises:
      ValueError: see `read_beir`.
    """
    beir = read_beir(folder, split)
    examples = []
    for query, grades in beir.qrels.items():
        negatives = tuple(beir.documents[name] for name, grade in grades.items() if grade <= 0)
        for name, grade in grades.items():
            if grade > 0:
                source = f"{folder}, query {query!r}"
                examples.append(
                    EmbeddingExample(
                        beir.queries[query], beir.documents[name], negatives, (), source
                    )
                )
    return examples


def _sts_rows(path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for where, row in read_sts_benchmark(path):
        score = _number(row["score"], where, "score") / MOST_STS
        yield where, {"sentence1": row["sentence1"], "sentence2": row["sentence2"], "score": score}


def _find_columns(row: dict[str, Any], where: str, given: dict[str, str]) -> dict[str, list[str]]:
    """Returns the columns of each part.

    Raises:
      ValueError: listing the columns, if the parts cannot be told.
    """
    if missing := [name for name in given.values() if name and name not in row]:
        raise ValueError(f"{where}: no column {missing[0]!r}; the columns are {', '.join(row)}.")
    names: dict[str, list[str]] = {}
    for part, known in COLUMNS.items():
        if given.get(part):
            names[part] = [given[part]]
        else:
            names[part] = [name for name in known if name in row and name not in given.values()]
    names["negative"] += sorted(
        (name for name in row if _NUMBERED.fullmatch(name)),
        key=lambda name: int(name.rpartition("_")[2]),
    )
    for part in ("query", "positive", "score"):
        if len(names[part]) > 1:
            raise ValueError(
                f"{where}: {' and '.join(names[part])} could both be the {part}; rename one, or "
                "give --query_column and --positive_column."
            )
    if not names["query"] and not names["positive"] and len(names["text"]) == 1:
        return {**names, "query": names["text"], "positive": names["text"]}
    if not names["query"] or not names["positive"]:
        raise ValueError(
            f"{where}: the columns are {', '.join(row)}; expected a query ("
            f"{', '.join(COLUMNS['query'])}) and a positive ({', '.join(COLUMNS['positive'])}), "
            "or only text. Give --query_column and --positive_column if they have other names."
        )
    return names


def _is_unlabelled(row: dict[str, Any], names: dict[str, list[str]]) -> bool:
    """Returns whether a row lacks the score that it should have."""
    return any(is_missing(row[name]) or row[name] == "" for name in names["score"])


def _examples(
    row: dict[str, Any], names: dict[str, list[str]], where: str
) -> Iterator[EmbeddingExample]:
    queries = _texts(row, names["query"], where)
    if len(queries) != 1:
        raise RowError(
            f"{where}: {names['query'][0]} has {len(queries)} texts, expected one; give each a row "
            "of its own."
        )
    (query,) = queries
    positives = _texts(row, names["positive"], where)
    negatives = _texts(row, names["negative"], where)
    if not positives:
        raise RowError(f"{where} has no positive; give one.")
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
        scores = tuple(_number(one, where, name) for one in values)
        if len(scores) != max(1, len(negatives)):
            raise RowError(
                f"{where}: {len(scores)} numbers in {name}, expected {max(1, len(negatives))}: one "
                f"for a pair, or one per negative."
            )
    for positive in positives:
        yield EmbeddingExample(query, positive, tuple(negatives), scores, where)


def _texts(row: dict[str, Any], names: list[str], where: str) -> list[str]:
    """Returns the texts of columns, lists of texts joined.

    Raises:
      ValueError: naming the column, if there is something else or an empty text.
    """
    texts: list[str] = []
    for name in names:
        value = as_list(row[name]) if name in _OF_LISTS else row[name]
        values = value if isinstance(value, list) else [value]
        for text in values:
            if not isinstance(text, str) or not text.strip():
                raise RowError(
                    f"{where}: {name} is {row[name]!r:.80}, expected a text, or a list "
                    "of texts, none of them empty."
                )
            texts.append(text)
    return texts


def _number(value: Any, where: str, name: str) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = float("nan")
    if number != number or number in (float("inf"), float("-inf")):
        raise RowError(f"{where}: {name} is {value!r:.80}, expected a number.")
    return number
