"""Tokenizers that divide words by a model, inside the TensorFlow graph.

    strings [B] -> characters [N], flat, each added token ("<mask>") as one character
                -> words [W] -> unique words, as strings
                -> tokens: from a table where a word is a token, else by the model
                -> [B, (words), (tokens)]

They use only TensorFlow's operations, so any server can run them. Bytes that are not UTF-8 are read
as U+FFFD, as `bytes.decode("utf-8", "replace")` does.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

import tensorflow as tf

from bert_tf.text.added_tokens import AddedToken
from bert_tf.text.added_tokens_graph import (
    AddedTokenMatcher,
    Characters,
    string_table,
)
from bert_tf.text.fast_tokenizers import make_fast_tokenizer
from bert_tf.text.tensor_characters import count_by, nested, to_bytes
from bert_tf.text.tokenizer_json import TokenizerJsonVocab


class WordTokens(NamedTuple):
    """The tokens of words, concatenated."""

    ids: tf.Tensor  # int32 [P]
    begins: tf.Tensor  # int32 [P], first character of each token, in its word
    ends: tf.Tensor  # int32 [P], the character after it
    counts: tf.Tensor  # int64 [W], tokens of each word


class WordModel(Protocol):
    """Divides words into tokens."""

    def encode(self, code_points: tf.Tensor, word_splits: tf.Tensor) -> WordTokens:
        """Returns the tokens of words.

        Args:
          code_points: the characters of all words, int32 [N].
          word_splits: row splits of the words into characters, int64 [W + 1].
        """


class Encoded(NamedTuple):
    """The tokens of all words of all strings."""

    ids: tf.Tensor  # int32 [P]
    firsts: tf.Tensor  # int64 [P], first character of each token
    lasts: tf.Tensor  # int64 [P], last character of each token
    splits: tf.Tensor  # int64 [W + 1], row splits of the words into tokens


class WordTokenizer(tf.Module):
    """Base class: splits strings into ids of a vocabulary.

    It works eagerly, in `tf.function` and in `tf.data`; a module that contains it can be saved.

    Args:
      model: divides the words that are not one token.
      whole_words: ids of the words that are one token, by their UTF-8.
      normalize: the normalizer's function.
    """

    def __init__(
        self,
        vocab: TokenizerJsonVocab,
        model: WordModel,
        whole_words: Mapping[bytes, int],
        normalize: Callable[[str], str],
        name: str,
    ) -> None:
        super().__init__(name)
        self.vocab = vocab
        self._model = model
        self._whole_words = string_table(list(whole_words), list(whole_words.values()))
        raw = [token for token in vocab.added_tokens if not token.normalized]
        normalized = [token for token in vocab.added_tokens if token.normalized]
        self.raw_tokens = AddedTokenMatcher(raw, vocab.ids) if raw else None
        self.normalized_tokens = None
        if normalized:
            self.normalized_tokens = AddedTokenMatcher(normalized, vocab.ids, normalize=normalize)

    @property
    def resources(self) -> list[tf.Module]:
        """The objects with tables, which an export has to track."""
        return [self]

    def read(self, strings: tf.Tensor) -> Characters:
        """Returns the characters of the words; `is_first` marks those that begin a word."""
        raise NotImplementedError

    def offsets(self, characters: Characters, encoded: Encoded) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns start and end of each token in characters of its string, int32 [P]."""
        raise NotImplementedError

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "strings")], autograph=False)
    def tokenize(self, strings: tf.Tensor) -> tf.RaggedTensor:
        """Returns the token ids of strings [B], UTF-8: int32 [B, (words), (tokens)]."""
        _, encoded, row_splits = self._encode(strings)
        return nested(encoded.ids, row_splits, encoded.splits)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "strings")], autograph=False)
    def tokenize_with_offsets(
        self, strings: tf.Tensor
    ) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
        """Returns ids, start bytes and end bytes, each int32 [B, (words), (tokens)]."""
        characters, encoded, row_splits = self._encode(strings)
        rows = tf.gather(characters.rows, encoded.firsts)
        starts, ends = self.offsets(characters, encoded)
        columns = (encoded.ids, *to_bytes(strings, rows, starts, ends))
        return tuple(nested(column, row_splits, encoded.splits) for column in columns)

    def _encode(self, strings: tf.Tensor) -> tuple[Characters, Encoded, tf.Tensor]:
        """Returns the characters, the tokens, and the row splits of the strings into words."""
        characters = self.read(strings)
        word_starts = tf.where(characters.is_first)[:, 0]
        word_splits = tf.concat([word_starts, tf.shape(characters.rows, tf.int64)], 0)
        words_per_row = count_by(tf.gather(characters.rows, word_starts), tf.size(strings))
        row_splits = tf.concat([[0], tf.cumsum(words_per_row)], 0)
        return characters, self._encode_words(characters, word_splits), row_splits

    def _encode_words(self, characters: Characters, word_splits: tf.Tensor) -> Encoded:
        # An added token is a word of U+0000 here; its id replaces the result below.
        code_points = tf.where(characters.is_added, 0, characters.code_points)
        words = tf.strings.unicode_encode(
            tf.RaggedTensor.from_row_splits(code_points, word_splits, validate=False), "UTF-8"
        )
        # [U]: a word that is repeated is looked up and divided once.
        unique, unique_index = tf.unique(words, tf.int64)
        whole = self._whole_words.lookup(unique)
        others = tf.where(whole < 0)
        decoded = tf.strings.unicode_decode(tf.gather(unique, others[:, 0]), "UTF-8")
        found = self._model.encode(decoded.values, decoded.row_splits)
        # A start below `num_found` is an index into `found`. A word of one token has no entry
        # there: its start is `num_found` plus the token id.
        num_found = tf.size(found.ids, tf.int64)
        unique_starts = tf.tensor_scatter_nd_update(
            tf.cast(whole, tf.int64) + num_found, others, tf.cumsum(found.counts, exclusive=True)
        )
        unique_counts = tf.tensor_scatter_nd_update(
            tf.ones_like(whole, tf.int64), others, found.counts
        )
        firsts = word_splits[:-1]
        is_added = tf.gather(characters.is_added, firsts)
        added_starts = tf.cast(tf.gather(characters.code_points, firsts), tf.int64) + num_found
        starts = tf.where(is_added, added_starts, tf.gather(unique_starts, unique_index))
        counts = tf.where(
            is_added, tf.ones_like(unique_index), tf.gather(unique_counts, unique_index)
        )
        splits = tf.concat([[0], tf.cumsum(counts)], 0)  # [W + 1]
        sources = tf.repeat(starts - splits[:-1], counts) + tf.range(splits[-1])
        is_found = sources < num_found
        index = tf.where(is_found, sources, 0)

        def of_found(values: tf.Tensor) -> tf.Tensor:
            return tf.gather(tf.concat([values, [0]], 0), index)

        word_starts = tf.repeat(firsts, counts)
        word_ends = tf.repeat(word_splits[1:], counts)
        begins = word_starts + tf.cast(of_found(found.begins), tf.int64)
        ends = word_starts + tf.cast(of_found(found.ends), tf.int64)
        return Encoded(
            tf.where(is_found, of_found(found.ids), tf.cast(sources - num_found, tf.int32)),
            tf.where(is_found, begins, word_starts),
            tf.where(is_found, ends, word_ends) - 1,
            splits,
        )


