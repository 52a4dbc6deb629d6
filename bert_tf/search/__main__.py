"""Searches an index of `python -m bert_tf.build_index`.

    python -m bert_tf.search --index=notes.index --query="Who wound the clock?"
    python -m bert_tf.search --index=scifact.index --data_dir=scifact --output_file=scifact.run

The first prints the best documents of each query; without --query they are read from the terminal.
The second searches the queries of a BEIR folder, writes a TREC run and prints its measures.

--mode: `vectors`; `words` (BM25); `hybrid`, both joined by ranks or by weights (--fusion).
--rerank=FOLDER: a cross-encoder orders the first --rerank_k anew; the others stay behind them.
"""

import pathlib
from collections.abc import Sequence

import numpy as np
from absl import flags, logging

from bert_tf import config_flags, printable
from bert_tf.config import TrainingConfig
from bert_tf.files import check_writable, typed_lines
from bert_tf.printable import escaped

config_flags.define_flags(TrainingConfig, only=("init_checkpoint",))
INDEX = flags.DEFINE_string("index", "", "Directory of the index.")
QUERY = flags.DEFINE_multi_string("query", [], "What to search; may be given several times.")
K = flags.DEFINE_integer("k", 10, "Documents of each query; with --data_dir 100.", 1)
MODE = flags.DEFINE_enum(
    "mode",
    "vectors",
    ["vectors", "words", "hybrid"],
    "Search by vectors, by words (BM25), or both.",
)
FAISS = flags.DEFINE_enum(
    "faiss", "", ["", "flat", "ivf_pq", "hnsw"], "Search by the FAISS index of this kind."
)
FUSION = flags.DEFINE_enum(
    "fusion", "ranks", ["ranks", "weights"], "How --mode=hybrid combines the two rankings."
)
WEIGHT = flags.DEFINE_float(
    "vector_weight",
    None,
    "Weight of vectors in --mode=hybrid; by default 0.5, with --fusion=weights 0.8.",
    0.0,
    1.0,
)
RERANK = flags.DEFINE_string("rerank", "", "A cross-encoder that orders the first --rerank_k anew.")
RERANK_K = flags.DEFINE_integer("rerank_k", 100, "Documents that --rerank reads.", 1)
LENGTH = flags.DEFINE_integer(
    "max_seq_length", 0, "Pieces of a query; 0: what the model's folder says.", 0
)
DATA_DIR = flags.DEFINE_string("data_dir", "", "A BEIR folder, whose queries are searched.")
SPLIT = flags.DEFINE_string("split", "test", "The judgments of --data_dir: train, dev or test.")
IGNORE = flags.DEFINE_bool(
    "ignore_identical_ids",
    False,
    "A query never finds the document of its id (ArguAna, Quora).",
)
OUTPUT = flags.DEFINE_string("output_file", "", "TREC run to write.")
MEASURES = ("ndcg@10", "recall@100", "mrr@10", "map@100")
MOST_SHOWN = 300  # characters of a text


def main(_: list[str]) -> None:
    if not INDEX.value:
        raise ValueError("Give the directory of an index as --index.")
    check_flags()

    from bert_tf.metrics.ranking import evaluate
    from bert_tf.metrics.trec import write_run
    from bert_tf.search.searcher import Searcher
    from bert_tf.tasks.embedding.beir import read_beir
    from bert_tf.tasks.embedding.task import DEPTH

    beir = read_beir(DATA_DIR.value, SPLIT.value) if DATA_DIR.value else None
    searcher = Searcher(
        INDEX.value,
        model=config_flags.from_flags(TrainingConfig).init_checkpoint,
        mode=MODE.value,
        faiss=FAISS.value,
        fusion=FUSION.value,
        vector_weight=WEIGHT.value,
        reranker=RERANK.value,
        rerank_k=RERANK_K.value,
        max_seq_length=LENGTH.value,
    )
    k = K.value
    if beir is None:
        if not K.present:
            k = min(k, len(searcher.index))
        for query in QUERY.value or typed_lines("Type what to search; an empty line ends."):
            (found,) = searcher.search([query], k)
            show(
                query,
                found.scores,
                [searcher.index.ids[row] for row in found.rows],
                [searcher.index.text(row) for row in found.rows],
            )
        return
    depth = min(DEPTH + IGNORE.value, len(searcher.index))  # The query itself may be among them.
    if not K.present:
        k = depth
    if k < depth:
        raise ValueError(f"--k={k}, but recall@{DEPTH} needs {depth} documents; leave it out.")
    judged = {name for grades in beir.qrels.values() for name in grades}
    if judged.isdisjoint(searcher.index.ids):
        raise ValueError(f"{INDEX.value} has none of the documents that {DATA_DIR.value} judges.")
    run = {}
    for query, found in zip(
        beir.queries, searcher.search(list(beir.queries.values()), k), strict=True
    ):
        scores = zip((searcher.index.ids[row] for row in found.rows), found.scores, strict=True)
        run[query] = {
            name: float(score) for name, score in scores if not (IGNORE.value and name == query)
        }
    for name, value in evaluate(run, beir.qrels, MEASURES).items():
        printable.show(f"{name} = {value:.4f}")
    if OUTPUT.value:  # Not before: a run file cannot hold ids with white space.
        write_run(pathlib.Path(OUTPUT.value).expanduser(), run)
        logging.info("Wrote %s", OUTPUT.value)


def check_flags() -> None:
    """Raises ValueError for a flag that would have no effect."""
    without = {
        "data_dir": ("split", "output_file", "ignore_identical_ids"),
        "rerank": ("rerank_k",),
    }
    for needed, names in without.items():
        for name in names:
            if flags.FLAGS[name].present and not flags.FLAGS[needed].value:
                raise ValueError(f"--{name} needs --{needed}.")
    for name in ("fusion", "vector_weight"):
        if flags.FLAGS[name].present and MODE.value != "hybrid":
            raise ValueError(f"--{name} needs --mode=hybrid.")
    for name in ("faiss", "init_checkpoint", "max_seq_length"):
        if MODE.value == "words" and flags.FLAGS[name].value:
            raise ValueError(f"--{name} is for vectors, which --mode=words does not use.")
    if DATA_DIR.value and QUERY.value:
        raise ValueError("--query and --data_dir exclude each other.")
    if OUTPUT.value:
        check_writable(OUTPUT.value, "output_file")


def show(query: str, scores: np.ndarray, ids: Sequence[str], texts: Sequence[str]) -> None:
    """Prints the documents found for a query."""
    printable.show(escaped(query))
    if not ids:
        printable.show("      No document shares a word with it.")
    for place, (score, name, text) in enumerate(zip(scores, ids, texts, strict=True), 1):
        line = escaped(" ".join(text.split()))
        shown = line if len(line) <= MOST_SHOWN else line[: MOST_SHOWN - 3] + "..."
        title = f"{place:4}  {score:.4f}  {escaped(name)}"
        printable.show(f"{title}\n      {shown}" if shown else title)


if __name__ == "__main__":
    config_flags.run(main)
