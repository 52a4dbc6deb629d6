"""Trains a WordPiece vocabulary: merges tokens by count, then selects them by use.

    texts -> raw chunks and their counts (one process per part) -> words and their counts
          -> 1. merge the most frequent pair of neighbouring tokens repeatedly, as BPE does, until
                there are more tokens than `vocab_size`
          -> 2. tokenize every word greedily, longest match first, as the model will, and drop the
                tokens that are used least, until the rest fits
          -> special tokens, [unused] tokens, alphabet, tokens by decreasing use

Why two steps (measured on held-out documents, `docs/measurements/data_speed.md`): the first
recounts pairs only where a merge changed them, so the time hardly grows with the vocabulary. But
many merged tokens are only steps to longer ones, which greedy matching seldom uses; the second step
removes those. Tokens per word on 5.5 MB of text with 4,000 tokens: 1.222 with the first step alone,
1.192 with both. With 30,522 tokens on 93 MB of Wikipedia: 1.089 with a surplus of 0.15; the
released vocabulary has 1.095. tensorflow-text's learner (top-down: it counts all substrings and
searches a threshold) had not finished after several minutes where this one takes seconds.
"""

import collections
import heapq
import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from absl import logging

from bert_tf.system.processes import count_workers, map_in_processes
from bert_tf.text.unicode_tables import is_isolated
from bert_tf.text.vocab import CLS, CONTINUATION_PREFIX, MASK, PAD, SEP, SPECIAL_TOKENS, UNK
from bert_tf.text.wordpiece import split_chunks, split_words

Part = TypeVar("Part")

# The most distinct words, and the most chunks, kept per process; about 170 bytes each.
MAX_DISTINCT = 2_000_000
# The most frequent words, from which tokens are learned; about 2 kB each.
MAX_LEARNING_WORDS = 1_000_000
# Longer words (addresses, noise) are ignored.
MAX_WORD_LENGTH = 50
# The rarest characters, together less than one in 20,000 of the text, get no token.
CHARACTER_COVERAGE = 0.99995
# From 1,000 lines on, the first lines up to [MASK] are those of google-research/bert's files.
GOOGLE_HEAD_ROWS = 104
MIN_ROWS_FOR_GOOGLE_HEAD = 1_000
# All [unused] tokens of those files are added where they are at most a tenth of the vocabulary.
GOOGLE_UNUSED_ROWS = 994
MIN_ROWS_FOR_ALL_UNUSED = 10_000
# Share of additional tokens from the first step, for the second step to choose from.
SURPLUS = 0.4


