"""WordPiece tokenization in plain Python, equal to google-research/bert's tokenization.py.

TensorFlow is not imported, so worker processes start quickly. `WordPiece.encode` is the hot path
of corpus preparation: it caches the token ids of words. No rule of the original looks beyond the
next white space, so where splitting a text into words is slow, the ids of whole chunks between
white spaces are cached instead.
"""

import itertools
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator

from bert_tf.text.added_tokens import AddedTokenSplitter, Part
from bert_tf.text.fast_tokenizers import BoundedCache
from bert_tf.text.unicode_tables import (
    CLEAN,
    CLEAN_ONLY,
    PART,
    PART_AND_STRIP,
    STRIP,
    is_cjk,
    is_deleted,
    is_punctuation,
    is_whitespace,
)
from bert_tf.text.vocab import CONTINUATION_PREFIX, Vocab
from bert_tf.text.wordpiece_options import DEFAULT_OPTIONS, WordPieceOptions

# White space to `str.split`, but deleted by the original, so that its neighbours are joined.
_DELETED_SEPARATORS = "\x0b\x0c\x1c\x1d\x1e\x1f\x85"
_DELETE_SEPARATORS = dict.fromkeys(map(ord, _DELETED_SEPARATORS))
_WORDS_OF_PRINTABLE_ASCII = re.compile("[0-9A-Za-z]+|[^0-9A-Za-z ]")


def is_printable_ascii(text: str) -> bool:
    """Returns whether the text can take the fast path, as most of English can."""
    return text.isascii() and text.isprintable()


def split_words(
    text: str, do_lower_case: bool, options: WordPieceOptions = DEFAULT_OPTIONS
) -> list[str]:
    """Splits text into words and punctuation marks, like the original's BasicTokenizer.

    Differs from the original only in order: lower-casing and NFD run over the whole text instead
    of one chunk at a time. The words are the same, because neither looks beyond white space.

    Example: split_words("Héllo, wörld", True) == ["hello", ",", "world"].
    """
    if is_printable_ascii(text):
        return _WORDS_OF_PRINTABLE_ASCII.findall(text.lower() if do_lower_case else text)
    text = text.translate(CLEAN if options.splits_ideographs else CLEAN_ONLY)
    if do_lower_case:
        text = text.lower()
    if options.strips_accents(do_lower_case):
        # NFD separates letters from their accents, which the table then deletes.
        return unicodedata.normalize("NFD", text).translate(PART_AND_STRIP).split()
    return text.translate(PART).split()


def normalize(text: str, do_lower_case: bool, options: WordPieceOptions = DEFAULT_OPTIONS) -> str:
    """Returns the text as added tokens with `normalized` are searched for in it.

    The words of the result are those of the text: it is cleaned, lower-cased and without accents as
    they are. As in Hugging Face's tokenizers, spaces are added around ideographs.
    """
    text = text.translate(CLEAN if options.splits_ideographs else CLEAN_ONLY)
    if do_lower_case:
        text = text.lower()
    if options.strips_accents(do_lower_case):
        text = unicodedata.normalize("NFD", text).translate(STRIP)
    return text


def split_chunks(text: str) -> list[str]:
    """Splits text at white space into chunks, which are not changed otherwise.

    The words of the text are the words of its chunks, in order.
    """
    for separator in _DELETED_SEPARATORS:  # Seven searches by memchr are faster than a Python loop.
        if separator in text:
            text = text.translate(_DELETE_SEPARATORS)
            break
    return text.split()


