"""Mines hard negatives: documents that a model finds for a query but that are not answers."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
from absl import logging

from bert_tf.corpus.splitmix import numpy_random_bits
from bert_tf.files import atomic_write
from bert_tf.search.reranker import Reranker
from bert_tf.tasks.embedding.beir import read_beir
from bert_tf.tasks.embedding.examples import read_embedding_examples
from bert_tf.tasks.embedding.model import BertEmbedder
from bert_tf.tasks.embedding.task import to_comparable
from bert_tf.vectors.exact import top_k


class Collection(NamedTuple):
    """Queries with the documents that answer them, and all documents."""

    documents: list[str]
    queries: list[str]
    positives: list[list[int]]  # places in documents, of each query

    @classmethod
    def read(cls, data_dir: str, split: str, train_file: str, columns: tuple[str, str]) -> Self:
        """Reads a BEIR folder, or else a file of pairs; see `read_embedding_examples`.

        Raises:
          ValueError: see `read_beir` and `read_embedding_examples`.
        """
        if data_dir:
            beir = read_beir(data_dir, split)
            names = {name: place for place, name in enumerate(beir.documents)}
            found = []
            for query, grades in beir.qrels.items():
                # A document without title and text, as some collections have, answers nothing.
                answers = [n for n, grade in grades.items() if grade > 0 and beir.documents[n]]
                if answers:
                    found.append((beir.queries[query], [names[name] for name in answers]))
            if not found:
                raise ValueError(f"{data_dir}: all relevant documents of {split} are empty.")
            return cls(list(beir.documents.values()), *map(list, zip(*found, strict=True)))
        places: dict[str, int] = {}
        by_query: dict[str, list[int]] = {}
        for example in read_embedding_examples(train_file, "--train_file", *columns):
            for text in (example.positive, *example.negatives):
                places.setdefault(text, len(places))
            own = by_query.setdefault(example.query, [])
            if places[example.positive] not in own:
                own.append(places[example.positive])
        return cls(list(places), list(by_query), list(by_query.values()))


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
          query: its number, of which the drawing is a function.
          ranked: documents, the nearest first, without the positives.
          scores: that decide, by document.
          positive: the lowest score of the query's positives.
        """
        kept = list(ranked[self.range_min : self.range_max])
        highest = [np.inf]
        if self.absolute_margin is not None:
            highest.append(positive - self.absolute_margin)
        if self.relative_margin is not None:
            # Of a negative score (of a cross-encoder, say) the share is taken of its size.
            highest.append(positive - abs(positive) * self.relative_margin)
        if self.max_score is not None:
            highest.append(self.max_score)
        lowest = -np.inf if self.min_score is None else self.min_score
        kept = [place for place in kept if lowest <= scores[place] <= min(highest)]
        if self.is_random and len(kept) > self.num_negatives:
            drawn = numpy_random_bits(self.seed, query, 0, np.array(kept, np.int64))
            kept = [kept[i] for i in np.argsort(drawn, kind="stable")[: self.num_negatives]]
        return sorted(kept, key=lambda place: -scores[place])[: self.num_negatives]


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
    """Writes the negatives of each query, a JSON line a query; see `mine_negatives`.

    Args:
      path: of the model that embeds.
      output_file: to write.
      collection: see there.
      rules: see there.
      max_seq_length: pieces a text is cut to; 0: the model's own.
      reranker: path of a cross-encoder; "": the embeddings' scores decide.
      write_margins: a line for each positive, with its margins.
      batch_size: texts computed at once.

    Raises:
      ValueError: if a model cannot be read, or no query has a negative.
    """
    given: dict[str, Any] = {"max_seq_length": max_seq_length} if max_seq_length else {}
    model = BertEmbedder.from_pretrained(path, **given)
    judge = Reranker.from_pretrained(reranker, batch_size=batch_size) if reranker else None
    logging.info("Embedding %d documents.", len(collection.documents))
    documents = model.encode_document(collection.documents, batch_size=batch_size)
    queries = model.encode_query(collection.queries, batch_size=batch_size)
    queries, documents = to_comparable(queries, documents, model.embedding.similarity)
    most = max(map(len, collection.positives))
    depth = min(len(documents), rules.range_max + most)
    _, rows = top_k(queries, documents, depth)
    num_lines = num_found = 0
    with atomic_write(output_file) as file:
        for number, (query, positives) in enumerate(
            zip(collection.queries, collection.positives, strict=True)
        ):
            # No text twice, nor that of an answer, the query itself or none.
            seen = {collection.documents[place] for place in positives} | {query, ""}
            others: dict[str, int] = {}
            for row in rows[number].tolist():
                if (text := collection.documents[row]) not in seen:
                    others.setdefault(text, row)
            ranked = list(others.values())[: rules.range_max]
            looked_at = [*ranked, *positives]
            if judge:
                pairs = [(query, collection.documents[place]) for place in looked_at]
                found = judge.logits(pairs)
            else:
                found = documents[looked_at] @ queries[number]
            scores = dict(zip(looked_at, map(float, found), strict=True))
            least = min(scores[place] for place in positives)
            chosen = rules.choose(number, ranked, scores, least)
            num_found += len(chosen)
            num_lines += bool(chosen)
            for line in _lines(collection, number, chosen, scores, write_margins):
                file.write(json.dumps(line, ensure_ascii=False) + "\n")
        if not num_found:
            raise ValueError("No query has a negative within the ranks and margins; widen them.")
    logging.info(
        "Wrote %s: %d negatives of %d queries; %d queries have none.",
        *(output_file, num_found, num_lines, len(collection.queries) - num_lines),
    )


def _lines(
    collection: Collection,
    query: int,
    negatives: list[int],
    scores: Mapping[int, float],
    write_margins: bool,
) -> list[dict]:
    """Returns the JSON lines of a query; with margins none if it has no negative."""
    text = collection.queries[query]
    others = [collection.documents[place] for place in negatives]
    positives = collection.positives[query]
    if not write_margins:
        own = [collection.documents[place] for place in positives]
        return [{"query": text, "positives": own, "negatives": others}]
    return [
        {
            "query": text,
            "positive": collection.documents[positive],
            "negatives": others,
            "scores": [scores[positive] - scores[negative] for negative in negatives],
        }
        for positive in positives
        if negatives
    ]
