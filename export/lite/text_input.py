"""Adds a tokenizer to a LiteRT file, with tensorflow-text's LiteRT kernels.

texts [B] -> FastBertTokenizer -> [CLS] pieces [SEP], int32 [B, T], T the longest of them

LiteRT has no kernels for `bert_tf.text.tokenizer`, nor for ragged rows. tensorflow-text's own
tokenizer makes other pieces of few texts: `bert_tf/text/tokenizer.py` says which.
"""

from collections.abc import Callable

import tensorflow as tf
import tensorflow_text as tf_text

from bert_tf.serving.kind import SINGLE
from bert_tf.serving.model import IDS, Batch, Serving
from bert_tf.text.vocab import CONTINUATION_PREFIX, UNK, Vocab

KINDS = ("classifier", "multi_label", "regression", "embeddings")


def check_text_input(served: Serving, form: str) -> None:
    """Raises ValueError if a model cannot take texts inside a LiteRT file."""
    reasons = {
        f"{served.kind} does not; only {', '.join(KINDS)} do": served.kind not in KINDS,
        "this model takes pairs": served.texts != SINGLE,
        "this model keeps the ends of long texts": served.long_texts == "tail",
        "this model reads long texts in windows": served.long_texts == "windows",
        "int8 has no form with texts, dynamic has": form == "int8",
        "byte-level BPE has no kernels there; give ids": not isinstance(served.vocab, Vocab),
    }
    for reason, is_so in reasons.items():
        if is_so:
            raise ValueError(f"--text_input is for single texts cut at their ends: {reason}.")


def make_packer(served: Serving) -> Callable[[tf.Tensor], Batch]:
    """Returns the function that makes rows of texts, of operations that LiteRT has kernels for."""
    tokenizer = tf_text.FastBertTokenizer(
        vocab=list(served.vocab.tokens),
        suffix_indicator=CONTINUATION_PREFIX,
        unknown_token=UNK,
        token_out_type=tf.int32,
        lower_case_nfd_strip_accents=served.do_lower_case,
    )
    cls, sep, room = served.vocab.cls_id, served.vocab.sep_id, served.max_seq_length - 2

    def pack(texts: tf.Tensor) -> Batch:
        pieces = tokenizer.tokenize(texts)
        counts = tf.cast(pieces.row_splits[1:] - pieces.row_splits[:-1], tf.int32)
        counts = tf.minimum(counts, room)[:, tf.newaxis]  # [B, 1]
        body = pieces.to_tensor(0, shape=[None, room])
        places = tf.range(room + 2)[tf.newaxis]  # [1, T]
        ids = tf.where(places == 0, cls, tf.pad(body, [[0, 0], [1, 1]]))
        ids = tf.where(places == counts + 1, sep, ids)
        mask = tf.cast(places <= counts + 1, tf.int32)
        width = 2 + tf.reduce_max(tf.concat([counts[:, 0], [0]], 0))
        columns = (ids, mask, tf.zeros_like(ids))
        return {name: column[:, :width] for name, column in zip(IDS, columns, strict=True)}

    return pack
