"""The attention probabilities of every head for one example, for display."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from bert_tf.network.encoder import BertEncoder
from bert_tf.system.type_names import Model
from bert_tf.tasks.base.serving.model import Serving

SPECIAL = ("[CLS]", "[SEP]", "<s>", "</s>")
MAX_TOKENS = 60  # Tokens to show; more would be unreadable.


class AttentionView(NamedTuple):
    """The attention of one example.

    Attributes:
      pieces: the first T tokens, which are shown.
      num_pieces: number of tokens in the example.
      probabilities: float32 [L, N, T, S]; each row of S sums to 1. S is T, or T + 1 if the example
        has more tokens: the last column is then the sum over the tokens that are not shown.
    """

    pieces: list[str]
    num_pieces: int
    probabilities: np.ndarray


def view_attention(serving: Serving, texts: Sequence[str]) -> AttentionView:
    """Computes the attention of all heads for a text or a pair of texts."""
    batch = serving.pack(*(tf.constant([text]) for text in texts))
    ids = batch["input_word_ids"][0].numpy().tolist()
    encoder = find_encoder(serving.model)
    attentions = encoder(batch, training=False, output_attentions=True)["attentions"]
    layers = [show_first(probabilities[0].numpy()) for probabilities in attentions]
    names = serving.vocab.token_texts()
    pieces = [names[i] for i in ids[:MAX_TOKENS]]
    return AttentionView(pieces, len(ids), np.stack(layers))


def find_encoder(model: Model) -> BertEncoder:
    """Returns the encoder of a model, which may be the model itself."""
    return model if isinstance(model, BertEncoder) else model.bert


def show_first(attention: np.ndarray) -> np.ndarray:
    """Cuts [N, T, T] to `MAX_TOKENS` rows and columns, and adds a column for the other tokens."""
    rows = attention[:, :MAX_TOKENS]  # [N, MAX_TOKENS, T]
    others = rows[..., MAX_TOKENS:]
    if not others.size:
        return attention
    return np.append(rows[..., :MAX_TOKENS], others.sum(axis=-1, keepdims=True), axis=-1)


def find_clear_head(view: AttentionView) -> tuple[int, int]:
    """Returns the layer and head, counted from 0, to show first.

    Many heads mostly attend to [CLS], [SEP] or the token itself. The candidates are therefore heads
    in which words (all tokens but [CLS] and [SEP]) give more than half of their attention to other
    words, on average. The candidate with the lowest mean entropy is returned, or without candidates
    the head with most attention to other words.
    """
    is_word = np.array([piece not in SPECIAL for piece in view.pieces])
    if not is_word.any():
        return 0, 0
    attention = view.probabilities[:, :, is_word]  # [L, N, W, S]
    # The column of the tokens that are not shown, if any, counts as a word.
    is_other_word = np.append(is_word, True)[: attention.shape[-1]]  # [S]
    others = np.tile(is_other_word, [len(is_word), 1])  # [T, S]
    # Attention to the token itself does not count.
    np.fill_diagonal(others, False)
    share = np.sum(attention * others[is_word], axis=-1).mean(-1)  # [L, N]
    entropy = -np.sum(attention * np.log(np.maximum(attention, 1e-12)), axis=-1).mean(-1)  # [L, N]
    score = share
    if share.max() > 0.5:
        score = np.where(share > 0.5, -entropy, -np.inf)
    layer, head = np.unravel_index(np.argmax(score), score.shape)
    return int(layer), int(head)
