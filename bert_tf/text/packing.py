"""Packs one or two texts into a sequence of tokens: [CLS] a [SEP] b [SEP], truncated and padded.

RoBERTa puts two separators between the texts, and all its type ids are 0. XLNet puts the class
token last, with a separate type: a <sep> b <sep> <cls>. The vocabulary determines the form.
Padding is always on the right.
"""

import collections
import concurrent.futures
import contextvars
import functools
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeVar

import numpy as np

from bert_tf.system.number_arguments import check_numbers
from bert_tf.system.startup_lines import has_gpu
from bert_tf.text.text_counts import count_text
from bert_tf.text.tokenization import AnyVocab, Tokenizer
from bert_tf.text.vocab import WORDPIECE

# The keys of the encoder's inputs.
INPUTS = ("input_word_ids", "input_mask", "input_type_ids")
Result = TypeVar("Result")
# Attention to the padding of larger batches costs a CPU more than it gains by larger products.
CPU_BATCH_TOKENS = 1024
# For TensorFlow, whose threads share each operation: small ones run in one thread, and another
# batch then takes the rest of the processor.
BATCHES_AT_ONCE = 2


class PackedText(NamedTuple):
    """A sequence without padding."""

    ids: list[int]  # with [CLS] and [SEP]
    type_ids: list[int]  # 0 up to the first [SEP], the vocabulary's second_type after it


def add_special_tokens(
    vocab: AnyVocab, ids_a: Sequence[int], ids_b: Sequence[int] | None = None
) -> PackedText:
    """Puts the special tokens around one text, or two, which are short enough.

    Args:
      ids_a: token ids of the first text; they begin at `vocab.text_start`.
      ids_b: token ids of the second text, which may be empty; None without a second text.
    """
    ids = [*ids_a, vocab.sep_id]
    if not vocab.class_at_end:
        ids.insert(0, vocab.cls_id)
    type_ids = [0] * len(ids)
    if ids_b is not None:
        ids += [*[vocab.sep_id] * (vocab.num_separators - 1), *ids_b, vocab.sep_id]
        # The separators between the texts have the type of the second one.
        type_ids += [vocab.second_type] * (len(ids) - len(type_ids))
    if vocab.class_at_end:
        ids.append(vocab.cls_id)
        type_ids.append(vocab.class_type)
    return PackedText(ids, type_ids)


def packs_as_google(vocab: AnyVocab) -> bool:
    """Returns whether google-research/bert defines how texts are packed with a vocabulary.

    It does for BERT's WordPiece, where a blank second text is left out. All other vocabularies, and
    those of Hugging Face's folders, are packed as by its tokenizers, which keep the separators:
    `<s> a </s></s> </s>`. Of the odd token where both texts are truncated see
    `truncate_longest_first`.
    """
    options = vocab.options
    # MPNet's WordPiece has other special tokens.
    return vocab.kind == WORDPIECE and not (options.special_tokens or options.keeps_blank_seconds)


def second_ids(vocab: AnyVocab, ids_b: Sequence[int] | None) -> Sequence[int] | None:
    """Returns the tokens of a second text, or None if it is not packed."""
    return None if ids_b is None or not ids_b and packs_as_google(vocab) else ids_b


def single_type_ids(vocab: AnyVocab, length: int) -> list[int]:
    """Returns the type ids of a sequence of one text, with so many tokens in all."""
    type_ids = [0] * length
    if vocab.class_at_end:
        type_ids[-1] = vocab.class_type
    return type_ids


def truncate_longest_first(
    ids_a: Sequence[int], ids_b: Sequence[int], max_length: int, odd_to_longer: bool = False
) -> tuple[list[int], list[int]]:
    """Removes tokens from the end of the longer text, or of the second if both are equally long.

    The result is that of google-research/bert's `_truncate_seq_pair`, without its loop: each text
    keeps at least half of the room, and all that the other one leaves.

    Args:
      ids_a, ids_b: token ids of both texts.
      max_length: the most tokens of both together.
      odd_to_longer: where both are truncated and `max_length` is odd, whether the longer text (the
        second, if they are equal) keeps one token more, as in Hugging Face's tokenizers; otherwise
        the first text does.

    Example: truncate_longest_first([1, 2, 3, 4], [5, 6], 5) == ([1, 2, 3], [5, 6]).
    """
    is_down = odd_to_longer and len(ids_a) <= len(ids_b)
    # The first text's share of the room where both are too long: rounded down or up.
    half = max_length // 2 if is_down else -(-max_length // 2)
    length_a = min(len(ids_a), max(half, max_length - len(ids_b)))
    return list(ids_a[:length_a]), list(ids_b[: max_length - length_a])


