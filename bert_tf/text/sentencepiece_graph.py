"""SentencePiece inside the TensorFlow graph, with the same ids as `SentencePiece` in Python.

Strings are normalized, step by step, each character with its position in the original text; words
have U+2581 at their start. `word_graph.py` does the rest.
"""

import functools
import unicodedata

import numpy as np
import tensorflow as tf
import tokenizers

from bert_tf.text.added_tokens_graph import Characters, cut_out
from bert_tf.text.bpe_graph import BpeModel
from bert_tf.text.fast_tokenizers import make_fast_tokenizer
from bert_tf.text.normalization_graph import NormalCharacters, is_blank, make_steps
from bert_tf.text.sentencepiece_vocab import SPACE_SYMBOL, SentencePieceVocab, WordRules
from bert_tf.text.tensor_characters import count_up, look_up
from bert_tf.text.unicode_tables import NUM_CODE_POINTS, PagedTable, assigned_code_points
from bert_tf.text.unigram_graph import UnigramModel
from bert_tf.text.word_graph import (
    Encoded,
    WordTokenizer,
    are_written,
    insert_before,
    words_of_one_token,
)

_SPACE_CODE = ord(SPACE_SYMBOL)


class SentencePieceTokenizer(WordTokenizer):
    """Splits strings into ids of a SentencePiece vocabulary; see `WordTokenizer`.

    Raises:
      ValueError: if the graph lacks the vocabulary's model, normalizer or pre-tokenizer.
    """

    vocab: SentencePieceVocab

    def __init__(self, vocab: SentencePieceVocab, name: str = "sentencepiece_tokenizer"):
        steps = make_steps(vocab.normalizer_steps())
        if not vocab.is_unigram:
            _check_bpe_pre_tokenizer(vocab)
        reference = make_fast_tokenizer(vocab.to_tokenizer_json(with_rows=False))
        normalizer = reference.normalizer
        normalize = normalizer.normalize_str if normalizer else str
        model = UnigramModel(vocab) if vocab.is_unigram else _make_bpe(vocab)
        super().__init__(vocab, model, words_of_one_token(vocab, _spell), normalize, name)
        # [V], the number of U+2581 at the start of each token.
        self._num_symbols = np.array(
            [len(token) - len(token.lstrip(SPACE_SYMBOL)) for token in vocab.tokens], np.int64
        )
        self._steps = steps
        rules = vocab.word_rules() if vocab.is_unigram else WordRules(prefix="never")
        if not rules.prefix:
            raise ValueError(
                f"the pre_tokenizer {vocab.pre_tokenizer[:200]} is not available in the graph; "
                "give token ids."
            )
        self._rules = rules
        self._raw_tokens = [token for token in vocab.added_tokens if not token.normalized]
        contents = [normalize(token.content) for token in vocab.added_tokens if token.normalized]
        self._first_codes = {ord(content[0]) for content in contents if content}
        # Within runs of spaces BPE has merges.
        self._splits_runs = vocab.is_unigram
        self._splits_words = vocab.is_unigram or _words_are_independent(vocab)

    def offsets(self, characters: Characters, encoded: Encoded) -> tuple[tf.Tensor, tf.Tensor]:
        firsts = encoded.firsts
        lasts = encoded.lasts
        starts = tf.gather(characters.starts, firsts)
        ends = tf.gather(characters.ends, lasts)
        if self.vocab.trim_offsets:
            leading = tf.maximum(tf.gather(self._num_symbols, encoded.ids), 1)
            starts, ends = _trim(characters, firsts, lasts, leading, starts, ends)
        return starts, ends

    def read(self, strings: tf.Tensor) -> Characters:
        """Returns the normalized characters; `is_first` marks those that begin a word."""
        decoded = tf.strings.unicode_decode(strings, "UTF-8", "replace")
        starts = count_up(decoded.row_lengths())
        rows = decoded.value_rowids()
        # Always normalized as a whole first: some added tokens are searched for in the result.
        whole = NormalCharacters(decoded.values, rows, starts, starts + 1)
        found = self._normalize(whole, tf.ones_like(rows, tf.bool))

        def read_all() -> Characters:
            characters = cut_out(Characters.of_text(*whole), self.raw_tokens)
            return cut_out(self._normalize_text(characters), self.normalized_tokens)

        has_added = are_written(self._raw_tokens, strings)
        has_added |= self._may_have_normalized(found.code_points)
        text = tf.cond(has_added, read_all, lambda: Characters.of_text(*found))
        return self._pre_tokenize(text)

    def _may_have_normalized(self, code_points: tf.Tensor) -> tf.Tensor:
        """Returns whether normalized text has the first character of a normalized added token."""
        is_first = tf.zeros_like(code_points, tf.bool)
        for code in sorted(self._first_codes):
            is_first |= code_points == code
        return tf.reduce_any(is_first)

    def _normalize(self, characters: NormalCharacters, is_text: tf.Tensor) -> NormalCharacters:
        """Applies the normalizer to the parts that are text."""
        # [parts]: a step changes the number of characters, but not the number of parts.
        marks = tf.math.segment_max(tf.cast(is_text, tf.int32), characters.parts)
        for step in self._steps:
            is_text = tf.gather(marks, characters.parts) > 0
            characters = step(characters, is_text)
        return characters

    def _normalize_text(self, characters: Characters) -> Characters:
        """Applies the normalizer to the text between added tokens."""
        _, is_added, is_first, rows, starts, ends, _ = characters
        parts = tf.cumsum(tf.cast(is_first, tf.int64)) - 1
        whole = NormalCharacters(characters.code_points, parts, starts, ends)
        found = self._normalize(whole, ~is_added)
        firsts = tf.where(is_first)[:, 0]  # of each part
        result = Characters.of_text(found.code_points, found.parts, found.starts, found.ends)
        return result._replace(
            is_added=tf.gather(tf.gather(is_added, firsts), found.parts),
            rows=tf.gather(tf.gather(rows, firsts), found.parts),
        )

    def _pre_tokenize(self, text: Characters) -> Characters:
        """Returns the text with U+2581 for spaces; `is_first` then marks where words start."""
        is_start = text.is_first
        if self._rules.splits_at_blanks:
            blank = is_blank(tf.where(text.is_added, 0, text.code_points)) & ~text.is_added
            follows = tf.concat([[True], blank[:-1]], 0)[: tf.size(blank)]
            kept = tf.where(~blank)[:, 0]
            is_start = tf.gather(is_start | follows, kept)
            text = text.gather(kept)
            # The first character of a string may have been a blank.
            is_new_row = tf.concat([[True], text.rows[1:] != text.rows[:-1]], 0)
            is_start |= is_new_row[: tf.size(text.rows)]
        if self._rules.splits_at_punctuation:
            is_mark = look_up(_punctuation_table(), tf.where(text.is_added, 0, text.code_points))
            after_mark = tf.concat([[False], is_mark[:-1]], 0)[: tf.size(is_mark)]
            is_start |= is_mark | after_mark
        is_space = (text.code_points == ord(" ")) & ~text.is_added
        text = text._replace(code_points=tf.where(is_space, _SPACE_CODE, text.code_points))
        is_symbol = (text.code_points == _SPACE_CODE) & ~text.is_added
        wants_prefix = is_start & ~is_symbol & ~text.is_added
        if self._rules.prefix == "first":
            # Only the start of a string, not the text after an added token.
            wants_prefix &= text.starts == 0
        if self._rules.prefix == "never":
            wants_prefix = tf.zeros_like(wants_prefix)
        if self._splits_words:
            starts_word = is_symbol
            if not self._splits_runs:
                follows = tf.concat([[False], is_symbol[:-1]], 0)[: tf.size(is_symbol)]
                starts_word &= ~follows
            is_start |= starts_word
        return insert_before(text._replace(is_first=is_start), wants_prefix, _SPACE_CODE)


