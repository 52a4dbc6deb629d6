"""Trains a WordPiece vocabulary: merges pieces by count, then selects them by use.

    texts -> raw chunks and their counts (a process a part) -> words and their counts
          -> 1. merge the most frequent pair of neighbouring pieces, again and again (as BPE does),
                some more times than there are rows
          -> 2. tokenize every word greedily, longest match first, as the model will, and drop the
                pieces that are used least, until the rest fits
          -> special tokens, [unused] rows, alphabet, pieces by falling use

Why these two steps (`benchmarks/vocab_training.py` measures them, on documents held out): the pairs
are counted anew only where a merge changed them, so the time hardly grows with the number of rows;
and many merged pieces are only steps to longer ones, rows that greedy matching seldom uses.
Pieces a word on 5.5 MB of text at 4,000 rows: 1.222 with the first step alone, 1.192 with both.
30,522 rows on 93 MB of Wikipedia: 1.089 with a surplus of 0.15, the released vocabulary 1.095.
tensorflow-text's learner (top-down: count all substrings, search a threshold) was not done after
several minutes where this one takes seconds.
"""

import collections
import heapq
import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from absl import logging

from bert_tf.processes import count_workers, map_in_processes
from bert_tf.text.unicode_tables import is_isolated
from bert_tf.text.vocab import CLS, CONTINUATION_PREFIX, MASK, PAD, SEP, SPECIAL_TOKENS, UNK
from bert_tf.text.wordpiece import split_chunks, split_words

Part = TypeVar("Part")

# Distinct words kept while counting, and as many chunks, per process; about 170 bytes each.
MAX_DISTINCT = 2_000_000
# The most frequent words, from which pieces are learned; about 2 kB each.
MAX_LEARNING_WORDS = 1_000_000
# Longer words (addresses, noise) teach no piece.
MAX_WORD_LENGTH = 50
# Characters that together are less than one in 20,000 of the text have no piece.
CHARACTER_COVERAGE = 0.99995
# Rows up to [MASK] as in google-research/bert's files, from 1,000 rows on.
GOOGLE_HEAD_ROWS, MIN_ROWS_FOR_GOOGLE_HEAD = 104, 1_000
# All of its [unused] rows, where they are not more than a tenth of the vocabulary.
GOOGLE_UNUSED_ROWS, MIN_ROWS_FOR_ALL_UNUSED = 994, 10_000
# Pieces learned beyond the rows, for the second step to choose from.
SURPLUS = 0.4


def count_words(
    texts: Iterable[str], do_lower_case: bool, max_distinct: int = MAX_DISTINCT
) -> collections.Counter[str]:
    """Counts the words (`split_words`) of the texts, in memory that does not grow with them.

    Raw chunks between white spaces are counted first, so each distinct one is split once, or once
    each time that there are more than `max_distinct` of them, when all are turned into words. If
    these are more than `max_distinct`, those with the lowest counts are forgotten until half
    remain. So counts are exact up to `max_distinct` words, and beyond it a word loses what it had
    whenever it was among the rarer half: little, if it is frequent throughout.
    """
    chunks: collections.Counter[str] = collections.Counter()
    words: collections.Counter[str] = collections.Counter()
    for text in texts:
        chunks.update(split_chunks(text))
        if len(chunks) > max_distinct:
            _move_words(chunks, words, do_lower_case, max_distinct)
    _move_words(chunks, words, do_lower_case, max_distinct)
    return words


def count_words_of_parts(
    parts: Sequence[Part],
    read_documents: Callable[[Part], Iterable[list[str]]],
    do_lower_case: bool,
    num_workers: int = 0,
    max_distinct: int = MAX_DISTINCT,
) -> collections.Counter[str]:
    """Counts the words of a corpus in several processes.

    Args:
      parts: picklable pieces of the corpus.
      read_documents: a module-level function; yields the documents of a part, each a list of
        sentences.
      do_lower_case: as `split_words`.
      num_workers: processes; 0: one a core.
      max_distinct: most words kept, see `count_words`.

    Returns:
      The counts. They do not depend on the number of processes: each part is counted (and, if
      too large, pruned) alone, and the parts are added in their order.

    Raises:
      OSError: if a process is killed, by lack of memory say.
    """
    tasks = [(part, read_documents, do_lower_case, max_distinct) for part in parts]
    counters = map_in_processes(_count_part, tasks, count_workers(num_workers), is_ordered=True)
    return _add_counts(counters, max_distinct)


