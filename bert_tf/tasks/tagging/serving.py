"""Serving functions of taggers: tags, probabilities and offsets of words, computed in the graph.

The words, windows and choices must be the same as in Python: `text.words.word_offsets`,
`features.make_tag_rows`.
"""

from typing import Any, NamedTuple

import tensorflow as tf

from bert_tf.system.type_names import Tensor
from bert_tf.tasks.base.serving.graph_tokens import Characters, first_of_largest, replace_malformed
from bert_tf.tasks.base.serving.model import Batch, Outputs, Serving, Signatures
from bert_tf.text.byte_level import SPACES
from bert_tf.text.tensor_packing import cut, pack_rows
from bert_tf.text.tokenizer import BertTokenizer
from bert_tf.text.vocab import SPECIAL_TOKENS, Vocab

NOWHERE = -1
# White space and combining marks: marks belong to the character before them, and alone they are not
# a word.
NO_WORD = rf"[{SPACES}\p{{Mn}}]*"


class TaggingServing(Serving):
    """Serving functions of a `BertTokenClassifier`.

    The tokenizer splits texts into words at white space and punctuation; given words are used
    unchanged. The tag of a word is the tag of its first token, as in training. Texts of any length
    are tagged, in overlapping windows.

    Outputs of texts, padded to W, the largest number of words of a text in the batch:
      words, tags: string [B, W]; "" after the last word.
      starts, ends: int32 [B, W], offsets in characters: text[start:end] is the word; -1 after the
        last word.
      scores: float32 [B, W], probability of the tag; 0 after the last word.

    Outputs of words, string [B, W] with "" after the last word: `tags` and `scores`, [B, W].

    Outputs of ids: `tags` string and `scores` float32, [B, T].
    """

    kind = "tagger"

    def from_ids(self, batch: Batch) -> Outputs:
        return self._best_tags(self.call_model(batch))

    def from_texts(self, *texts: tf.Tensor) -> Outputs:
        """Tags the words of texts, which are those of `bert_tf.text.words.word_offsets`.

        Words are tokenized separately, as in the split sentences of the training. With byte-level
        BPE every word has a space before it, also "." after another word; with cased WordPiece,
        marks after punctuation are tokens.
        """
        splitter = self.tokenizer
        if not self.vocab.separates_punctuation:
            # SentencePiece does not separate punctuation. A vocabulary of special tokens makes each
            # word one [UNK], whose offsets are those of the word.
            splitter = BertTokenizer(Vocab(SPECIAL_TOKENS), do_lower_case=False)
        # Offsets in bytes, [B, (words), (tokens)].
        _, first_bytes, end_bytes = splitter.tokenize_with_offsets(texts[0])
        text_splits = first_bytes.row_splits  # [B + 1], words before each text
        word_splits = first_bytes.values.row_splits  # [words + 1], tokens before each word
        # A word begins with its first token, and ends with its last.
        first_of_word = tf.gather(first_bytes.flat_values, word_splits[:-1])  # [words]
        end_of_word = tf.gather(end_bytes.flat_values, word_splits[1:] - 1)
        characters = Characters(texts[0])
        starts = characters.before(tf.RaggedTensor.from_row_splits(first_of_word, text_splits))
        ends = characters.before(tf.RaggedTensor.from_row_splits(end_of_word, text_splits))
        # Leave out "words" of combining marks only; both [B, (W)].
        is_word = ~tf.strings.regex_full_match(characters.texts(starts, ends).values, NO_WORD)
        starts = tf.ragged.boolean_mask(starts, starts.with_values(is_word))
        ends = tf.ragged.boolean_mask(ends, ends.with_values(is_word))
        ends = characters.after_marks(ends)
        words = characters.texts(starts, ends)
        tags = self.tag_words(self._word_tokens(words.values), words.row_splits)
        return _outputs(words, tags, starts, ends)

    def _word_tokens(self, words: tf.Tensor) -> tf.RaggedTensor:
        """Returns the token ids of words, [N, (tokens)], as `Tokenizer.encode_word` does.

        An empty word, or one of control characters only, is the unknown token.
        """
        if self.vocab.marks_spaces:
            # Byte-level BPE and SentencePiece: inside a sentence, a space precedes every word.
            has_space = tf.strings.regex_full_match(words, "(?s) .*")
            words = tf.where(has_space, words, tf.strings.join([" ", words]))
        tokens = self.tokenizer.tokenize(words).merge_dims(1, 2)  # [N, (tokens)]
        # A column that is empty, except that words without tokens get [UNK].
        is_empty = tf.cast(tokens.row_lengths() == 0, tf.int64)  # [N]
        unknown = tf.fill([tf.reduce_sum(is_empty)], self.vocab.unk_id)
        return tf.concat([tokens, tf.RaggedTensor.from_row_lengths(unknown, is_empty)], axis=1)

    def from_words(self, words: tf.Tensor) -> Outputs:
        """Tags given words, string [B, W] with "" after the last word of a row."""
        # The last word is the last that is not "": a "" between words is a word without tokens.
        positions = tf.range(1, 1 + tf.shape(words)[1])
        counts = tf.reduce_max(tf.where(words != "", positions, 0), axis=1)  # [B]
        # If W is 0, `reduce_max` returns the lowest integer.
        given = tf.RaggedTensor.from_tensor(words, lengths=tf.maximum(counts, 0))
        tokens = self._word_tokens(given.values)
        tags = self.tag_words(tokens, given.row_splits)
        shape = tf.shape(words, tf.int64)
        return {
            "tags": given.with_values(tags["tags"]).to_tensor("", shape=shape),
            "scores": given.with_values(tags["scores"]).to_tensor(0.0, shape=shape),
        }

    def tag_words(self, tokens: tf.RaggedTensor, row_splits: tf.Tensor) -> Outputs:
        """Tags the words of all texts.

        Args:
          tokens: int32 ragged [N, (tokens)], the tokens of all N words, at least one for each.
          row_splits: int64 [B + 1], index of the first word of each text, and N.

        Returns:
          `tags` string and `scores` float32, [N].
        """
        room = self.max_seq_length - 2  # [CLS] and [SEP]
        tokens = cut(tokens, tf.minimum(tokens.row_lengths(), room))
        lengths = tf.RaggedTensor.from_row_splits(tokens.row_lengths(), row_splits)  # [B, (W)]
        windows = make_windows(lengths, room)
        splits = tokens.row_splits  # [N + 1], tokens before each word
        starts = tf.gather(splits, windows.firsts)  # [R], tokens before each window
        indices = tf.ragged.range(starts, tf.gather(splits, windows.ends))  # [R, (tokens)]
        batch = pack_rows(self.vocab, tf.gather(tokens.values, indices))
        answers = self._best_tags(self.call_in_parts(batch, tf.float32))  # [R, T]
        # Each word takes its tag from one window, at the position of its first token there.
        rows = choose_windows(windows, splits)  # [N]
        positions = splits[:-1] - tf.gather(starts, rows) + self.vocab.text_start
        chosen = tf.stack([rows, positions], axis=1)  # [N, 2]
        return {name: tf.gather_nd(column, chosen) for name, column in answers.items()}

    def _best_tags(self, logits: tf.Tensor) -> Outputs:
        tags = tf.gather(tf.constant(self.labels), tf.argmax(logits, axis=-1))
        return {"tags": tags, "scores": tf.reduce_max(tf.nn.softmax(logits), axis=-1)}

    def text_signatures(self) -> Signatures:
        @tf.function(
            input_signature=[tf.TensorSpec([None, None], tf.string, "words")], autograph=False
        )
        def words(words: tf.Tensor) -> Outputs:
            return self.from_words(replace_malformed(words))

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
    """R windows of whole words. Words are counted over all texts, and a window is within a text."""

    firsts: tf.Tensor  # int64 [R], first word of each window
    ends: tf.Tensor  # int64 [R], one after the last word


