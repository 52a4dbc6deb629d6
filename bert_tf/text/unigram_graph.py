"""Finds the most probable tokens of words by a Unigram language model, inside the TensorFlow graph.

    words [W] -> characters [N] -> for each character and length: the token that begins there
              -> the best score of each prefix of a word (Viterbi), for all words at once
              -> tokens [P] with their characters

The order of the comparisons and the double precision are those of `tokenizers`, so that of equally
good divisions the same one is found.
"""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from bert_tf.text.sentencepiece_vocab import SentencePieceVocab
from bert_tf.text.tensor_characters import count_by, count_up, look_up
from bert_tf.text.unicode_tables import NUM_CODE_POINTS, PagedTable
from bert_tf.text.word_graph import WordTokens

# SentencePiece's kUnkPenalty: unknown characters score below the rarest token by this much.
_UNKNOWN_PENALTY = 10.0
_NO_TOKEN = -1
_NO_NODE = -1


class UnigramModel(tf.Module):
    """The tokens and scores of a Unigram vocabulary, as a trie of characters."""

    def __init__(self, vocab: SentencePieceVocab) -> None:
        super().__init__()
        self._unk_id = vocab.unk_id
        self._scores = np.array(vocab.scores, np.float64)
        self._unknown_score = self._scores.min() - _UNKNOWN_PENALTY
        tokens = vocab.tokens[: len(vocab.scores)]
        self._longest = max(map(len, tokens))
        characters = sorted(set(map(ord, "".join(tokens))))
        index_of_character = np.zeros(NUM_CODE_POINTS, np.int32)  # 0: of no token
        index_of_character[characters] = np.arange(1, len(characters) + 1)
        self._index_of_character = PagedTable.pack(index_of_character)
        self._num_characters = len(characters) + 1
        nodes, ids = _build_trie(tokens, index_of_character, self._num_characters)
        self._ids_of_nodes = ids
        self._nodes = tf.lookup.StaticHashTable(
            tf.lookup.KeyValueTensorInitializer(
                tf.constant(list(nodes.keys()), tf.int64),
                tf.constant(list(nodes.values()), tf.int32),
            ),
            _NO_NODE,
        )

    def encode(self, code_points: tf.Tensor, word_splits: tf.Tensor) -> WordTokens:
        """Returns the tokens of words; see `WordModel`."""
        splits = tf.cast(word_splits, tf.int32)
        lengths = splits[1:] - splits[:-1]
        room = tf.repeat(lengths, lengths) - count_up(lengths)  # characters up to the word's end
        tokens = self._find_tokens(code_points, room)  # int32 [longest, N]
        is_first = _step_back(tokens, self._token_scores(tokens), splits[:-1], lengths)
        return self._collect(tokens, is_first, splits, lengths)

    def _find_tokens(self, code_points: tf.Tensor, room: tf.Tensor) -> tf.Tensor:
        """Returns the token of each length, in characters less one, that begins at a character.

        Returns:
          int32 [longest, N], _NO_TOKEN where no token matches. A character that is no token is
          the unknown token.
        """
        size = tf.size(code_points)
        characters = look_up(self._index_of_character, code_points)
        found = tf.TensorArray(tf.int32, size=self._longest, element_shape=[None])

        def extend(
            length: tf.Tensor, active: tf.Tensor, nodes: tf.Tensor, found: tf.TensorArray
        ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.TensorArray]:
            # [active]: the characters from which the trie still has a path.
            character = tf.gather(characters, active + length)
            keys = tf.cast(nodes, tf.int64) * self._num_characters + tf.cast(character, tf.int64)
            nodes = self._nodes.lookup(keys)
            kept = tf.where(nodes >= 0)[:, 0]
            nodes = tf.gather(nodes, kept)
            active = tf.gather(active, kept)
            ids = tf.tensor_scatter_nd_update(
                tf.fill([size], _NO_TOKEN),
                active[:, tf.newaxis],
                tf.gather(self._ids_of_nodes, nodes),
            )
            found = found.write(length, ids)
            has_more = tf.where(tf.gather(room, active) > length + 1)[:, 0]
            return length + 1, tf.gather(active, has_more), tf.gather(nodes, has_more), found

        start = tf.range(size)
        length, _, _, found = tf.while_loop(
            # Once at least, so that `found` is never empty.
            lambda length, active, nodes, found: (
                (length == 0) | (length < self._longest) & (tf.size(active) > 0)
            ),
            extend,
            (tf.constant(0), start, tf.zeros_like(start), found),
            shape_invariants=(
                tf.TensorShape([]),
                tf.TensorShape([None]),
                tf.TensorShape([None]),
                tf.TensorShape(None),
            ),
        )
        tokens = tf.reshape(found.gather(tf.range(length)), [-1, size])
        alone = tf.where(tokens[0] >= 0, tokens[0], self._unk_id)
        return tf.concat([alone[tf.newaxis], tokens[1:]], 0)

    def _token_scores(self, tokens: tf.Tensor) -> tf.Tensor:
        """Returns the scores, float64 [lengths, N]; -inf where there is no token."""
        scores = tf.gather(self._scores, tf.maximum(tokens, 0))
        unknown = tf.constant(self._unknown_score, tf.float64)
        is_unknown = (tokens == self._unk_id) & (tf.range(tf.shape(tokens)[0]) == 0)[:, tf.newaxis]
        scores = tf.where(is_unknown, unknown, scores)
        return tf.where(tokens >= 0, scores, tf.constant(-np.inf, tf.float64))

    def _collect(
        self, tokens: tf.Tensor, is_first: tf.Tensor, splits: tf.Tensor, lengths: tf.Tensor
    ) -> WordTokens:
        """Returns the tokens that begin at the chosen characters, unknown ones joined."""
        words = tf.repeat(tf.range(tf.size(lengths)), lengths)
        firsts = tf.cast(tf.where(is_first)[:, 0], tf.int32)  # [P]
        words = tf.gather(words, firsts)
        ends = tf.concat([firsts[1:], splits[-1:]], 0)[: tf.size(firsts)]
        sizes = ends - firsts
        ids = tf.gather_nd(tokens, tf.stack([sizes - 1, firsts], 1))
        is_unknown = ids == self._unk_id
        # Neighbouring unknown characters of a word are one unknown token, as in `tokenizers`.
        joins = is_unknown[1:] & is_unknown[:-1] & (words[1:] == words[:-1])
        joins = tf.concat([[False], joins], 0)[: tf.size(ids)]
        token = tf.cumsum(tf.cast(~joins, tf.int32)) - 1
        kept = tf.where(~joins)[:, 0]
        counts = count_by(tf.gather(words, kept), tf.size(lengths))
        begins = tf.gather(firsts - tf.gather(splits, words), kept)
        sizes = tf.math.unsorted_segment_sum(sizes, token, tf.size(kept))
        return WordTokens(tf.gather(ids, kept), begins, begins + sizes, counts)


