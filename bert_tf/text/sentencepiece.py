"""SentencePiece tokenization in Python, by Hugging Face's `tokenizers`, with a cache of words.

The ids are those of the fast tokenizers of transformers. SentencePiece itself gives others for a
U+0085 alone, a typed U+2581, and a character with accents of which SentencePiece normalizes the
first part alone, such as U+FB01 with U+0301: there `tokenizers` normalizes the whole grapheme.

No TensorFlow is imported, so worker processes start at once.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

import tokenizers

from bert_tf.text.byte_level import SPACES, replace_surrogates
from bert_tf.text.fast_tokenizers import FastTokenizer
from bert_tf.text.normalization import align
from bert_tf.text.sentencepiece_vocab import SPACE_SYMBOL, SentencePieceVocab

# Each U+2581 begins a word.
_WORDS = re.compile(f"{SPACE_SYMBOL}[^{SPACE_SYMBOL}]*|[^{SPACE_SYMBOL}]+")
_BETWEEN_BLANKS = re.compile(f"[^{SPACES}]+")


class Span(NamedTuple):
    """A token of a text."""

    token_id: int
    start: int  # first character
    end: int  # the character after it


class SentencePiece(FastTokenizer[SentencePieceVocab]):
    """Unigram, or BPE with bytes; a character without a token is the unknown token."""

    def __init__(self, vocab: SentencePieceVocab) -> None:
        super().__init__(vocab)
        self._steps = vocab.normalizer_steps()
        rules = vocab.word_rules()
        self._splits_at_blanks = rules.splits_at_blanks
        self.has_words = (
            vocab.is_unigram and rules.prefix == "always" and not rules.splits_at_punctuation
        )
        self._added_ids = {vocab.ids[token.content] for token in vocab.added_tokens}
        self._ids_taking_blanks = {vocab.ids[t.content] for t in vocab.added_tokens if t.lstrip}

    def normalize(self, text: str) -> str:
        normalizer = self._tokenizer.normalizer
        return normalizer.normalize_str(replace_surrogates(text)) if normalizer else text

    def split_words(self, normal: str) -> list[str]:
        words: list[str] = []
        parts = _BETWEEN_BLANKS.findall(normal) if self._splits_at_blanks else [normal]
        for part in filter(None, parts):
            part = part.replace(" ", SPACE_SYMBOL)
            if part[0] != SPACE_SYMBOL:
                part = SPACE_SYMBOL + part
            words += _WORDS.findall(part)
        return words

    def tokenize_with_offsets(self, text: str) -> tuple[list[str], list[int], list[int]]:
        """Returns tokens, and the start and end character of each in the original text.

        A token covers all characters that its characters came from: one that has a letter of an
        expanded U+FB01 covers U+FB01, and one with a composed letter also its combining marks
        (`tokenizers`: the letter alone). The space that begins a token is part of it, unless
        `SentencePieceVocab.trim_offsets` is set. U+2581 before a text without a space is empty if
        it is a separate token and has no other characters.
        """
        text = replace_surrogates(text)
        encoding = self._encode(text)
        if not self.vocab.is_unigram:
            return self._with_given_offsets(text, encoding)
        spans: list[Span] = []
        start = 0
        for index, (first, last) in zip(encoding.ids, encoding.offsets, strict=True):
            if self._is_added(index, text[first:last]):
                if index in self._ids_taking_blanks:
                    # Where the normalizer makes one blank of several, `tokenizers` has the last.
                    first = start + len(text[start:first].rstrip(SPACES))
                spans.extend(self._spans(text[start:first], start))
                spans.append(Span(index, first, last))
                start = last
        spans.extend(self._spans(text[start:], start))
        if [span.token_id for span in spans] != encoding.ids:
            # A rule reached across an added token: `tokenizers` knows best.
            pairs = zip(encoding.ids, encoding.offsets, strict=True)
            spans = [Span(index, first, last) for index, (first, last) in pairs]
        tokens = [self.vocab.tokens[span.token_id] for span in spans]
        return tokens, [span.start for span in spans], [span.end for span in spans]

    def _with_given_offsets(
        self, text: str, encoding: tokenizers.Encoding
    ) -> tuple[list[str], list[int], list[int]]:
        """Returns the offsets of `tokenizers`, which are right where no character is replaced.

        BPE with bytes has no normalizer but for spaces. Each byte of a character has its offsets.
        """
        tokens = [self.vocab.tokens[index] for index in encoding.ids]
        starts = [start for start, _ in encoding.offsets]
        ends = [end for _, end in encoding.offsets]
        if self.vocab.trim_offsets:
            for index, token in enumerate(tokens):
                while token[:1] == SPACE_SYMBOL and starts[index] < ends[index]:
                    token = token[1:]
                    starts[index] += 1
        return tokens, starts, ends

    def _is_added(self, token_id: int, text: str) -> bool:
        """Returns whether a token was cut out of the text as an added token."""
        if token_id == self.vocab.unk_id:  # Most are words that have no other token.
            return text.strip() == self.vocab.unk
        return token_id in self._added_ids

    def _spans(self, text: str, offset: int) -> Iterator[Span]:
        """Yields the tokens of a text without added tokens, `offset` characters later."""
        aligned = align(text, self._steps)
        if not aligned:
            return
        normalized = "".join(item.character for item in aligned)
        for word, (first, last) in self._tokenizer.pre_tokenizer.pre_tokenize_str(normalized):
            items = aligned[first:last]
            # U+2581 was put before the word; its source is that of the first character.
            has_prefix = len(word) > len(items)
            if has_prefix:
                items = [items[0], *items]
            position = 0
            for token in self._tokenizer.model.tokenize(word):
                covered = items[position : position + len(token.value)]
                start = covered[0].start
                end = covered[-1].end
                if self.vocab.trim_offsets and word[position] == SPACE_SYMBOL:
                    if has_prefix and position == 0:
                        # There is no space to leave out: the prefix alone is an empty token.
                        end = start if len(covered) == 1 else end
                    else:
                        num_spaces = len(token.value) - len(token.value.lstrip(SPACE_SYMBOL))
                        # The token starts after the last of its spaces.
                        start = min(covered[num_spaces - 1].end, end)
                position += len(token.value)
                yield Span(token.id, start + offset, end + offset)
