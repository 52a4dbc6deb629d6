"""Packs one or two texts into a row of pieces: [CLS] a [SEP] b [SEP], cut, then padded.

RoBERTa puts two separators between the texts, and all its type ids are 0: the vocabulary says so.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, TypeVar

import numpy as np

from bert_tf.text.tokenization import AnyVocab

# The encoder's.
INPUTS = ("input_word_ids", "input_mask", "input_type_ids")
Result = TypeVar("Result")


class PackedText(NamedTuple):
    """A row without padding."""

    ids: list[int]  # with [CLS] and [SEP]
    type_ids: list[int]  # 0 up to the first [SEP], the vocabulary's second_type after it


def truncate_longest_first(
    ids_a: Sequence[int], ids_b: Sequence[int], max_length: int, odd_to_longer: bool = False
) -> tuple[list[int], list[int]]:
    """Cuts pieces off the end of the longer text, of the second if they are equally long.

    What google-research/bert's `_truncate_seq_pair` leaves, found without its loop: a text keeps
    what the other leaves free, and at least half.

    Args:
      ids_a, ids_b: pieces of both texts.
      max_length: how many are left of both together.
      odd_to_longer: where both are cut and the length is odd, the longer text, of equal ones the
        second, has the odd piece, as in Hugging Face's tokenizers; else the first has it.

    Example: truncate_longest_first([1, 2, 3, 4], [5, 6], 5) == ([1, 2, 3], [5, 6]).
    """
    is_down = odd_to_longer and len(ids_a) <= len(ids_b)
    half = max_length // 2 if is_down else -(-max_length // 2)
    length_a = min(len(ids_a), max(half, max_length - len(ids_b)))
    return list(ids_a[:length_a]), list(ids_b[: max_length - length_a])


def pack(
    vocab: AnyVocab,
    ids_a: Sequence[int],
    ids_b: Sequence[int],
    max_seq_length: int,
    keep_tail: bool = False,
) -> PackedText:
    """Packs one text, or two if the second has pieces, as google-research/bert does.

    Args:
      vocab: has the special tokens.
      ids_a: pieces of the first text; it may be empty.
      ids_b: pieces of the second text, or empty.
      max_seq_length: most pieces of the row; a single text loses its end, of two the longer one.
      keep_tail: whether they lose their beginnings instead.

    Raises:
      ValueError: if that leaves no room for pieces of the texts.
    """
    room = text_room(max_seq_length, bool(ids_b), vocab.num_separators)
    if keep_tail:
        cut = truncate_longest_first(ids_a[::-1], ids_b[::-1], room)
        first, second = cut[0][::-1], cut[1][::-1]
    else:
        first, second = truncate_longest_first(ids_a, ids_b, room)
    ids = [vocab.cls_id, *first, vocab.sep_id]
    type_ids = [0] * len(ids)
    if second:
        ids += [*[vocab.sep_id] * (vocab.num_separators - 1), *second, vocab.sep_id]
        type_ids += [vocab.second_type] * (len(ids) - len(type_ids))
    return PackedText(ids, type_ids)


def pack_pair(
    vocab: AnyVocab, ids_a: Sequence[int], ids_b: Sequence[int], max_seq_length: int
) -> PackedText:
    """Packs a pair as Hugging Face's tokenizers do, which cross-encoders are trained with.

    Differs from `pack` where both texts are cut, see `truncate_longest_first`, and where the
    second is empty: its [SEP] stands there all the same.

    Raises:
      ValueError: see `pack`.
    """
    room = text_room(max_seq_length, True, vocab.num_separators)
    first, second = truncate_longest_first(ids_a, ids_b, room, odd_to_longer=True)
    tail = [*[vocab.sep_id] * (vocab.num_separators - 1), *second, vocab.sep_id]
    type_ids = [0] * (len(first) + 2) + [vocab.second_type] * len(tail)
    return PackedText([vocab.cls_id, *first, vocab.sep_id, *tail], type_ids)


def pack_windows(
    vocab: AnyVocab, ids_a: Sequence[int], ids_b: Sequence[int], max_seq_length: int
) -> list[PackedText]:
    """Packs all of a text, or of the longer of two, in windows that overlap by half.

    The shorter one stands in every window, cut to half of the room.

    Raises:
      ValueError: see `pack`.
    """
    room = text_room(max_seq_length, bool(ids_b), vocab.num_separators)
    is_first_longer = len(ids_a) >= len(ids_b)
    long, short = (ids_a, ids_b) if is_first_longer else (ids_b, ids_a)
    short = short[: room // 2]
    size = room - len(short)
    starts = range(0, max(1, len(long) - size + (size + 1) // 2), max(1, (size + 1) // 2))
    windows = [long[start : start + size] for start in starts]
    pairs = [(window, short) if is_first_longer else (short, window) for window in windows]
    return [pack(vocab, first, second, max_seq_length) for first, second in pairs]


def num_special_tokens(is_pair: bool, num_separators: int = 1) -> int:
    """Returns how many pieces of a row are special tokens: one in front, the others separators."""
    return 2 + num_separators * is_pair


def text_room(max_seq_length: int, is_pair: bool, num_separators: int = 1) -> int:
    """Returns how many pieces of the texts a row holds beside its special tokens.

    Args:
      max_seq_length: pieces of the row.
      is_pair: whether there are two texts.
      num_separators: between them.

    Raises:
      ValueError: if there is no room.
    """
    num_special = num_special_tokens(is_pair, num_separators)
    if max_seq_length <= num_special:
        raise ValueError(
            f"max_seq_length is {max_seq_length}; {num_special} pieces are special tokens, so "
            f"expected at least {num_special + 1}."
        )
    return max_seq_length - num_special


def pad_batch(rows: Sequence[PackedText], pad_id: int = 0) -> dict[str, np.ndarray]:
    """Pads rows up to the longest of them: ids with `pad_id`, the vocabulary's, the rest with 0.

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
    sizes: Sequence[int], batch_size: int, compute: Callable[[list[int]], Iterable[Result]]
) -> list[Result]:
    """Computes rows, those of like length together: padding costs as much as pieces.

    Args:
      sizes: length of each row.
      batch_size: rows computed at once.
      compute: takes numbers of rows, returns as many results.

    Returns:
      The results in the order of the rows.

    Raises:
      ValueError: if `batch_size` is below 1.
    """
    if batch_size < 1:
        raise ValueError(f"batch_size is {batch_size}, expected 1 or more.")
    order = sorted(range(len(sizes)), key=sizes.__getitem__, reverse=True)
    results: dict[int, Result] = {}
    for start in range(0, len(order), batch_size):
        chosen = order[start : start + batch_size]
        results |= zip(chosen, compute(chosen), strict=True)
    return [results[index] for index in range(len(sizes))]
