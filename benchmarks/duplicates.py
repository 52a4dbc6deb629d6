"""Measures the search for near duplicates: what it finds, beside an exact search, and its cost.

    python -m benchmarks.duplicates --input_file='wikipedia/*.xz' --vocab_file=vocab.txt

To the documents of the input, copies of some are added at random places, with a share of the words
replaced by words of the document. Then the corpus is tokenised, keys are made and compared, in one
process; seconds are processor time.

The exact search knows no hash functions: it sorts each document's shingles by how rare they are
and compares all documents that share one of the rarest 20 % (of two sets with similarity 0.8 at
least one shared element must be among these; Chaudhuri, Ganti, Kaushik 2006, "prefix filter").
"""

import collections
import itertools
import json
import pathlib
import tempfile
import time
from typing import NamedTuple

import numpy as np
from absl import app, flags

from benchmarks.timing import print_table
from bert_tf.corpus.corpus import list_parts, read_documents
from bert_tf.corpus.duplicates import (
    SIMILARITY,
    document_tokens,
    kept_documents,
    shingles,
    similarity,
    write_keys,
)
from bert_tf.corpus.token_store import TokenStore, tokenize_corpus

INPUT_FILE = flags.DEFINE_string("input_file", None, "Text, as in create_pretraining_data.")
VOCAB_FILE = flags.DEFINE_string("vocab_file", None, "Vocabulary.")
flags.mark_flags_as_required(["input_file", "vocab_file"])
COPIES = 0.1  # share of documents of which a copy is added
CHANGED = (0.0, 0.005, 0.01, 0.02, 0.03, 0.05, 0.1)  # shares of words replaced in a copy


class Copy(NamedTuple):
    """Lines of a copy and of its original, and the share of its words that were changed."""

    number: int
    original: int
    changed: float


def write_corpus(path: pathlib.Path) -> list[Copy]:
    """Writes the corpus as JSONL, with copies at random places."""
    rng = np.random.default_rng(1)
    documents = itertools.chain.from_iterable(map(read_documents, list_parts(INPUT_FILE.value)))
    texts = [*map(" ".join, documents)]
    lines = [(rng.random(), text, index, -1.0) for index, text in enumerate(texts)]
    for index in rng.permutation(len(texts))[: int(COPIES * len(texts))]:
        words, share = texts[index].split(), float(rng.choice(CHANGED))
        for position in (rng.random(len(words)) < share).nonzero()[0]:
            words[position] = words[rng.integers(len(words))]
        lines.append((rng.random(), " ".join(words), int(index), share))
    lines.sort()
    with path.open("w", encoding="utf8") as file:
        file.writelines(json.dumps({"text": text}) + "\n" for _, text, _, _ in lines)
    places = {index: number for number, (_, _, index, share) in enumerate(lines) if share < 0}
    return [
        Copy(number, places[index], share)
        for number, (_, _, index, share) in enumerate(lines)
        if share >= 0
    ]


def duplicates_by_prefix(sets: list[np.ndarray]) -> set[int]:
    """Returns the documents with a near duplicate before them."""
    _, ranks, counts = np.unique(np.concatenate(sets), return_inverse=True, return_counts=True)
    rarity = counts[ranks].astype(np.int64) << 32 | ranks  # a total order, rare ones first
    bounds = np.cumsum([0, *map(len, sets)])
    sharing = collections.defaultdict(list)  # documents by a shingle among their rarest
    for number, (start, end) in enumerate(itertools.pairwise(bounds)):
        length = end - start - int(np.ceil(SIMILARITY * (end - start))) + 1
        for shingle in np.partition(rarity[start:end], length - 1)[:length].tolist():
            sharing[shingle].append(number)
    pairs = {pair for group in sharing.values() for pair in itertools.combinations(group, 2)}
    return {b for a, b in pairs if similarity(sets[a], sets[b]) >= SIMILARITY}


def main(_: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        text = pathlib.Path(folder, "text.jsonl")
        copies = write_corpus(text)
        marks = [time.process_time()]
        store = tokenize_corpus(
            list_parts(str(text)),
            pathlib.Path(folder, "tokens"),
            vocab_file=VOCAB_FILE.value,
            do_lower_case=True,
            num_workers=1,
        )
        marks.append(time.process_time())
        for path in store.paths:
            write_keys(path, "near")
        marks.append(time.process_time())
        kept = kept_documents(store, "near", num_workers=1)
        marks.append(time.process_time())
        tokenizing, keys, comparing = np.diff(marks)
        print(f"{store.num_documents:,} documents, {store.num_tokens:,} pieces")
        print(
            f"CPU seconds: tokenising {tokenizing:.1f}, keys {keys:.1f}, comparing {comparing:.1f}"
        )
        report(store, set(range(store.num_documents)) - set(kept.tolist()), copies)


def report(store: TokenStore, left_out: set[int], copies: list[Copy]) -> None:
    """Prints what was found beside the exact search."""
    sets = [shingles(document_tokens(store, number)) for number in range(store.num_documents)]
    start = time.process_time()
    exact = duplicates_by_prefix(sets)
    right = len(left_out & exact)
    print(f"exact search: {len(exact):,} in {time.process_time() - start:.1f} CPU s")
    shares = f"precision {right / len(left_out):.4f}, recall {right / len(exact):.4f}"
    print(f"left out: {len(left_out):,}; {shares}")
    by_share = {share: [c for c in copies if c.changed == share] for share in CHANGED}
    print_table(
        ["words replaced", "copies", "found"],
        (
            [f"{share:.1%}", len(made), sum(bool({c.number, c.original} & left_out) for c in made)]
            for share, made in by_share.items()
        ),
    )


if __name__ == "__main__":
    app.run(main)