def pack(
    vocab: AnyVocab,
    ids_a: Sequence[int],
    ids_b: Sequence[int] | None,
    max_seq_length: int,
    keep_tail: bool = False,
    counted: Sequence[int] | None = None,
) -> PackedText:
    """Packs one text or two, truncated as the vocabulary's family does: see `packs_as_google`.

    Args:
      ids_a: token ids of the first text; it may be empty.
      ids_b: token ids of the second text, None for a single text.
      max_seq_length: the most tokens of the sequence; the longer text is truncated at its end.
      keep_tail: whether texts are truncated at their beginning instead.
      counted: tokens that decide whether the text counts as empty or unknown; None: `ids_a`.

    Raises:
      ValueError: if there is no room for tokens of the texts.
    """
    ids_b = second_ids(vocab, ids_b)
    if counted is None:
        counted = ids_a
    room = text_room(max_seq_length, ids_b is not None, vocab.num_separators)
    size = len(ids_a) + len(ids_b or ())
    count_text(vocab, counted, ids_b or (), size + max_seq_length - room, max_seq_length)
    return _pack(vocab, ids_a, ids_b, room, keep_tail)


def ids_after_prompt(tokenizer: Tokenizer, prompt: str, ids: Sequence[int]) -> Sequence[int]:
    """Returns the tokens of a text without those of the prompt that was put before it."""
    if not prompt:
        return ids
    alone, size = _prompt_ids(tokenizer, prompt)
    return [] if list(ids) == alone else ids[size:]


@functools.lru_cache(maxsize=8)
def _prompt_ids(tokenizer: Tokenizer, prompt: str) -> tuple[list[int], int]:
    """Returns the tokens of a prompt, and how many of them stay before any text."""
    alone = tokenizer.encode(prompt)
    # The last ones may join the text.
    kept = os.path.commonprefix([alone, tokenizer.encode(f"{prompt}?")])
    return alone, len(kept)


def _pack(
    vocab: AnyVocab,
    ids_a: Sequence[int],
    ids_b: Sequence[int] | None,
    room: int,
    keep_tail: bool = False,
) -> PackedText:
    is_pair = ids_b is not None
    ids_b = ids_b or ()
    odd_to_longer = not packs_as_google(vocab)
    if keep_tail:
        # Truncating the reversed texts at their end truncates them at their beginning.
        cut = truncate_longest_first(ids_a[::-1], ids_b[::-1], room, odd_to_longer)
        first = cut[0][::-1]
        second = cut[1][::-1]
    else:
        first, second = truncate_longest_first(ids_a, ids_b, room, odd_to_longer)
    # The second text of a pair may have lost all its tokens.
    return add_special_tokens(vocab, first, second_ids(vocab, second) if is_pair else None)


def pack_pair(
    vocab: AnyVocab, ids_a: Sequence[int], ids_b: Sequence[int], max_seq_length: int
) -> PackedText:
    """Packs a pair as Hugging Face's tokenizers do for the training of cross-encoders.

    Differs from `pack` only with a vocabulary of google-research/bert's, see `packs_as_google`.

    Raises:
      ValueError: see `pack`.
    """
    room = text_room(max_seq_length, True, vocab.num_separators)
    size = len(ids_a) + len(ids_b)
    count_text(vocab, ids_a, ids_b, size + max_seq_length - room, max_seq_length)
    first, second = truncate_longest_first(ids_a, ids_b, room, odd_to_longer=True)
    return add_special_tokens(vocab, first, second)


