"""What each head of each layer looks at: attention probabilities of one row, for people to see.

texts -> row of ids [1, T] -> encoder_outputs, L + 1 of [1, T, D]
  layer i: query, key = its own projections of encoder_outputs[i] -> softmax [N, T, T]
"""

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf
from keras import ops

from bert_tf.modeling.attention import SelfAttention, attention_bias, dot_product_attention
from bert_tf.modeling.encoder import BertEncoder
from export.served.model import Batch, Served

MAX_PIECES = 60  # shown of a row: more cannot be read.


@dataclasses.dataclass(frozen=True)
class AttentionView:
    """The attention of one row.

    Attributes:
      pieces: the T pieces that are shown, the row's first.
      num_pieces: pieces of the row.
      probabilities: float32 [L, N, T, S]; each row of S sums to 1. S is T, or T + 1 if the row has
        more pieces: the last column is then what the others get together.
    """

    pieces: list[str]
    num_pieces: int
    probabilities: np.ndarray


def view_attention(
    served: Served, texts: dict[str, str], max_pieces: int = MAX_PIECES
) -> AttentionView:
    """Computes what the heads look at in a text or a pair of texts.

    Args:
      served: the model.
      texts: one for each of `served.texts`, by name.
      max_pieces: most pieces that are shown.

    Raises:
      InvalidArgumentError: if a text is not UTF-8.
    """
    batch = served.pack(*(tf.constant([texts[name]]) for name in served.texts))
    ids = batch["input_word_ids"][0].numpy().tolist()
    layers = [
        show_first(layer[0], max_pieces)
        for layer in attention_probabilities(find_encoder(served.model), batch)
    ]
    pieces = [served.vocab.tokens[i] for i in ids[:max_pieces]]
    return AttentionView(pieces, len(ids), np.stack(layers))


def find_encoder(model: Any) -> BertEncoder:
    """Returns the encoder of a model, which may be the model itself."""
    return model if isinstance(model, BertEncoder) else model.bert


def attention_probabilities(encoder: BertEncoder, batch: Batch) -> Iterator[np.ndarray]:
    """Yields the attention probabilities of each layer without dropout, float32 [B, N, T, T].

    The rows of padding mean nothing.

    Args:
      encoder: computes the hidden states.
      batch: its inputs, int32 [B, T].
    """
    bias = attention_bias(batch["input_mask"])
    states = encoder(batch, training=False)["encoder_outputs"]  # L + 1 of [B, T, D]
    for layer, inputs in zip(encoder.encoder_layers, states[:-1], strict=True):
        yield self_attention(layer.self_attention, inputs, bias)


def self_attention(layer: SelfAttention, inputs: Any, bias: Any) -> np.ndarray:
    """Returns the probabilities of one layer.

    Args:
      layer: has the projections.
      inputs: float [B, T, D].
      bias: float32 [B, 1, 1, T].

    Returns:
      float32 [B, N, T, T].
    """
    batch_size, length, size = inputs.shape
    heads = (batch_size, length, layer.num_heads, size // layer.num_heads)
    query, key = (ops.reshape(part(inputs), heads) for part in (layer.query, layer.key))
    kept = []

    def keep(probs: Any) -> Any:
        """Stands where dropout stands, and so sees what the softmax gave."""
        kept.append(ops.convert_to_numpy(probs))
        return probs

    dot_product_attention(query, key, key, bias, keep)
    return kept[0]


def show_first(probabilities: np.ndarray, max_pieces: int) -> np.ndarray:
    """Cuts rows and columns to those shown; one more column keeps the sum of the others.

    Args:
      probabilities: float [N, T, T].
      max_pieces: M.

    Returns:
      float [N, T, T], or [N, M, M + 1] if T is above M.
    """
    if probabilities.shape[-1] <= max_pieces:
        return probabilities
    rows = probabilities[:, :max_pieces]
    others = rows[..., max_pieces:].sum(axis=-1, keepdims=True)
    return np.concatenate([rows[..., :max_pieces], others], axis=-1)


def find_clear_head(pieces: list[str], probabilities: np.ndarray) -> tuple[int, int]:
    """Returns the layer and head, from 0, that says most at first sight.

    Many heads rest: they look at [CLS], [SEP] or at the piece itself. So only those count whose
    words (all pieces but [CLS] and [SEP]) look at other words with more than half of their
    attention, on average. Of these it is the one whose words decide most clearly, with the lowest
    mean entropy; if there is none, the one that looks at other words most.

    Args:
      pieces: T of them, as of `AttentionView`.
      probabilities: float [L, N, T, S], as of `AttentionView`.
    """
    is_word = np.array([piece not in ("[CLS]", "[SEP]") for piece in pieces])
    if not is_word.any():
        return 0, 0
    looks = probabilities[:, :, is_word]  # [L, N, W, S]
    others = np.tile(np.append(is_word, True)[: looks.shape[-1]], [len(pieces), 1])  # [T, S]
    np.fill_diagonal(others, False)
    share = np.sum(looks * others[is_word], axis=-1).mean(-1)  # [L, N]
    entropy = -np.sum(looks * np.log(np.maximum(looks, 1e-12)), axis=-1).mean(-1)
    score = np.where(share > 0.5, -entropy, -np.inf) if share.max() > 0.5 else share
    layer, head = np.unravel_index(np.argmax(score), score.shape)
    return int(layer), int(head)