def count_words(
    texts: Iterable[str], do_lower_case: bool, max_distinct: int = MAX_DISTINCT
) -> collections.Counter[str]:
    """Counts the words (`split_words`) of the texts in bounded memory.

    Raw chunks between white spaces are counted first, so that each distinct chunk is split once.
    When there are more than `max_distinct` chunks, all are split into words. When there are more
    than `max_distinct` words, the rarest are dropped until half remain. Counts are therefore exact
    up to `max_distinct` words. Beyond that, a word loses its count whenever it is among the rarer
    half, which matters little for a word that is frequent throughout.
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
    """Counts the words of a corpus in several processes, on whose number no count depends.

    Each part is counted and pruned separately, and the counts are added in the order of the parts.

    Args:
      parts: picklable parts of the corpus.
      read_documents: a module-level function; yields the documents of a part, each a list of
        sentences.

    Raises:
      OSError: if a process is killed, for example for lack of memory.
    """
    tasks = [(part, read_documents, do_lower_case, max_distinct) for part in parts]
    counters = map_in_processes(_count_part, tasks, count_workers(num_workers), is_ordered=True)
    return _add_counts(counters, max_distinct)


def train_vocab(word_counts: collections.Counter[str], vocab_size: int) -> list[str]:
    """Learns a vocabulary.

    The alphabet is the most frequent characters that together make up `CHARACTER_COVERAGE` of the
    text. Each of its characters is a token, and also a continuation token, except punctuation and
    ideographs, which are words by themselves.

    Args:
      word_counts: the count of each word of `split_words`.

    Returns:
      Exactly `vocab_size` tokens: special and [unused] tokens, the alphabet, then the other tokens,
      the most used first. If the corpus is too small for that many, [unused] tokens are added and a
      warning is logged.

    Raises:
      ValueError: if there are no words, or the alphabet does not fit.
    """
    if not word_counts:
        raise ValueError("The corpus has no words; give text to learn a vocabulary from.")
    head = _head_rows(vocab_size)
    alphabet = _alphabet_tokens(word_counts)
    rows = vocab_size - len(head) - len(alphabet)
    if rows < 0:
        raise ValueError(
            f"vocab_size {vocab_size} has no room for {len(head)} special and unused tokens and "
            f"{len(alphabet)} tokens of the alphabet; expected at least "
            f"{len(head) + len(alphabet)}: raise vocab_size."
        )
    known = set(alphabet)
    suitable = []
    for word, count in word_counts.items():
        # Words of one character are in the alphabet already, and have nothing to merge.
        if 1 < len(word) <= MAX_WORD_LENGTH and known.issuperset(_split_characters(word)):
            suitable.append((word, count))
    words = dict(sorted(suitable, key=lambda item: (-item[1], item[0]))[:MAX_LEARNING_WORDS])
    merged = _merge_pairs(words, alphabet, rows + int(rows * SURPLUS))
    tokens = _most_used(words, alphabet, merged, rows)
    if len(tokens) < rows:
        logging.warning(
            "The corpus yields only %d of the %d requested tokens; the rest are [unused] tokens.",
            len(head) + len(alphabet) + len(tokens),
            vocab_size,
        )
    first_unused = sum(token.startswith("[unused") for token in head)
    extra = range(first_unused, first_unused + rows - len(tokens))
    unused = [f"[unused{i}]" for i in extra]
    return [*head, *alphabet, *tokens, *unused]


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

    Chunks are not pruned: in a language without spaces nearly every chunk occurs once.
    """
    while chunks:
        # Emptying one while filling the other keeps the sum of both in memory small.
        chunk, count = chunks.popitem()
        for word in split_words(chunk, do_lower_case):
            words[word] += count
    if len(words) > max_distinct:
        _prune(words, max_distinct)


def _prune(counter: collections.Counter[str], max_distinct: int) -> None:
    """Drops the rarest keys until at most half of `max_distinct` remain."""
    keys_with_count = collections.Counter(counter.values())
    remaining = len(counter)
    threshold = 0
    while remaining > max_distinct // 2:
        threshold = min(count for count in keys_with_count if count > threshold)
        remaining -= keys_with_count[threshold]
    rare = [key for key, count in counter.items() if count <= threshold]
    for key in rare:
        del counter[key]


def _head_rows(vocab_size: int) -> list[str]:
    """Returns special and [unused] tokens in the order of google-research/bert's files."""
    if vocab_size < MIN_ROWS_FOR_GOOGLE_HEAD:
        return list(SPECIAL_TOKENS)
    special = [UNK, CLS, SEP, MASK]
    before = GOOGLE_HEAD_ROWS - len(special) - 1
    total = GOOGLE_UNUSED_ROWS if vocab_size >= MIN_ROWS_FOR_ALL_UNUSED else before
    unused = [f"[unused{i}]" for i in range(total)]
    return [PAD, *unused[:before], *special, *unused[before:]]


def _split_characters(word: str) -> list[str]:
    return [word[0], *(CONTINUATION_PREFIX + char for char in word[1:])]


def _alphabet_tokens(word_counts: collections.Counter[str]) -> list[str]:
    """Returns the tokens of one character: those without, then those with the prefix."""
    characters: collections.Counter[str] = collections.Counter()
    for word, count in word_counts.items():
        for char in word:
            characters[char] += count
    wanted = CHARACTER_COVERAGE * characters.total()
    kept = []
    covered = 0
    for char, count in sorted(characters.items(), key=lambda item: (-item[1], item[0])):
        if covered >= wanted:
            break
        kept.append(char)
        covered += count
    kept.sort()
    return kept + [CONTINUATION_PREFIX + char for char in kept if not is_isolated(char)]