def _make_bpe(vocab: SentencePieceVocab) -> BpeModel:
    """Returns the model of BPE that spells unknown characters as bytes "<0x00>" .. "<0xFF>".

    A vocabulary that lacks one of them is a ValueError.
    """
    names = [f"<0x{byte:02X}>" for byte in range(256)]
    missing = [name for name in names if name not in vocab.ids]
    if missing:
        raise ValueError(
            f"the vocabulary lacks tokens of bytes, {missing[0]} first, without which it is "
            "not available in the graph; give token ids."
        )
    character_ids = {ord(token): i for token, i in vocab.ids.items() if len(token) == 1}
    return BpeModel(vocab, [vocab.ids[name] for name in names], character_ids)


def _words_are_independent(vocab: SentencePieceVocab) -> bool:
    """Returns whether no merge joins the end of a word with the space before the next one."""
    for left, right in vocab.merges:
        if right.startswith(SPACE_SYMBOL) and not left.endswith(SPACE_SYMBOL):
            return False
    return True


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


def _spell(token: str) -> bytes | None:
    """Returns the UTF-8 of a token that may be a word."""
    is_word = token.startswith(SPACE_SYMBOL) and SPACE_SYMBOL not in token[1:]
    return token.encode() if is_word else None


def _trim(
    text: Characters,
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
