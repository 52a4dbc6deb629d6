"""The forward pass of BERT in plain NumPy, float64, one sequence at a time, dropout off.

Weights come as a dict with google-research/bert's variable names.
"""

import math

import numpy as np


def layer_norm(x: np.ndarray, gamma: np.ndarray, beta: np.ndarray) -> np.ndarray:
    centred = x - x.mean(-1, keepdims=True)
    return gamma * centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-12) + beta


def softmax(x: np.ndarray) -> np.ndarray:
    exponentials = np.exp(x - x.max(-1, keepdims=True))
    return exponentials / exponentials.sum(-1, keepdims=True)


def gelu_tanh(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


class NumpyBert:
    """Reads scopes of the weights by name."""

    def __init__(self, weights: dict[str, np.ndarray], num_layers: int, num_heads: int) -> None:
        self.weights = {name: value.astype(np.float64) for name, value in weights.items()}
        self.num_layers, self.num_heads = num_layers, num_heads

    def dense(self, scope: str, x: np.ndarray) -> np.ndarray:
        return x @ self.weights[f"{scope}/kernel"] + self.weights[f"{scope}/bias"]

    def norm(self, scope: str, x: np.ndarray) -> np.ndarray:
        return layer_norm(x, self.weights[f"{scope}/gamma"], self.weights[f"{scope}/beta"])

    def attention(self, scope: str, x: np.ndarray, mask: np.ndarray) -> np.ndarray:
        query, key, value = (self.dense(f"{scope}/{name}", x) for name in ("query", "key", "value"))
        width = x.shape[-1] // self.num_heads
        heads = []
        for head in range(self.num_heads):
            cut = slice(head * width, (head + 1) * width)
            scores = query[:, cut] @ key[:, cut].T / math.sqrt(width)
            scores = np.where(mask[None, :] == 1, scores, scores - 10000.0)
            heads.append(softmax(scores) @ value[:, cut])
        return np.concatenate(heads, -1)

    def encode(self, ids: np.ndarray, mask: np.ndarray, types: np.ndarray) -> np.ndarray:
        table = self.weights
        x = table["bert/embeddings/word_embeddings"][ids]
        x = x + table["bert/embeddings/token_type_embeddings"][types]
        x = x + table["bert/embeddings/position_embeddings"][: len(ids)]
        x = self.norm("bert/embeddings/LayerNorm", x)
        for index in range(self.num_layers):
            scope = f"bert/encoder/layer_{index}"
            context = self.attention(f"{scope}/attention/self", x, mask)
            dense = self.dense(f"{scope}/attention/output/dense", context)
            x = self.norm(f"{scope}/attention/output/LayerNorm", x + dense)
            inner = gelu_tanh(self.dense(f"{scope}/intermediate/dense", x))
            outer = self.dense(f"{scope}/output/dense", inner)
            x = self.norm(f"{scope}/output/LayerNorm", x + outer)
        return x

    def pool(self, sequence: np.ndarray) -> np.ndarray:
        return np.tanh(self.dense("bert/pooler/dense", sequence[0]))

    def masked_lm(self, sequence: np.ndarray, positions: np.ndarray) -> np.ndarray:
        rows = gelu_tanh(self.dense("cls/predictions/transform/dense", sequence[positions]))
        rows = self.norm("cls/predictions/transform/LayerNorm", rows)
        scores = rows @ self.weights["bert/embeddings/word_embeddings"].T
        return scores + self.weights["cls/predictions/output_bias"]

    def next_sentence(self, pooled: np.ndarray) -> np.ndarray:
        weights = self.weights["cls/seq_relationship/output_weights"]
        return weights @ pooled + self.weights["cls/seq_relationship/output_bias"]
