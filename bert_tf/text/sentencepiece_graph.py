"""SentencePiece inside the TensorFlow graph, with the same ids as `SentencePiece` in Python.

    strings [B] -> code points [N], flat, each added token ("<mask>") as one character
                -> normalized, step by step, each character with its position in the original text
                -> words [W], each with U+2581 at its start -> unique words, as strings
                -> tokens: from a table where a word is a token, else by the model
                -> [B, (words), (tokens)]

It uses only TensorFlow's operations, so any server can run it. Bytes that are not UTF-8 are read as
U+FFFD, as `bytes.decode("utf-8", "replace")` does.
"""

import functools
import re
import unicodedata
from typing import NamedTuple

import numpy as np
import tensorflow as tf
import tokenizers

from bert_tf.text.added_tokens_graph import (
    NO_TOKEN,
    AddedTokenFinder,
    Parts,
    join_parts,
    string_table,
)
from bert_tf.text.fast_tokenizers import make_fast_tokenizer
from bert_tf.text.normalization_graph import Characters, is_blank, make_steps
from bert_tf.text.sentencepiece_bpe_graph import SentencePieceBpeModel, words_are_independent
from bert_tf.text.sentencepiece_vocab import SPACE_SYMBOL, SentencePieceVocab
from bert_tf.text.tensor_characters import count_up, look_up, nested, to_bytes
from bert_tf.text.unicode_tables import NUM_CODE_POINTS, PagedTable, assigned_code_points
from bert_tf.text.unigram_graph import UnigramModel

_SPACE_CODE = ord(SPACE_SYMBOL)


class _Text(NamedTuple):
    """The characters of all strings after normalization; an added token is one character."""

    code_points: tf.Tensor  # int32 [N]; the id of an added token
    is_added: tf.Tensor  # bool [N]
    is_first: tf.Tensor  # bool [N], first of its string, or next to an added token
    rows: tf.Tensor  # int64 [N], the index of its string
    starts: tf.Tensor  # int32 [N], first character of its source in that string
    ends: tf.Tensor  # int32 [N], the character after its source
    is_prefix: tf.Tensor  # bool [N], a U+2581 without a space in the text

    def gather(self, indices: tf.Tensor) -> "_Text":
        return _Text._make(tf.gather(column, indices) for column in self)


class _Encoded(NamedTuple):
    """The tokens of all words."""

    ids: tf.Tensor  # int32 [P]
    firsts: tf.Tensor  # int64 [P], first character of each token
    lasts: tf.Tensor  # int64 [P], last character of each token
    splits: tf.Tensor  # int64 [W + 1], row splits of the words into tokens