def _build_trie(
    tokens: tuple[str, ...], index_of_character: np.ndarray, num_characters: int
) -> tuple[dict[int, int], np.ndarray]:
    """Returns the trie of the tokens.

    Returns:
      The child of a node by `node * num_characters + character`, node 0 being the root; and the
      token that ends at each node, int32, or _NO_TOKEN.
    """
    children: dict[int, int] = {}
    ids = [_NO_TOKEN]
    for index, token in enumerate(tokens):
        node = 0
        for char in token:
            key = node * num_characters + int(index_of_character[ord(char)])
            node = children.setdefault(key, len(ids))
            if node == len(ids):
                ids.append(_NO_TOKEN)
        if token:
            ids[node] = index
    return children, np.array(ids, np.int32)


class _Words(NamedTuple):
    """The words by length, the longest first. A word of n characters has n + 1 nodes.

    The nodes are the ends of its prefixes, and are numbered through all words.
    """

    starts: tf.Tensor  # int32 [W], first character
    lengths: tf.Tensor  # int32 [W], number of characters
    nodes: tf.Tensor  # int32 [W], first node


def _step_back(
    tokens: tf.Tensor, scores: tf.Tensor, word_starts: tf.Tensor, word_lengths: tf.Tensor
) -> tf.Tensor:
    """Returns the characters at which the tokens of the best divisions begin, bool [N].

    Args:
      tokens: see `UnigramModel._find_tokens`.
      scores: float64 [lengths, N].
      word_starts, word_lengths: int32 [W].
    """
    order = tf.argsort(word_lengths, direction="DESCENDING", stable=True)
    starts = tf.gather(word_starts, order)
    # Each word has one node more than characters, so word number w starts w nodes later.
    words = _Words(starts, tf.gather(word_lengths, order), nodes=starts + order)
    return _mark_firsts(_last_lengths(scores, words), words, tf.shape(tokens)[1])