def train_vocab_on_parts(
    parts: Sequence[Part],
    read_documents: Callable[[Part], Iterable[list[str]]],
    vocab_size: int,
    do_lower_case: bool,
    num_workers: int = 0,
) -> list[str]:
    """Trains a vocabulary on a corpus; see `count_words_of_parts` and `train_vocab`."""
    words = count_words_of_parts(parts, read_documents, do_lower_case, num_workers)
    logging.info("%d distinct words among %d; learning.", len(words), words.total())
    return train_vocab(words, vocab_size)


def train_vocab(word_counts: collections.Counter[str], vocab_size: int) -> list[str]:
    """Learns the pieces of a vocabulary.

    Every character of the alphabet (the most frequent ones that together make up
    `CHARACTER_COVERAGE` of the text) is a piece, and, if it can follow another one in a word, a
    continuation piece. Punctuation and ideographs cannot: each is a word by itself.

    Args:
      word_counts: how often each word of `split_words` occurs.
      vocab_size: rows wanted.

    Returns:
      Exactly `vocab_size` tokens: special tokens and [unused] rows, the alphabet, then the other
      pieces, the most used first. A corpus too small for that many pieces is topped up with
      [unused] rows, and a warning is logged.

    Raises:
      ValueError: if there are no words, or the alphabet does not fit.
    """
    if not word_counts:
        raise ValueError("The corpus has no words; give text to learn a vocabulary from.")
    head = _head_rows(vocab_size)
    alphabet = _alphabet_pieces(word_counts)
    rows = vocab_size - len(head) - len(alphabet)
    if rows < 0:
        raise ValueError(
            f"vocab_size {vocab_size} has no room for {len(head)} special and unused rows and "
            f"{len(alphabet)} rows of the alphabet; expected at least "
            f"{len(head) + len(alphabet)}: raise vocab_size."
        )
    known = set(alphabet)
    suitable = (
        (word, count)
        for word, count in word_counts.items()
        if 1 < len(word) <= MAX_WORD_LENGTH and known.issuperset(_split_characters(word))
    )
    words = dict(sorted(suitable, key=lambda item: (-item[1], item[0]))[:MAX_LEARNING_WORDS])
    merged = _merge_pairs(words, alphabet, rows + int(rows * SURPLUS))
    pieces = _most_used(words, alphabet, merged, rows)
    if len(pieces) < rows:
        logging.warning(
            "The corpus yields only %d of the %d requested pieces; the rest are [unused] rows.",
            len(head) + len(alphabet) + len(pieces),
            vocab_size,
        )
    first_unused = sum(token.startswith("[unused") for token in head)
    extra = range(first_unused, first_unused + rows - len(pieces))
    return [*head, *alphabet, *pieces, *(f"[unused{i}]" for i in extra)]


def _count_part(
    part: Part,
    read_documents: Callable[[Part], Iterable[list[str]]],
    do_lower_case: bool,
    max_distinct: int,
) -> collections.Counter[str]:
    texts = itertools.chain.from_iterable(read_documents(part))
    return count_words(texts, do_lower_case, max_distinct)


def _add_counts(
    counters: Iterable[collections.Counter[str]], max_distinct: int
) -> collections.Counter[str]:
    total: collections.Counter[str] = collections.Counter()
    for counter in counters:
        total.update(counter)
        if len(total) > max_distinct:
            _prune(total, max_distinct)
    return total


def _move_words(
    chunks: collections.Counter[str],
    words: collections.Counter[str],
    do_lower_case: bool,
    max_distinct: int,
) -> None:
    """Empties `chunks` and adds their words to `words`.

    Chunks are never forgotten: in a language without spaces nearly each occurs once.
    """
    while chunks:
        chunk, count = chunks.popitem()
        for word in split_words(chunk, do_lower_case):
            words[word] += count
    if len(words) > max_distinct:
        _prune(words, max_distinct)


def _prune(counter: collections.Counter[str], max_distinct: int) -> None:
    """Forgets the rarest keys until at most half of `max_distinct` remain."""
    of_count = collections.Counter(counter.values())
    remaining, threshold = len(counter), 0
    while remaining > max_distinct // 2:
        threshold = min(count for count in of_count if count > threshold)
        remaining -= of_count[threshold]
    for key in [key for key, count in counter.items() if count <= threshold]:
        del counter[key]


def _head_rows(vocab_size: int) -> list[str]:
    """Returns special tokens and [unused] rows in the places of google-research/bert's files."""
    if vocab_size < MIN_ROWS_FOR_GOOGLE_HEAD:
        return list(SPECIAL_TOKENS)
    special = [UNK, CLS, SEP, MASK]
    before = GOOGLE_HEAD_ROWS - len(special) - 1
    total = GOOGLE_UNUSED_ROWS if vocab_size >= MIN_ROWS_FOR_ALL_UNUSED else before
    unused = [f"[unused{i}]" for i in range(total)]
    return [PAD, *unused[:before], *special, *unused[before:]]