class WordPiece:
    """Greedy longest-match-first WordPiece after `split_words`.

    A word of over 200 characters, or with a part that no token matches, is one [UNK]. Special
    tokens written in the text are ordinary text: "[MASK]" is three words, as in the original.
    `Vocab.options` may say otherwise.

    Args:
      vocab: the tokens and options.
      do_lower_case: lower-case the text and strip accents (uncased models).
    """

    def __init__(self, vocab: Vocab, do_lower_case: bool):
        self.vocab = vocab
        self.do_lower_case = do_lower_case
        self._options = vocab.options
        self._ids = vocab.subword_ids
        # Most words of a text are single tokens: one look-up, without the cache.
        self._whole_words = {
            word: index
            for word, index in vocab.subword_ids.items()
            if len(word) <= vocab.options.max_word_characters
        }
        self._max_length = max(map(len, vocab.tokens))
        self._chunk_ids = BoundedCache(lambda chunk: tuple(self.encode_words_of(chunk)))
        self._raw_tokens: AddedTokenSplitter | None = None
        self._normalized_tokens: AddedTokenSplitter | None = None
        added = vocab.options.tokens_to_find(vocab.special_tokens)
        unread = () if vocab.options.reads_special_tokens else vocab.special_tokens
        normalized = [token for token in added if token.normalized]
        if added:
            raw = [token for token in added if not token.normalized]
            self._raw_tokens = AddedTokenSplitter(raw, vocab.ids, unread)
        if normalized:
            self._normalized_tokens = AddedTokenSplitter(
                normalized, vocab.ids, unread, self._normalize
            )

    def __reduce__(self) -> tuple:
        return WordPiece, (self.vocab, self.do_lower_case)  # without the cached chunks

    def tokenize(self, text: str) -> list[str]:
        """Returns the tokens of the text."""
        return [self.vocab.tokens[index] for index in self.encode_uncached(text)]

    def encode(self, text: str) -> list[int]:
        """Returns the token ids of the text, several million per second."""
        if self._raw_tokens is not None:
            return self._encode_around(self._raw_tokens, text, self._encode_cached)
        return self._encode_cached(text)

    def encode_uncached(self, text: str) -> list[int]:
        """Returns the same ids as `encode`, without the cache."""
        if self._raw_tokens is not None:
            return self._encode_around(self._raw_tokens, text, self.encode_words_of)
        return self.encode_words_of(text)

    def encode_words_of(self, text: str) -> list[int]:
        """Returns the token ids of the words of a text in which no added token is searched for."""
        words = split_words(text, self.do_lower_case, self._options)
        return self._encode_words(words, self._encode_word)

    def _encode_cached(self, text: str) -> list[int]:
        """Returns the same ids as `encode_words_of`."""
        if is_printable_ascii(text):
            words = split_words(text, self.do_lower_case, self._options)
            return self._encode_words(words, self._chunk_ids.__getitem__)  # Words are chunks here.
        chunks = map(self._chunk_ids.__getitem__, split_chunks(text))
        return list(itertools.chain.from_iterable(chunks))

    def _normalize(self, text: str) -> str:
        return normalize(text, self.do_lower_case, self._options)

    def _encode_around(
        self,
        raw_tokens: AddedTokenSplitter,
        text: str,
        encode_text: Callable[[str], list[int]],
    ) -> list[int]:
        """Returns the ids of added tokens and of the texts between them."""
        ids: list[int] = []
        for raw in raw_tokens.split(text):
            segment = text[raw.start : raw.end]
            if raw.token_id is not None:
                ids.append(raw.token_id)
            elif self._normalized_tokens is None:
                ids.extend(encode_text(segment))
            else:
                normal = self._normalize(segment)
                for part in self._normalized_tokens.split(normal):
                    if part.token_id is None:
                        ids.extend(encode_text(normal[part.start : part.end]))
                    else:
                        ids.append(part.token_id)
        return ids

    def encode_word(self, word: str) -> list[int]:
        """Returns the token ids of one word of a sentence; for WordPiece, of any text."""
        return self.encode(word)

    def tokenize_with_offsets(self, text: str) -> tuple[list[str], list[int], list[int]]:
        """Returns tokens, and the start and end character of each in the original text.

        A token starts at the source of its first character and ends after the source of its last
        character; deleted characters at its ends are excluded.
        """
        tokens = []
        starts = []
        ends = []
        for word, sources, added_id in self._parts_with_sources(text):
            if added_id is not None:
                tokens.append(self.vocab.tokens[added_id])
                starts.append(sources[0])
                ends.append(sources[-1] + 1)
                continue
            position = 0
            for index in self._encode_word(word):
                token = self.vocab.tokens[index]
                if index == self.vocab.unk_id:
                    length = len(word)
                else:
                    # The ## of a continuation is not in the text.
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
        if len(word) > self._options.max_word_characters:
            return [self.vocab.unk_id]
        ids: list[int] = []
        start = 0
        prefix = ""
        while start < len(word):
            # No token is longer, so longer candidates need no look-up.
            longest = min(len(word), start + self._max_length)
            for end in range(longest, start, -1):
                # The longest token that matches here; if no token does, the whole word is unknown.
                index = self._ids.get(prefix + word[start:end])
                if index is not None:
                    break
            else:
                return [self.vocab.unk_id]
            ids.append(index)
            start = end
            prefix = CONTINUATION_PREFIX
        return ids

    def _parts_with_sources(self, text: str) -> Iterator[tuple[str, list[int], int | None]]:
        """Yields each word or added token.

        Yields:
          Its characters, the position in `text` of the source of each character, and the id of an
          added token, or None for a word.
        """
        raw_parts = [Part(0, len(text), None)]
        if self._raw_tokens is not None:
            raw_parts = self._raw_tokens.split(text)
        for raw in raw_parts:
            segment = text[raw.start : raw.end]
            if raw.token_id is not None:
                yield segment, list(range(raw.start, raw.end)), raw.token_id
                continue
            chars, sources = self._normal_with_sources(segment)
            sources = [raw.start + source for source in sources]
            if self._normalized_tokens is None:
                yield from self._words_with_sources(chars, sources)
                continue
            yield from self._normalized_parts(self._normalized_tokens, chars, sources)

    def _normalized_parts(
        self, splitter: AddedTokenSplitter, chars: str, sources: list[int]
    ) -> Iterator[tuple[str, list[int], int | None]]:
        """Yields the parts of a text that is normalized but for the spaces around ideographs."""
        spaced = []
        spaced_sources: list[int | None] = []
        for char, source in zip(chars, sources, strict=True):
            if is_whitespace(char):
                # As `normalize` does: added tokens are searched for with plain spaces.
                char = " "
            is_spaced = self._options.splits_ideographs and is_cjk(char)
            spaced.append(f" {char} " if is_spaced else char)
            spaced_sources.extend([None, source, None] if is_spaced else [source])
        normal = "".join(spaced)
        for part in splitter.split(normal):
            part_chars = normal[part.start : part.end]
            part_sources = spaced_sources[part.start : part.end]
            kept_chars = []
            kept_sources = []
            for char, char_source in zip(part_chars, part_sources, strict=True):
                if char_source is not None:
                    kept_chars.append(char)
                    kept_sources.append(char_source)
            if part.token_id is None:
                yield from self._words_with_sources("".join(kept_chars), kept_sources)
            else:
                yield part_chars, kept_sources, part.token_id

    def _normal_with_sources(self, text: str) -> tuple[str, list[int]]:
        """Returns the normalized text and the position in `text` of each character's source."""
        sources = [i for i, char in enumerate(text) if not is_deleted(char)]
        chars = "".join([text[i] for i in sources])
        if self.do_lower_case:
            # One character may become two: İ becomes i and a dot. The text is lowered as a whole,
            # because the lower case of a sigma depends on its neighbours; its length does not.
            expanded_sources = []
            for char, source in zip(chars, sources, strict=True):
                expanded_sources.extend([source] * len(char.lower()))
            sources = expanded_sources
            chars = chars.lower()
        if self._options.strips_accents(self.do_lower_case):
            # NFD may swap marks when it sorts them; the sources stay in the order of the text.
            kept_sources = []
            for char, source in zip(chars, sources, strict=True):
                for part in unicodedata.normalize("NFD", char):
                    if unicodedata.category(part) != "Mn":
                        kept_sources.append(source)
            sources = kept_sources
            decomposed = unicodedata.normalize("NFD", chars)
            chars = "".join([c for c in decomposed if unicodedata.category(c) != "Mn"])
        return chars, sources

    def _words_with_sources(
        self, chars: str, sources: list[int]
    ) -> Iterator[tuple[str, list[int], None]]:
        """Yields each word of a normalized text; see `_parts_with_sources`."""
        start = 0
        for i, char in enumerate(chars):
            is_isolated = self._is_isolated(char)
            if is_whitespace(char) or is_isolated:
                if start < i:
                    yield chars[start:i], sources[start:i], None
                if is_isolated:
                    yield char, sources[i : i + 1], None
                start = i + 1
        if start < len(chars):
            yield chars[start:], sources[start:], None

    def _is_isolated(self, char: str) -> bool:
        return is_punctuation(char) or (self._options.splits_ideographs and is_cjk(char))
