"""Makes sequences from sentences: pairs for next sentence prediction, or full sentences.

Each document has a random generator seeded with (seed, duplicate, document), so its pairs do not
depend on the number of workers, shards or restarts.

Reference: Devlin et al. 2019, section 3.1, task 2, and google-research/bert's
create_pretraining_data.py; Liu et al. 2019 (RoBERTa), section 4.2, for full sentences.
"""

import bisect
import random
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from bert_tf.corpus.token_store import TokenStore
from bert_tf.text.packing import num_special_tokens


class SentencePair(NamedTuple):
    """One sequence without its special tokens."""

    ids_a: np.ndarray  # [n], tokens of the first segment
    ids_b: np.ndarray  # [m], tokens of the second segment; empty for full sentences
    is_random_next: bool  # the second segment comes from another document, or both are swapped


def document_generator(seed: int, duplicate: int, document: int) -> random.Random:
    """Returns the generator of one document in one pass over the corpus."""
    # The three numbers do not overlap, so no two generators have the same seed.
    return random.Random(seed << 96 | duplicate << 64 | document)


def truncate_pair(
    length_a: int, length_b: int, max_length: int, generator: random.Random
) -> tuple[int, int, int, int]:
    """Draws the tokens to drop so that both segments together have at most `max_length` tokens.

    Tokens are dropped from the longer segment (the second when equal), at its front or back with
    equal chance, until the pair fits. So the number for each segment is fixed, and the number at
    its front is binomial: this needs one draw per segment instead of one per token.

    Returns:
      Numbers of tokens to drop: (front of a, back of a, front of b, back of b).
    """
    excess = max(0, length_a + length_b - max_length)
    # First the longer segment loses the difference, then both in turn, starting with the second.
    cut_a = min(excess, max(0, length_a - length_b))
    cut_b = min(excess, max(0, length_b - length_a))
    excess -= cut_a + cut_b
    cut_a += excess // 2
    cut_b += (excess + 1) // 2
    # The number of ones in n random bits is binomial(n, 1/2).
    front_a = generator.getrandbits(cut_a).bit_count() if cut_a else 0
    front_b = generator.getrandbits(cut_b).bit_count() if cut_b else 0
    return front_a, cut_a - front_a, front_b, cut_b - front_b


def sentence_pairs(
    store: TokenStore,
    documents: np.ndarray,
    index: int,
    generator: random.Random,
    *,
    max_seq_length: int,
    short_seq_prob: float,
    num_separators: int = 1,
    swaps: bool = False,
) -> Iterator[SentencePair]:
    """Yields the sentence pairs of one document.

    Sentences are gathered up to the target length; a random number of them makes segment a. In
    half of the cases the rest of them is segment b; otherwise b comes from another document,
    and the rest is used by the next pair.

    Args:
      documents: int64 [n], the documents that may be drawn from, n at least 2.
      index: index of the document in `documents`.
      max_seq_length: T, including special tokens.
      short_seq_prob: probability that the target length, drawn once per document, is uniform in
        [2, M] instead of M, the room for tokens of the text: T - 3 for BERT.
      num_separators: number of separators between the segments; see `Vocab`.
      swaps: for sentence order: whether half of the pairs are swapped instead of getting a random
        b. A single sentence cannot be swapped and gets a random b, as in ALBERT's program.

    Differs from the original: the random document is always another one (in the original, after ten
    draws, it may be the same), and the truncation is drawn per segment (`truncate_pair`).
    """
    draw = generator.random
    max_length = target = max_seq_length - num_special_tokens(True, num_separators)
    if draw() < short_seq_prob:
        target = generator.randint(2, max_length)
    file, bounds, tokens = store.document(int(documents[index]))
    origin = bounds[0]
    num_sentences = len(bounds) - 1
    sentence = 0
    while sentence < num_sentences:
        start_a = bounds[sentence]
        end = _gather(bounds, sentence, num_sentences, target)
        end_a = sentence + 1
        if end - sentence >= 2:
            # Segment a has one sentence or more, and leaves at least one.
            end_a += int(draw() * (end - sentence - 1))
        length_a = bounds[end_a] - start_a
        is_alone = end - sentence == 1
        is_random_next = is_alone or draw() < 0.5
        if is_alone or (is_random_next and not swaps):
            # The other sentences are not lost: they begin the next pair.
            file_b, start_b, end_b = _draw_partner(
                store, documents, index, target - length_a, generator
            )
            sentence = end_a
        else:
            file_b = file
            start_b = bounds[end_a]
            end_b = bounds[end]
            sentence = end
        cuts = truncate_pair(length_a, end_b - start_b, max_length, generator)
        start_b += cuts[2]
        end_b -= cuts[3]
        ids_a = tokens[start_a - origin + cuts[0] : start_a - origin + length_a - cuts[1]]
        if is_alone or (is_random_next and not swaps):
            ids_b = store.tokens(file_b, start_b, end_b)
        else:
            ids_b = tokens[start_b - origin : end_b - origin]
            if is_random_next:
                ids_a, ids_b = ids_b, ids_a
        yield SentencePair(ids_a, ids_b, is_random_next)


