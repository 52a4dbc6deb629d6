"""Adds a tokenizer to a LiteRT file, with tensorflow-text's LiteRT kernels.

texts [B] -> FastBertTokenizer -> [CLS] tokens [SEP], int32 [B, T], T the longest of them

LiteRT has no kernels for `bert_tf.text.tokenizer`, nor for ragged tensors. tensorflow-text's
tokenizer gives other tokens for a few texts, which `bert_tf/text/tokenizer.py` describes.
"""

import dataclasses
from collections.abc import Callable

import tensorflow as tf
import tensorflow_text as tf_text

from bert_tf.tasks.base.serving.kind import SINGLE
from bert_tf.tasks.base.serving.model import IDS, Batch, Serving
from bert_tf.text.tokenization import AnyVocab
from bert_tf.text.vocab import CONTINUATION_PREFIX, UNK, WORDPIECE
from bert_tf.text.wordpiece_options import DEFAULT_OPTIONS

KINDS = ("classifier", "multi_label", "regression", "embeddings")


def check_text_input(serving: Serving, form: str) -> None:
    """Raises ValueError if a model cannot take texts inside a LiteRT file."""
    reasons = {
        f"{serving.kind} does not; only {', '.join(KINDS)} do": serving.kind not in KINDS,
        f"this model takes pairs ({', '.join(serving.texts)})": serving.texts != SINGLE,
        "this model keeps the ends of long texts (long_texts=tail)": serving.long_texts == "tail",
        "this model reads long texts in windows (long_texts=windows)": (
            serving.long_texts == "windows"
        ),
        "int8 has no form with texts, dynamic has": form == "int8",
        "only WordPiece has kernels there; give ids": serving.vocab.kind != WORDPIECE,
        "the rules of this tokenizer have no kernels there; give ids": has_other_rules(
            serving.vocab
        ),
    }
    for reason, applies in reasons.items():
        if applies:
            raise ValueError(f"--text_input is for single texts cut at their ends: {reason}.")


def has_other_rules(vocab: AnyVocab) -> bool:
    """Returns whether the vocabulary's options split ordinary texts differently from the kernels.

    Options for special tokens written in a text, and for very long words, are not compared: there
    the kernels' own rules apply.
    """
    options = dataclasses.replace(
        vocab.options,
        reads_special_tokens=DEFAULT_OPTIONS.reads_special_tokens,
        max_word_characters=DEFAULT_OPTIONS.max_word_characters,
    )
    return options != DEFAULT_OPTIONS


def make_packer(serving: Serving) -> Callable[[tf.Tensor], Batch]:
    """Returns a function that packs texts, with operations that LiteRT has kernels for."""
    tokenizer = tf_text.FastBertTokenizer(
        vocab=list(serving.vocab.tokens),
        suffix_indicator=CONTINUATION_PREFIX,
        unknown_token=UNK,
        token_out_type=tf.int32,
        lower_case_nfd_strip_accents=serving.do_lower_case,
    )
    cls = serving.vocab.cls_id
    sep = serving.vocab.sep_id
    limit = serving.max_seq_length - 2

    def pack(texts: tf.Tensor) -> Batch:
        tokens = tokenizer.tokenize(texts)  # [B, (tokens)]
        counts = tf.cast(tokens.row_splits[1:] - tokens.row_splits[:-1], tf.int32)
        counts = tf.minimum(counts, limit)[:, tf.newaxis]  # [B, 1]
        body = tokens.to_tensor(0, shape=[None, limit])  # [B, limit]
        positions = tf.range(limit + 2)[tf.newaxis]  # [1, limit + 2]
        # LiteRT has no ragged tensors: rows are built at full length and cut at the end.
        ids = tf.where(positions == 0, cls, tf.pad(body, [[0, 0], [1, 1]]))  # [B, limit + 2]
        ids = tf.where(positions == counts + 1, sep, ids)
        mask = tf.cast(positions <= counts + 1, tf.int32)
        # The 0 is for a batch without texts, which has no maximum.
        width = 2 + tf.reduce_max(tf.concat([counts[:, 0], [0]], 0))
        columns = (ids, mask, tf.zeros_like(ids))
        return {name: column[:, :width] for name, column in zip(IDS, columns, strict=True)}

    return pack
