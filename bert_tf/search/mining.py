"""Mines hard negatives: documents that a model ranks high for a query but that do not answer it."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
from absl import logging

from bert_tf.corpus.splitmix import numpy_random_bits
from bert_tf.metrics.exact import top_k
from bert_tf.search.reranker import read_reranker
from bert_tf.system.files import atomic_write
from bert_tf.tasks.base.examples.known_texts import key_of
from bert_tf.tasks.embedding.beir import read_beir
from bert_tf.tasks.embedding.examples import read_embedding_examples
from bert_tf.tasks.embedding.model import BertEmbedder
from bert_tf.tasks.embedding.task import to_comparable
from bert_tf.text.text_counts import counting_texts


class Collection(NamedTuple):
    """Queries with the documents that answer them, and all documents."""

    documents: list[str]
    queries: list[str]
    positives: list[list[int]]  # for each query, indices into documents

    @classmethod
    def read(cls, data_dir: str, split: str, train_file: str, columns: tuple[str, str]) -> Self:
        """Reads by `read_beir`, or, if `data_dir` is "", by `read_embedding_examples`."""
        if data_dir:
            return cls._read_beir(data_dir, split)
        indices: dict[str, int] = {}
        by_query: dict[str, list[int]] = {}
        for example in read_embedding_examples(train_file, "--train_file", *columns):
            for text in (example.positive, *example.negatives):
                indices.setdefault(text, len(indices))
            positives = by_query.setdefault(example.query, [])
            if indices[example.positive] not in positives:
                positives.append(indices[example.positive])
        return cls(list(indices), list(by_query), list(by_query.values()))

    @classmethod
    def _read_beir(cls, data_dir: str, split: str) -> Self:
        beir = read_beir(data_dir, split)
        indices = {name: index for index, name in enumerate(beir.documents)}
        queries = []
        positives = []
        for query, grades in beir.qrels.items():
            # Some collections contain documents without title and text; these answer nothing.
            answers = [n for n, grade in grades.items() if grade > 0 and beir.documents[n]]
            if answers:
                queries.append(beir.queries[query])
                positives.append([indices[name] for name in answers])
        if not queries:
            raise ValueError(f"{data_dir}: all relevant documents of {split} are empty.")
        return cls(list(beir.documents.values()), queries, positives)


class Rules(NamedTuple):
    """Which of the nearest documents are negatives; see the flags of `mine_negatives`."""

    num_negatives: int = 4
    range_min: int = 0
    range_max: int = 50
    absolute_margin: float | None = None
    relative_margin: float | None = None
    min_score: float | None = None
    max_score: float | None = None
    is_random: bool = False
    seed: int = 0

    def choose(
        self, query: int, ranked: Sequence[int], scores: Mapping[int, float], positive: float
    ) -> list[int]:
        """Returns the negatives of a query, the highest score first.

        Args:
          scores: score of each document that the limits apply to.
          positive: the lowest score of the query's positives.
        """
        limits = [np.inf]
        if self.absolute_margin is not None:
            limits.append(positive - self.absolute_margin)
        if self.relative_margin is not None:
            # A cross-encoder's score may be negative; the margin is a share of its absolute value.
            limits.append(positive - abs(positive) * self.relative_margin)
        if self.max_score is not None:
            limits.append(self.max_score)
        highest = min(limits)
        lowest = -np.inf if self.min_score is None else self.min_score
        nearest = ranked[self.range_min : self.range_max]
        kept = [document for document in nearest if lowest <= scores[document] <= highest]
        if self.is_random and len(kept) > self.num_negatives:
            # Keys depend on seed, query and document alone, so other queries change nothing.
            random_keys = numpy_random_bits(self.seed, query, 0, np.array(kept, np.int64))
            order = np.argsort(random_keys, kind="stable")[: self.num_negatives]
            kept = [kept[i] for i in order]
        return sorted(kept, key=lambda document: -scores[document])[: self.num_negatives]


def mine(
    path: str,
    output_file: str,
    collection: Collection,
    rules: Rules,
    *,
    max_seq_length: int = 0,
    reranker: str = "",
    write_margins: bool = False,
    batch_size: int = 32,
) -> None:
    """Writes the negatives of each query as one JSON line; see `mine_negatives`.

    Args:
      collection, rules: the texts, and which documents become negatives.
      max_seq_length: tokens a text is cut to; 0: the model's default.
      reranker: path of a cross-encoder whose scores decide; "": the embeddings' scores decide.
      write_margins: whether to write a line per positive, with its score margins.

    Raises:
      ValueError: if a model cannot be read, or no query has a negative.
    """
    sizes: dict[str, Any] = {"max_seq_length": max_seq_length} if max_seq_length else {}
    model = BertEmbedder.from_pretrained(path, **sizes)
    cross_encoder = read_reranker(reranker) if reranker else None
    logging.info("Embedding %d documents.", len(collection.documents))
    documents = model.encode_document(collection.documents, batch_size=batch_size)
    queries = model.encode_query(collection.queries, batch_size=batch_size)
    seen = SeenTexts(model, collection)
    queries, documents = to_comparable(queries, documents, model.embedding.similarity)
    # Positives are dropped from the ranking, so search as many documents more.
    most_positives = max(map(len, collection.positives))
    depth = min(len(documents), rules.range_max + most_positives)
    _, rows = top_k(queries, documents, depth)  # [Q, depth]
    counts = []  # negatives of each query
    with atomic_write(output_file) as file:
        for number, (query, positives) in enumerate(
            zip(collection.queries, collection.positives, strict=True)
        ):
            # The ranks of the rules do not count positives, so these are removed first.
            ranked = _other_documents(collection, seen, number, rows[number])[: rules.range_max]
            candidates = [*ranked, *positives]
            if cross_encoder:
                texts = [collection.documents[document] for document in candidates]
                with counting_texts("mine", cross_encoder):
                    values = cross_encoder.pair_logits([query] * len(texts), texts, batch_size)
            else:
                # Both are prepared for the model's similarity: the dot product is the score.
                values = documents[candidates] @ queries[number]
            scores = dict(zip(candidates, map(float, values), strict=True))
            # The lowest one: the margins must hold for every positive.
            lowest_positive = min(scores[document] for document in positives)
            negatives = rules.choose(number, ranked, scores, lowest_positive)
            counts.append(len(negatives))
            for line in _lines(collection, number, negatives, scores, write_margins):
                file.write(json.dumps(line, ensure_ascii=False) + "\n")
        if not any(counts):
            raise ValueError("No query has a negative within the ranks and margins; widen them.")
    logging.info(
        "Wrote %s: %d negatives of %d queries; %d queries have no negatives.",
        output_file,
        sum(counts),
        len(counts) - counts.count(0),
        counts.count(0),
    )


class SeenTexts:
    """Keys of the tokens of documents, queries and "", without prompts: equal ones are one text."""

    def __init__(self, model: BertEmbedder, collection: Collection) -> None:
        def key(text: str) -> int:
            return key_of(np.array(model.pack(text).ids, np.int32))

        self.documents = list(map(key, collection.documents))
        self.queries = list(map(key, collection.queries))
        self.empty = key("")


def _other_documents(
    collection: Collection, seen: SeenTexts, query: int, rows: np.ndarray
) -> list[int]:
    """Returns the rows with distinct texts, without those of the query, its positives and ""."""
    # By token ids and not by row: a copy of a positive would be a false negative.
    excluded = {seen.documents[row] for row in collection.positives[query]}
    excluded |= {seen.queries[query], seen.empty}
    others: dict[int, int] = {}
    for row in rows.tolist():
        key = seen.documents[row]
        if key not in excluded:
            others.setdefault(key, row)
    return list(others.values())


def _lines(
    collection: Collection,
    query: int,
    negatives: list[int],
    scores: Mapping[int, float],
    write_margins: bool,
) -> list[dict]:
    """Returns the JSON lines of a query; with margins, no line if it has no negatives."""
    text = collection.queries[query]
    negative_texts = [collection.documents[row] for row in negatives]
    positives = collection.positives[query]
    if not write_margins:
        positive_texts = [collection.documents[row] for row in positives]
        return [{"query": text, "positives": positive_texts, "negatives": negative_texts}]
    if not negatives:
        return []
    lines = []
    for positive in positives:
        margins = [scores[positive] - scores[negative] for negative in negatives]
        lines.append(
            {
                "query": text,
                "positive": collection.documents[positive],
                "negatives": negative_texts,
                "scores": margins,
            }
        )
    return lines
