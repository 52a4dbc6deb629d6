"""Finds pairs labelled random whose two segments come from one document.

Records do not name their documents, but they show them: the same text stands in several examples
(passes over the corpus, random partners), and an example that is no random pair comes from one
document. So a random pair is suspect if some other example of one document shares `RUN` pieces in
a row with both of its segments. What no other example shows is not found: a lower bound.
"""

import numpy as np

from bert_tf.diagnosis.examples import Examples

RUN = 8
KEPT = np.uint64(4)  # of the runs one in four is looked at, the same ones in all examples
MAX_GROUPS = 50  # a run of pieces in more groups than this is a formula, no text
_PRIME = np.uint64(0x100000001B3)


def same_document_share(examples: Examples) -> tuple[float, np.ndarray]:
    """Returns the share of random pairs that are suspect, and their numbers; nan without pairs."""
    is_random = examples.is_random & examples.is_pair
    if not is_random.any():
        return float("nan"), np.zeros(0, np.int64)
    runs, rows, segments = _runs(examples)
    # A group is what is of one document: a whole example, or one segment of a random pair.
    groups = 2 * rows + segments * is_random[rows]
    order = np.lexsort([groups, runs])
    runs, rows, segments, groups = (a[order] for a in (runs, rows, segments, groups))
    pairs: dict[int, set[tuple[int, int]]] = {0: set(), 1: set()}  # (example, group) by segment
    starts = np.flatnonzero(np.r_[True, runs[1:] != runs[:-1]])
    ends = np.r_[starts[1:], len(runs)]
    for start, end in zip(starts[ends - starts > 1], ends[ends - starts > 1], strict=True):
        found = np.unique(groups[start:end])
        if not 1 < len(found) <= MAX_GROUPS:
            continue
        for row, segment in zip(rows[start:end], segments[start:end], strict=True):
            if is_random[row]:
                pairs[int(segment)].update((int(row), int(group)) for group in found)
    suspects = np.unique([row for row, _ in pairs[0] & pairs[1]]).astype(np.int64)
    return len(suspects) / int(is_random.sum()), suspects


def _runs(examples: Examples) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns hash, example and segment of each run of `RUN` pieces within one segment."""
    ids = examples.originals.astype(np.uint64)
    width = max(0, ids.shape[1] - RUN + 1)
    special = [examples.special.cls, examples.special.sep]
    is_text = (examples.mask > 0) & ~np.isin(examples.originals, special)
    hashes = np.zeros([len(ids), width], np.uint64)
    is_whole = np.ones([len(ids), width], bool)
    for shift in range(RUN):
        hashes = (hashes ^ ids[:, shift : shift + width]) * _PRIME
        is_whole &= is_text[:, shift : shift + width]
    hashes ^= hashes >> np.uint64(29)  # the lowest bits follow from the last pieces alone
    is_whole &= hashes % KEPT == 0
    rows, places = np.nonzero(is_whole)
    return hashes[rows, places], rows, (examples.types[rows, places] > 0).astype(np.int64)