class SentencePieceTokenizer(tf.Module):
    """Splits strings into ids of a SentencePiece vocabulary.

    It works eagerly, in `tf.function` and in `tf.data`; a module that contains it can be saved.

    Args:
      vocab: the vocabulary.

    Raises:
      ValueError: if the graph lacks the vocabulary's model, normalizer or pre-tokenizer.
    """

    def __init__(self, vocab: SentencePieceVocab, name: str = "sentencepiece_tokenizer"):
        super().__init__(name)
        self.vocab = vocab
        # [V], the number of U+2581 at the start of each token.
        self._num_symbols = np.array(
            [len(token) - len(token.lstrip(SPACE_SYMBOL)) for token in vocab.tokens], np.int64
        )
        self._steps = make_steps(vocab.normalizer_steps())
        self._splits_at_blanks = False
        self._splits_at_punctuation = False
        self._prefix = "never"
        if vocab.is_unigram:
            self._read_pre_tokenizer()
        else:
            _check_bpe_pre_tokenizer(vocab)
        raw = [token for token in vocab.added_tokens if not token.normalized]
        normalized = [token for token in vocab.added_tokens if token.normalized]
        reference = make_fast_tokenizer(vocab.to_tokenizer_json(with_rows=False))
        normalizer = reference.normalizer
        normalize = normalizer.normalize_str if normalizer else str
        self._added_raw = AddedTokenFinder(raw, vocab.ids)
        self._added_normalized = AddedTokenFinder(normalized, vocab.ids, normalize)
        contents = [normalize(token.content) for token in normalized]
        self._first_codes = {ord(content[0]) for content in contents if content}
        self._model = UnigramModel(vocab) if vocab.is_unigram else SentencePieceBpeModel(vocab)
        # Within runs of spaces BPE has merges.
        self._splits_runs = vocab.is_unigram
        self._splits_words = vocab.is_unigram or words_are_independent(vocab)
        words, ids = _words_of_one_token(vocab, reference)
        self._whole_words = string_table(words, ids)

    @property
    def resources(self) -> list[tf.Module]:
        """The objects with tables, which an export has to track."""
        return [self]

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "strings")], autograph=False)
    def tokenize(self, strings: tf.Tensor) -> tf.RaggedTensor:
        """Returns the token ids.

        Args:
          strings: string [B], UTF-8.

        Returns:
          int32 [B, (words), (tokens)].
        """
        text, word_splits, row_splits = self._split_words(strings)
        encoded = self._encode(text, word_splits)
        return nested(encoded.ids, row_splits, encoded.splits)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "strings")], autograph=False)
    def tokenize_with_offsets(
        self, strings: tf.Tensor
    ) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
        """Returns the token ids and their byte offsets in the original strings.

        Args:
          strings: string [B], UTF-8.

        Returns:
          Ids, start bytes and end bytes, each int32 [B, (words), (tokens)].
        """
        text, word_splits, row_splits = self._split_words(strings)
        encoded = self._encode(text, word_splits)
        firsts = encoded.firsts
        lasts = encoded.lasts
        starts = tf.gather(text.starts, firsts)
        ends = tf.gather(text.ends, lasts)
        if self.vocab.trim_offsets:
            leading = tf.gather(self._num_symbols, encoded.ids)
            starts, ends = _trim(text, firsts, lasts, tf.maximum(leading, 1), starts, ends)
        columns = (encoded.ids, *to_bytes(strings, tf.gather(text.rows, firsts), starts, ends))
        return tuple(nested(column, row_splits, encoded.splits) for column in columns)

    def _read_pre_tokenizer(self) -> None:
        """Reads where words end, and when a word gets U+2581.

        Raises:
          ValueError: if the graph lacks a step.
        """
        prefix = ""
        for step in self.vocab.pre_tokenizer_steps():
            kind = step["type"]
            if kind == "WhitespaceSplit" and not prefix:
                self._splits_at_blanks = True
            elif kind == "Punctuation" and step.get("behavior") == "Isolated" and not prefix:
                self._splits_at_punctuation = True
            elif kind == "Metaspace" and not prefix and step.get("split", True):
                prefix = step.get("prepend_scheme") or "always"
                if step.get("add_prefix_space") is False:
                    prefix = "never"
            else:
                prefix = ""
                break
        if not prefix:
            raise ValueError(
                f"the pre_tokenizer {self.vocab.pre_tokenizer[:200]} is not available in the "
                "graph; give token ids."
            )
        self._prefix = prefix

    def _split_words(self, strings: tf.Tensor) -> tuple[_Text, tf.Tensor, tf.Tensor]:
        """Returns the characters, and row splits of words and of strings."""
        text, is_start = self._pre_tokenize(self._read(strings))
        word_starts = tf.where(is_start)[:, 0]
        word_splits = tf.concat([word_starts, tf.shape(is_start, tf.int64)], 0)
        num_rows = tf.size(strings)
        words_per_row = tf.math.bincount(
            tf.cast(tf.gather(text.rows, word_starts), tf.int32),
            minlength=num_rows,
            maxlength=num_rows,
            dtype=tf.int64,
        )
        return text, word_splits, tf.concat([[0], tf.cumsum(words_per_row)], 0)

    def _read(self, strings: tf.Tensor) -> _Text:
        """Returns the normalized characters, with each added token as one character."""
        decoded = tf.strings.unicode_decode(strings, "UTF-8", "replace")
        starts = count_up(decoded.row_lengths())
        rows = decoded.value_rowids()
        characters = Characters(decoded.values, rows, starts, starts + 1)

        # Always normalized as a whole first: some added tokens are searched for in the result.
        found = self._normalize(characters, tf.ones_like(rows, tf.bool))

        def read_plain() -> _Text:
            is_new = tf.concat([[True], found.parts[1:] != found.parts[:-1]], 0)
            is_first = is_new[: tf.size(found.parts)]
            return _Text(
                found.code_points,
                tf.zeros_like(is_first),
                is_first,
                found.parts,
                found.starts,
                found.ends,
                tf.zeros_like(is_first),
            )

        def read_all() -> _Text:
            clean = tf.strings.unicode_encode(decoded, "UTF-8")
            parts = Parts(
                clean,
                tf.fill(tf.shape(clean), NO_TOKEN),
                tf.range(tf.size(clean, tf.int64)),
                starts,
                starts + 1,
            )
            parts = self._added_raw.find(parts)
            parts = self._normalize_parts(parts)
            parts = self._added_normalized.find(parts)
            joined, _ = join_parts(parts)
            return _Text(*joined, is_prefix=tf.zeros_like(joined.is_added))

        has_added = self._has_raw(strings) | self._may_have_normalized(found.code_points)
        return tf.cond(has_added, read_all, read_plain)

    def _has_raw(self, strings: tf.Tensor) -> tf.Tensor:
        """Returns whether an added token is written in a string."""
        contents = [
            re.escape(token.content) for token in self.vocab.added_tokens if not token.normalized
        ]
        pattern = rf"\C*(?:{'|'.join(contents)})\C*"
        return tf.reduce_any(tf.strings.regex_full_match(strings, pattern))

    def _may_have_normalized(self, code_points: tf.Tensor) -> tf.Tensor:
        """Returns whether normalized text has the first character of a normalized added token."""
        is_first = tf.zeros_like(code_points, tf.bool)
        for code in sorted(self._first_codes):
            is_first |= code_points == code
        return tf.reduce_any(is_first)

    def _normalize(self, characters: Characters, is_text: tf.Tensor) -> Characters:
        """Applies the normalizer to the parts that are text."""
        # [parts]: a step changes the number of characters, but not the number of parts.
        marks = tf.math.segment_max(tf.cast(is_text, tf.int32), characters.parts)
        for step in self._steps:
            is_text = tf.gather(marks, characters.parts) > 0
            characters = step(characters, is_text)
        return characters

    def _normalize_parts(self, parts: Parts) -> Parts:
        decoded = tf.strings.unicode_decode(parts.strings, "UTF-8", "replace")
        part = decoded.value_rowids()
        characters = Characters(decoded.values, part, parts.starts, parts.ends)
        found = self._normalize(characters, tf.gather(parts.ids, part) < 0)
        strings = tf.strings.unicode_encode(
            tf.RaggedTensor.from_value_rowids(
                found.code_points, found.parts, nrows=tf.size(parts.ids, tf.int64), validate=False
            ),
            "UTF-8",
        )
        return parts._replace(strings=strings, starts=found.starts, ends=found.ends)

    def _pre_tokenize(self, text: _Text) -> tuple[_Text, tf.Tensor]:
        """Returns the text with U+2581 for spaces, and where words start, bool [N]."""
        is_start = text.is_first
        if self._splits_at_blanks:
            blank = is_blank(tf.where(text.is_added, 0, text.code_points)) & ~text.is_added
            follows = tf.concat([[True], blank[:-1]], 0)[: tf.size(blank)]
            kept = tf.where(~blank)[:, 0]
            is_start = tf.gather(is_start | follows, kept)
            text = text.gather(kept)
            # The first character of a string may have been a blank.
            is_new_row = tf.concat([[True], text.rows[1:] != text.rows[:-1]], 0)
            is_start |= is_new_row[: tf.size(text.rows)]
        if self._splits_at_punctuation:
            is_mark = look_up(_punctuation_table(), tf.where(text.is_added, 0, text.code_points))
            after_mark = tf.concat([[False], is_mark[:-1]], 0)[: tf.size(is_mark)]
            is_start |= is_mark | after_mark
        is_space = (text.code_points == ord(" ")) & ~text.is_added
        text = text._replace(code_points=tf.where(is_space, _SPACE_CODE, text.code_points))
        is_symbol = (text.code_points == _SPACE_CODE) & ~text.is_added
        wants_prefix = is_start & ~is_symbol & ~text.is_added
        if self._prefix == "first":
            # Only the start of a string, not the text after an added token.
            wants_prefix &= text.starts == 0
        if self._prefix == "never":
            wants_prefix = tf.zeros_like(wants_prefix)
        if self._splits_words:
            starts_word = is_symbol
            if not self._splits_runs:
                follows = tf.concat([[False], is_symbol[:-1]], 0)[: tf.size(is_symbol)]
                starts_word &= ~follows
            is_start |= starts_word
        # A character that wants a prefix is taken twice; its first copy becomes U+2581.
        source = tf.repeat(
            tf.range(tf.size(wants_prefix)), tf.where(wants_prefix, 2, tf.ones([], tf.int32))
        )
        size = tf.minimum(tf.size(source), 1)
        is_same = source[1:] == source[:-1]
        is_prefix = tf.concat([is_same, tf.fill([size], False)], 0)
        is_second = tf.concat([tf.fill([size], False), is_same], 0)
        is_start = tf.gather(is_start, source) & ~is_second
        text = text.gather(source)
        code_points = tf.where(is_prefix, _SPACE_CODE, text.code_points)
        return text._replace(code_points=code_points, is_prefix=is_prefix), is_start

    def _encode(self, text: _Text, word_splits: tf.Tensor) -> _Encoded:
        """Returns the tokens of all words."""
        # An added token is a word of U+0000 here; its id replaces the result below.
        code_points = tf.where(text.is_added, 0, text.code_points)
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
        is_added = tf.gather(text.is_added, firsts)
        added_starts = tf.cast(tf.gather(text.code_points, firsts), tf.int64) + num_found
        starts = tf.where(is_added, added_starts, tf.gather(unique_starts, unique_index))
        counts = tf.where(
            is_added, tf.ones_like(unique_index), tf.gather(unique_counts, unique_index)
        )
        splits = tf.concat([[0], tf.cumsum(counts)], 0)  # [W + 1]
        sources = tf.repeat(starts - splits[:-1], counts) + tf.range(splits[-1])
        is_found = sources < num_found
        index = tf.where(is_found, sources, 0)
        word_starts = tf.repeat(firsts, counts)
        word_ends = tf.repeat(word_splits[1:], counts)
        ids = tf.where(
            is_found,
            tf.gather(tf.concat([found.ids, [0]], 0), index),
            tf.cast(sources - num_found, tf.int32),
        )
        begins = tf.cast(tf.gather(tf.concat([found.begins, [0]], 0), index), tf.int64)
        ends = tf.cast(tf.gather(tf.concat([found.ends, [0]], 0), index), tf.int64)
        return _Encoded(
            ids,
            tf.where(is_found, word_starts + begins, word_starts),
            tf.where(is_found, word_starts + ends, word_ends) - 1,
            splits,
        )


