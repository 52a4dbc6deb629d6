"""Metrics of ranked documents: nDCG, recall, MRR, MAP, precision, equal to trec_eval's.

Where the field has two conventions, the other one has a name:

  equal scores   ties="trec_eval": of two documents with one score the higher id comes first,
                 compared as strings ("9" before "10"), and scores are compared as float32.
                 ties="given": the order in which the run holds them, as sentence-transformers.
  MAP            map@10 divides by all relevant documents, as trec_eval. map_capped@10 divides by
                 min(10, relevant), so that a perfect first page scores 1, as sentence-transformers.
  missing        queries="qrels": the mean is over all judged queries; one that the run lacks
                 counts 0, as trec_eval -c. queries="both": over those that the run has too, as
                 trec_eval without -c and pytrec_eval.

A run holds scores, not ranks: {query id: {document id: score}}. Judgments (qrels) are
{query id: {document id: grade}}: documents graded above 0 are relevant, those without a grade are
not. nDCG takes the grade itself as the gain (linear), as trec_eval and BEIR do.

Reference: Järvelin and Kekäläinen 2002, "Cumulated gain-based evaluation of IR techniques";
https://github.com/usnistgov/trec_eval.
"""

import math
import re
from collections.abc import Mapping, Sequence

import numpy as np

Run = Mapping[str, Mapping[str, float]]
Qrels = Mapping[str, Mapping[str, float]]

TIES = ("trec_eval", "given")
QUERIES = ("qrels", "both")
KINDS = ("ndcg", "recall", "mrr", "map", "map_capped", "precision", "accuracy")
_MEASURE = re.compile(rf"({'|'.join(KINDS)})(?:@([1-9][0-9]*))?")


def evaluate(
    run: Run,
    qrels: Qrels,
    measures: Sequence[str],
    *,
    ties: str = "trec_eval",
    queries: str = "qrels",
    ignore_identical_ids: bool = False,
) -> dict[str, float]:
    """Returns the mean of each measure over queries.

    Args:
      run: the scores of the documents found for each query; the order within it means nothing
        with ties="trec_eval". Queries without judgments are left out.
      measures: such as "ndcg@10", "recall@100", "mrr@10", "map@100", "map_capped@100",
        "precision@10", "accuracy@1" (whether a relevant document is among the first); without @
        all documents of the run count.
      ties: how equal scores are ordered; see above.
      queries: over which queries the mean is; see above.
      ignore_identical_ids: leaves out the document whose id is the query's, as BEIR does: in
        collections where queries are documents each would find itself.

    Returns:
      Fractions of 1, by measure.

    Raises:
      ValueError: an unknown measure or convention, no judgments, a score that is NaN, or no query
        of the run that is judged.

    Example: one relevant document, found at rank 2: mrr@10 is 1 / 2, ndcg@10 is 1 / log2(3).
    """
    if queries not in QUERIES:
        raise ValueError(f"queries is {queries!r}, expected one of {', '.join(QUERIES)}.")
    by_query = evaluate_queries(
        run, qrels, measures, ties=ties, ignore_identical_ids=ignore_identical_ids
    )
    count = len(qrels) if queries == "qrels" else max(1, len(by_query))
    means = {}
    for name in measures:
        # fsum: the mean does not depend on the order of the queries.
        means[name] = math.fsum(values[name] for values in by_query.values()) / count
    return means


def evaluate_queries(
    run: Run,
    qrels: Qrels,
    measures: Sequence[str],
    *,
    ties: str = "trec_eval",
    ignore_identical_ids: bool = False,
) -> dict[str, dict[str, float]]:
    """Returns {query id: {measure: value}} of the queries that run and judgments share.

    Args, Raises: see `evaluate`.
    """
    cuts = {name: _parse(name) for name in measures}
    if not qrels:
        raise ValueError(
            "There are no judgments (qrels is empty); give those of at least one query."
        )
    values: dict[str, dict[str, float]] = {}
    for query, grades in qrels.items():
        if query not in run:
            continue
        scores = dict(run[query])
        if ignore_identical_ids:
            scores.pop(query, None)
        # Negative grades are not relevant, like documents without a grade.
        gains = [max(0, grades.get(name, 0)) for name in rank(scores, ties)]
        # All relevant documents, whether or not the run has them: the best possible ranking.
        ideal = sorted((grade for grade in grades.values() if grade > 0), reverse=True)
        values[query] = {}
        for name, (kind, cut) in cuts.items():
            values[query][name] = _value(kind, cut, gains, ideal)
    if not values and run:
        raise ValueError(
            f"The run and the judgments share no query: the run has {_some(run)}, the judgments "
            f"have {_some(qrels)}. Give both for the same queries, with ids as strings."
        )
    return values


def rank(scores: Mapping[str, float], ties: str = "trec_eval") -> list[str]:
    """Returns document ids, the best first; `ties` is one of the conventions above.

    Raises:
      ValueError: a score that is NaN, or an unknown convention.
    """
    if ties not in TIES:
        raise ValueError(f"ties is {ties!r}, expected one of {', '.join(TIES)}.")
    names = list(scores)
    values = np.fromiter(scores.values(), np.float64, len(names))
    if np.isnan(values).any():
        bad = names[int(np.argmax(np.isnan(values)))]
        raise ValueError(f"The score of document {bad!r} is NaN; a ranking needs numbers.")
    if ties == "given":
        # Stable: equal scores keep the order of the run.
        return [names[i] for i in np.argsort(-values, kind="stable")]
    with np.errstate(over="ignore"):
        stored = values.astype(np.float32).tolist()  # trec_eval compares float32.
    # Reversed as a whole: among equal scores the higher id comes first.
    order = sorted(range(len(names)), key=lambda i: (stored[i], names[i]), reverse=True)
    return [names[i] for i in order]


def _parse(measure: str) -> tuple[str, int | None]:
    """Returns kind and cut of a measure's name."""
    match = _MEASURE.fullmatch(measure)
    if not match:
        raise ValueError(
            f"{measure!r} is not a known measure; expected one of {', '.join(KINDS)}, mostly with "
            "a cut: ndcg@10."
        )
    return match[1], int(match[2]) if match[2] else None


def _value(kind: str, cut: int | None, gains: list[float], ideal: list[float]) -> float:
    """Returns one measure of one query.

    `gains` are those of the ranked documents, 0 for documents that are not relevant, `ideal` those
    of all relevant documents, descending.
    """
    if not ideal:
        return 0.0
    gains = gains[:cut]
    if kind == "ndcg":
        return _discounted(gains) / _discounted(ideal[:cut])
    hits = [position for position, gain in enumerate(gains, 1) if gain]  # from 1
    if kind == "recall":
        return len(hits) / len(ideal)
    if kind == "precision":
        count = cut or len(gains)
        return len(hits) / count if count else 0.0
    if kind == "accuracy":
        return float(bool(hits))
    if kind == "mrr":
        return 1 / hits[0] if hits else 0.0
    # The precision at each relevant document: documents found so far by position.
    precisions = sum(number / position for number, position in enumerate(hits, 1))
    possible = len(ideal) if kind == "map" or cut is None else min(cut, len(ideal))
    return precisions / possible


def _discounted(gains: list[float]) -> float:
    """Returns the discounted cumulative gain."""
    # A document at position p counts gain / log2(1 + p).
    return sum(gain / math.log2(1 + position) for position, gain in enumerate(gains, 1) if gain)


def _some(queries: Mapping[str, object]) -> str:
    names = list(map(repr, list(queries)[:3]))
    return ", ".join(names) + (", ..." if len(queries) > 3 else "")
