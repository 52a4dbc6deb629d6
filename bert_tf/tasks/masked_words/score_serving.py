"""Scores the words of texts in the graph, as `scores.score_words` scores one text in Python.

Each token has a row in which it and the tokens that follow it in its word are masked.
"""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from bert_tf.serving.graph_tokens import Characters, find_tokens
from bert_tf.serving.model import MAX_ROWS, Batch, Outputs
from bert_tf.text.kinds import token_texts
from bert_tf.text.tensor_packing import pack_rows
from bert_tf.text.tokenization import AnyVocab

# Rows of a batch, positions int32 [R, 1] -> log-probabilities float32 [R, 1, V], -inf at specials.
Scores = Callable[[Batch, tf.Tensor], tf.Tensor]


def score_words(
    tokenizer: tf.Module, vocab: AnyVocab, room: int, call_scores: Scores, texts: tf.Tensor
) -> Outputs:
    """Scores the words of texts, string [B].

    Differs from `scores.score_words`, because one text must not fail a batch: a text that is too
    long is cut; special tokens in it are ordinary text, with byte-level BPE unknown words.

    Args:
      tokenizer: graph tokenizer, with trimmed offsets.
      vocab: its vocabulary.
      room: maximum number of tokens of a text.
      call_scores: computes the model's log-probabilities.
      texts: UTF-8.

    Returns:
      Padded to the most words W of a text: `words` string and `starts`, `ends` int32 [B, W], the
      characters of the text; "" and -1 after the last. `log_probabilities` float32 and
      `alternatives` string [B, W], the likeliest first token; 0 and "" for unknown words and after
      the last. `log_probability` float32 [B], the sum.
    """
    tokens = find_tokens(tokenizer, texts)
    tokens = tokens.cut(tf.minimum(tokens.lengths(), room))
    ids, splits = tokens.ids.values, tokens.ids.row_splits  # [N], [B + 1]
    rows = tokens.ids.value_rowids()  # [N], the text of each token
    positions = tf.range(tf.size(ids, tf.int64))  # [N]
    firsts_of_texts = tf.gather(splits, rows)  # [N]
    continues = tf.gather(tf.constant(vocab.is_continuation), ids)
    begins = ~continues | (positions == firsts_of_texts)
    owners = tf.cumsum(tf.cast(begins, tf.int32)) - 1  # [N], the word of each token
    firsts = tf.where(begins)[:, 0]  # [W], of all texts
    ends = tf.concat([firsts, tf.shape(ids, tf.int64)], axis=0)[1:]

    seen = tf.ragged.range(firsts_of_texts, tf.gather(splits, rows + 1))  # [N, (tokens)]
    here = tf.gather(positions, seen.value_rowids())
    word_ends = tf.gather(tf.gather(ends, owners), seen.value_rowids())
    is_hidden = (seen.values >= here) & (seen.values < word_ends)
    masked = tf.where(is_hidden, vocab.mask_id, tf.gather(ids, seen.values))
    batch = pack_rows(vocab, seen.with_values(masked))
    columns = tf.cast(positions - firsts_of_texts + vocab.text_start, tf.int32)
    values, others = _ask(call_scores, vocab, batch, columns, ids, ~continues)

    words = tf.RaggedTensor.from_row_splits(firsts, tf.gather(_before(begins), splits))  # [B, (W)]
    count = tf.size(firsts)
    specials = tf.constant(sorted(vocab.special_ids), tf.int32)
    is_special = tf.reduce_any(ids[:, tf.newaxis] == specials, axis=1)
    is_known = tf.math.unsorted_segment_sum(tf.cast(is_special, tf.int32), owners, count) == 0
    values = tf.math.unsorted_segment_sum(values, owners, count)
    values = words.with_values(tf.where(is_known, values, 0.0))
    names = tf.constant([name.strip() for name in token_texts(vocab)])
    named = tf.where(is_known, tf.gather(names, tf.gather(others, firsts)), "")

    characters = Characters(texts)
    starts = words.with_values(tf.gather(tokens.starts.values, firsts))
    stops = words.with_values(tf.gather(tokens.ends.values, ends - 1))
    starts, stops = characters.before(starts), characters.after_marks(characters.before(stops))
    return {
        "words": characters.texts(starts, stops).to_tensor(""),
        "starts": starts.to_tensor(-1),
        "ends": stops.to_tensor(-1),
        "log_probabilities": values.to_tensor(0.0),
        "alternatives": words.with_values(named).to_tensor(""),
        "log_probability": tf.reduce_sum(values, axis=1),
    }


def _before(begins: tf.Tensor) -> tf.Tensor:
    """Returns how many words begin before each of N tokens, and after the last, int64 [N + 1]."""
    return tf.pad(tf.cumsum(tf.cast(begins, tf.int64)), [[1, 0]])


def _ask(
    call_scores: Scores,
    vocab: AnyVocab,
    batch: Batch,
    columns: tf.Tensor,
    ids: tf.Tensor,
    begins_word: tf.Tensor,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Computes one token of each row, at most `MAX_ROWS` rows at once.

    Args:
      call_scores, vocab: see `score_words`.
      batch: rows, int32 [N, T].
      columns: position of the token in its row, int32 [N].
      ids: the token at this position, int32 [N].
      begins_word: whether it begins a word, as an alternative must then too, bool [N].

    Returns:
      Its log-probability, float32 [N], and the likeliest token in its place, int32 [N].
    """
    num_rows, width = tf.unstack(tf.shape(batch["input_mask"]))
    count = tf.maximum(1, -(-num_rows // MAX_ROWS))

    def parts(column: tf.Tensor, *shape: tf.Tensor) -> tf.Tensor:
        missing = [[0, count * MAX_ROWS - num_rows], *([0, 0] for _ in shape)]
        return tf.reshape(tf.pad(column, missing), [count, MAX_ROWS, *shape])

    def ask(part: tuple[Any, ...]) -> tuple[tf.Tensor, tf.Tensor]:
        rows, columns, ids, begins_word = part
        scores = call_scores(rows, columns[:, tf.newaxis])[:, 0]  # [MAX_ROWS, V]
        banned = begins_word[:, tf.newaxis] & tf.constant(vocab.is_continuation)
        others = tf.argmax(tf.where(banned, -float("inf"), scores), axis=1, output_type=tf.int32)
        return tf.gather(scores, ids, batch_dims=1), others

    given = (
        {name: parts(column, width) for name, column in batch.items()},
        *(parts(column) for column in (columns, ids, begins_word)),
    )
    found = tf.map_fn(ask, given, fn_output_signature=(tf.float32, tf.int32))
    values, others = (tf.reshape(column, [-1])[:num_rows] for column in found)
    return values, others