def _gather(bounds: Sequence[int], first: int, last: int, target: int) -> int:
    """Returns the end of the shortest range of sentences from `first` with `target` tokens."""
    return min(bisect.bisect_left(bounds, bounds[first] + target, first + 1, last + 1), last)


def _draw_partner(
    store: TokenStore, documents: np.ndarray, index: int, target: int, generator: random.Random
) -> tuple[int, int, int]:
    """Draws about `target` tokens of another document: its file, the first token, and the end."""
    other = int(generator.random() * (len(documents) - 1))
    # A number among the other documents: skip the document itself.
    file, first, last = store.locate(int(documents[other + (other >= index)]))
    start = first + int(generator.random() * (last - first))
    # No sentence is empty, so at most `target` sentences are needed, and at least one.
    num_sentences = min(last - start, max(target, 1))
    bounds = store.bounds(file, start, start + num_sentences)
    return file, bounds[0], bounds[_gather(bounds, 0, num_sentences, target)]


def full_sentences(
    store: TokenStore, documents: np.ndarray, *, max_seq_length: int, sep_id: int
) -> Iterator[SentencePair]:
    """Yields sequences of whole sentences, document by document.

    A sequence is filled as long as sentences fit, also across the end of a document, where a [SEP]
    is added. A sentence longer than a sequence is split over several.

    Args:
      documents: int64 [n], the documents in the order of packing.
      max_seq_length: T, including special tokens.
      sep_id: id of [SEP].

    Reference: Liu et al. 2019, section 4.2, FULL-SENTENCES.
    """
    capacity = max_seq_length - num_special_tokens(False)
    empty = np.zeros(0, store.token_type)
    separator = np.array([sep_id], store.token_type)
    row: list[np.ndarray] = []
    room = capacity
    for document in documents.tolist():
        _, bounds, tokens = store.document(document)
        start = 0
        length = len(tokens)
        if row:
            # Add [SEP] if there is also room for the first sentence; otherwise end the sequence.
            if bounds[1] - bounds[0] < room:
                row.append(separator)
                room -= 1
            else:
                yield SentencePair(np.concatenate(row), empty, False)
                row = []
                room = capacity
        while start < length:
            # Find the last sentence end within the room.
            fitting = bisect.bisect_right(bounds, bounds[0] + start + room) - 1
            end = bounds[fitting] - bounds[0]
            # A sentence longer than a sequence fills it; its rest begins the next one.
            if end <= start and not row:
                end = start + room
            if end > start:
                row.append(tokens[start:end])
                room -= end - start
                start = end
            if start < length or not room:
                yield SentencePair(np.concatenate(row), empty, False)
                row = []
                room = capacity
    if row:
        yield SentencePair(np.concatenate(row), empty, False)