def words_of_one_token(
    vocab: TokenizerJsonVocab, spell: Callable[[str], bytes | None]
) -> dict[bytes, int]:
    """Returns the ids of the words that are a single token, by their UTF-8.

    Args:
      spell: returns the bytes of a token; None: it is no word.
    """
    model = make_fast_tokenizer(vocab.to_tokenizer_json(with_rows=False)).model
    others = {token.content for token in vocab.added_tokens} | {vocab.unk}
    words = {}
    for token, index in vocab.ids.items():
        word = None if token in others else spell(token)
        # The model decides: shorter tokens may be more probable, or merged first.
        if word is not None and [found.id for found in model.tokenize(token)] == [index]:
            words[word] = index
    return words


def are_written(tokens: Sequence[AddedToken], strings: tf.Tensor) -> tf.Tensor:
    """Returns whether one of the added tokens is in one of the strings, bool []."""
    contents = [re.escape(token.content) for token in tokens]
    # \C is any byte, so the strings need not be UTF-8.
    pattern = rf"\C*(?:{'|'.join(contents)})\C*"
    return tf.reduce_any(tf.strings.regex_full_match(strings, pattern))


def insert_before(characters: Characters, is_wanted: tf.Tensor, code: int) -> Characters:
    """Inserts a character before others, bool [N]; it gets their offsets and is a prefix."""
    # A character that wants a prefix is taken twice; its first copy becomes the prefix.
    source = tf.repeat(tf.range(tf.size(is_wanted)), tf.where(is_wanted, 2, tf.ones([], tf.int32)))
    is_same = source[1:] == source[:-1]
    # 0 if there are no characters, where nothing may be appended.
    size = tf.minimum(tf.size(source), 1)
    is_prefix = tf.concat([is_same, tf.fill([size], False)], 0)
    is_second = tf.concat([tf.fill([size], False), is_same], 0)
    wide = characters.gather(source)
    return wide._replace(
        code_points=tf.where(is_prefix, code, wide.code_points),
        is_first=wide.is_first & ~is_second,
        is_prefix=is_prefix,
    )
