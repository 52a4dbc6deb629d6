"""A small vocabulary of byte-level BPE, of RoBERTa's form, learned from the corpus of the tests."""

import collections
import functools
import itertools

from bert_tf.text.bpe_vocab import AddedToken, BpeVocab
from bert_tf.text.byte_level import BYTE_CHARACTERS, split_words
from tests.conftest import CORPUS

SPECIAL = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")


@functools.cache
def tiny_bpe_vocab(num_merges: int = 150) -> BpeVocab:
    """Learns the commonest pairs of neighbours one after the other, all counted anew each time."""
    counts = collections.Counter(split_words(CORPUS))
    words = [[BYTE_CHARACTERS[byte] for byte in word.encode()] for word in counts]
    merges: list[tuple[str, str]] = []
    for _ in range(num_merges):
        pairs = collections.Counter()
        for pieces, count in zip(words, counts.values(), strict=True):
            for pair in itertools.pairwise(pieces):
                pairs[pair] += count
        left, right = max(pairs, key=lambda pair: (pairs[pair], pair))
        merges.append((left, right))
        for pieces in words:
            for place in range(len(pieces) - 2, -1, -1):
                if pieces[place : place + 2] == [left, right]:
                    pieces[place : place + 2] = [left + right]
    merged = dict.fromkeys("".join(pair) for pair in merges)
    return BpeVocab(
        tokens=(*SPECIAL[:4], *BYTE_CHARACTERS, *merged, SPECIAL[4]),
        merges=tuple(merges),
        added_tokens=tuple(AddedToken(token, lstrip=token == "<mask>") for token in SPECIAL),
    )