def make_windows(lengths: tf.RaggedTensor, room: int) -> WordWindows:
    """Cuts texts into windows of as many words as fit, as `features.make_tag_rows` does.

    Args:
      lengths: int64 ragged [B, (W)], number of tokens of each word, at most `room`.
      room: maximum number of tokens of a window.
    """
    # Tokens before each word, [B, W + 1]. The padding of shorter texts repeats their length.
    starts = tf.pad(tf.cumsum(lengths.to_tensor(), axis=1), [[0, 0], [1, 0]])
    num_words = lengths.row_lengths()  # [B]

    def word_at(offsets: tf.Tensor) -> tf.Tensor:
        """Returns the last word of each text that begins at an offset in tokens or before, [B]."""
        words = tf.searchsorted(starts, offsets[:, tf.newaxis], "right", tf.int64)[:, 0] - 1
        return tf.minimum(words, num_words)

    # Each step adds one window of every text; texts that are finished get NOWHERE.
    def add_window(first: Tensor, end: Tensor, firsts: Tensor, ends: Tensor) -> tuple[Any, ...]:
        is_done = end >= num_words
        tokens_before = tf.gather(starts, first, batch_dims=1)  # [B]
        end = word_at(tokens_before + room)
        step = firsts.size()
        firsts = firsts.write(step, tf.where(is_done, tf.constant(NOWHERE, tf.int64), first))
        ends = ends.write(step, end)
        # Half a window later, but at least one word.
        following = tf.maximum(first + 1, word_at(tokens_before + room // 2))
        return tf.minimum(following, num_words), end, firsts, ends

    def new_array() -> tf.TensorArray:
        return tf.TensorArray(tf.int64, size=0, dynamic_size=True, element_shape=[None])

    zeros = tf.zeros_like(num_words)
    _, _, first_array, end_array = tf.while_loop(
        # At least one step: an empty array cannot be stacked.
        lambda _, end, firsts, __: (firsts.size() == 0) | tf.reduce_any(end < num_words),
        add_window,
        [zeros, zeros, new_array(), new_array()],
    )
    firsts = tf.transpose(first_array.stack())  # [windows, B] -> [B, windows]
    ends = tf.transpose(end_array.stack())
    # From words of each text to words of all texts, in the order of the texts.
    words_before = lengths.row_splits[:-1, tf.newaxis]  # [B, 1]
    is_window = firsts != NOWHERE
    return WordWindows(
        tf.boolean_mask(firsts + words_before, is_window),
        tf.boolean_mask(ends + words_before, is_window),
    )


def choose_windows(windows: WordWindows, splits: tf.Tensor) -> tf.Tensor:
    """Returns the window, int64 [N], that tags each word: the one with the most context.

    Args:
      windows: R windows, which cover all N words.
      splits: int64 [N + 1], tokens before each word.
    """
    words = tf.ragged.range(windows.firsts, windows.ends)  # [R, (words)]
    rows = words.value_rowids()  # window of each word; words in several windows are repeated
    # Tokens of the window before and after the word; the shorter side counts.
    before = tf.gather(splits, words.values) - tf.gather(splits, tf.gather(windows.firsts, rows))
    after = tf.gather(splits, tf.gather(windows.ends, rows)) - tf.gather(splits, words.values + 1)
    best = first_of_largest(tf.minimum(before, after), words.values, tf.size(splits) - 1)
    return tf.gather(rows, best)
