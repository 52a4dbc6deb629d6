"""Byte-level BPE in Python, by Hugging Face's `tokenizers`, with a cache of words.

`tokenizers` runs all of its steps for each text. Most words of a corpus have been seen
before, so `ByteBpe.encode` splits a text into words and looks their ids up: two to five times the
speed on one core. Only new words, texts with added tokens ("<mask>") and offsets go through
`tokenizers`. No TensorFlow is imported, so worker processes start at once.
"""

import itertools
from collections.abc import Iterator

import tokenizers

from bert_tf.text import nfc
from bert_tf.text.added_tokens import common_prefixes
from bert_tf.text.bpe_vocab import BpeVocab
from bert_tf.text.byte_level import BYTE_CHARACTERS, encode_utf8, split_words
from bert_tf.text.fast_tokenizers import FastTokenizer

# At about 250 bytes an entry this is at most 150 MB a process.
MAX_CACHED_WORDS = 1 << 19
MAX_CACHED_CHARACTERS = 64


class _WordIds(dict):
    """Cache of the ids of words; it is emptied when full, so that memory is bounded."""

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


class ByteBpe(FastTokenizer[BpeVocab]):
    """Byte-level BPE of a vocabulary; every text can be tokenized without unknown tokens.

    Bytes of tokens are written as `byte_level.BYTE_CHARACTERS`.
    """

    def __init__(self, vocab: BpeVocab) -> None:
        super().__init__(vocab)
        self._model = self._tokenizer.model
        self._word_ids = _WordIds(self)
        self._raw_added_ids = {
            vocab.ids[token.content] for token in vocab.added_tokens if not token.normalized
        }
        contents = [token.content for token in vocab.added_tokens]
        # Some are searched for in the text itself, some in the normalized text.
        contents += [self._normalize(content) for content in contents]
        self._added_beginnings = common_prefixes(contents)

    def encode(self, text: str) -> list[int]:
        """Returns the ids of the tokens of the text; several million a second."""
        normal = self._normalize(text)
        # Searching a few prefixes is much faster than searching every added token.
        for beginning in self._added_beginnings:
            if beginning in text or beginning in normal:
                return self.encode_uncached(text)
        if self.vocab.add_prefix_space and normal and normal[0] != " ":
            normal = " " + normal
        # Merges never reach beyond a word, so the ids of a word do not depend on its neighbours.
        ids = map(self._word_ids.__getitem__, split_words(normal))
        return list(itertools.chain.from_iterable(ids))

    def encode_bytes(self, word: bytes) -> list[int]:
        """Returns the ids of a word, merged from its bytes by the ranks of the merges."""
        characters = "".join(BYTE_CHARACTERS[byte] for byte in word)
        return [token.id for token in self._model.tokenize(characters)]

    def tokenize_with_offsets(self, text: str) -> tuple[list[str], list[int], list[int]]:
        """Returns tokens, and the start and end character of each in the original text.

        As in `tokenizers`, a token with some of a character's bytes has the offsets of the whole
        character, and the space that begins a token is left out (`BpeVocab.trim_offsets`), so that
        a token which is a space is empty. Where the normalizer changed characters, a token covers
        all of those that it came from (`tokenizers`: only the first).
        """
        encoding = self._encode(text)
        tokens = [self.vocab.tokens[index] for index in encoding.ids]
        starts = [start for start, _ in encoding.offsets]
        ends = [end for _, end in encoding.offsets]
        for first, last in self._changed_segments(text, encoding):
            for index, start in enumerate(starts):
                if start < last and ends[index] > first:
                    starts[index] = min(start, first)
                    ends[index] = max(ends[index], last)
        return tokens, starts, ends

    def _changed_segments(
        self, text: str, encoding: tokenizers.Encoding
    ) -> Iterator[tuple[int, int]]:
        """Yields first and end characters of the parts of the text that the normalizer changes."""
        if self._normalize(text) == text:
            return
        # Added tokens are cut out of the text before it is normalized.
        cuts = [(len(text), len(text))]
        for index, offsets in zip(encoding.ids, encoding.offsets, strict=True):
            if index in self._raw_added_ids:
                cuts.append(offsets)
        start = 0
        for cut_start, cut_end in sorted(cuts):
            for first, last in nfc.segment(text[start:cut_start]):
                segment = text[start + first : start + last]
                if self._normalize(segment) != segment:
                    yield start + first, start + last
            start = cut_end

    def _normalize(self, text: str) -> str:
        return nfc.normalize(text) if self.vocab.normalizer else text