def pack_windows(
    vocab: AnyVocab, ids_a: Sequence[int], ids_b: Sequence[int] | None, max_seq_length: int
) -> list[PackedText]:
    """Splits a text, or the longer one of two, into windows that overlap by half.

    The shorter text is in every window, truncated to half of the room.

    Raises:
      ValueError: see `pack`.
    """
    is_pair = second_ids(vocab, ids_b) is not None
    ids_b = ids_b or ()
    room = text_room(max_seq_length, is_pair, vocab.num_separators)
    is_first_longer = len(ids_a) >= len(ids_b)
    long, short = (ids_a, ids_b) if is_first_longer else (ids_b, ids_a)
    # Only the shorter text can lose tokens: the windows show all of the longer one.
    is_cut = len(short) > room // 2
    size = len(ids_a) + len(ids_b) + max_seq_length - room
    count_text(vocab, ids_a, ids_b, size if is_cut else 0, max_seq_length)
    # The shorter text may not crowd out the windows of the longer one.
    short = short[: room // 2]
    size = room - len(short)
    # A step of half a window: every token but those at the ends is in two windows.
    starts = range(0, max(1, len(long) - size + (size + 1) // 2), max(1, (size + 1) // 2))
    packed = []
    for start in starts:
        window = long[start : start + size]
        first, second = (window, short) if is_first_longer else (short, window)
        packed.append(_pack(vocab, first, second if is_pair else None, room))
    return packed


def num_special_tokens(is_pair: bool, num_separators: int = 1) -> int:
    """Returns the number of special tokens in a sequence: [CLS] and the separators."""
    return 2 + num_separators * is_pair


def text_room(max_seq_length: int, is_pair: bool, num_separators: int = 1) -> int:
    """Returns the room of a sequence for tokens of the texts.

    Args:
      max_seq_length: the most tokens of the sequence.

    Raises:
      ValueError: if there is no room.
    """
    num_special = num_special_tokens(is_pair, num_separators)
    if max_seq_length <= num_special:
        raise ValueError(
            f"max_seq_length is {max_seq_length}; {num_special} tokens are special tokens, so "
            f"expected at least {num_special + 1}."
        )
    return max_seq_length - num_special


def pad_batch(rows: Sequence[PackedText], pad_id: int = 0) -> dict[str, np.ndarray]:
    """Pads sequences to the longest of them, ids with `pad_id` and the other inputs with 0.

    Returns:
      The encoder's inputs: `input_word_ids`, `input_mask`, `input_type_ids`, each int32 [B, T].
    """
    shape = (len(rows), max(len(row.ids) for row in rows))
    batch = {name: np.zeros(shape, np.int32) for name in INPUTS}
    batch["input_word_ids"][:] = pad_id
    for index, row in enumerate(rows):
        length = len(row.ids)
        batch["input_word_ids"][index, :length] = row.ids
        batch["input_mask"][index, :length] = 1
        batch["input_type_ids"][index, :length] = row.type_ids
    return batch


def by_length(
    sizes: Sequence[float],
    batch_size: int,
    compute: Callable[[list[int]], Iterable[Result]],
    at_once: int = 1,
) -> list[Result]:
    """Computes rows of similar length together, because padding costs as much as tokens.

    Args:
      sizes: number of tokens of each row.
      batch_size: maximum number of rows computed at once; without a GPU also at most
        `CPU_BATCH_TOKENS` tokens.
      compute: takes numbers of rows, returns as many results.
      at_once: number of batches that a CPU computes at the same time, each in a thread.

    Returns:
      The results in the order of the rows.

    Raises:
      TypeError, ValueError: if `batch_size` is not a whole number from 1.
    """
    check_numbers(1, batch_size=batch_size)
    # The longest first: if memory is short, the first batch fails, not the last.
    order = sorted(range(len(sizes)), key=sizes.__getitem__, reverse=True)
    is_on_cpu = not has_gpu()
    batches = []
    start = 0
    while start < len(order):
        count = batch_size
        if is_on_cpu:
            longest = max(1, sizes[order[start]])
            count = max(1, min(batch_size, int(CPU_BATCH_TOKENS / longest)))
        batches.append(order[start : start + count])
        start += count
    if not is_on_cpu:
        at_once = 1
    results: dict[int, Result] = {}
    computed = _in_threads(compute, batches, at_once)
    for chosen, rows in zip(batches, computed, strict=True):
        results |= zip(chosen, rows, strict=True)
    return [results[index] for index in range(len(sizes))]


def _in_threads(
    compute: Callable[[list[int]], Iterable[Result]], batches: list[list[int]], num_threads: int
) -> Iterator[Iterable[Result]]:
    """Yields `compute` of each batch, in their order."""
    if num_threads == 1 or len(batches) == 1:
        yield from map(compute, batches)
        return
    calls: collections.deque[concurrent.futures.Future] = collections.deque()
    with concurrent.futures.ThreadPoolExecutor(num_threads) as pool:
        for batch in batches:
            # Not all at once: their results, which the caller makes smaller, would wait in memory.
            if len(calls) == num_threads:
                yield calls.popleft().result()
            context = contextvars.copy_context()  # Holds the count of texts, for example.
            calls.append(pool.submit(context.run, compute, batch))
        while calls:
            yield calls.popleft().result()
