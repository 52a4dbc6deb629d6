"""Serving functions of masked language models, and of the next-sentence head."""

import re
from typing import Any, NamedTuple

import tensorflow as tf

from bert_tf.pretraining.masked_words.score_serving import score_words
from bert_tf.system.type_names import Tensor
from bert_tf.tasks.base.serving.graph_tokens import replace_malformed
from bert_tf.tasks.base.serving.model import Batch, Outputs, Serving, Signatures, function_of_ids
from bert_tf.text.tensor_packing import cut, pack_rows
from bert_tf.text.vocab import MASK, WORDPIECE

# Names of signatures.
MASK_PREDICT = "mask_predict"
SCORE = "score"
# The characters that `str.rstrip` removes, at the end of a text.
WHITE_SPACE = r"[\s\v\x1c-\x1f\x{85}\pZ]+$"


class Masks(NamedTuple):
    """The positions of masks in rows, at most M in a row.

    Attributes:
      positions: int32 [B, M], ascending; undefined after a row's last mask.
      counts: int32 [B], number of masks of each row.
      is_real: bool [B, M], False after a row's last mask.
    """

    positions: tf.Tensor
    counts: tf.Tensor
    is_real: tf.Tensor


class FillMaskServing(Serving):
    """Serving functions of a `BertPretrainer`, which fills in the masks of texts with [MASK].

    Args:
      top_k: number K of tokens for each mask.
      rounds: rounds of mask-predict, which fills in all masks of a text together; it has a separate
        signature, see `predict_texts`.

    Outputs, padded to M, the largest number of masks in a text of the batch:
      pieces: string [B, M, K], the likeliest tokens, the best first and without special tokens; ""
        after the last mask.
      probabilities: float32 [B, M, K]; 0 after the last mask.
    """

    kind = "fill_mask"

    def __init__(self, *arguments: Any, top_k: int = 5, rounds: int = 10, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.top_k = min(top_k, len(self.vocab) - len(self.vocab.special_ids))
        self.rounds = rounds

    def card(self) -> dict[str, Any]:
        return {**super().card(), "mask": self.vocab.mask}

    def _find_masks(self, ids: tf.Tensor) -> Masks:
        is_mask = ids == self.vocab.mask_id  # [B, T]
        counts = tf.reduce_sum(tf.cast(is_mask, tf.int32), axis=1)
        most = tf.reduce_max(tf.concat([counts, [0]], axis=0))  # 0 in an empty batch
        # A stable sort brings the masks to the front.
        positions = tf.argsort(tf.cast(~is_mask, tf.int32), axis=1, stable=True)[:, :most]
        return Masks(positions, counts, tf.sequence_mask(counts, most))

    def call_scores(self, batch: Batch, positions: tf.Tensor) -> tf.Tensor:
        """Returns log-probabilities among tokens that are not special, at positions int32 [B, M].

        Returns:
          float32 [B, M, V], -inf at special tokens.
        """
        outputs = self.call_model({**batch, "masked_lm_positions": positions})
        specials = tf.one_hot(sorted(self.vocab.special_ids), len(self.vocab))  # [specials, V]
        banned = tf.reduce_any(specials > 0, axis=0)
        logits = tf.cast(outputs["masked_lm_logits"], tf.float32)
        return tf.nn.log_softmax(tf.where(banned, -float("inf"), logits))

    def from_ids(self, batch: Batch) -> Outputs:
        positions, _, is_real = self._find_masks(batch["input_word_ids"])
        is_real = is_real[:, :, tf.newaxis]
        scores = self.call_scores(batch, positions)
        top = tf.math.top_k(tf.exp(scores), self.top_k)  # [B, M, K]
        names = tf.gather(tf.constant(self.vocab.token_texts()), top.indices)
        return {
            "pieces": tf.where(is_real, names, ""),
            "probabilities": tf.where(is_real, top.values, 0.0),
        }

    def predict_ids(self, batch: Batch) -> Outputs:
        """Fills in all masks of rows by mask-predict: all, and then the least certain ones again.

        Returns:
          `input_word_ids` int32 [B, T], without masks; `log_probability` float32 [B], the sum
          of the tokens' log-probabilities, each from the last round that filled in the token.
          Special tokens are not filled in: the probabilities of the others add up to 1.

        Reference: Ghazvininejad et al. 2019, section 3; see
        `bert_tf.pretraining.masked_words.gap_filling.mask_predict`.
        """
        ids = batch["input_word_ids"]
        masks = self._find_masks(ids)

        def fill(done: Tensor, tokens: Tensor, values: Tensor, is_open: Tensor) -> tuple[Any, ...]:
            # All but `done` are [B, M].
            row = put(ids, masks, tf.where(is_open, self.vocab.mask_id, tokens))
            scores = self.call_scores({**batch, "input_word_ids": row}, masks.positions)
            best = tf.argmax(scores, axis=-1, output_type=tf.int32)
            tokens = tf.where(is_open, best, tokens)
            values = tf.where(is_open, tf.reduce_max(scores, axis=-1), values)
            # The next round masks the least certain tokens of each row again: those with the lowest
            # ranks. Entries after the last mask rank last.
            num_left = masks.counts * (self.rounds - done) // self.rounds  # [B]
            certainty = tf.where(masks.is_real, values, float("inf"))
            ranks = tf.argsort(tf.argsort(certainty, axis=1, stable=True), axis=1)
            return done + 1, tokens, values, ranks < num_left[:, tf.newaxis]

        zeros = tf.zeros_like(masks.positions)
        start = (tf.constant(1), zeros, tf.cast(zeros, tf.float32), masks.is_real)
        # The widths M are not known to the loop.
        shapes = (tf.TensorShape([]), *([tf.TensorShape([None, None])] * 3))
        _, tokens, values, _ = tf.while_loop(
            lambda done, _, __, is_open: (done <= self.rounds) & tf.reduce_any(is_open),
            fill,
            start,
            shapes,
        )
        return {
            "input_word_ids": put(ids, masks, tokens),
            "log_probability": tf.reduce_sum(values, axis=1),
        }

    def predict_texts(self, texts: tf.Tensor) -> Outputs:
        """Fills in all masks of texts, string [B], as `predict_ids` does.

        Returns:
          `text` string [B], whole texts, in which masks of the truncated part remain. `pieces`
          string [B, M], "" after the last mask. `log_probability` as in `predict_ids`.
        """
        batch = self.pack(texts)
        masks = self._find_masks(batch["input_word_ids"])
        filled = self.predict_ids(batch)
        ids = tf.gather(filled["input_word_ids"], masks.positions, batch_dims=1)  # [B, M]
        names = tf.gather(tf.constant(self.vocab.token_texts()), ids)
        return {
            "text": self._put_in(texts, names, masks.counts),
            "pieces": tf.where(masks.is_real, names, ""),
            "log_probability": filled["log_probability"],
        }

    def score_texts(self, texts: tf.Tensor) -> Outputs:
        """Returns the words of texts, string [B], with their scores; see `scores.score_words`.

        Here [MASK] is ordinary text.
        """
        room = self.max_seq_length - 2
        return score_words(self.tokenizer, self.vocab, room, self.call_scores, texts)

    def _put_in(self, texts: tf.Tensor, names: tf.Tensor, counts: tf.Tensor) -> tf.Tensor:
        """Replaces masks of texts by tokens, with spaces as in `gap_filling.joined`.

        `names` are the tokens, string [B, M]; `counts` the masks that were read, int32 [B]: the
        others were truncated.
        """
        is_wordpiece = self.vocab.kind == WORDPIECE
        mask = MASK if is_wordpiece else self.vocab.mask
        # The text before each mask, and after the last, [B, (masks + 1)].
        parts = tf.strings.split(self._with_named_masks(texts), mask)
        num_masks = tf.maximum(tf.cast(parts.row_lengths(), tf.int32) - 1, 0)
        most = tf.reduce_max(tf.concat([num_masks, [0]], axis=0))  # 0 in an empty batch
        columns = tf.range(most)[tf.newaxis]  # [1, most]
        names = tf.pad(names, [[0, 0], [0, most - tf.shape(names)[1]]], constant_values="")
        padded_parts = parts.to_tensor("", shape=tf.stack([tf.shape(texts)[0], most + 1]))
        text_before = padded_parts[:, :-1]  # [B, most]
        if is_wordpiece:
            # ##s continues the word before it.
            continues = tf.strings.regex_full_match(names, r"(?s)##.+")
            stripped = tf.strings.regex_replace(text_before, WHITE_SPACE, "")
            before = tf.where(continues, stripped, text_before)
            names = tf.where(continues, tf.strings.regex_replace(names, "^##", ""), names)
        else:
            # Tokens that begin a word include a space.
            has_space = tf.strings.regex_full_match(names, "(?s) .*")
            without_spaces = tf.strings.regex_replace(text_before, " +$", "")
            without_one_space = tf.strings.regex_replace(text_before, " $", "")
            before = tf.where(has_space, without_spaces, without_one_space)
        is_truncated = columns >= counts[:, tf.newaxis]
        before = tf.where(is_truncated, text_before, before)
        names = tf.where(is_truncated, mask, names)
        # Columns after the last mask of a text add nothing.
        names = tf.where(columns < num_masks[:, tf.newaxis], names, "")
        filled = tf.strings.reduce_join(tf.strings.join([before, names]), axis=1)
        # The text after the last mask; in texts with fewer masks it is a part before a column that
        # adds nothing, and the last part is "".
        return tf.strings.join([filled, padded_parts[:, -1]])

    def text_signatures(self) -> Signatures:
        @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "text")], autograph=False)
        def mask_predict(text: tf.Tensor) -> Outputs:
            return self.predict_texts(replace_malformed(text))

        @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "text")], autograph=False)
        def score(text: tf.Tensor) -> Outputs:
            return self.score_texts(replace_malformed(text))

        return {**super().text_signatures(), MASK_PREDICT: mask_predict, SCORE: score}

    def id_signatures(self) -> Signatures:
        return {**super().id_signatures(), MASK_PREDICT: function_of_ids(self.predict_ids)}

    def _with_named_masks(self, texts: tf.Tensor) -> tf.Tensor:
        """Replaces `[MASK]` by the vocabulary's name of the mask token.

        With WordPiece it is the opposite: the vocabulary's name, <mask> in MPNet, becomes `[MASK]`.
        """
        name = self.vocab.mask
        if self.vocab.kind != WORDPIECE:
            return tf.strings.regex_replace(texts, re.escape(MASK), name.replace("\\", r"\\"))
        if name == MASK:
            return texts
        return tf.strings.regex_replace(texts, re.escape(name), MASK)

    def pack(self, *texts: tf.Tensor) -> Batch:
        """Tokenizes the parts between the masks, and puts the mask tokens between them.

        Byte-level BPE reads the name of the mask token as this token, so that texts are not split.
        """
        if self.vocab.kind != WORDPIECE:
            return super().pack(self._with_named_masks(texts[0]))
        named = self._with_named_masks(texts[0])
        parts = tf.strings.split(named, MASK)  # [B, (parts)]
        tokens = self.tokenizer.tokenize(parts.values).merge_dims(1, 2)  # [all parts, (tokens)]
        # Put a mask before each part, and remove the one before a text's first part.
        mask = tf.fill([tokens.nrows(), 1], self.vocab.mask_id)
        masked = tf.concat([mask, tokens], axis=1)
        rows = tf.RaggedTensor.from_row_splits(masked, parts.row_splits).merge_dims(1, 2)[:, 1:]
        kept = tf.minimum(rows.row_lengths(), self.max_seq_length - 2)
        return pack_rows(self.vocab, cut(rows, kept))