def _last_lengths(scores: tf.Tensor, words: _Words) -> tf.Tensor:
    """Returns the length of the last token in the best division of each prefix, int32 [N + W].

    Args:
      scores: float64 [lengths, N].
    """
    num_lengths = tf.shape(scores)[0]
    size = tf.shape(scores)[1]
    num_nodes = size + tf.size(words.lengths)
    best = tf.zeros([num_nodes], tf.float64)
    back = tf.zeros([num_nodes], tf.int32)
    longest_first = tf.range(num_lengths - 1, -1, -1)  # of equal scores the earliest start wins
    flat_scores = tf.reshape(scores, [-1])
    num_longer = tf.reverse(
        tf.cumsum(tf.reverse(tf.math.bincount(words.lengths, dtype=tf.int32), [0])), [0]
    )  # words of at least so many characters

    def advance(
        end: tf.Tensor, best: tf.Tensor, back: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        # Words are sorted by length: those that are still longer are the first rows.
        active = num_longer[end]
        first = end - 1 - longest_first  # [lengths], the start of a token that ends here
        is_inside = (first >= 0)[tf.newaxis, :]
        first = tf.maximum(first, 0)
        nodes = words.nodes[:active, tf.newaxis]
        before = tf.gather(best, nodes + first)  # [active, lengths]
        index = longest_first * size + words.starts[:active, tf.newaxis] + first
        candidates = tf.gather(flat_scores, index) + before
        # A token may not begin before its word.
        candidates = tf.where(is_inside, candidates, tf.constant(-np.inf, tf.float64))
        # Viterbi: the best division of a prefix is the best of a shorter one, and one more token.
        choice = tf.argmax(candidates, 1, tf.int32)
        target = nodes + end
        best = tf.tensor_scatter_nd_update(best, target, tf.reduce_max(candidates, 1))
        back = tf.tensor_scatter_nd_update(back, target, tf.gather(longest_first, choice) + 1)
        return end + 1, best, back

    longest = tf.reduce_max(tf.concat([words.lengths, [0]], 0))
    _, _, back = tf.while_loop(
        lambda end, best, back: end <= longest, advance, (tf.constant(1), best, back)
    )
    return back


def _mark_firsts(back: tf.Tensor, words: _Words, size: tf.Tensor) -> tf.Tensor:
    """Steps from the ends of all words to their starts; returns where tokens begin, bool [N].

    Args:
      back: see `_last_lengths`.
    """

    def mark(
        starts: tf.Tensor, nodes: tf.Tensor, ends: tf.Tensor, is_first: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]:
        # One token back in every word at once; a word is done at its start.
        ends = ends - tf.gather(back, nodes + ends)
        positions = (starts + ends)[:, tf.newaxis]
        is_first = tf.tensor_scatter_nd_update(
            is_first, positions, tf.ones([tf.size(ends)], tf.bool)
        )
        kept = tf.where(ends > 0)[:, 0]
        return tf.gather(starts, kept), tf.gather(nodes, kept), tf.gather(ends, kept), is_first

    kept = tf.where(words.lengths > 0)[:, 0]
    *_, is_first = tf.while_loop(
        lambda starts, nodes, ends, is_first: tf.size(ends) > 0,
        mark,
        (
            tf.gather(words.starts, kept),
            tf.gather(words.nodes, kept),
            tf.gather(words.lengths, kept),
            tf.zeros([size], tf.bool),
        ),
        shape_invariants=(tf.TensorShape([None]),) * 4,
    )
    return is_first
