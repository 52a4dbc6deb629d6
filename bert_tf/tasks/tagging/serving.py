"""Tags words and gives their offsets; long texts are split into windows as in run_tagger."""

from typing import Any, NamedTuple

import tensorflow as tf

from bert_tf.serving.graph_tokens import Characters, check_utf8
from bert_tf.serving.model import Batch, Outputs, Serving, Signatures
from bert_tf.serving.segments import first_of_largest
from bert_tf.text.byte_level import SPACES
from bert_tf.text.sentencepiece_vocab import SentencePieceVocab
from bert_tf.text.tensor_packing import cut, pack_rows
from bert_tf.text.tokenizer import BertTokenizer
from bert_tf.text.vocab import SPECIAL_TOKENS, Vocab
from bert_tf.type_names import Tensor

NOWHERE = -1
# White space, and marks, which belong to what stands before them or stand alone.
NO_WORD = rf"[{SPACES}\p{{Mn}}]*"


class TaggingServing(Serving):
    """A `BertTokenClassifier` with words.

    A word of a text is what the tokenizer parts at white space and punctuation; given words are
    taken as they are. A word's tag is that of its first token, as in training. A text of any length
    is tagged whole, in windows that overlap.

    Args:
      arguments: of `Serving`.
      labels: names of the tags, C of them.

    Outputs of texts, padded to the most words W of a text in the batch:
      words, tags: string [B, W]; "" after the last.
      starts, ends: int32 [B, W], characters of the text: text[start:end] is the word; -1 after
        the last.
      scores: float32 [B, W], probability of the tag; 0 after the last.

    Outputs of words, string [B, W] with "" after the last: `tags` and `scores`, [B, W].

    Outputs of ids: `tags` string and `scores` float32, [B, T].
    """

    kind = "tagger"

    def from_ids(self, batch: Batch) -> Outputs:
        return self._best_tags(self.call_model(batch))

    def from_texts(self, *texts: tf.Tensor) -> Outputs:
        """Tags the words of texts, `bert_tf.text.words.word_offsets`, as those of split sentences.

        That is what the tagger was trained on. With byte-level BPE every word has a space before
        it, also "." after another word; with cased WordPiece, marks after punctuation are tokens.
        """
        splitter = self.tokenizer
        if isinstance(self.vocab, SentencePieceVocab):
            # Its words end at spaces alone. Without other tokens each word is one [UNK].
            splitter = BertTokenizer(Vocab(SPECIAL_TOKENS), do_lower_case=False)
        _, first_bytes, end_bytes = splitter.tokenize_with_offsets(check_utf8(texts[0]))
        rows, tokens = first_bytes.row_splits, first_bytes.values.row_splits
        firsts = tf.gather(first_bytes.flat_values, tokens[:-1])  # [W]
        lasts = tf.gather(end_bytes.flat_values, tokens[1:] - 1)
        characters = Characters(texts[0])
        starts = characters.before(tf.RaggedTensor.from_row_splits(firsts, rows))  # [B, (W)]
        ends = characters.before(tf.RaggedTensor.from_row_splits(lasts, rows))
        is_word = ~tf.strings.regex_full_match(characters.texts(starts, ends).values, NO_WORD)
        starts, ends = (
            tf.ragged.boolean_mask(column, column.with_values(is_word)) for column in (starts, ends)
        )
        ends = characters.after_marks(ends)
        words = characters.texts(starts, ends)
        tags = self.tag_words(self._word_tokens(words.values), words.row_splits)
        return _outputs(words, tags, starts, ends)

    def _word_tokens(self, words: tf.Tensor) -> tf.RaggedTensor:
        """Returns the tokens of words of split sentences, as `Tokenizer.encode_word` does.

        A word of nothing, or of control characters alone, is the unknown token.
        """
        if not isinstance(self.vocab, Vocab):
            has_space = tf.strings.regex_full_match(words, "(?s) .*")
            words = tf.where(has_space, words, tf.strings.join([" ", words]))
        tokens = self.tokenizer.tokenize(words).merge_dims(1, 2)
        is_empty = tf.cast(tokens.row_lengths() == 0, tf.int64)
        unknown = tf.fill([tf.reduce_sum(is_empty)], self.vocab.unk_id)
        return tf.concat([tokens, tf.RaggedTensor.from_row_lengths(unknown, is_empty)], axis=1)

    def from_words(self, words: tf.Tensor) -> Outputs:
        """Returns the tags of words, string [B, W] with "" after the last of a row."""
        positions = tf.range(1, 1 + tf.shape(words)[1])
        counts = tf.reduce_max(tf.where(words != "", positions, 0), axis=1)  # [B]
        given = tf.RaggedTensor.from_tensor(words, lengths=tf.maximum(counts, 0))
        tokens = self._word_tokens(check_utf8(given.values))
        tags = self.tag_words(tokens, given.row_splits)
        shape = tf.shape(words, tf.int64)
        return {
            "tags": given.with_values(tags["tags"]).to_tensor("", shape=shape),
            "scores": given.with_values(tags["scores"]).to_tensor(0.0, shape=shape),
        }

    def tag_words(self, tokens: tf.RaggedTensor, row_splits: tf.Tensor) -> Outputs:
        """Tags the words of all texts.

        Args:
          tokens: int32 ragged [N, (tokens)] of all words, one at least for each.
          row_splits: int64 [B + 1], where each text begins among the words.

        Returns:
          `tags` string and `scores` float32, [N].
        """
        room = self.max_seq_length - 2
        tokens = cut(tokens, tf.minimum(tokens.row_lengths(), room))
        lengths = tf.RaggedTensor.from_row_splits(tokens.row_lengths(), row_splits)
        windows = make_windows(lengths, room)
        splits = tokens.row_splits  # [N + 1], tokens before each word
        starts = tf.gather(splits, windows.firsts)
        indices = tf.ragged.range(starts, tf.gather(splits, windows.ends))
        batch = pack_rows(self.vocab, tf.gather(tokens.values, indices))
        answers = self._best_tags(self.call_in_parts(batch, tf.float32))  # [R, T]
        rows = choose_windows(windows, splits)  # [N]
        positions = splits[:-1] - tf.gather(starts, rows) + self.vocab.text_start
        chosen = tf.stack([rows, positions], axis=1)
        return {name: tf.gather_nd(column, chosen) for name, column in answers.items()}

    def _best_tags(self, logits: tf.Tensor) -> Outputs:
        tags = tf.gather(tf.constant(self.labels), tf.argmax(logits, axis=-1))
        return {"tags": tags, "scores": tf.reduce_max(tf.nn.softmax(logits), axis=-1)}

    def text_signatures(self) -> Signatures:
        @tf.function(
            input_signature=[tf.TensorSpec([None, None], tf.string, "words")], autograph=False
        )
        def words(words: tf.Tensor) -> Outputs:
            return self.from_words(words)

        return {**super().text_signatures(), "words": words}


