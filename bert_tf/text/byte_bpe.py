"""Byte-level BPE in plain Python, equal to Hugging Face's `tokenizers`.

    text -> parts between added tokens ("<mask>") -> words (`byte_level.split_words`) -> bytes
         -> pairs of neighbours merged, the one of least rank first, until none is in the list

No TensorFlow is imported, so worker processes start at once. `ByteBpe.encode` is the hot path of
corpus preparation: the pieces of a word are looked for once, then remembered.
"""

import heapq
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence

from bert_tf.text import nfc
from bert_tf.text.bpe_vocab import AddedToken, BpeVocab
from bert_tf.text.byte_level import (
    BYTE_CHARACTERS,
    SPACE_MARK,
    SPACES,
    encode_utf8,
    split_words,
)

# At about 250 bytes an entry this is at most 150 MB a process.
MAX_CACHED_WORDS = 1 << 19
MAX_CACHED_CHARACTERS = 64
# From here on a heap is faster than looking at all pairs for each merge.
MIN_BYTES_FOR_HEAP = 40
_NO_MERGE = 1 << 62
_GONE = -1  # a piece that is part of another one now
_NEVER = r"(?!)"  # matches nothing
_TRIMMED = SPACES + SPACE_MARK


class _WordIds(dict):
    """Ids of the words met so far; emptied when full, so that memory is bounded."""

    def __init__(self, tokenizer: "ByteBpe"):
        super().__init__()
        self._tokenizer = tokenizer

    def __missing__(self, word: str) -> tuple[int, ...]:
        ids = tuple(self._tokenizer.encode_bytes(encode_utf8(word)))
        if len(word) <= MAX_CACHED_CHARACTERS:
            if len(self) >= MAX_CACHED_WORDS:
                self.clear()
            self[word] = ids
        return ids


class _AddedTokens:
    """Finds added tokens in a text, the leftmost first, of several there the longest.

    Args:
      ids: id of each, and how it is found, by what stands for it in the text.
    """

    def __init__(self, ids: dict[str, tuple[int, AddedToken]]):
        self._tokens = ids
        longest_first = sorted(ids, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first)) or _NEVER)
        # What a text with one of them surely holds: looked for at the speed of memchr.
        heads: dict[str, list[str]] = {}
        for content in ids:
            heads.setdefault(content[0], []).append(content)
        self._signs = [_common_prefix(group) for group in heads.values()]

    def may_be_in(self, text: str) -> bool:
        """False if surely none is in the text."""
        for sign in self._signs:  # noqa: SIM110  (a generator is twice as slow)
            if sign in text:
                return True
        return False

    def split(self, text: str) -> Iterator[tuple[int | None, int, int]]:
        """Yields the parts of the text: id of the token, or None, and first and end character."""
        start = 0
        for match in self._pattern.finditer(text):
            index, token = self._tokens[match.group()]
            first, end = match.span()
            if token.lstrip:
                first = start + len(text[start:first].rstrip(SPACES))
            if token.rstrip:
                end = len(text) - len(text[end:].lstrip(SPACES))
            if start < first:
                yield None, start, first
            yield index, first, end
            start = end
        if start < len(text):
            yield None, start, len(text)


def _common_prefix(strings: Sequence[str]) -> str:
    same = itertools.takewhile(lambda chars: len(set(chars)) == 1, zip(*strings, strict=False))
    return "".join(chars[0] for chars in same)


