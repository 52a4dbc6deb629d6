"""Searches an index of `python -m bert_tf.build_index`.

    python -m bert_tf.search --index=notes.index --query="Who wound the clock?"
    python -m bert_tf.search --index=scifact.index --data_dir=scifact --output_file=scifact.run

The first command prints the best documents of each query; without --query it reads queries from the
terminal. The second searches the queries of a BEIR folder, writes a TREC run and prints its
metrics.

--mode: `vectors`; `words` (BM25); `hybrid`, both combined by ranks or by weights (--fusion).
--rerank=FOLDER: a cross-encoder, or a model of late interaction, reorders the first --rerank_k
documents; the others follow them.

--index may also be a file of token vectors (late interaction), which has no other modes.
"""

import pathlib
import typing
import zipfile
from collections import Counter
from collections.abc import Sequence

import numpy as np
from absl import flags, logging

from bert_tf.config import TrainingConfig, config_flags
from bert_tf.config.given_flags import check_given, check_needs, check_unused
from bert_tf.search.passages import document_of
from bert_tf.system import printable
from bert_tf.system.files import check_writable, typed_lines
from bert_tf.system.printable import escaped
from bert_tf.system.type_names import Fields

if typing.TYPE_CHECKING:
    from bert_tf.search.searcher import StagedSearch
    from bert_tf.tasks.embedding.beir import Beir