def _outputs(
    words: tf.RaggedTensor, tags: Outputs, starts: tf.RaggedTensor, ends: tf.RaggedTensor
) -> Outputs:
    return {
        "words": words.to_tensor(""),
        "tags": words.with_values(tags["tags"]).to_tensor(""),
        "scores": words.with_values(tags["scores"]).to_tensor(0.0),
        "starts": starts.to_tensor(NOWHERE),
        "ends": ends.to_tensor(NOWHERE),
    }


class WordWindows(NamedTuple):
    """Windows of whole words, R of them: words `firsts` to `ends` of all texts, int64 [R]."""

    firsts: tf.Tensor
    ends: tf.Tensor


def make_windows(lengths: tf.RaggedTensor, room: int) -> WordWindows:
    """Cuts texts into windows of as many words as fit: `features.make_tag_rows`.

    Args:
      lengths: int64 ragged [B, (W)], tokens of each word, at most `room`.
      room: maximum number of tokens of a window.
    """
    # Pieces before each word, [B, W + 1]; the same behind the last word.
    starts = tf.pad(tf.cumsum(lengths.to_tensor(), axis=1), [[0, 0], [1, 0]])
    num_words = lengths.row_lengths()

    def word_at(offsets: tf.Tensor) -> tf.Tensor:
        found = tf.searchsorted(starts, offsets[:, tf.newaxis], "right", tf.int64)[:, 0] - 1
        return tf.minimum(found, num_words)

    def add_window(first: Tensor, end: Tensor, firsts: Tensor, ends: Tensor) -> tuple[Any, ...]:
        is_done = end >= num_words
        here = tf.gather(starts, first, batch_dims=1)
        end = word_at(here + room)
        step = firsts.size()
        firsts = firsts.write(step, tf.where(is_done, tf.constant(NOWHERE, tf.int64), first))
        following = tf.maximum(first + 1, word_at(here + room // 2))
        return tf.minimum(following, num_words), end, firsts, ends.write(step, end)

    def arrays() -> tf.TensorArray:
        return tf.TensorArray(tf.int64, size=0, dynamic_size=True, element_shape=[None])

    nothing = tf.zeros_like(num_words)
    _, _, firsts, ends = tf.while_loop(
        # Once at least: an empty array could not be stacked.
        lambda _, end, firsts, __: (firsts.size() == 0) | tf.reduce_any(end < num_words),
        add_window,
        [nothing, nothing, arrays(), arrays()],
    )
    firsts, ends = tf.transpose(firsts.stack()), tf.transpose(ends.stack())  # [B, windows]
    before = lengths.row_splits[:-1, tf.newaxis]
    is_window = firsts != NOWHERE
    return WordWindows(
        tf.boolean_mask(firsts + before, is_window), tf.boolean_mask(ends + before, is_window)
    )


def choose_windows(windows: WordWindows, splits: tf.Tensor) -> tf.Tensor:
    """Returns the window that tags each word: the one that shows it with the most context.

    Args:
      windows: of R rows.
      splits: int64 [N + 1], tokens before each word.

    Returns:
      int64 [N], rows.
    """
    words = tf.ragged.range(windows.firsts, windows.ends)  # [R, (words)]
    rows = words.value_rowids()
    before = tf.gather(splits, words.values) - tf.gather(splits, tf.gather(windows.firsts, rows))
    behind = tf.gather(splits, tf.gather(windows.ends, rows)) - tf.gather(splits, words.values + 1)
    best = first_of_largest(tf.minimum(before, behind), words.values, tf.size(splits) - 1)
    return tf.gather(rows, best)