@functools.cache
def _punctuation_table() -> PagedTable:
    """Returns bool values, true where `tokenizers` splits at punctuation."""
    values = np.zeros(NUM_CODE_POINTS, np.bool_)
    # Versions of Unicode differ in which of these are punctuation.
    codes = []
    for code in assigned_code_points():
        if unicodedata.category(chr(code))[0] in "PSM":
            codes.append(code)
    # Between letters a mark is a part by itself; the other characters are next to them.
    text = "a" + "a".join(map(chr, codes)) + "a"
    splitter = tokenizers.pre_tokenizers.Punctuation(behavior="isolated")
    for part, (start, _) in splitter.pre_tokenize_str(text):
        if len(part) == 1 and start % 2 == 1:
            values[codes[start // 2]] = True
    return PagedTable.pack(values)


def _check_bpe_pre_tokenizer(vocab: SentencePieceVocab) -> None:
    """Raises ValueError unless the pre-tokenizer leaves normalized text whole."""
    spaces_are_replaced = False
    for step in vocab.normalizer_steps():
        if step["type"] == "Replace" and step["pattern"] == {"String": " "}:
            spaces_are_replaced = step["content"] == SPACE_SYMBOL
    for step in vocab.pre_tokenizer_steps():
        # A split at spaces finds none once the normalizer has replaced them all.
        never_splits = step["type"] == "Split" and step["pattern"] == {"String": " "}
        if not (never_splits and spaces_are_replaced):
            raise ValueError(
                f"the pre_tokenizer {vocab.pre_tokenizer[:200]} is not available in the graph; "
                "give token ids."
            )


def _words_of_one_token(
    vocab: SentencePieceVocab, reference: tokenizers.Tokenizer
) -> tuple[list[bytes], list[int]]:
    """Returns the words that are a single token, as UTF-8, and the ids."""
    added = {token.content for token in vocab.added_tokens}
    words = []
    ids = []
    for token, index in vocab.ids.items():
        is_word = token.startswith(SPACE_SYMBOL) and SPACE_SYMBOL not in token[1:]
        if not is_word or token in added or index == vocab.unk_id:
            continue
        # The model decides: several shorter tokens may be more probable than the whole word.
        found = reference.model.tokenize(token)
        if len(found) == 1 and found[0].id == index:
            words.append(token.encode())
            ids.append(index)
    return words, ids


def _trim(
    text: _Text,
    firsts: tf.Tensor,
    lasts: tf.Tensor,
    leading: tf.Tensor,
    starts: tf.Tensor,
    ends: tf.Tensor,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the offsets without the `leading` spaces that begin a token.

    A U+2581 alone, without a space in the text, is empty.
    """
    is_symbol = tf.gather(text.code_points, firsts) == _SPACE_CODE
    is_symbol &= ~tf.gather(text.is_added, firsts)
    is_prefix = tf.gather(text.is_prefix, firsts)
    is_alone = is_symbol & is_prefix & (firsts == lasts)
    next_starts = tf.gather(text.ends, tf.minimum(firsts + leading - 1, lasts))
    starts = tf.where(is_symbol & ~is_prefix, tf.minimum(next_starts, ends), starts)
    return starts, tf.where(is_alone, starts, ends)