config_flags.define_flags(TrainingConfig, only=("init_checkpoint",))
INDEX = flags.DEFINE_string("index", "", "Directory of the index, or file of token vectors.")
QUERY = flags.DEFINE_multi_string("query", [], "Text to search for; may be given several times.")
K = flags.DEFINE_integer("k", 10, "Documents to return per query; 100 with --data_dir.", 1)
MODE = flags.DEFINE_enum(
    "mode",
    "vectors",
    ["vectors", "words", "hybrid"],
    "Search by vectors, by words (BM25), or both.",
)
FAISS = flags.DEFINE_enum(
    "faiss", "", ["", "flat", "ivf_pq", "hnsw"], "Search by the FAISS index of this kind."
)
RESCORE = flags.DEFINE_enum(
    "rescore",
    "",
    ["", "float32", "int8", "none"],
    "Copies that score the best of int8 and binary vectors again; empty: those of the index.",
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
RERANK = flags.DEFINE_string(
    "rerank", "", "Cross-encoder or late interaction that reorders the first --rerank_k."
)
RERANK_K = flags.DEFINE_integer("rerank_k", 100, "Documents that --rerank reads.", 1)
LENGTH = flags.DEFINE_integer(
    "max_seq_length", 0, "Tokens per query; 0: the length that the model's folder records.", 0
)
DATA_DIR = flags.DEFINE_string("data_dir", "", "A BEIR folder, whose queries are searched.")
SPLIT = flags.DEFINE_string("split", "test", "The judgments of --data_dir: train, dev or test.")
IGNORE = flags.DEFINE_bool(
    "ignore_identical_ids",
    False,
    "Drop the document whose id equals the query's id (ArguAna, Quora).",
)
OUTPUT = flags.DEFINE_string("output_file", "", "TREC run to write.")
# The flags of which each flag needs one.
NEEDS = {
    **dict.fromkeys(("split", "output_file", "ignore_identical_ids"), "data_dir"),
    "rerank_k": "rerank",
    **dict.fromkeys(("fusion", "vector_weight"), "mode=hybrid"),
    **dict.fromkeys(
        ("faiss", "rescore", "init_checkpoint", "max_seq_length"), "mode=vectors mode=hybrid"
    ),
}
# Flags without effect on a file of token vectors, which late interaction searches.
VECTOR_FLAGS = ("mode", "faiss", "rescore", "max_seq_length")
MEASURES = ("ndcg@10", "recall@100", "mrr@10", "map@100")
MAX_SHOWN = 300  # characters of a text


def main(_: list[str]) -> None:
    check_given("index", advice="give the directory of an index")
    check_needs(NEEDS)
    if DATA_DIR.value and QUERY.value:
        raise ValueError("Give either --query or --data_dir, not both.")
    if OUTPUT.value:
        check_writable(OUTPUT.value, "output_file")

    from bert_tf.search.manifest import Manifest, check_rescoring

    # Before TensorFlow is loaded.
    path = pathlib.Path(INDEX.value).expanduser()
    is_tokens = path.is_file()
    if not is_tokens:
        Manifest.read(path)
    elif not zipfile.is_zipfile(path):
        raise ValueError(f"--index={path} is no index, and no file of token vectors.")
    else:
        check_unused(VECTOR_FLAGS, f"{INDEX.value} is a file of token vectors")
    if RESCORE.value:
        if FAISS.value:
            raise ValueError("--rescore has no effect on --faiss; leave one of them out.")
        check_rescoring(Manifest.read(pathlib.Path(INDEX.value)), RESCORE.value)

    from bert_tf.tasks.embedding.beir import read_beir

    beir = read_beir(DATA_DIR.value, SPLIT.value) if DATA_DIR.value else None
    searcher = open_searcher(is_tokens)
    if beir is None:
        show_results(searcher)
    else:
        evaluate_search(searcher, beir)


def open_searcher(is_tokens: bool) -> "StagedSearch":
    """Opens the search in an index, or in a file of token vectors, as the flags say."""
    from bert_tf.search.searcher import Searcher, TokenSearcher

    options: Fields = {
        "model": config_flags.from_flags(TrainingConfig).init_checkpoint,
        "reranker": RERANK.value,
        "rerank_k": RERANK_K.value,
    }
    if is_tokens:
        return TokenSearcher(INDEX.value, **options)
    return Searcher(
        INDEX.value,
        **options,
        mode=MODE.value,
        faiss=FAISS.value,
        rescore=RESCORE.value,
        fusion=FUSION.value,
        vector_weight=WEIGHT.value,
        max_seq_length=LENGTH.value,
    )


def show_results(searcher: "StagedSearch") -> None:
    """Prints the documents found for each query, given as flags or typed."""
    # The default must not exceed a small index; a given --k is checked by `search`.
    k = K.value if K.present else min(K.value, len(searcher.index))
    for query in QUERY.value or typed_lines("Type a query; an empty line ends."):
        (hits,) = searcher.search([query], k)
        names = [searcher.index.ids[row] for row in hits.rows]
        texts = list(map(searcher.index.text, hits.rows))
        show(query, hits.scores, names, texts)


def evaluate_search(searcher: "StagedSearch", beir: "Beir") -> None:
    """Prints the metrics of the queries of a data set, and writes their run."""
    from bert_tf.metrics.ranking import evaluate
    from bert_tf.metrics.trec import write_run
    from bert_tf.tasks.embedding.task import DEPTH

    names = list(searcher.index.ids)
    if searcher.has_passages:
        names = list(map(document_of, names))
    # With --ignore_identical_ids one document may be the query itself, so one more is needed. Each
    # document may have several passages among the hits.
    most_passages = max(Counter(names).values())
    depth = min((DEPTH + IGNORE.value) * most_passages, len(names))
    k = K.value if K.present else depth
    if k < depth:
        raise ValueError(f"--k={k}, but recall@{DEPTH} needs {depth} documents; leave it out.")
    judged: set[str] = set()
    for grades in beir.qrels.values():
        judged.update(grades)
    if judged.isdisjoint(names):
        raise ValueError(f"{INDEX.value} has none of the documents that {DATA_DIR.value} judges.")
    run: dict[str, dict[str, float]] = {}
    results = searcher.search(list(beir.queries.values()), k)
    # Dictionaries keep their order: the hits of a query have the same index as its id.
    for query, hits in zip(beir.queries, results, strict=True):
        run[query] = {}
        for row, score in zip(hits.rows, hits.scores, strict=True):
            # The score of a document is that of its best passage, which comes first.
            if not (IGNORE.value and names[row] == query):
                run[query].setdefault(names[row], float(score))
    for name, value in evaluate(run, beir.qrels, MEASURES).items():
        printable.show(f"{name} = {value:.4f}")
    if OUTPUT.value:  # After the metrics: writing fails if an id contains white space.
        write_run(pathlib.Path(OUTPUT.value).expanduser(), run)
        logging.info("Wrote %s", OUTPUT.value)


def show(query: str, scores: np.ndarray, ids: Sequence[str], texts: Sequence[str]) -> None:
    """Prints the documents found for a query."""
    printable.show(escaped(query))
    if not ids:
        printable.show("      No document shares a word with this query.")
    for rank, (score, name, text) in enumerate(zip(scores, ids, texts, strict=True), 1):
        printable.show(f"{rank:4}  {score:.4f}  {escaped(name)}")
        line = escaped(" ".join(text.split()))
        if len(line) > MAX_SHOWN:
            line = line[: MAX_SHOWN - 3] + "..."
        if line:
            printable.show(f"      {line}")


if __name__ == "__main__":
    config_flags.run(main)