class ByteBpe:
    """Byte-level BPE by a vocabulary; every text has pieces, and none is unknown.

    Special tokens written in the text are found, as `tokenizers` does: "<mask>" is one piece. A
    lone surrogate, which has no UTF-8, counts as U+FFFD.

    Args:
      vocab: pieces and merges.
    """

    def __init__(self, vocab: BpeVocab):
        self.vocab = vocab
        ids = vocab.ids
        self._byte_ids = [ids.get(char, vocab.unk_id) for char in BYTE_CHARACTERS]
        self._ranks = {
            (ids[left], ids[right]): rank for rank, (left, right) in enumerate(vocab.merges)
        }
        self._merged = [ids[left + right] for left, right in vocab.merges]
        self._word_ids = _WordIds(self)
        raw = {t.content: (ids[t.content], t) for t in vocab.added_tokens if not t.normalized}
        normalized = {
            self._normalize(t.content): (ids[t.content], t)
            for t in vocab.added_tokens
            if t.normalized
        }
        self._added_raw, self._added_normalized = _AddedTokens(raw), _AddedTokens(normalized)

    def __reduce__(self) -> tuple:
        return ByteBpe, (self.vocab,)  # without the remembered words

    def tokenize(self, text: str) -> list[str]:
        """Returns the pieces of the text, bytes written as `byte_level.BYTE_CHARACTERS`."""
        return [self.vocab.tokens[index] for index in self.encode_uncached(text)]

    def encode(self, text: str) -> list[int]:
        """Returns the ids of the pieces of the text; several million a second."""
        normal = self._normalize(text)
        if self._added_raw.may_be_in(text) or self._added_normalized.may_be_in(normal):
            return self._encode_parts(text, self._word_ids.__getitem__)
        if self.vocab.add_prefix_space and normal and normal[0] != " ":
            normal = " " + normal
        ids = map(self._word_ids.__getitem__, split_words(normal))
        return list(itertools.chain.from_iterable(ids))

    def encode_uncached(self, text: str) -> list[int]:
        """Does what `encode` does, without memory."""
        return self._encode_parts(text, lambda word: self.encode_bytes(encode_utf8(word)))

    def encode_word(self, word: str) -> list[int]:
        """Returns the pieces of a word of a sentence already split: as with a space before it."""
        return self.encode(word if word.startswith(" ") else " " + word)

    def tokenize_with_offsets(self, text: str) -> tuple[list[str], list[int], list[int]]:
        """Returns pieces and where they stand in the text as it was given.

        As `tokenizers` has it: a piece with some of a character's bytes stands where all of the
        character does; the space that begins a piece is left out (`BpeVocab.trim_offsets`), so that
        a piece which is a space is empty, and so is one letter with an added space after a special
        token. Where the normalizer changed characters, a piece covers all of those that it came
        from (`tokenizers`: only the first).

        Returns:
          Pieces, first characters, and the characters after the last ones, of equal length.
        """
        tokens: list[str] = []
        starts: list[int] = []
        ends: list[int] = []
        for index, part, sources in self._parts(text):
            pieces: Iterable[tuple[str, str, int, int]]
            if index is not None:
                pieces = [(self.vocab.tokens[index], part, sources[0][0], sources[-1][1])]
            else:
                pieces = self._locate(part, sources)
            for token, covered, start, end in pieces:
                if self.vocab.trim_offsets:
                    is_first = not tokens or start == 0
                    start, end = self._trim(covered, start, end, is_first)
                tokens.append(token)
                starts.append(start)
                ends.append(end)
        return tokens, starts, ends

    def _encode_parts(self, text: str, encode: Callable[[str], Iterable[int]]) -> list[int]:
        ids: list[int] = []
        for index, part, _ in self._parts(text):
            if index is not None:
                ids.append(index)
            else:
                for word in split_words(part):
                    ids.extend(encode(word))
        return ids

    def _parts(self, text: str) -> Iterator[tuple[int | None, str, Sequence[tuple[int, int]]]]:
        """Yields the parts of the text: added tokens with their ids, and what is between them.

        Each comes with the first character and the one after the last of the source of each of its
        characters. What is between is normalized, and has the added space.
        """
        for index, start, end in self._added_raw.split(text):
            sources: Sequence[tuple[int, int]] = [(i, i + 1) for i in range(start, end)]
            if index is not None:
                yield index, text[start:end], sources
                continue
            part, sources = self._normalize_with_sources(text[start:end], sources)
            for inner, first, last in self._added_normalized.split(part):
                inside, inside_sources = part[first:last], sources[first:last]
                if inner is None and self.vocab.add_prefix_space and inside[0] != " ":
                    inside, inside_sources = " " + inside, [inside_sources[0], *inside_sources]
                yield inner, inside, inside_sources

    def _normalize(self, text: str) -> str:
        return nfc.normalize(text) if self.vocab.normalizer else text

    def _normalize_with_sources(
        self, text: str, sources: Sequence[tuple[int, int]]
    ) -> tuple[str, Sequence[tuple[int, int]]]:
        if self._normalize(text) == text:
            return text, sources
        normalized: list[str] = []
        new_sources: list[tuple[int, int]] = []
        for start, end in nfc.segment(text):
            segment = self._normalize(text[start:end])
            normalized.append(segment)
            if segment == text[start:end]:
                new_sources += sources[start:end]
            else:
                new_sources += [(sources[start][0], sources[end - 1][1])] * len(segment)
        return "".join(normalized), new_sources

    def _locate(
        self, part: str, sources: Sequence[tuple[int, int]]
    ) -> Iterator[tuple[str, str, int, int]]:
        """Yields piece, piece, first character and the one after the last of each piece."""
        first = 0  # character of the part that the word begins with
        for word in split_words(part):
            chars = [i for i, char in enumerate(word, first) for _ in encode_utf8(char)]
            byte = 0
            for index in self.encode_bytes(encode_utf8(word)):
                token = self.vocab.tokens[index]
                start, end = sources[chars[byte]][0], sources[chars[byte + len(token) - 1]][1]
                yield token, token, start, end
                byte += len(token)
            first += len(word)

    def _trim(self, covered: str, start: int, end: int, is_first: bool) -> tuple[int, int]:
        """Leaves out the spaces at the ends of a piece, as `tokenizers` does.

        Args:
          covered: the piece, or what an added token stands for in the text.
          is_first: whether it is the text's first, whose space may be an added one.
        """
        leading = len(covered) - len(covered.lstrip(_TRIMMED))
        trailing = len(covered) - len(covered.rstrip(_TRIMMED))
        if not (is_first and self.vocab.add_prefix_space and leading == 1):
            start = min(start + leading, end)
        return start, max(end - trailing, start)

    def encode_bytes(self, word: bytes) -> list[int]:
        """Merges the bytes of a word: of the pairs of least rank the leftmost, again and again."""
        ids = [self._byte_ids[byte] for byte in word]
        if len(ids) >= MIN_BYTES_FOR_HEAP:
            return self._merge_by_heap(ids)
        find, merged = self._ranks.get, self._merged
        ranks = [find(pair, _NO_MERGE) for pair in itertools.pairwise(ids)]
        while ranks:
            rank = min(ranks)
            if rank == _NO_MERGE:
                break
            place = ranks.index(rank)
            ids[place] = merged[rank]
            del ids[place + 1], ranks[place]
            if place < len(ranks):
                ranks[place] = find((ids[place], ids[place + 1]), _NO_MERGE)
            if place:
                ranks[place - 1] = find((ids[place - 1], ids[place]), _NO_MERGE)
        return ids

    def _merge_by_heap(self, ids: list[int]) -> list[int]:
        """Does what `encode_bytes` does, in a time that grows with n log n."""
        size, ranks = len(ids), self._ranks
        before, after = list(range(-1, size - 1)), list(range(1, size + 1))
        heap: list[tuple[int, int]] = []

        def push(left: int, right: int) -> None:
            if 0 <= left and right < size and (ids[left], ids[right]) in ranks:
                heapq.heappush(heap, (ranks[ids[left], ids[right]], left))

        for place in range(size - 1):
            push(place, place + 1)
        while heap:
            rank, left = heapq.heappop(heap)
            right = after[left]
            # An old entry: one of the two has been merged with another piece.
            if right == size or ranks.get((ids[left], ids[right])) != rank:
                continue
            ids[left], ids[right] = self._merged[rank], _GONE
            after[left] = after[right]
            if after[left] < size:
                before[after[left]] = left
            push(left, after[left])
            push(before[left], left)
        return [index for index in ids if index != _GONE]
