"""Tokenizers of Hugging Face's `tokenizers`, with a cache of words; failures become one error.

`tokenizers` runs all of its steps for each text. Most words of a corpus have been seen before, so a
text is split into words, whose ids are looked up. New words and texts with added tokens ("<mask>")
go through `tokenizers`.
"""

import itertools
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import tokenizers

from bert_tf.text.added_tokens import common_prefixes
from bert_tf.text.byte_level import replace_surrogates

if TYPE_CHECKING:
    from bert_tf.text.tokenizer_json import TokenizerJsonVocab

VocabT = TypeVar("VocabT", bound="TokenizerJsonVocab")
Ids = TypeVar("Ids", bound=Sequence[int])

# A token of a million characters ends the process: the library recurses once a character. The
# longest tokens in use are lines of repeated signs.
MAX_TOKEN_CHARACTERS = 10_000
MAX_PATTERN_CHARACTERS = 100
# At about 250 bytes an entry this is at most 150 MB a process.
MAX_CACHED_WORDS = 1 << 19
MAX_CACHED_CHARACTERS = 64
# Signs and classes of signs, and at most one repetition, at the end: a search takes linear time.
_LINEAR_PATTERN = re.compile(
    r"(?:\\[^0-9]|\[(?:\\.|[^\\\]])+\]|[^\\*+?{}()|\[\]])+(?:[*+?]|\{\d{1,3}(?:,\d{0,3})?\})?"
)


def make_fast_tokenizer(content: Mapping[str, Any]) -> tokenizers.Tokenizer:
    """Makes a tokenizer from the content of a tokenizer.json.

    Raises:
      ValueError: if the library cannot read it.
    """
    try:
        return tokenizers.Tokenizer.from_str(json.dumps(content))
    except BaseException as error:
        # The library raises plain Exception, and for a bug in its code PanicException, which is no
        # Exception and cannot be imported.
        if isinstance(error, Exception) or type(error).__name__ == "PanicException":
            raise ValueError(f"`tokenizers` cannot read it: {error}") from None
        raise


class BoundedCache(dict[str, Ids]):
    """Cache of the ids of words; it is emptied when full, so that memory is bounded."""

    def __init__(self, encode: Callable[[str], Ids]) -> None:
        super().__init__()
        self._encode = encode

    def __missing__(self, word: str) -> Ids:
        ids = self._encode(word)
        if len(word) <= MAX_CACHED_CHARACTERS:
            if len(self) >= MAX_CACHED_WORDS:
                self.clear()
            self[word] = ids
        return ids


class FastTokenizer(Generic[VocabT]):
    """A tokenizer that `tokenizers` makes of a vocabulary.

    Special tokens written in the text are found, as `tokenizers` does: "<mask>" is one token. A
    lone surrogate, which has no UTF-8, counts as U+FFFD.

    Attributes:
      word_pre_tokenizer: what `tokenizers` does to a word before its model.
      has_words: whether a text is split into words whose ids do not depend on their neighbours.
    """

    word_pre_tokenizer: tokenizers.pre_tokenizers.PreTokenizer | None = None
    has_words = True

    def __init__(self, vocab: VocabT) -> None:
        self.vocab = vocab
        self._tokenizer = make_fast_tokenizer(vocab.to_tokenizer_json(with_rows=False))
        words = tokenizers.Tokenizer(self._tokenizer.model)
        words.pre_tokenizer = self.word_pre_tokenizer

        def encode(word: str) -> list[int]:
            return words.encode(replace_surrogates(word), add_special_tokens=False).ids

        self._word_ids = BoundedCache(encode)
        contents = [token.content for token in vocab.added_tokens]
        # Some are searched for in the text itself, some in the normalized text.
        contents += filter(None, list(map(self.normalize, contents)))
        self._added_beginnings = common_prefixes(contents)

    def __reduce__(self) -> tuple:
        return type(self), (self.vocab,)  # without cached words

    def tokenize(self, text: str) -> list[str]:
        """Returns the tokens of the text, as the vocabulary writes them."""
        return [self.vocab.tokens[index] for index in self.encode_uncached(text)]

    def normalize(self, text: str) -> str:
        """Returns the text as the normalizer leaves it."""
        raise NotImplementedError

    def split_words(self, normal: str) -> list[str]:
        """Returns the words of a normalized text, for vocabularies that have words."""
        raise NotImplementedError

    def encode(self, text: str) -> list[int]:
        """Returns the ids of the tokens of the text; several million a second."""
        words = self._words(text)
        if words is None:
            return self.encode_uncached(text)
        return list(itertools.chain.from_iterable(map(self._word_ids.__getitem__, words)))

    def _words(self, text: str) -> list[str] | None:
        """Returns the words of a text without added tokens; None for other texts."""
        if not self.has_words:
            return None
        normal = self.normalize(text)
        # Searching a few prefixes is much faster than searching every added token.
        for beginning in self._added_beginnings:
            if beginning in text or beginning in normal:
                return None
        return self.split_words(normal)

    def encode_uncached(self, text: str) -> list[int]:
        """Returns the same ids as `encode`, without a cache."""
        return self._encode(text).ids

    def encode_word(self, word: str) -> list[int]:
        """Returns the ids of one word of a sentence: those of the word with a space before it."""
        if not word.startswith(" "):
            word = " " + word
        return self.encode(word)

    def _encode(self, text: str) -> tokenizers.Encoding:
        return self._tokenizer.encode(replace_surrogates(text), add_special_tokens=False)


def check_token_lengths(tokens: Iterable[object], source: str) -> None:
    """Raises ValueError for a token that is not text or has too many characters."""
    for index, token in enumerate(tokens):
        if not isinstance(token, str):
            raise ValueError(f"{source}: token {index} is {token!r:.100}, expected a text.")
        if len(token) > MAX_TOKEN_CHARACTERS:
            raise ValueError(
                f"{source}: token {index}, {token[:20]!r} .., has {len(token)} characters; "
                f"expected at most {MAX_TOKEN_CHARACTERS}."
            )


def check_pattern(pattern: Mapping[str, Any]) -> None:
    """Checks a pattern of a step that replaces or splits text.

    Patterns of files are not trusted: many take exponential time.

    Args:
      pattern: {"String": a text} or {"Regex": an expression}.

    Raises:
      ValueError: if the expression is more than signs with a repetition at the end.
    """
    if isinstance(pattern.get("String"), str):
        return
    given = pattern.get("Regex")
    expression = given if isinstance(given, str) else ""
    if len(expression) <= MAX_PATTERN_CHARACTERS and _LINEAR_PATTERN.fullmatch(expression):
        try:
            re.compile(expression)
        except re.error as error:
            raise ValueError(f"the pattern {expression!r} cannot be read: {error}.") from None
        return
    raise ValueError(
        f"the pattern {pattern!r:.200} is not supported; expected a String, or a Regex of signs "
        "with one repetition at its end, such as ' {2,}'."
    )
