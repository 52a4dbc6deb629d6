"""Fills in masked words with the MLM head of a model."""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from bert_tf.system.type_names import Model
from bert_tf.text.kinds import encode_with_masks
from bert_tf.text.packing import add_special_tokens
from bert_tf.text.tokenization import Tokenizer


class Candidate(NamedTuple):
    """A token and its probability."""

    piece: str
    probability: float


def fill_mask(
    model: Model, tokenizer: Tokenizer, text: str, top_k: int = 5
) -> list[list[Candidate]]:
    """Returns the likeliest tokens for each [MASK] of the text, best first; no special tokens.

    Args:
      model: `BertPretrainer`, with the MLM head.
      tokenizer: the tokenizer that the model was trained with.
      text: contains `[MASK]` at least once; with byte-level BPE its own mask token also works.
      top_k: number of tokens per mask.

    Raises:
      ValueError: if the text has no [MASK] or is longer than the model's positions.
    """
    vocab = tokenizer.vocab
    ids, type_ids = add_special_tokens(vocab, encode_with_masks(tokenizer, text))
    positions = [index for index, token in enumerate(ids) if token == vocab.mask_id]
    longest = model.config.longest_row
    if not positions:
        raise ValueError(f"No [MASK] in {text!r}; write [MASK] where a word should be filled in.")
    if len(ids) > longest:
        raise ValueError(
            f"The text has {len(ids)} tokens, more than the model's {longest} positions; "
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
    # Before the softmax, so that the probabilities of the words add up to 1.
    logits[:, specials] = -np.inf
    names = vocab.token_texts()
    top = tf.math.top_k(tf.nn.softmax(logits), k=min(top_k, len(vocab) - len(specials)))
    answers = []
    for token_ids, probabilities in zip(top.indices.numpy(), top.values.numpy(), strict=True):
        pairs = zip(token_ids, probabilities, strict=True)
        answers.append([Candidate(names[index], float(value)) for index, value in pairs])
    return answers
