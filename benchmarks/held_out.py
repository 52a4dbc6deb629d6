"""Parts documents into those trained on and those held out; the counting processes import it."""

import itertools
from collections.abc import Iterator

from bert_tf.data import corpus

HOLD_OUT = 20  # every 20th document


def read_kept(part: corpus.CorpusPart) -> Iterator[list[str]]:
    """Yields the documents to train on."""
    for index, document in enumerate(corpus.read_documents(part)):
        if index % HOLD_OUT:
            yield document


def read_held_out(part: corpus.CorpusPart) -> Iterator[list[str]]:
    """Yields the other documents."""
    yield from itertools.islice(corpus.read_documents(part), 0, None, HOLD_OUT)