def _split_characters(word: str) -> list[str]:
    return [word[0], *(CONTINUATION_PREFIX + char for char in word[1:])]


def _alphabet_pieces(word_counts: collections.Counter[str]) -> list[str]:
    """Returns the pieces of one character, first without and then with the prefix."""
    characters: collections.Counter[str] = collections.Counter()
    for word, count in word_counts.items():
        for char in word:
            characters[char] += count
    wanted = CHARACTER_COVERAGE * characters.total()
    kept, covered = [], 0
    for char, count in sorted(characters.items(), key=lambda item: (-item[1], item[0])):
        if covered >= wanted:
            break
        kept.append(char)
        covered += count
    kept.sort()
    return kept + [CONTINUATION_PREFIX + char for char in kept if not is_isolated(char)]


def _join(left: str, right: str) -> str:
    return left + right.removeprefix(CONTINUATION_PREFIX)


def _merge_pairs(words: dict[str, int], alphabet: list[str], num_merges: int) -> list[str]:
    """Learns pieces by merging the most frequent pair of neighbours, ties by age of the pieces.

    Counts of pairs are kept up to date by looking only at the words that hold the merged pair.

    Returns:
      At most `num_merges` pieces of two characters and more, in the order they were made.
    """
    tokens = list(alphabet)
    ids = {token: i for i, token in enumerate(tokens)}
    counts = list(words.values())
    splits = [[ids[piece] for piece in _split_characters(word)] for word in words]
    pair_counts: dict[tuple[int, int], int] = collections.defaultdict(int)
    places: dict[tuple[int, int], set[int]] = collections.defaultdict(set)
    for i, split in enumerate(splits):
        for pair in itertools.pairwise(split):
            pair_counts[pair] += counts[i]
            places[pair].add(i)
    heap = [(-count, pair) for pair, count in pair_counts.items()]
    heapq.heapify(heap)
    learned: list[str] = []
    while heap and len(learned) < num_merges:
        negative, pair = heapq.heappop(heap)
        count = pair_counts.get(pair, 0)
        if -negative != count:  # an old entry: the pair has been merged, or lost some of its count
            if count > 0:
                heapq.heappush(heap, (-count, pair))
            continue
        token = _join(tokens[pair[0]], tokens[pair[1]])
        if token not in ids:  # two ways of merging may give one piece
            ids[token] = len(tokens)
            tokens.append(token)
            learned.append(token)
        changed: dict[tuple[int, int], int] = collections.defaultdict(int)
        for i in places.pop(pair):
            old = splits[i]
            splits[i] = new = _replace_pair(old, pair, ids[token])
            for neighbours in itertools.pairwise(old):
                changed[neighbours] -= counts[i]
            for neighbours in itertools.pairwise(new):
                changed[neighbours] += counts[i]
                if neighbours[0] == ids[token] or neighbours[1] == ids[token]:
                    places[neighbours].add(i)
        for neighbours, difference in changed.items():
            if difference:
                pair_counts[neighbours] += difference
                if difference > 0:
                    heapq.heappush(heap, (-pair_counts[neighbours], neighbours))
        pair_counts.pop(pair, None)
    return learned


def _replace_pair(split: list[int], pair: tuple[int, int], token: int) -> list[int]:
    left, right = pair
    new, i, last = [], 0, len(split) - 1
    while i <= last:
        if i < last and split[i] == left and split[i + 1] == right:
            new.append(token)
            i += 2
        else:
            new.append(split[i])
            i += 1
    return new


def _most_used(
    words: dict[str, int], alphabet: list[str], pieces: list[str], rows: int
) -> list[str]:
    """Keeps the `rows` pieces that greedy tokenization uses most, most used first.

    Pieces are dropped in three rounds, since dropping one moves its use to shorter ones.
    """
    excess = max(len(pieces) - rows, 0)
    for left in (excess * 2 // 3, excess // 3, 0):
        use = _count_use(words, {*alphabet, *pieces})
        # A stable sort: of equally used pieces the one learned first comes first.
        pieces = sorted(pieces, key=use.__getitem__, reverse=True)[: rows + left]
    return pieces


def _count_use(words: dict[str, int], known: set[str]) -> collections.Counter[str]:
    """Counts how often the greedy tokenizer would use each piece."""
    use: collections.Counter[str] = collections.Counter()
    longest = max(map(len, known))
    for word, count in words.items():
        start, prefix = 0, ""
        while start < len(word):
            end = min(len(word), start + longest)
            while prefix + word[start:end] not in known:
                end -= 1
            use[prefix + word[start:end]] += count
            start, prefix = end, CONTINUATION_PREFIX
    return use
