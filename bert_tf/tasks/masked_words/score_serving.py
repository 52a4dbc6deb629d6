"""Scores the words of texts in the graph, as `tasks.text_scores` does a text at a time.

Each piece has a row of its own, in which it and what follows it in its word are masked.
"""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from bert_tf.serving.graph_tokens import Characters, find_tokens
from bert_tf.serving.model import MAX_ROWS, Batch, Outputs
from bert_tf.text.kinds import piece_texts
from bert_tf.text.tensor_packing import pack_rows
from bert_tf.text.tokenization import AnyVocab

# Rows of a batch and places int32 [R, 1] -> log-probabilities float32 [R, 1, V], -inf at specials.
Scores = Callable[[Batch, tf.Tensor], tf.Tensor]


def score_words(
    tokenizer: tf.Module, vocab: AnyVocab, room: int, call_scores: Scores, texts: tf.Tensor
) -> Outputs:
    """Scores the words of texts, string [B].

    Differs from `tasks.text_scores`, as one text must not fail a batch: a text loses what is above
    its room; special tokens written in it are ordinary text, of byte-level BPE unknown words.

    Args:
      tokenizer: of the graph, with offsets that are trimmed.
      vocab: its pieces.
      room: most pieces of a text.
      call_scores: asks the model.
      texts: UTF-8.

    Returns:
      Padded to the most words W of a text: `words` string and `starts`, `ends` int32 [B, W], the
      characters of the text; "" and -1 behind the last. `log_probabilities` float32 and
      `alternatives` string [B, W], the likeliest first piece; 0 and "" of unknown words and behind
      the last. `log_probability` float32 [B], the sum.
    """
    pieces = find_tokens(tokenizer, texts)
    pieces = pieces.cut(tf.minimum(pieces.lengths(), room))
    ids, splits = pieces.ids.values, pieces.ids.row_splits  # [N], [B + 1]
    rows, places = pieces.ids.value_rowids(), tf.range(tf.size(ids, tf.int64))
    firsts_of_texts = tf.gather(splits, rows)  # [N]
    continues = tf.gather(tf.constant(vocab.is_continuation), ids)
    begins = ~continues | (places == firsts_of_texts)
    owners = tf.cumsum(tf.cast(begins, tf.int32)) - 1  # [N], the word of each piece
    firsts = tf.where(begins)[:, 0]  # [W], of all texts
    ends = tf.concat([firsts, tf.shape(ids, tf.int64)], axis=0)[1:]

    seen = tf.ragged.range(firsts_of_texts, tf.gather(splits, rows + 1))  # [N, (pieces)]
    here = tf.gather(places, seen.value_rowids())
    word_ends = tf.gather(tf.gather(ends, owners), seen.value_rowids())
    is_hidden = (seen.values >= here) & (seen.values < word_ends)
    masked = tf.where(is_hidden, vocab.mask_id, tf.gather(ids, seen.values))
    batch = pack_rows(vocab, seen.with_values(masked))
    columns = tf.cast(places - firsts_of_texts + 1, tf.int32)  # [CLS] stands at 0.
    values, others = _ask(call_scores, vocab, batch, columns, ids, ~continues)

    words = tf.RaggedTensor.from_row_splits(firsts, tf.gather(_before(begins), splits))  # [B, (W)]
    count = tf.size(firsts)
    specials = tf.constant(sorted(vocab.special_ids), tf.int32)
    is_special = tf.reduce_any(ids[:, tf.newaxis] == specials, axis=1)
    is_known = tf.math.unsorted_segment_sum(tf.cast(is_special, tf.int32), owners, count) == 0
    values = tf.math.unsorted_segment_sum(values, owners, count)
    values = words.with_values(tf.where(is_known, values, 0.0))
    names = tf.constant([name.strip() for name in piece_texts(vocab)])
    named = tf.where(is_known, tf.gather(names, tf.gather(others, firsts)), "")

    characters = Characters(texts)
    starts = words.with_values(tf.gather(pieces.starts.values, firsts))
    stops = words.with_values(tf.gather(pieces.ends.values, ends - 1))
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
    """Returns how many words begin before each of N pieces, and at their end, int64 [N + 1]."""
    return tf.pad(tf.cumsum(tf.cast(begins, tf.int64)), [[1, 0]])


def _ask(
    call_scores: Scores,
    vocab: AnyVocab,
    batch: Batch,
    columns: tf.Tensor,
    ids: tf.Tensor,
    begins_word: tf.Tensor,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Asks the model for a piece a row, at most `MAX_ROWS` rows at once.

    Args:
      call_scores, vocab: see `score_words`.
      batch: rows, int32 [N, T].
      columns: place of the piece in its row, int32 [N].
      ids: the piece that stands there, int32 [N].
      begins_word: whether it begins a word, as another in its place must then, bool [N].

    Returns:
      Its log-probability, float32 [N], and the likeliest piece in its place, int32 [N].
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
