"""Fills in masked words with the MLM head of a model."""

from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from bert_tf.text.kinds import encode_with_masks, token_texts
from bert_tf.text.packing import add_special_tokens
from bert_tf.text.tokenization import Tokenizer


class Candidate(NamedTuple):
    """A piece and its probability."""

    piece: str
    probability: float


def fill_mask(model: Any, tokenizer: Tokenizer, text: str, top_k: int = 5) -> list[list[Candidate]]:
    """Returns the likeliest pieces for each [MASK] of the text, best first; no special tokens.

    Args:
      model: `BertPretrainer`, with the MLM head.
      tokenizer: the tokenizer that the model was trained with.
      text: contains `[MASK]` at least once; with byte-level BPE its own mask token works, too.
      top_k: pieces per mask.

    Raises:
      ValueError: if the text has no [MASK] or is longer than the model's positions.
    """
    vocab = tokenizer.vocab
    ids, type_ids = add_special_tokens(vocab, encode_with_masks(tokenizer, text))
    positions = [index for index, piece in enumerate(ids) if piece == vocab.mask_id]
    longest = model.config.longest_row
    if not positions:
        raise ValueError(f"No [MASK] in {text!r}; write [MASK] where a word should be filled in.")
    if len(ids) > longest:
        raise ValueError(
            f"The text has {len(ids)} pieces, more than the model's {longest} positions; "
            f"shorten it."
        )
    batch = {
        "input_word_ids": np.array([ids], np.int32),
        "input_mask": np.ones([1, len(ids)], np.int32),
        "input_type_ids": np.array([type_ids], np.int32),
        "masked_lm_positions": np.array([positions], np.int32),
    }
    logits = np.array(model(batch, training=False)["masked_lm_logits"][0], np.float32)  # [P, V]
    specials = sorted(vocab.special_ids)
    logits[:, specials] = -np.inf
    names = token_texts(vocab)
    top = tf.math.top_k(tf.nn.softmax(logits), k=min(top_k, len(vocab) - len(specials)))
    return [
        [Candidate(names[i], float(p)) for i, p in zip(row_ids, row_values, strict=True)]
        for row_ids, row_values in zip(top.indices.numpy(), top.values.numpy(), strict=True)
    ]
