"""SentencePiece tokenization in Python, by Hugging Face's `tokenizers`.

The ids are those of the fast tokenizers of transformers. SentencePiece itself gives others for a
U+0085 alone, a typed U+2581, and a character with accents of which SentencePiece normalizes the
first part alone, such as U+FB01 with U+0301: there `tokenizers` normalizes the whole grapheme.

No TensorFlow is imported, so worker processes start at once.
"""

import json

import tokenizers

from bert_tf.text.byte_level import replace_surrogates
from bert_tf.text.sentencepiece_vocab import SPACE_SYMBOL, SentencePieceVocab, to_tokenizer_json


class SentencePiece:
    """Unigram, or BPE with bytes, of a vocabulary.

    Special tokens written in the text are found, as `tokenizers` does: "<mask>" is one token. A
    lone surrogate, which has no UTF-8, counts as U+FFFD.

    Args:
      vocab: the tokens with their scores or merges.
    """

    def __init__(self, vocab: SentencePieceVocab):
        self.vocab = vocab
        self._tokenizer = tokenizers.Tokenizer.from_str(json.dumps(to_tokenizer_json(vocab)))

    def __reduce__(self) -> tuple:
        return SentencePiece, (self.vocab,)

    def tokenize(self, text: str) -> list[str]:
        """Returns the tokens of the text; a character without a token is the unknown token."""
        return [self.vocab.tokens[index] for index in self.encode(text)]

    def encode(self, text: str) -> list[int]:
        """Returns the ids of the tokens of the text."""
        return self._encode(text).ids

    def encode_uncached(self, text: str) -> list[int]:
        """Returns the same ids as `encode`."""
        return self._encode(text).ids

    def encode_word(self, word: str) -> list[int]:
        """Returns the ids of one word of a sentence: those of the word with a space before it."""
        if not word.startswith(" "):
            word = " " + word
        return self.encode(word)

    def tokenize_with_offsets(self, text: str) -> tuple[list[str], list[int], list[int]]:
        """Returns tokens and their offsets in the original text, as `tokenizers` gives them.

        Returns:
          Tokens, start characters and end characters, of equal length.
        """
        encoding = self._encode(text)
        tokens = [self.vocab.tokens[index] for index in encoding.ids]
        starts = [start for start, _ in encoding.offsets]
        ends = [end for _, end in encoding.offsets]
        if self.vocab.trim_offsets:
            for index, token in enumerate(tokens):
                if token.startswith(SPACE_SYMBOL) and text[starts[index]].isspace():
                    starts[index] += 1
                elif token == SPACE_SYMBOL:  # before the first word, where the text has no space
                    ends[index] = starts[index]
        return tokens, starts, ends

    def _encode(self, text: str) -> tokenizers.Encoding:
        return self._tokenizer.encode(replace_surrogates(text), add_special_tokens=False)