def put(ids: tf.Tensor, masks: Masks, tokens: tf.Tensor) -> tf.Tensor:
    """Replaces the masks of rows int32 [B, T] by tokens, int32 [B, M]."""
    num_rows, length = tf.unstack(tf.shape(ids))
    # Entries after the last mask go to an extra column, which is removed again.
    columns = tf.where(masks.is_real, masks.positions, length)
    rows = tf.broadcast_to(tf.range(num_rows)[:, tf.newaxis], tf.shape(columns))
    widened = tf.pad(ids, [[0, 0], [0, 1]])
    filled = tf.tensor_scatter_nd_update(widened, tf.stack([rows, columns], axis=-1), tokens)
    return filled[:, :-1]


class NextSentenceServing(Serving):
    """Serving functions of a `BertPretrainer` with a next-sentence head.

    Outputs:
      is_next: float32 [B], the probability that the second text follows the first.
    """

    kind = "next_sentence"

    def from_ids(self, batch: Batch) -> Outputs:
        # The model needs positions of masked words: the first position of each row is passed.
        positions = tf.zeros([tf.shape(batch["input_mask"])[0], 1], tf.int32)
        outputs = self.call_model({**batch, "masked_lm_positions": positions})
        # Class 0 means that the second text follows.
        return {"is_next": tf.nn.softmax(outputs["next_sentence_logits"])[:, 0]}
