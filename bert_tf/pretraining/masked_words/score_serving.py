"""Scores the words of texts in the graph, as `scores.score_words` scores one text in Python.

For each token there is a row in which this token and the following tokens of its word are masked.
"""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from bert_tf.tasks.base.serving.graph_tokens import Characters, find_tokens
from bert_tf.tasks.base.serving.model import MAX_ROWS, Batch, Outputs
from bert_tf.text.tensor_packing import pack_rows
from bert_tf.text.tokenization import AnyVocab

# Function of rows and positions int32 [R, 1] that returns log-probabilities float32 [R, 1, V], -inf
# at special tokens.
Scores = Callable[[Batch, tf.Tensor], tf.Tensor]


def score_words(
    tokenizer: tf.Module, vocab: AnyVocab, room: int, call_scores: Scores, texts: tf.Tensor
) -> Outputs:
    """Scores the words of texts, string [B].

    A text must not make its whole batch fail, which leads to two differences from
    `scores.score_words`: texts that are too long are truncated, and special tokens in a text are
    ordinary text, which byte-level BPE reads as unknown words.

    Args:
      tokenizer: graph tokenizer, with trimmed offsets.
      room: maximum number of tokens of a text.
      call_scores: computes the model's log-probabilities.
      texts: UTF-8.

    Returns:
      Outputs padded to W, the largest number of words of a text: `words` string and `starts`,
      `ends` int32 [B, W], offsets in characters; "" and -1 after the last word.
      `log_probabilities` float32 and `alternatives` string [B, W], the likeliest first token; 0 and
      "" for unknown words and after the last word. `log_probability` float32 [B], the sum.
    """
    # Below, N is the number of tokens of all texts, and K the number of their words.
    tokens = find_tokens(tokenizer, texts)
    tokens = tokens.cut(tf.minimum(tokens.lengths(), room))
    ids = tokens.ids.values  # [N]
    text_splits = tokens.ids.row_splits  # [B + 1], tokens before each text
    text_of_token = tokens.ids.value_rowids()  # [N]
    positions = tf.range(tf.size(ids, tf.int64))  # [N], counted over all texts
    text_starts = tf.gather(text_splits, text_of_token)  # [N]
    continues = tf.gather(tf.constant(vocab.is_continuation), ids)  # [N]
    begins_word = ~continues | (positions == text_starts)
    word_of_token = tf.cumsum(tf.cast(begins_word, tf.int32)) - 1  # [N]
    firsts = tf.where(begins_word)[:, 0]  # [K], the first token of each word
    ends = tf.concat([firsts, tf.shape(ids, tf.int64)], axis=0)[1:]  # [K], one after the last token

    # A copy of its text for each token, [N, (tokens of the text)].
    copies = tf.ragged.range(text_starts, tf.gather(text_splits, text_of_token + 1))
    scored = tf.gather(positions, copies.value_rowids())  # the token for which the copy is made
    word_ends = tf.gather(tf.gather(ends, word_of_token), copies.value_rowids())
    # Masked are this token and the rest of its word, which would reveal it.
    is_masked = (copies.values >= scored) & (copies.values < word_ends)
    masked = tf.where(is_masked, vocab.mask_id, tf.gather(ids, copies.values))
    batch = pack_rows(vocab, copies.with_values(masked))
    columns = tf.cast(positions - text_starts + vocab.text_start, tf.int32)  # [N]
    values, likeliest = _score_tokens(call_scores, vocab, batch, columns, ids, ~continues)

    # The words of each text, [B, (W)]: word_splits are the numbers of words before each text.
    words_before = tf.pad(tf.cumsum(tf.cast(begins_word, tf.int64)), [[1, 0]])  # [N + 1]
    word_splits = tf.gather(words_before, text_splits)
    words = tf.RaggedTensor.from_row_splits(firsts, word_splits)
    num_words = tf.size(firsts)
    specials = tf.constant(sorted(vocab.special_ids), tf.int32)
    is_special = tf.reduce_any(ids[:, tf.newaxis] == specials, axis=1)  # [N]
    num_special = tf.math.unsorted_segment_sum(
        tf.cast(is_special, tf.int32), word_of_token, num_words
    )
    is_known = num_special == 0  # [K]
    values = tf.math.unsorted_segment_sum(values, word_of_token, num_words)
    values = words.with_values(tf.where(is_known, values, 0.0))
    names = tf.constant(list(map(str.strip, vocab.token_texts())))
    alternatives = tf.where(is_known, tf.gather(names, tf.gather(likeliest, firsts)), "")

    # From bytes to characters. Combining marks that the tokenizer drops belong to their letter.
    characters = Characters(texts)
    start_bytes = words.with_values(tf.gather(tokens.starts.values, firsts))
    end_bytes = words.with_values(tf.gather(tokens.ends.values, ends - 1))
    starts = characters.before(start_bytes)
    stops = characters.after_marks(characters.before(end_bytes))
    return {
        "words": characters.texts(starts, stops).to_tensor(""),
        "starts": starts.to_tensor(-1),
        "ends": stops.to_tensor(-1),
        "log_probabilities": values.to_tensor(0.0),
        "alternatives": words.with_values(alternatives).to_tensor(""),
        "log_probability": tf.reduce_sum(values, axis=1),
    }


def _score_tokens(
    call_scores: Scores,
    vocab: AnyVocab,
    batch: Batch,
    columns: tf.Tensor,
    ids: tf.Tensor,
    begins_word: tf.Tensor,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Scores one token of each row, with at most `MAX_ROWS` rows in memory at once.

    Args:
      call_scores, vocab: see `score_words`.
      batch: rows, int32 [N, T].
      columns: position of the token in its row, int32 [N].
      ids: the token at this position, int32 [N].
      begins_word: whether the token begins a word; its alternative must do so as well, bool [N].

    Returns:
      The token's log-probability, float32 [N], and the likeliest token at its position, int32 [N].
    """
    num_rows, length = tf.unstack(tf.shape(batch["input_mask"]))
    num_parts = tf.maximum(1, -(-num_rows // MAX_ROWS))
    padding = num_parts * MAX_ROWS - num_rows

    def split(column: tf.Tensor) -> tf.Tensor:
        """[N] -> [parts, MAX_ROWS]"""
        return tf.reshape(tf.pad(column, [[0, padding]]), [num_parts, MAX_ROWS])

    def split_rows(rows: tf.Tensor) -> tf.Tensor:
        """[N, T] -> [parts, MAX_ROWS, T]"""
        padded = tf.pad(rows, [[0, padding], [0, 0]])
        return tf.reshape(padded, [num_parts, MAX_ROWS, length])

    def score_part(part: tuple[Any, ...]) -> tuple[tf.Tensor, tf.Tensor]:
        rows, columns, ids, begins_word = part
        scores = call_scores(rows, columns[:, tf.newaxis])[:, 0]  # [MAX_ROWS, V]
        excluded = begins_word[:, tf.newaxis] & tf.constant(vocab.is_continuation)
        scores_of_others = tf.where(excluded, -float("inf"), scores)
        likeliest = tf.argmax(scores_of_others, axis=1, output_type=tf.int32)
        return tf.gather(scores, ids, batch_dims=1), likeliest

    rows = {name: split_rows(values) for name, values in batch.items()}
    parts = (rows, split(columns), split(ids), split(begins_word))
    values, likeliest = tf.map_fn(
        score_part, parts, fn_output_signature=(tf.float32, tf.int32)
    )  # [parts, MAX_ROWS]
    return tf.reshape(values, [-1])[:num_rows], tf.reshape(likeliest, [-1])[:num_rows]
