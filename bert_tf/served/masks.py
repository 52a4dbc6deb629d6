"""What fills masks."""

import re
from typing import Any

import tensorflow as tf

from bert_tf.served.model import Batch, Outputs, Served
from bert_tf.served.text_pieces import check_utf8
from bert_tf.text.kinds import piece_texts
from bert_tf.text.tensor_packing import cut, pack_rows
from bert_tf.text.vocab import MASK, Vocab


class ServedMaskFiller(Served):
    """A `BertPretrainer` that fills in [MASK], which stands in the text as it is written here.

    Args:
      arguments: of `Served`.
      top_k: K, pieces a mask.

    Outputs, padded to the most masks M of a text in the batch:
      pieces: string [B, M, K], the likeliest first; "" behind the last mask.
      probabilities: float32 [B, M, K]; 0 behind the last mask.
    """

    kind = "fill_mask"

    def __init__(self, *arguments: Any, top_k: int = 5, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.top_k = min(top_k, len(self.vocab))

    def from_ids(self, batch: Batch) -> Outputs:
        is_mask = batch["input_word_ids"] == self.vocab.mask_id  # [B, T]
        counts = tf.reduce_sum(tf.cast(is_mask, tf.int32), axis=1)
        most = tf.reduce_max(tf.concat([counts, [0]], axis=0))  # 0 in an empty batch
        # A stable sort brings the masks to the front.
        places = tf.argsort(tf.cast(~is_mask, tf.int32), axis=1, stable=True)[:, :most]  # [B, M]
        is_real = tf.sequence_mask(counts, most)[:, :, tf.newaxis]  # [B, M, 1]
        logits = self.call_model({**batch, "masked_lm_positions": places})["masked_lm_logits"]
        top = tf.math.top_k(tf.nn.softmax(logits), self.top_k)  # [B, M, K]
        names = tf.gather(tf.constant(piece_texts(self.vocab)), top.indices)
        return {
            "pieces": tf.where(is_real, names, ""),
            "probabilities": tf.where(is_real, top.values, 0.0),
        }

    def pack(self, *texts: tf.Tensor) -> Batch:
        """Tokenizes what stands around the masks, and puts the masks between.

        Byte-level BPE does so itself with its own name of the mask.
        """
        if not isinstance(self.vocab, Vocab):
            own = self.vocab.tokens[self.vocab.mask_id].replace("\\", r"\\")
            return super().pack(tf.strings.regex_replace(texts[0], re.escape(MASK), own))
        parts = tf.strings.split(check_utf8(texts[0]), MASK)  # [B, (parts)]
        pieces = self.tokenizer.tokenize(parts.values).merge_dims(1, 2)
        # A mask before each part; the one before a text's first part is taken away again.
        mask = tf.fill([pieces.nrows(), 1], self.vocab.mask_id)
        masked = tf.concat([mask, pieces], axis=1)
        rows = tf.RaggedTensor.from_row_splits(masked, parts.row_splits).merge_dims(1, 2)[:, 1:]
        kept = tf.minimum(rows.row_lengths(), self.max_seq_length - 2)
        return pack_rows(self.vocab, cut(rows, kept))