def _merge_pairs(words: dict[str, int], alphabet: list[str], num_merges: int) -> list[str]:
    """Learns tokens by merging the most frequent pair of neighbours; ties go to older tokens.

    After a merge only the words with the merged pair are recounted.

    Returns:
      At most `num_merges` tokens of two and more characters, in the order of merging.
    """
    tokens = list(alphabet)
    ids = {token: i for i, token in enumerate(tokens)}
    counts = list(words.values())
    splits = []
    for word in words:
        splits.append([ids[char] for char in _split_characters(word)])
    pair_counts: dict[tuple[int, int], int] = collections.defaultdict(int)
    words_with: dict[tuple[int, int], set[int]] = collections.defaultdict(set)
    for i, split in enumerate(splits):
        for pair in itertools.pairwise(split):
            pair_counts[pair] += counts[i]
            words_with[pair].add(i)
    heap = [(-count, pair) for pair, count in pair_counts.items()]
    heapq.heapify(heap)
    learned: list[str] = []
    while heap and len(learned) < num_merges:
        negative, pair = heapq.heappop(heap)
        count = pair_counts.get(pair, 0)
        # A heap cannot change entries: outdated ones are found when they come up.
        if -negative != count:
            # The entry is outdated: the pair was merged, or its count decreased.
            if count > 0:
                heapq.heappush(heap, (-count, pair))
            continue
        token = tokens[pair[0]] + tokens[pair[1]].removeprefix(CONTINUATION_PREFIX)
        if token not in ids:  # Different pairs may merge to the same token.
            ids[token] = len(tokens)
            tokens.append(token)
            learned.append(token)
        changed: dict[tuple[int, int], int] = collections.defaultdict(int)
        # Only these words change; all other counts stay.
        for i in words_with.pop(pair):
            old = splits[i]
            splits[i] = new = _replace_pair(old, pair, ids[token])
            for neighbours in itertools.pairwise(old):
                changed[neighbours] -= counts[i]
            for neighbours in itertools.pairwise(new):
                changed[neighbours] += counts[i]
                if neighbours[0] == ids[token] or neighbours[1] == ids[token]:
                    words_with[neighbours].add(i)
        for neighbours, difference in changed.items():
            if difference:
                pair_counts[neighbours] += difference
                if difference > 0:
                    heapq.heappush(heap, (-pair_counts[neighbours], neighbours))
        pair_counts.pop(pair, None)
    return learned


def _replace_pair(split: list[int], pair: tuple[int, int], token: int) -> list[int]:
    """Replaces each occurrence of a pair by the merged token."""
    left, right = pair
    new = []
    i = 0
    last = len(split) - 1
    while i <= last:
        if i < last and split[i] == left and split[i + 1] == right:
            new.append(token)
            i += 2
        else:
            new.append(split[i])
            i += 1
    return new


def _most_used(
    words: dict[str, int], alphabet: list[str], tokens: list[str], rows: int
) -> list[str]:
    """Returns the `rows` tokens that greedy tokenization uses most, most used first.

    Tokens are dropped in three rounds, because shorter tokens replace a dropped one.
    """
    excess = max(len(tokens) - rows, 0)
    for left in (excess * 2 // 3, excess // 3, 0):
        use = _count_use(words, {*alphabet, *tokens})
        # The sort is stable: of equally used tokens, the one learned first comes first.
        tokens = sorted(tokens, key=use.__getitem__, reverse=True)[: rows + left]
    return tokens


def _count_use(words: dict[str, int], known: set[str]) -> collections.Counter[str]:
    """Counts the uses of each token by greedy tokenization."""
    use: collections.Counter[str] = collections.Counter()
    longest = max(map(len, known))
    for word, count in words.items():
        start = 0
        prefix = ""
        while start < len(word):
            end = min(len(word), start + longest)
            # Ends at one character at the latest: the words consist of the alphabet.
            while prefix + word[start:end] not in known:
                end -= 1
            use[prefix + word[start:end]] += count
            start = end
            prefix = CONTINUATION_PREFIX
    return use
