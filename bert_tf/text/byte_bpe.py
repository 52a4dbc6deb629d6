"""Byte-level BPE in Python, by Hugging Face's `tokenizers`, with a cache of words.

No TensorFlow is imported, so worker processes start at once.
"""

from collections.abc import Iterator

import tokenizers

from bert_tf.text import nfc
from bert_tf.text.bpe_vocab import BpeVocab
from bert_tf.text.byte_level import split_words
from bert_tf.text.fast_tokenizers import FastTokenizer


class ByteBpe(FastTokenizer[BpeVocab]):
    """Byte-level BPE of a vocabulary; every text can be tokenized without unknown tokens.

    Bytes of tokens are written as `byte_level.BYTE_CHARACTERS`.
    """

    word_pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(
        add_prefix_space=False, use_regex=False
    )

    def __init__(self, vocab: BpeVocab) -> None:
        super().__init__(vocab)
        self._raw_added_ids = {
            vocab.ids[token.content] for token in vocab.added_tokens if not token.normalized
        }

    def normalize(self, text: str) -> str:
        return nfc.normalize(text) if self.vocab.normalizer else text

    def split_words(self, normal: str) -> list[str]:
        # Merges never reach beyond a word.
        if self.vocab.add_prefix_space and normal and normal[0] != " ":
            normal = " " + normal
        return split_words(normal)

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
        if self.normalize(text) == text:
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
                if self.normalize(segment) != segment:
                    yield start + first, start + last
            start = cut_end
