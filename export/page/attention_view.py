"""What each head of each layer looks at: attention probabilities of one row, for people to see."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from bert_tf.network.encoder import BertEncoder
from bert_tf.serving.model import Serving
from bert_tf.text.kinds import token_texts

SPECIAL = ("[CLS]", "[SEP]", "<s>", "</s>")
MAX_PIECES = 60  # shown of a row: more cannot be read.


class AttentionView(NamedTuple):
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


def view_attention(served: Serving, texts: Sequence[str]) -> AttentionView:
    """Computes what the heads look at in a text or a pair of texts."""
    batch = served.pack(*(tf.constant([text]) for text in texts))
    ids = batch["input_word_ids"][0].numpy().tolist()
    encoder = find_encoder(served.model)
    attentions = encoder(batch, training=False, output_attentions=True)["attentions"]
    layers = [show_first(probabilities[0].numpy()) for probabilities in attentions]
    names = token_texts(served.vocab)
    pieces = [names[i] for i in ids[:MAX_PIECES]]
    return AttentionView(pieces, len(ids), np.stack(layers))


def find_encoder(model: Any) -> BertEncoder:
    """Returns the encoder of a model, which may be the model itself."""
    return model if isinstance(model, BertEncoder) else model.bert


def show_first(looks: np.ndarray) -> np.ndarray:
    """Cuts [N, T, T] to `MAX_PIECES` rows and columns; one more column sums up the others."""
    rows = looks[:, :MAX_PIECES]
    others = rows[..., MAX_PIECES:]
    if not others.size:
        return looks
    return np.append(rows[..., :MAX_PIECES], others.sum(axis=-1, keepdims=True), axis=-1)


def find_clear_head(view: AttentionView) -> tuple[int, int]:
    """Returns the layer and head, from 0, that says most at first sight.

    Many heads rest: they look at [CLS], [SEP] or at the piece itself. So only those count whose
    words (all pieces but [CLS] and [SEP]) look at other words with more than half of their
    attention, on average. Of these it is the one whose words decide most clearly, with the lowest
    mean entropy; if there is none, the one that looks at other words most.
    """
    is_word = np.array([piece not in SPECIAL for piece in view.pieces])
    if not is_word.any():
        return 0, 0
    looks = view.probabilities[:, :, is_word]  # [L, N, W, S]
    others = np.tile(np.append(is_word, True)[: looks.shape[-1]], [len(is_word), 1])  # [T, S]
    np.fill_diagonal(others, False)
    share = np.sum(looks * others[is_word], axis=-1).mean(-1)  # [L, N]
    entropy = -np.sum(looks * np.log(np.maximum(looks, 1e-12)), axis=-1).mean(-1)
    score = np.where(share > 0.5, -entropy, -np.inf) if share.max() > 0.5 else share
    layer, head = np.unravel_index(np.argmax(score), score.shape)
    return int(layer), int(head)
