"""WordPiece tokenization in plain Python, equal to google-research/bert's tokenization.py.

No TensorFlow is imported, so worker processes start at once. `WordPiece.encode` is the hot path
of corpus preparation: the pieces of a word are looked for once, then remembered. Every rule of
the original looks no further than the next white space, so where finding the words of a text is
slow, the ids of whole chunks between white spaces are remembered instead.
"""

import itertools
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator

from bert_tf.text.unicode_tables import (
    CLEAN,
    PART,
    PART_AND_STRIP,
    is_deleted,
    is_isolated,
    is_whitespace,
)
from bert_tf.text.vocab import CONTINUATION_PREFIX, Vocab

MAX_WORD_CHARACTERS = 200
# At about 250 bytes an entry this is at most 150 MB a process.
MAX_CACHED_CHUNKS = 1 << 19
MAX_CACHED_CHARACTERS = 64
# White space to `str.split`, but deleted by the original: the words at its sides join.
_DELETED_SEPARATORS = "\x0b\x0c\x1c\x1d\x1e\x1f\x85"
_DELETE_SEPARATORS = dict.fromkeys(map(ord, _DELETED_SEPARATORS))
_WORDS_OF_PRINTABLE_ASCII = re.compile("[0-9A-Za-z]+|[^0-9A-Za-z ]")


def is_printable_ascii(text: str) -> bool:
    """True for most of English: the words of such a text are found in half the time."""
    return text.isascii() and text.isprintable()


def split_words(text: str, do_lower_case: bool) -> list[str]:
    """Splits text into words and punctuation marks, as the original's BasicTokenizer.

    Differs from the original only in order: lower-casing and NFD run over the whole text, not a
    chunk at a time. That gives the same words, since white space ends the context of both.

    Example: split_words("Héllo, wörld", True) == ["hello", ",", "world"].
    """
    if is_printable_ascii(text):
        return _WORDS_OF_PRINTABLE_ASCII.findall(text.lower() if do_lower_case else text)
    text = text.translate(CLEAN)
    if do_lower_case:
        return unicodedata.normalize("NFD", text.lower()).translate(PART_AND_STRIP).split()
    return text.translate(PART).split()


def split_chunks(text: str) -> list[str]:
    """Splits text where the original surely parts words; the chunks are otherwise untouched.

    The words of the text are the words of its chunks, one chunk after the other.
    """
    for separator in _DELETED_SEPARATORS:  # seven times memchr: less than a scan in Python
        if separator in text:
            text = text.translate(_DELETE_SEPARATORS)
            break
    return text.split()


class _ChunkIds(dict):
    """Ids of the words and chunks met so far; emptied when full, so that memory is bounded."""

    def __init__(self, tokenizer: "WordPiece"):
        super().__init__()
        self._tokenizer = tokenizer

    def __missing__(self, chunk: str) -> tuple[int, ...]:
        ids = tuple(self._tokenizer.encode_uncached(chunk))
        if len(chunk) <= MAX_CACHED_CHARACTERS:
            if len(self) >= MAX_CACHED_CHUNKS:
                self.clear()
            self[chunk] = ids
        return ids


class WordPiece:
    """Greedy longest-match-first WordPiece after `split_words`.

    A word over 200 characters, or with a part that no piece matches, is one [UNK]. Special tokens
    written in the text are ordinary text: "[MASK]" is three words, as in the original.

    Args:
      vocab: the pieces.
      do_lower_case: lower-case the text and strip accents (uncased models).
    """

    def __init__(self, vocab: Vocab, do_lower_case: bool):
        self.vocab = vocab
        self.do_lower_case = do_lower_case
        self._ids = vocab.ids
        self._whole_words = {
            word: index for word, index in vocab.ids.items() if len(word) <= MAX_WORD_CHARACTERS
        }
        self._max_length = max(map(len, vocab.tokens))
        self._chunk_ids = _ChunkIds(self)

    def __reduce__(self) -> tuple:
        return WordPiece, (self.vocab, self.do_lower_case)  # without the cached chunks

    def tokenize(self, text: str) -> list[str]:
        """Returns the pieces of the text."""
        return [self.vocab.tokens[index] for index in self.encode_uncached(text)]

    def encode(self, text: str) -> list[int]:
        """Returns the ids of the pieces of the text; several million a second."""
        if is_printable_ascii(text):
            words = split_words(text, self.do_lower_case)
            return self._encode_words(words, self._chunk_ids.__getitem__)  # a word is a chunk, too
        chunks = map(self._chunk_ids.__getitem__, split_chunks(text))
        return list(itertools.chain.from_iterable(chunks))

    def encode_uncached(self, text: str) -> list[int]:
        """Does what `encode` does, without memory."""
        return self._encode_words(split_words(text, self.do_lower_case), self._encode_word)

    def encode_word(self, word: str) -> list[int]:
        """Returns the pieces of a word of a sentence already split: here, of any text."""
        return self.encode(word)

    def tokenize_with_offsets(self, text: str) -> tuple[list[str], list[int], list[int]]:
        """Returns pieces and where they stand in the text as it was given.

        A piece starts where its first character's source starts and ends where its last one's
        source ends: characters that were deleted at its ends are left out.

        Returns:
          Pieces, first characters, and the characters after the last ones, of equal length.
        """
        tokens, starts, ends = [], [], []
        for word, sources in self._words_with_sources(text):
            position = 0
            for index in self._encode_word(word):
                token = self.vocab.tokens[index]
                if index == self.vocab.unk_id:
                    length = len(word)
                else:
                    length = len(token) - len(CONTINUATION_PREFIX) * (position > 0)
                tokens.append(token)
                starts.append(sources[position])
                position += length
                ends.append(sources[position - 1] + 1)
        return tokens, starts, ends

    def _encode_words(
        self, words: list[str], encode_parts: Callable[[str], Iterable[int]]
    ) -> list[int]:
        ids = []
        find = self._whole_words.get
        for word in words:
            whole = find(word)
            if whole is not None:
                ids.append(whole)
            else:
                ids.extend(encode_parts(word))
        return ids

    def _encode_word(self, word: str) -> list[int]:
        if len(word) > MAX_WORD_CHARACTERS:
            return [self.vocab.unk_id]
        ids: list[int] = []
        start, prefix = 0, ""
        while start < len(word):
            longest = min(len(word), start + self._max_length)
            for end in range(longest, start, -1):
                index = self._ids.get(prefix + word[start:end])
                if index is not None:
                    break
            else:
                return [self.vocab.unk_id]
            ids.append(index)
            start, prefix = end, CONTINUATION_PREFIX
        return ids

    def _words_with_sources(self, text: str) -> Iterator[tuple[str, list[int]]]:
        """Yields each word with the place in `text` that each of its characters came from."""
        kept = [(char, i) for i, char in enumerate(text) if not is_deleted(char)]
        chars, sources = "".join(char for char, _ in kept), [i for _, i in kept]
        if self.do_lower_case:
            # Sorting of marks by NFD may swap characters; places are kept in the text's order.
            sources = [
                source
                for char, source in kept
                for part in unicodedata.normalize("NFD", char.lower())
                if unicodedata.category(part) != "Mn"
            ]
            decomposed = unicodedata.normalize("NFD", chars.lower())
            chars = "".join(c for c in decomposed if unicodedata.category(c) != "Mn")
        start = 0
        for i, char in enumerate(chars):
            if is_whitespace(char) or is_isolated(char):
                if start < i:
                    yield chars[start:i], sources[start:i]
                if is_isolated(char):
                    yield char, sources[i : i + 1]
                start = i + 1
        if start < len(chars):
            yield chars[start:], sources[start:]
